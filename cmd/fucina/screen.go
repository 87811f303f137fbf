package main

import (
	"io"
	"unicode/utf8"
)

// screen writes text to a terminal, where models and files must not give orders:
// it escapes control characters, save newlines, tabs and the carriage return of a
// line's end, and bytes that are no UTF-8, which some terminals take for controls.
// What belongs together may come in several writes.
type screen struct {
	w    io.Writer
	rest []byte // the last write's end, if what follows decides about it
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

// pass writes out, and keeps rest for the next write.
func (s *screen) pass(out, rest []byte) error {
	s.rest, s.buf = append([]byte(nil), rest...), out
	if len(out) == 0 {
		return nil
	}
	_, err := s.w.Write(out)
	return err
}

// flush writes what is kept back.
func (s *screen) flush() error {
	out := append(s.buf[:0], visible(string(s.rest))...)
	return s.pass(out, nil)
}

// isControl reports whether r is of C0, DEL or C1.
func isControl(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }
