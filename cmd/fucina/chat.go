package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/chat"
)

const chatHelp = `/clear  forget the conversation
/exit   end the program, as the end of input does
/help   show this
`

// chatFlags describe a conversation.
type chatFlags struct {
	on       bool
	template string
	system   string
}

func (f *flags) chat() *chatFlags {
	c := &chatFlags{}
	f.BoolVar(&c.on, "chat", false, "talk to the model, a line at a time; /help says more")
	f.StringVar(&c.template, "chat-template", "", "`name` of the chat template (default the file's own)")
	f.StringVar(&c.system, "sys", "", "`message` that the model is given before the conversation")
	return c
}

func (c *chatFlags) check(out format, n int) error {
	switch {
	case !c.on && (c.template != "" || c.system != ""):
		return usagef("run: -chat-template and -sys go with -chat")
	case c.on && out == jsonl:
		return usagef("run: -chat writes text: give no -o json")
	case c.on && n == 0:
		return usagef("run: -chat with answers of -n 0 tokens")
	}
	return nil
}

// converse runs a conversation from standard input to standard output, beginning
// with the text first unless it is empty. It ends with the input, at /exit, or when
// ctx is done.
func (t *tool) converse(ctx context.Context, s *llm.Session, flags *chatFlags, opt llm.GenerateOptions, first string) error {
	c, err := s.NewConversation(flags.template, flags.system)
	if err != nil {
		return err
	}
	marker := ""
	if f, ok := t.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		marker = "> "
	}
	lines := readLines(t.stdin)
	for text := first; ; text = "" {
		if text == "" {
			if _, err := io.WriteString(t.stdout, marker); err != nil {
				return err
			}
			var more bool
			select {
			case l, ok := <-lines:
				text, more, err = l.text, ok, l.err
			case <-ctx.Done():
				return ctx.Err()
			}
			if err != nil || !more {
				return err
			}
		}
		switch strings.TrimSpace(text) {
		case "":
			continue
		case "/exit":
			return nil
		case "/clear":
			c.Clear()
			continue
		case "/help":
			if _, err := io.WriteString(t.stdout, chatHelp); err != nil {
				return err
			}
			continue
		}
		line := &lineWriter{w: t.stdout}
		err := answer(ctx, c, text, opt, line)
		err = errors.Join(err, line.end())
		switch {
		case errors.Is(err, llm.ErrContextFull):
			// The conversation has outgrown the session; the person decides.
			fmt.Fprintln(t.stderr, "fucina: the context is full: /clear begins anew")
			continue
		case errors.Is(err, chat.ErrMessage):
			t.report(err)
			continue
		}
		if err != nil {
			return err
		}
	}
}

func answer(ctx context.Context, c *llm.Conversation, text string, opt llm.GenerateOptions, line *lineWriter) error {
	for tok, err := range c.Send(ctx, text, opt) {
		if err != nil {
			return err
		}
		if err := line.write(tok.Text); err != nil {
			return err
		}
	}
	return nil
}

type inputLine struct {
	text string
	err  error
}

// readLines reads in the background, because a read of a terminal cannot be given
// up. The channel is closed at the end of input.
func readLines(r io.Reader) <-chan inputLine {
	lines := make(chan inputLine)
	go func() {
		defer close(lines)
		b := bufio.NewReader(r)
		for {
			text, err := b.ReadString('\n')
			if text != "" {
				lines <- inputLine{text: strings.TrimRight(text, "\r\n")}
			}
			if err != nil {
				if !errors.Is(err, io.EOF) {
					lines <- inputLine{err: fmt.Errorf("input: %w", err)}
				}
				return
			}
		}
	}()
	return lines
}
