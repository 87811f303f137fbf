package chat

import (
	"errors"
	"fmt"
	"slices"
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

// Template is a way to lay out conversations: the framing of turns, and what happens
// to their contents. [Named] returns one of those known by name and [Recognise] the one
// of a model file; the fields may be changed before use. The zero value is no template.
type Template struct {
	// Name is that of the framing, one of [Names].
	Name string
	// System is the system message of a conversation that begins without one.
	System string
	// Preface is put in front of the system message that begins a conversation. If it is
	// not empty, a conversation without a system message has one of the Preface alone.
	Preface string
	// SystemTurn says that a conversation has a turn of the system, which is empty where
	// there is nothing to say.
	SystemTurn bool
	// SystemLast moves the system message that begins a conversation in front of its
	// last message. If that is not a user's, the system message is left out.
	SystemLast bool
	// Trim says whose contents lose the white space at their ends.
	Trim Roles
	// Thoughts says what happens to the thoughts of answers.
	Thoughts Thoughts
	// Opening is the text that follows the opening of the assistant's answer.
	Opening string

	frame framing
	// joined says that the first user message is trimmed together with the system
	// message in front of it, which ends in white space.
	joined bool
	// cut trims the answer that is left when its thoughts are cut off; nil trims
	// newlines in front.
	cut func(string) string
}

// Roles is a set of roles.
type Roles uint8

// The roles of messages as sets; a set is a union of these.
const (
	SystemRole Roles = 1 << iota
	UserRole
	AssistantRole

	AllRoles = SystemRole | UserRole | AssistantRole
)

// roles holds the set of each role alone.
var roles = map[string]Roles{System: SystemRole, User: UserRole, Assistant: AssistantRole}

// The marks around the thoughts of an answer.
const (
	ThinkStart = "<think>"
	ThinkEnd   = "</think>"
)

// Thoughts says what a template does to the thoughts of answers: the text up to the
// last "</think>", without a "<think>" in front of it. An answer without "</think>" has
// none.
type Thoughts uint8

const (
	// ThoughtsKept leaves answers as they are.
	ThoughtsKept Thoughts = iota
	// ThoughtsCut removes the thoughts of every answer.
	ThoughtsCut
	// ThoughtsCutEarlier removes the thoughts of the answers before the last user
	// message. In those behind it they are written as by ThoughtsWritten; only the last
	// message has the block if it is empty.
	ThoughtsCutEarlier
	// ThoughtsWritten begins every answer with a block of its thoughts, which is empty
	// where the answer has none: "<think>", the thoughts and "</think>" on lines of
	// their own, and an empty line.
	ThoughtsWritten
	// ThoughtsBlanked begins every answer before the last user message with
	// "<think></think>" in place of its thoughts, and those behind it if they have no
	// thoughts. White space at the end of such an answer is trimmed.
	ThoughtsBlanked
)

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
	t, err := Named(name)
	if err != nil {
		return nil, err
	}
	return t.Segments(msgs, addAssistant)
}

// Named returns the template called name. It fails with ErrTemplate for an unknown name.
func Named(name string) (Template, error) {
	t, ok := templates[name]
	if !ok {
		return Template{}, fmt.Errorf("%w: %q, want one of %s", ErrTemplate, name, strings.Join(Names(), ", "))
	}
	t.Name = name
	return t, nil
}

// Segments returns the prompt for msgs in pieces, as the function [Segments] does, with
// all that t does to contents. It fails with ErrTemplate for the zero value.
func (t *Template) Segments(msgs []Message, addAssistant bool) ([]Segment, error) {
	if t.frame == nil {
		return nil, fmt.Errorf("%w: the zero value is none", ErrTemplate)
	}
	for i, m := range msgs {
		if m.Role != System && m.Role != User && m.Role != Assistant {
			return nil, fmt.Errorf("%w: message %d has the role %q, want %s, %s or %s", ErrMessage, i, m.Role, System, User, Assistant)
		}
	}
	var b builder
	if err := t.frame(&b, t.prepare(msgs), addAssistant); err != nil {
		return nil, err
	}
	if addAssistant {
		b.open(t.Opening)
	}
	return b.segments, nil
}

