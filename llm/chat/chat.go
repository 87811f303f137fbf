package chat

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors that this package wraps.
var (
	// ErrTemplate reports an unknown template.
	ErrTemplate = errors.New("chat: unknown template")
	// ErrMessage reports a message that the template cannot contain.
	ErrMessage = errors.New("chat: invalid message")
)

// The roles of messages.
const (
	System    = "system"
	User      = "user"
	Assistant = "assistant"
)

// Message is one turn of a conversation. The prompt contains its Content unchanged, except
// that some templates and vocabularies remove white space at its ends.
type Message struct {
	Role    string // System, User or Assistant
	Content string
}

// Segment is a piece of a prompt.
type Segment struct {
	Text string
	// Special says that Text is one marker of the template. It is a special token if the
	// vocabulary has a token with that spelling. In other segments, special tokens must
	// not be recognised.
	Special bool
}

// Template lays out conversations. It frames turns with markers and changes their contents.
// [Named] returns the template with a given name, and [Recognise] that of a model file. The
// fields may be changed before use. The zero value is not a template.
type Template struct {
	// Name is the name of the framing, one of [Names].
	Name string
	// System is the system message of a conversation that does not begin with one.
	System string
	// Preface is added in front of the system message that begins a conversation. If
	// Preface is not empty and the conversation has no system message, Preface is the
	// system message.
	Preface string
	// SystemTurn says that a conversation begins with a turn of the system, which is
	// empty if there is no system message.
	SystemTurn bool
	// SystemLast moves the system message that begins a conversation in front of the
	// last message. If the last message is not that of a user, the system message is
	// left out.
	SystemLast bool
	// Trim has the roles whose contents lose the white space at their ends.
	Trim Roles
	// Thoughts says what the template does to the thoughts of answers.
	Thoughts Thoughts
	// Opening is added after the markers that open the assistant's answer.
	Opening string

	frame framing
	// joined says that the system message and the first user message are trimmed as one
	// text. The system message ends in white space, so the start of the user message
	// is not trimmed.
	joined bool
	// cut trims an answer whose thoughts were removed. nil removes newlines in front.
	cut func(string) string
}

// Roles is a set of roles.
type Roles uint8

// The sets of one role, and the set of all roles.
const (
	SystemRole Roles = 1 << iota
	UserRole
	AssistantRole

	AllRoles = SystemRole | UserRole | AssistantRole
)

// roles holds, for each role, the set of that role.
var roles = map[string]Roles{System: SystemRole, User: UserRole, Assistant: AssistantRole}

// The marks around the thoughts of an answer.
const (
	ThinkStart = "<think>"
	ThinkEnd   = "</think>"
)

// Thoughts says what a template does to the thoughts of answers. The thoughts of an answer
// are its text up to the last "</think>", without a "<think>" in front. An answer without
// "</think>" has no thoughts.
type Thoughts uint8

const (
	// ThoughtsKept does not change answers.
	ThoughtsKept Thoughts = iota
	// ThoughtsCut removes the thoughts of every answer.
	ThoughtsCut
	// ThoughtsCutEarlier removes the thoughts of the answers before the last user
	// message. It writes the thoughts of the answers after that message as
	// ThoughtsWritten does, but of the answers without thoughts only the last message
	// gets an empty block.
	ThoughtsCutEarlier
	// ThoughtsWritten begins every answer with a block of its thoughts, which is empty
	// if the answer has none. The block consists of "<think>", the thoughts and
	// "</think>" on separate lines, and an empty line.
	ThoughtsWritten
	// ThoughtsBlanked replaces the thoughts of every answer before the last user message
	// by "<think></think>". It adds the same text in front of answers after that message
	// if they have no thoughts. White space at the end of such answers is trimmed.
	ThoughtsBlanked
)

// Format returns the prompt for msgs in the template called name. With addAssistant, the
// prompt ends with the markers that open the assistant's answer, if the template has such
// markers. The prompt does not begin with the model's beginning-of-sequence token.
//
// Format fails with ErrTemplate for an unknown name. It fails with ErrMessage for a message
// whose role is not System, User or Assistant, or that the template cannot contain. The
// package comment says what untrusted contents can do to the result.
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

// Segments returns the prompt of [Format] as segments. No two adjacent segments are text.
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

// Segments returns the prompt for msgs as segments, like the function [Segments], with all
// changes that t makes to contents. It fails with ErrTemplate if t is the zero value.
func (t *Template) Segments(msgs []Message, addAssistant bool) ([]Segment, error) {
	if t.frame == nil {
		return nil, fmt.Errorf("%w: the zero Template", ErrTemplate)
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

// prepare returns a copy of msgs with the changes that t makes to contents.
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

// instruct returns msgs with the system message of t, in the place where t has it. msgs is not
// empty, and instruct may change it.
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

// think returns answer with the changes that t makes to its thoughts. recent says that the
// answer is after the last user message, last that it is the last message.
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

// split returns the thoughts of an answer and the rest of it.
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

// text adds text. If the last segment is text, it appends to that segment.
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

// open adds the opening of an answer. ThinkStart and ThinkEnd in it are markers.
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

// space has the characters that are white space according to C's isspace.
const space = " \t\n\v\f\r"

// trim removes white space at both ends, as llama.cpp does.
func trim(s string) string { return strings.Trim(s, space) }
