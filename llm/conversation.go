package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/internal/await"
	"github.com/fucina-go/fucina/llm/chat"
)

// Conversation is a chat on a session. A chat template lays out the turns of the user and
// the model. If the template's markers are tokens, messages of the user cannot forge a turn.
// One goroutine at a time drives a Conversation. While an answer is streamed, only Template
// and Messages may be called.
//
// Several conversations may use a session in turn. A conversation removes tokens of the
// session that are not its own, and decodes its own turns again.
type Conversation struct {
	s        *Session
	template chat.Template
	system   []chat.Message
	turns    []chat.Message
}

// NewConversation begins a conversation on s. template is one of chat.Names, or empty. If it
// is empty, the conversation uses the template of the model's file, as chat.Recognise finds
// it; NewConversation fails with chat.ErrTemplate if the file has no template or an unknown
// one. system is the system message. If it is empty, the template may add its own.
func (s *Session) NewConversation(template, system string) (*Conversation, error) {
	t, err := s.template(template)
	if err != nil {
		return nil, err
	}
	c := &Conversation{s: s, template: t}
	if system != "" {
		c.system = []chat.Message{{Role: chat.System, Content: system}}
	}
	// A template that accepts no system message is an error here, not at the first Send.
	if err := c.check(c.system, nil); err != nil {
		return nil, err
	}
	return c, nil
}

// template returns the template called name, or that of the model's file if name is
// empty.
func (s *Session) template(name string) (chat.Template, error) {
	if name != "" {
		t, err := chat.Named(name)
		if err != nil {
			return t, fmt.Errorf("llm: %w", err)
		}
		return t, nil
	}
	text := s.m.chatTemplate
	if s.m.templateErr != nil {
		return chat.Template{}, fmt.Errorf("llm: %w: the template of the file: %w; name one of %s", chat.ErrTemplate, s.m.templateErr, strings.Join(chat.Names(), ", "))
	}
	if text == "" {
		return chat.Template{}, fmt.Errorf("llm: %w: the file has no template; name one of %s", chat.ErrTemplate, strings.Join(chat.Names(), ", "))
	}
	t, ok := chat.Recognise(text)
	if !ok {
		return t, fmt.Errorf("llm: %w: the template of the file is none of %s; name one", chat.ErrTemplate, strings.Join(chat.Names(), ", "))
	}
	return t, nil
}

// Template returns the name of the conversation's template.
func (c *Conversation) Template() string { return c.template.Name }

// Messages returns the turns so far, without the system message. Answers are complete, even if
// the template removes the thoughts of earlier answers from the prompt.
func (c *Conversation) Messages() []chat.Message {
	return slices.Clone(c.turns)
}

// SetMessages replaces the turns so far by a copy of msgs. A server that stores no
// conversations passes the messages of a request except the last, and then sends the last
// one. A system message at the beginning of msgs replaces the system message of the
// conversation. SetMessages must not be called within the loop of an answer.
//
// It fails with chat.ErrMessage, and changes nothing, if the template does not accept one of
// the messages or a user message after them.
func (c *Conversation) SetMessages(msgs []chat.Message) error {
	system, turns := c.system, slices.Clone(msgs)
	if len(turns) > 0 && turns[0].Role == chat.System {
		system, turns = turns[:1:1], turns[1:]
	}
	if err := c.check(system, turns); err != nil {
		return err
	}
	c.system, c.turns = system, turns
	return nil
}

// check returns an error if the template does not accept the messages, followed by a user
// message.
func (c *Conversation) check(system, turns []chat.Message) error {
	all := append(slices.Concat(system, turns), chat.Message{Role: chat.User})
	if _, err := c.template.Segments(all, true); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	return nil
}

// Clear removes all turns, and keeps the system message. Within the loop of an answer it has
// no effect, because the end of the loop sets the turns.
func (c *Conversation) Clear() { c.turns = nil }

// Send sends text as a user message and streams the model's answer. It streams and claims the
// session like Generate. It decodes only tokens that the session does not hold yet; if the
// template changes an earlier turn, it decodes everything from the change on again. When the
// stream ends, by itself or by a break of the caller, the conversation gets the message and
// the answer so far as turns. After an error it does not.
//
// Special tokens are never recognised in messages; opt.Special only shows those of the answer
// to the caller. The turn of the answer has no special tokens, and no text that chat.Strip
// removes. If the template changes thoughts, the turn keeps their marks.
//
// opt.Sampling.Seed is the seed of the conversation. Each turn uses other random numbers.
//
// The sequence is for one loop: a second loop sends text again.
func (c *Conversation) Send(ctx context.Context, text string, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		c.s.claim(yield, func() error { return c.send(ctx, text, opt, yield) })
	}
}

// send implements Send. The caller has claimed the session.
func (c *Conversation) send(ctx context.Context, text string, opt GenerateOptions, yield func(Token, error) bool) error {
	turns := append(c.Messages(), chat.Message{Role: chat.User, Content: text})
	ids, err := c.encode(ctx, turns)
	if err != nil {
		return err
	}
	if ids, err = c.s.resume(ids); err != nil {
		return err
	}
	plain, err := newTextDecoder(c.s.m.tok, false, &opt)
	if err != nil {
		return err
	}
	// Each turn uses other random numbers, and the same conversation repeats them.
	opt.Sampling.Seed += uint64(len(c.turns))
	var answer strings.Builder
	err = c.s.generate(ctx, ids, opt, func(t Token, err error) bool {
		said := t.Text
		if opt.Special {
			said = plain.withoutSpecial(t)
		}
		answer.WriteString(said)
		if t.End != EndStop { // a stop token is not part of the text
			answer.WriteString(c.thoughtMark(t.ID))
		}
		return yield(t, err)
	})
	if err != nil {
		return err
	}
	kept, err := chat.Strip(c.s.m.tok, answer.String())
	if err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	c.turns = append(turns, chat.Message{Role: chat.Assistant, Content: kept})
	return nil
}

// thoughtMark returns the spelling of id if the template changes thoughts and id is a mark of
// thoughts that has no text. Otherwise it returns "".
func (c *Conversation) thoughtMark(id int32) string {
	tok := c.s.m.tok
	text := tok.Text(id)
	if c.template.Thoughts == chat.ThoughtsKept || text != chat.ThinkStart && text != chat.ThinkEnd || len(tok.AppendPiece(nil, id, false)) > 0 {
		return ""
	}
	return text
}

func (c *Conversation) encode(ctx context.Context, turns []chat.Message) ([]int32, error) {
	segments, err := c.template.Segments(slices.Concat(c.system, turns), true)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	tok := c.s.m.tok
	ids, err := await.Do(ctx, func() ([]int32, error) { return chat.Encode(tok, segments, true) })
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	if len(ids) == 0 {
		return nil, errors.New("llm: the conversation has no tokens")
	}
	return ids, nil
}
