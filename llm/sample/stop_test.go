package sample

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func newMatcher(t testing.TB, stops ...string) *StopMatcher {
	t.Helper()
	m, err := NewStopMatcher(stops...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Each call of Next returns the text that cannot be the beginning of a stop string.
func TestStopMatcher(t *testing.T) {
	for _, tt := range []struct {
		name        string
		stops       []string
		in, out     []string
		flush, stop string
	}{
		{"no stops", nil, []string{"a", "b"}, []string{"a", "b"}, "", ""},
		{"absent", []string{"stop"}, []string{"go ", "on"}, []string{"go ", "on"}, "", ""},
		{"in one piece", []string{"stop"}, []string{"go stop on"}, []string{"go "}, "", "stop"},
		{"across pieces", []string{"stop"}, []string{"go s", "t", "op", "on"}, []string{"go ", "", "", ""}, "", "stop"},
		{"begun and given up", []string{"stop"}, []string{"sto", "ry"}, []string{"", "story"}, "", ""},
		{"begun at the end", []string{"stop"}, []string{"go sto"}, []string{"go "}, "sto", ""},
		{"begun again inside", []string{"aab"}, []string{"aa", "a", "b"}, []string{"", "a", ""}, "", "aab"},
		{"shorter one ends first", []string{"abcd", "bc"}, []string{"xab", "cd"}, []string{"x", "a"}, "", "bc"},
		{"longer one ends at the same byte", []string{"bc", "abc"}, []string{"xa", "bc"}, []string{"x", ""}, "", "abc"},
		{"one begins in the end of another", []string{"xyz", "zab"}, []string{"xy", "zab"}, []string{"", ""}, "", "xyz"},
		{"longest beginning is held", []string{"abx", "bcy"}, []string{"ab", "c", "z"}, []string{"", "a", "bcz"}, "", ""},
		{"prefix of another", []string{"\n", "\n\n"}, []string{"a\n", "\n"}, []string{"a", ""}, "", "\n"},
		{"at the start", []string{"</s>"}, []string{"</s>"}, []string{""}, "", "</s>"},
		{"characters of several bytes", []string{"停止"}, []string{"不停", "地", "停", "止了"}, []string{"不", "停地", "", ""}, "", "停止"},
		{"one byte in common", []string{"é"}, []string{"è", "e"}, []string{"è", "e"}, "", ""},
		{"a character in pieces", []string{"é!"}, []string{"\xc3", "\xa9", "?"}, []string{"", "", "é?"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := newMatcher(t, tt.stops...)
			for range 2 {
				stopped := false
				for i, piece := range tt.in {
					var out string
					out, stopped = m.Next(piece)
					want := ""
					if i < len(tt.out) {
						want = tt.out[i]
					}
					if out != want {
						t.Errorf("piece %d, %q, gives %q, want %q", i, piece, out, want)
					}
				}
				if stopped != (tt.stop != "") || m.Stopped() != tt.stop {
					t.Errorf("stopped %v by %q, want %q", stopped, m.Stopped(), tt.stop)
				}
				if out := m.Flush(); out != tt.flush {
					t.Errorf("flush gives %q, want %q", out, tt.flush)
				}
				m.Reset()
			}
		})
	}
}

func TestStopMatcherEmptyStop(t *testing.T) {
	if _, err := NewStopMatcher("a", ""); !errors.Is(err, ErrParams) || !strings.Contains(err.Error(), "stop string 1") {
		t.Errorf("error %v, want ErrParams", err)
	}
}

// For any cut of the text into pieces, the result is that of a search in the whole text. No
// result ends within a character unless the text does.
func FuzzStopMatcher(f *testing.F) {
	f.Add("go stop on", "stop", "o s", uint64(0b1010101))
	f.Add("aaab", "aab", "ab", uint64(1))
	f.Add("不停地停止了", "停止", "了", ^uint64(0))
	f.Fuzz(func(t *testing.T, text, a, b string, cuts uint64) {
		if a == "" || b == "" || len(text) > 1000 {
			return
		}
		want, stop := text, ""
		for end := 1; end <= len(text) && stop == ""; end++ {
			for _, s := range []string{a, b} {
				if strings.HasSuffix(text[:end], s) && len(s) > len(stop) {
					want, stop = text[:end-len(s)], s
				}
			}
		}
		m := newMatcher(t, a, b)
		whole := utf8.ValidString(text) && utf8.ValidString(a) && utf8.ValidString(b)
		var got strings.Builder
		piece := ""
		feed := func() {
			out, _ := m.Next(piece)
			piece = ""
			if whole && !utf8.ValidString(out) {
				t.Errorf("returns %q", out)
			}
			got.WriteString(out)
		}
		for i := 0; i < len(text); {
			n := 1
			if whole {
				_, n = utf8.DecodeRuneInString(text[i:])
			}
			piece += text[i : i+n]
			if cuts>>(i%64)&1 != 0 {
				feed()
			}
			i += n
		}
		feed()
		got.WriteString(m.Flush())
		if got.String() != want || m.Stopped() != stop {
			t.Errorf("%q with stops %q, %q: %q, stopped by %q; want %q, %q", text, a, b, got.String(), m.Stopped(), want, stop)
		}
	})
}

func BenchmarkStopMatcher(b *testing.B) {
	m := newMatcher(b, "</s>", "<|eot_id|>", "\nUser:", "\n\n\n")
	for b.Loop() {
		m.Next(" token")
	}
}
