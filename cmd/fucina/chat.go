package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/chat"
)

// chatCommands are the commands of a conversation.
var chatCommands = []string{"/clear", "/exit", "/help"}

const chatHelp = `/clear  forget the conversation
/exit   end the program, like the end of the input
/help   show this help
Ctrl-C ends an answer; at the prompt it ends the program.
`

// chatFlags are the flags of a conversation.
type chatFlags struct {
	on       bool
	single   bool // the conversation ends after the first answer
	template templateName
	system   string
}

// templateName is the name of a chat template.
type templateName string

func (v *templateName) String() string { return string(*v) }

func (v *templateName) words() []string { return chat.Names() }

func (v *templateName) Set(s string) error {
	if s != "" { // "" means that no template is given
		if err := oneOf(s, v.words()); err != nil {
			return err
		}
	}
	*v = templateName(s)
	return nil
}

func (f *flags) chat() *chatFlags {
	c := &chatFlags{}
	f.BoolVar(&c.on, "chat", false, "hold a conversation with the model, one message per line; /help lists its commands")
	f.Var(&c.template, "chat-template", "`name` of the chat template (default the template of the file)")
	f.StringVar(&c.system, "sys", "", "system `message` before the conversation")
	f.alias("chat", "cnv", "conversation")
	f.not(&c.on, "no-conversation", "hold no conversation, which is the default")
	f.alias("no-conversation", "no-cnv")
	f.BoolVar(&c.single, "single-turn", false, "end the conversation after the first answer")
	f.alias("single-turn", "st")
	f.alias("sys", "system-prompt")
	return c
}

func (c *chatFlags) check(out format, n int) error {
	switch {
	case !c.on && (c.template != "" || c.system != "" || c.single):
		return usagef("run: -chat-template, -sys and -single-turn go with -chat")
	case c.on && out == jsonl:
		return usagef("run: -chat does not go with -o json")
	case c.on && n == 0:
		return usagef("run: -chat does not go with -n 0")
	}
	return nil
}

// conversation holds the settings of a chat.
type conversation struct {
	flags   *chatFlags
	opt     llm.GenerateOptions
	verbose bool    // print the timings of each answer
	load    float64 // the seconds of loading, for the timings of the first answer

	// interactive says that the input is a terminal. converse then shows a prompt, and an
	// interrupt during an answer ends only the answer.
	interactive bool
}

// converse holds a conversation on standard input and standard output. If first is not
// empty, it is the first message. The conversation ends with the input, at /exit, or when ctx
// is done.
func (t *tool) converse(ctx context.Context, s *llm.Session, c *conversation, first string) error {
	talk, err := s.NewConversation(string(c.flags.template), c.flags.system)
	if errors.Is(err, chat.ErrTemplate) && c.flags.template == "" {
		return fmt.Errorf("%w, with -chat-template", err)
	}
	if err != nil {
		return err
	}
	lines := readLines(t.stdin, maxText)
	for text := first; ; text = "" {
		if text == "" {
			var more bool
			if text, more, err = t.ask(ctx, lines, c.interactive); err != nil || !more {
				return err
			}
		}
		switch command := strings.TrimSpace(text); command {
		case "":
			continue
		case "/exit":
			return nil
		case "/clear":
			talk.Clear()
			continue
		case "/help":
			if _, err := io.WriteString(t.stdout, chatHelp); err != nil {
				return err
			}
			continue
		default:
			if mistyped(command) {
				hint := didYouMean(command, chatCommands)
				fmt.Fprintf(t.stderr, "fucina: unknown command %s%s\n", command, cmp.Or(hint, "; /help lists them"))
				continue
			}
		}
		err := t.answer(ctx, talk, text, c)
		switch {
		case err != nil && !c.interactive:
			return err
		case errors.Is(err, llm.ErrContextFull):
			// The user decides whether to give up the earlier messages.
			fmt.Fprintln(t.stderr, "fucina: the context is full; /clear starts a new conversation")
		case errors.Is(err, chat.ErrMessage):
			t.report(err)
		case err != nil:
			return err
		}
		if c.flags.single {
			return nil
		}
	}
}

// mistyped reports whether message, which is not a command, looks like one: a slash followed
// by letters.
func mistyped(message string) bool {
	name, ok := strings.CutPrefix(message, "/")
	return ok && name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == ""
}

// ask returns the next line. more is false at the end of the input.
func (t *tool) ask(ctx context.Context, lines <-chan inputLine, interactive bool) (text string, more bool, err error) {
	line := &lineWriter{w: t.stdout}
	if interactive {
		if err := line.write("> "); err != nil {
			return "", false, err
		}
	}
	select {
	case l, ok := <-lines:
		if ok && l.err == nil {
			return l.text, true, nil
		}
		err = l.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	return "", false, errors.Join(err, line.end())
}

// answer writes the answer to text. An interrupt ends the answer, and the conversation keeps
// the part that was written. If nothing was written yet, the conversation drops text too.
func (t *tool) answer(ctx context.Context, talk *llm.Conversation, text string, c *conversation) (err error) {
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	var begun, stopped atomic.Bool
	if c.interactive {
		t.turn.begin(func() {
			stopped.Store(true)
			if !begun.Load() {
				cancel()
			}
		})
		defer t.turn.end()
	}
	tm := timings{Load: c.load}
	watch, asked, given := startWatch(), 0, 0
	opt := c.opt
	opt.OnPrompt = func(ids []int32) { asked = len(ids) }
	opt.OnLogits = func([]float32) { watch.predicted() }
	line := &lineWriter{w: t.stdout}
	for tok, tokErr := range talk.Send(turn, text, opt) {
		begun.Store(true)
		if err = tokErr; err != nil {
			break
		}
		given++
		if err = line.write(tok.Text); err != nil || stopped.Load() {
			break
		}
	}
	if stopped.Load() && ctx.Err() == nil && errors.Is(err, turn.Err()) {
		err = nil
	}
	err = errors.Join(err, line.end())
	if c.verbose && (err == nil || ctx.Err() != nil) {
		watch.stop(&tm, asked, given)
		c.load = 0
		t.tellTimings(tm, &c.opt.Sampling)
	}
	return err
}

// turn holds the function that ends the current answer. An interrupt calls it instead of
// ending the program.
type turn struct {
	mu   sync.Mutex
	stop func()
}

func (u *turn) begin(stop func()) { u.set(stop) }

func (u *turn) end() { u.set(nil) }

func (u *turn) set(stop func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.stop = stop
}

// interrupt asks the current answer to end, and reports whether there was one. A second
// interrupt finds no answer, even if the first answer has not ended yet.
func (u *turn) interrupt() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stop == nil {
		return false
	}
	u.stop()
	u.stop = nil
	return true
}

type inputLine struct {
	text string
	err  error
}

// readLines reads lines in a goroutine, because a read of a terminal cannot be cancelled. It
// closes the channel at the end of the input, after an error, and after a line of more than
// limit bytes, including the line ending.
func readLines(r io.Reader, limit int) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		defer close(lines)
		b := bufio.NewReader(r)
		for {
			text, err := readLine(b, limit)
			if len(text) > 0 {
				lines <- inputLine{text: strings.TrimRight(string(text), "\r\n")}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					lines <- inputLine{err: fmt.Errorf("standard input: %w", err)}
				}
				return
			}
		}
	}()
	return lines
}

// readLine reads a line with its line ending. At the end of the input, it returns the rest
// with the error.
func readLine(b *bufio.Reader, limit int) (line []byte, err error) {
	for {
		part, err := b.ReadSlice('\n')
		if len(part) > limit-len(line) {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", errTextSize, limit)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}
