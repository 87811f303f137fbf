package main

import (
	"io"
	"unicode/utf8"
)

// screen writes text to a terminal. It escapes control characters, except for newlines, tabs
// and the carriage return before a newline, so that the texts of models and files cannot
// control the terminal. It also escapes bytes that are not valid UTF-8, because some
// terminals interpret them as control characters. A character may be split between writes.
type screen struct {
	w    io.Writer
	rest []byte // the end of the last write, if its escaping depends on the next write
	buf  []byte
}

func (s *screen) Write(p []byte) (int, error) {
	text := append(s.rest, p...)
	out := s.buf[:0]
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\r' && len(text) == 1, r == utf8.RuneError && n == 1 && !utf8.FullRune(text):
			return len(p), s.pass(out, text)
		case r == '\r' && text[1] == '\n':
			out = append(out, '\r')
		case r == '\n', r == '\t', !isControl(r) && (r != utf8.RuneError || n > 1):
			out = append(out, text[:n]...)
		default:
			out = append(out, visible(string(text[:n]))...)
		}
		text = text[n:]
	}
	return len(p), s.pass(out, nil)
}

// pass writes out, and stores rest for the next write.
func (s *screen) pass(out, rest []byte) error {
	s.rest, s.buf = append([]byte(nil), rest...), out
	if len(out) == 0 {
		return nil
	}
	_, err := s.w.Write(out)
	return err
}

// flush writes rest.
func (s *screen) flush() error {
	out := append(s.buf[:0], visible(string(s.rest))...)
	return s.pass(out, nil)
}

// isControl reports whether r is a C0 control, DEL or a C1 control.
func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }
