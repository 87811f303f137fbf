package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestScreen(t *testing.T) {
	for in, want := range map[string]string{
		"":                          "",
		"plain è ☃ 👩‍👩‍👧\n\ttab":    "plain è ☃ 👩‍👩‍👧\n\ttab",
		"\u00a0no\u200fbreak":       "\u00a0no\u200fbreak",
		"\x1b[31mred\x07\b\x00\x7f": `\x1b[31mred\a\b\x00\x7f`,
		"\u009b31m \u0080":          `\u009b31m \u0080`,
		"\x9b31m \xff":              `\x9b31m \xff`,
		"over\rwritten":             `over\rwritten`,
		"dos\r\nunix\n\r":           "dos\r\nunix\n\\r",
		"\r\r\n":                    "\\r\r\n",
		"cut \xe2\x98":              `cut \xe2\x98`,
		"cut \xe2\x98\x1b":          `cut \xe2\x98\x1b`,
		"\ufffd":                    "\ufffd",
	} {
		// The sizes of the writes do not change the output.
		for size := 1; size <= len(in)+1; size++ {
			var b bytes.Buffer
			s := &screen{w: &b}
			for p := []byte(in); len(p) > 0; {
				n := min(size, len(p))
				if m, err := s.Write(p[:n]); m != n || err != nil {
					t.Fatalf("wrote %d of %d, %v", m, n, err)
				}
				p = p[n:]
			}
			if err := s.flush(); err != nil {
				t.Fatal(err)
			}
			if b.String() != want {
				t.Errorf("%q by %d: %q, want %q", in, size, b.String(), want)
			}
		}
	}
	s := &screen{w: fullDisk{}}
	if _, err := s.Write([]byte("x")); err == nil {
		t.Error("a write that failed is no error")
	}
}

func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\x1b[0m\r"), []byte("\n\xe2"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var parts, whole bytes.Buffer
		s := &screen{w: &parts}
		_, err1 := s.Write(a)
		_, err2 := s.Write(b)
		if err := errors.Join(err1, err2, s.flush()); err != nil {
			t.Fatal(err)
		}
		s = &screen{w: &whole}
		if _, err := s.Write(append(append([]byte(nil), a...), b...)); err != nil {
			t.Fatal(err)
		}
		if err := s.flush(); err != nil {
			t.Fatal(err)
		}
		if parts.String() != whole.String() {
			t.Errorf("in parts %q, whole %q", parts.String(), whole.String())
		}
		out := strings.ReplaceAll(whole.String(), "\r\n", "\n")
		if !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool { return isControl(r) && r != '\n' && r != '\t' }) {
			t.Errorf("shows %q", out)
		}
	})
}

// A terminal gets the control characters of a text escaped. A pipe and JSON get the text
// unchanged.
func TestModelOnTerminal(t *testing.T) {
	m := tinyModel(t)
	// The model always chooses the token of the byte ESC.
	args := []string{"run", "-m", m, "-p", "\x1b[2J\x7f", "-n", "2", "--temp", "0", "--logit-bias", "30+1000"}
	on := func(terminal bool, input string, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := newTool(strings.NewReader(input), &stdout, &stderr, terminal, false).main(t.Context(), args); code != exitOK {
			t.Fatalf("exit %d, stderr %q", code, stderr.String())
		}
		return stdout.String()
	}
	if got, want := on(true, "", args...), `\x1b[2J\x7f\x1b\x1b`+"\n"; got != want {
		t.Errorf("a terminal gets %q, want %q", got, want)
	}
	if got, want := on(false, "", args...), "\x1b[2J\x7f\x1b\x1b\n"; got != want {
		t.Errorf("a pipe gets %q, want %q", got, want)
	}
	for _, terminal := range []bool{true, false} {
		var g generation
		if decodeStrict(t, on(terminal, "", append(args, "-o", "json")...), &g); g.Text != "\x1b[2J\x7f\x1b\x1b" {
			t.Errorf("JSON has the text %q", g.Text)
		}
	}
	if got := on(true, "hello\n", "run", "-m", m, "--chat", "--chat-template", "chatml", "-n", "2", "--logit-bias", "30+1000"); got != `\x1b\x1b`+"\n" {
		t.Errorf("a chat gets %q", got)
	}
	if got := on(true, "", "tokenize", "-m", m, "--no-bos", "-p", "\x1b\n"); !strings.Contains(got, `-> '\x1b'`) || !strings.Contains(got, `-> '\n'`) {
		t.Errorf("tokens are %q", got)
	}
}
