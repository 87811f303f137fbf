package chat

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that this package wraps.
var (
	// ErrTemplate reports a name of no template.
	ErrTemplate = errors.New("chat: unknown template")
	// ErrMessage reports a message that the template has no place for.
	ErrMessage = errors.New("chat: invalid message")
)

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one turn of a conversation. Its Content goes into the prompt as it is,
// but for white space at its ends, which some templates and vocabularies cut off.
type Message struct {
	Role    string // System, User or Assistant
	Content string
}

// Segment is a piece of a prompt.
type Segment struct {
	Text string
	// Special says that Text is one marker of the template, which is a special token
	// if the vocabulary has one of that spelling. Special tokens are not to be
	// recognised in other segments.
	Special bool
}

// Format returns the prompt for msgs by the template called name. addAssistant ends
// it with what opens the assistant's answer, in templates that have such a thing.
// The prompt does not begin with the model's beginning-of-sequence token.
//
// It fails with ErrTemplate for an unknown name and with ErrMessage for a role that
// is none of the three, or a message that the template has no place for. See the
// package comment for what untrusted content can do to the result.
func Format(name string, msgs []Message, addAssistant bool) (string, error) {
	segments, err := Segments(name, msgs, addAssistant)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, s := range segments {
		b.WriteString(s.Text)
	}
	return b.String(), nil
}

// Segments is [Format] in pieces. No two neighbours are both text.
func Segments(name string, msgs []Message, addAssistant bool) ([]Segment, error) {
	t, ok := templates[name]
	if !ok {
		return nil, fmt.Errorf("%w: %q, want one of %s", ErrTemplate, name, strings.Join(Names(), ", "))
	}
	for i, m := range msgs {
		if m.Role != System && m.Role != User && m.Role != Assistant {
			return nil, fmt.Errorf("%w: message %d has the role %q, want %s, %s or %s", ErrMessage, i, m.Role, System, User, Assistant)
		}
	}
	var b builder
	if err := t(&b, msgs, addAssistant); err != nil {
		return nil, err
	}
	return b.segments, nil
}

// builder collects segments.
type builder struct {
	segments []Segment
}

// mark adds a marker.
func (b *builder) mark(s string) *builder {
	b.segments = append(b.segments, Segment{Text: s, Special: true})
	return b
}

// text adds text, to the last segment if that is text too.
func (b *builder) text(s string) *builder {
	if s == "" {
		return b
	}
	if n := len(b.segments); n > 0 && !b.segments[n-1].Special {
		b.segments[n-1].Text += s
	} else {
		b.segments = append(b.segments, Segment{Text: s})
	}
	return b
}

// trim cuts off what C's isspace calls space, as llama.cpp does.
func trim(s string) string { return strings.Trim(s, " \t\n\v\f\r") }