// prepare returns msgs as the framing takes them.
func (t *Template) prepare(msgs []Message) []Message {
	if len(msgs) == 0 {
		return nil
	}
	msgs = slices.Clone(msgs)
	asked := 0 // the last user message
	for i, m := range msgs {
		if m.Role == User {
			asked = i
		}
	}
	for i := range msgs {
		m := &msgs[i]
		switch {
		case t.Trim&roles[m.Role] == 0:
		case t.joined && i == 1 && msgs[0].Role == System:
			m.Content = strings.TrimRight(m.Content, space)
		default:
			m.Content = trim(m.Content)
		}
		if m.Role == Assistant {
			m.Content = t.think(m.Content, i > asked, i == len(msgs)-1)
		}
	}
	return t.instruct(msgs)
}

// instruct returns msgs with the system message that t has them begin with, where t has
// it. It owns msgs, which is not empty.
func (t *Template) instruct(msgs []Message) []Message {
	if msgs[0].Role != System {
		if t.System == "" && t.Preface == "" && !t.SystemTurn {
			return msgs
		}
		msgs = slices.Insert(msgs, 0, Message{System, t.System})
	}
	msgs[0].Content = t.Preface + msgs[0].Content
	if last := len(msgs) - 1; t.SystemLast && last > 0 {
		if msgs[last].Role != User {
			return msgs[1:]
		}
		system := msgs[0]
		copy(msgs, msgs[1:last])
		msgs[last-1] = system
	}
	return msgs
}

// think returns an answer with its thoughts as t has them. recent says that it is behind
// the last user message, last that it is the last message.
func (t *Template) think(answer string, recent, last bool) string {
	thoughts, rest := t.split(answer)
	thinks := strings.Contains(answer, ThinkEnd)
	switch t.Thoughts {
	case ThoughtsCut:
		return rest
	case ThoughtsCutEarlier:
		if !recent || !last && thoughts == "" {
			return rest
		}
	case ThoughtsWritten:
	case ThoughtsBlanked:
		if thinks && recent || !thinks && strings.Contains(answer, ThinkStart) {
			return answer
		}
		return strings.TrimRight(ThinkStart+ThinkEnd+rest, space)
	default:
		return answer
	}
	return ThinkStart + "\n" + thoughts + "\n" + ThinkEnd + "\n\n" + strings.TrimLeft(rest, "\n")
}

// split parts an answer from its thoughts.
func (t *Template) split(answer string) (thoughts, rest string) {
	i := strings.LastIndex(answer, ThinkEnd)
	if i < 0 {
		return "", answer
	}
	rest = answer[i+len(ThinkEnd):]
	if t.cut == nil {
		rest = strings.TrimLeft(rest, "\n")
	} else {
		rest = t.cut(rest)
	}
	thoughts, _, _ = strings.Cut(answer, ThinkEnd)
	if i := strings.LastIndex(thoughts, ThinkStart); i >= 0 {
		thoughts = thoughts[i+len(ThinkStart):]
	}
	return strings.Trim(thoughts, "\n"), rest
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

// open adds the opening of an answer, whose marks of thoughts are markers.
func (b *builder) open(s string) {
	for s != "" {
		i, mark := len(s), ""
		for _, m := range []string{ThinkStart, ThinkEnd} {
			if at := strings.Index(s, m); at >= 0 && at < i {
				i, mark = at, m
			}
		}
		b.text(s[:i])
		if mark != "" {
			b.mark(mark)
		}
		s = s[i+len(mark):]
	}
}

// space is what C's isspace calls space.
const space = " \t\n\v\f\r"

// trim cuts off white space, as llama.cpp does.
func trim(s string) string { return strings.Trim(s, space) }
