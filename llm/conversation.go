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

// Conversation is a chat on a session: turns of a user and the model, laid out by a
// chat template. What the user writes cannot forge a turn, where the template's
// markers are tokens. It is driven by one goroutine at a time; while an answer is
// streamed, only Template and Messages may be called.
//
// Its session may serve other conversations in turn: what one finds there that is not
// its own is forgotten, and decoded again.
type Conversation struct {
	s        *Session
	template chat.Template
	system   []chat.Message
	turns    []chat.Message
}

// NewConversation begins a conversation on s. template is a name that package chat
// knows. If it is empty, the template is that of the model's file, with what it does to
// earlier turns as far as chat.Recognise knows it; an error that matches
// chat.ErrTemplate says that the file has none or that it is not known. system is the
// system message. If it is empty, the template decides: most have none then.
func (s *Session) NewConversation(template, system string) (*Conversation, error) {
	t, err := s.template(template)
	if err != nil {
		return nil, err
	}
	c := &Conversation{s: s, template: t}
	if system != "" {
		c.system = []chat.Message{{Role: chat.System, Content: system}}
	}
	// A template that takes no system message is found now.
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
		return chat.Template{}, fmt.Errorf("llm: %w: that of the file: %w; name one of %s", chat.ErrTemplate, s.m.templateErr, strings.Join(chat.Names(), ", "))
	}
	if text == "" {
		return chat.Template{}, fmt.Errorf("llm: %w: the file carries none; name one of %s", chat.ErrTemplate, strings.Join(chat.Names(), ", "))
	}
	t, ok := chat.Recognise(text)
	if !ok {
		return t, fmt.Errorf("llm: %w: that of the file is none of %s; name one", chat.ErrTemplate, strings.Join(chat.Names(), ", "))
	}
	return t, nil
}

// Template returns the name of the conversation's template.
func (c *Conversation) Template() string { return c.template.Name }

// Messages returns the turns so far, without the system message. Answers are whole,
// also where the template cuts the thoughts of earlier ones out of the prompt.
func (c *Conversation) Messages() []chat.Message {
	return slices.Clone(c.turns)
}

// SetMessages makes msgs the turns so far, whoever said them: a server that keeps no
// conversations begins one with those of a request, all but the last, and sends that.
// A system message at the beginning of msgs takes the place of what the model is told
// first, which otherwise stays. The messages are copied. As for Clear, not within the
// loop of an answer.
//
// It fails, and changes nothing, with an error that matches chat.ErrMessage if the
// template has no place for one of them or for a user's message after them.
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

// check returns an error if the template does not take the messages and a user's
// after them.
func (c *Conversation) check(system, turns []chat.Message) error {
	all := append(slices.Concat(system, turns), chat.Message{Role: chat.User})
	if _, err := c.template.Segments(all, true); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	return nil
}

// Clear forgets all turns, but not what the model is told first. Within the loop of an
// answer it has no effect: the turns are set when the loop ends.
func (c *Conversation) Clear() { c.turns = nil }

// Send says text as the user and streams the model's answer, as Generate does, with
// the same claim on the session. Only what the session does not hold yet is decoded. If
// the template changes an earlier turn, everything from the change on is decoded again.
// When the stream ends, by itself or because the caller breaks off, the question and
// the answer so far are turns of the conversation; after an error they are not.
//
// Special tokens are never recognised in messages, whatever opt.Special says, which
// only shows those of the answer to the caller. The turn that is kept has none, and
// nothing that chat.Strip takes out. If the template deals with thoughts, the marks of
// thoughts stay in the turn.
// Sampling's seed is a conversation's: every turn draws numbers of its own.
//
// The sequence is for one loop: another one sends text again.
func (c *Conversation) Send(ctx context.Context, text string, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		c.s.claim(yield, func() error { return c.send(ctx, text, opt, yield) })
	}
}

// send is Send inside of the session.
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
	// Each turn draws numbers of its own, which the same conversation draws again.
	opt.Sampling.Seed += uint64(len(c.turns))
	var answer strings.Builder
	err = c.s.generate(ctx, ids, opt, func(t Token, err error) bool {
		said := t.Text
		if opt.Special {
			said = plain.beside(t)
		}
		answer.WriteString(said)
		if t.End != EndStop { // a stop token is no part of the text
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

// thoughtMark returns the spelling of a token that begins or ends thoughts and has no
// text, if the template looks for thoughts, and "" otherwise.
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
