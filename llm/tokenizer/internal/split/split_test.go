package split

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const (
	gpt2   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`
	llama3 = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

func mustCompile(t testing.TB, expr string) *Pattern {
	t.Helper()
	p, err := Compile(expr)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func pieces(p *Pattern, text string) []string {
	var out []string
	p.Split(text, func(s string) { out = append(out, s) })
	return out
}

func TestSplit(t *testing.T) {
	for _, tc := range []struct {
		expr, text string
		want       []string
	}{
		{gpt2, "", nil},
		{gpt2, "Hello, world's  end \n", []string{"Hello", ",", " world", "'s", " ", " end", " \n"}},
		{gpt2, "\tx\n\ny", []string{"\t", "x", "\n", "\n", "y"}},
		{gpt2, "a1b 22", []string{"a", "1", "b", " 22"}},
		{llama3, "We'LL  go\r\n\r\n 12345x", []string{"We", "'LL", " ", " go", "\r\n\r\n", " ", "123", "45", "x"}},
		{llama3, "(foo)\n\u00a0bar", []string{"(foo", ")\n", "\u00a0bar"}},
		{`ab|abc`, "abcab", []string{"ab", "c", "ab"}}, // the first alternative, not the longest
		{`abc|ab`, "abcab", []string{"abc", "ab"}},
		{`(a|ab)(c|bcd)`, "abcdac", []string{"abcd", "ac"}},
		{`x{2}`, "xxxxx", []string{"xx", "xx", "x"}},
		{`x{2,4}`, "xxxxxxxxx", []string{"xxxx", "xxxx", "x"}},
		{`(?:ab){1,2}c`, "ababcabcc", []string{"ababc", "abc", "c"}},
		{`\s+$`, "a  b  ", []string{"a  b", "  "}},
		{`((?=\p{L})[^a-z])+`, "aBÉc", []string{"a", "BÉ", "c"}},
		{`[^-a\]]+`, "xa-]y", []string{"x", "a-]", "y"}},
		{`[\d\-]+`, "a1-2b", []string{"a", "1-2", "b"}},
		{`a|b|c`, "abxc", []string{"a", "b", "x", "c"}},
		{`(a*b)+c?`, "aabbcaab", []string{"aabbc", "aab"}},
		{`\p{L}+`, "\U0002EBF0x", []string{"\U0002EBF0x"}},
		{`[^a]`, "\xed\xa0\x80a\xff", []string{"\xed\xa0\x80", "a", "\xff"}}, // a surrogate, an invalid byte
	} {
		if got := pieces(mustCompile(t, tc.expr), tc.text); !slices.Equal(got, tc.want) {
			t.Errorf("%s on %q: %q, want %q", tc.expr, tc.text, got, tc.want)
		}
	}
}

func TestCompileErrors(t *testing.T) {
	for _, expr := range []string{
		``, `a*`, `a?|b`, `a|`, `(?=a)`, `$`, `(a`, `a)`, `[a`, `[z-a]`, `[a-\d]`, `a{0}`, `a{2,1}`, `a{x}`, `a{`, `*`, `a**`, `\`, `\q`, `\p{Greek}`, `\pL`,
		`.`, `^a`, `(?=ab)c`, `(?<=a)b`, "\xff", `a{20000}`, `[\`, strings.Repeat("(", 100),
		`(a|b)*a` + strings.Repeat(`(a|b)`, 20), // 2^20 states
	} {
		if p, err := Compile(expr); !errors.Is(err, errSyntax) || p != nil {
			t.Errorf("%.40q: %v, want %v", expr, err, errSyntax)
		}
	}
}

// backtrack runs a program in the order of its preferences. It is what the
// automaton has to agree with; it takes exponential time.
func backtrack(prog []inst, pc int, text string, i int) int {
	r, size := rune(-1), 0
	if i < len(text) {
		r, size = decode(text, i)
	}
	switch in := prog[pc]; in.op {
	case opMatch:
		return i
	case opJump:
		return backtrack(prog, in.x, text, i)
	case opFork:
		if end := backtrack(prog, in.x, text, i); end >= 0 {
			return end
		}
		return backtrack(prog, in.y, text, i)
	case opAssert:
		if size == 0 && in.end || size > 0 && in.set.has(r) {
			return backtrack(prog, pc+1, text, i)
		}
	case opClass:
		if size > 0 && in.set.has(r) {
			return backtrack(prog, pc+1, text, i+size)
		}
	}
	return -1
}

func backtracked(prog []inst, text string) []string {
	var out []string
	from := 0
	for pos := 0; pos < len(text); {
		end := backtrack(prog, 0, text, pos)
		if end < 0 {
			_, size := decode(text, pos)
			pos += size
			continue
		}
		if from < pos {
			out = append(out, text[from:pos])
		}
		out = append(out, text[pos:end])
		pos, from = end, end
	}
	if from < len(text) {
		out = append(out, text[from:])
	}
	return out
}

var alphabet = []string{"a", "b", "c", "A", "s", "l", "'", " ", " ", "\n", "\r", "\t", "1", "2", "é", "\u00a0", "漢", "🦙", ".", "-", "\u0301", "\xff", "\xed\xa0\x80"}

func randomText(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range rng.IntN(n) {
		s := alphabet[rng.IntN(len(alphabet))]
		b.WriteString(strings.Repeat(s, 1+rng.IntN(3)*rng.IntN(2)))
	}
	return b.String()
}

func TestSplitIsBacktracking(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, expr := range []string{
		gpt2, llama3,
		`a+b|a`, `(a|b)*c|[ab]`, `\s*[\r\n]|\s+(?!\S)|\s+`, `((?=\p{L})[^a-z])*((?=\p{L})[^A-Z])+|a`,
		`[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`, `(?:a|ab|abc){1,3}`, `[ab]+$|b`, `(?:ab?)+(?!c)`,
	} {
		prog, err := parse(expr)
		if err != nil {
			t.Fatal(err)
		}
		p := mustCompile(t, expr)
		for range 1500 {
			text := randomText(rng, 14)
			if got, want := pieces(p, text), backtracked(prog, text); !slices.Equal(got, want) {
				t.Fatalf("%s on %q:\n got %q\nwant %q", expr, text, got, want)
			}
		}
	}
}

// Expressions that package regexp knows, on texts long enough for scans to run
// far past their matches.
func TestSplitIsRegexp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, expr := range []string{`a*b|a`, `(?:a|b)*c|[ab]`, `a{1,50}b|a{3}|a`, `[ab ]+c|a+|b`, `(?:ab)+c|ab|a`} {
		re, p := regexp.MustCompile(expr), mustCompile(t, expr)
		for range 200 {
			var b strings.Builder
			for range 1 + rng.IntN(8) {
				b.WriteString(strings.Repeat([]string{"a", "b", "ab", " ", "c"}[rng.IntN(5)], rng.IntN(100)))
			}
			text := b.String()
			var want []string
			from := 0
			for _, m := range re.FindAllStringIndex(text, -1) {
				if from < m[0] {
					want = append(want, text[from:m[0]])
				}
				want = append(want, text[m[0]:m[1]])
				from = m[1]
			}
			if from < len(text) {
				want = append(want, text[from:])
			}
			if got := pieces(p, text); !slices.Equal(got, want) {
				t.Fatalf("%s on %q:\n got %q\nwant %q", expr, text, got, want)
			}
		}
	}
}

// These take quadratic time where a scan forgets what earlier scans have seen,
// and would then not end.
func TestSplitIsLinear(t *testing.T) {
	const few, n = 100_000, 1_000_000
	for _, tc := range []struct {
		expr, text string
		pieces     int
	}{
		{`a*b|a`, strings.Repeat("a", few), few},
		{`a*b`, strings.Repeat("a", few), 1},
		{`[ab]*c|(?:ab)+d|a`, strings.Repeat("ab", few/2), few},
		{gpt2, strings.Repeat(" ", n), 1},
		{gpt2, strings.Repeat(" ", n) + "x", 2},
		{llama3, strings.Repeat(" \t", n/2) + "x", 2},
		{llama3, strings.Repeat("x", n), 1},
		{llama3, strings.Repeat("1", n), (n + 2) / 3},
	} {
		p := mustCompile(t, tc.expr)
		got, total := 0, 0
		p.Split(tc.text, func(s string) { got++; total += len(s) })
		if got != tc.pieces || total != len(tc.text) {
			t.Errorf("%s on %.10q...: %d pieces of %d bytes, want %d of %d", tc.expr, tc.text, got, total, tc.pieces, len(tc.text))
		}
	}
}

func TestUnion(t *testing.T) {
	got := union(span{12, 12}, span{3, 5}, span{1, 3}, span{6, 9}, span{2, 2})
	if want := (set{{1, 9}, {12, 12}}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if want := (set{{0, 0}, {10, 11}, {13, unicode.MaxRune}}); !slices.Equal(got.not(), want) {
		t.Errorf("complement %v, want %v", got.not(), want)
	}
}

func TestSetIsRangeTable(t *testing.T) {
	for name, table := range map[string]*unicode.RangeTable{"L": unicode.L, "M": unicode.M, "N": unicode.N, "P": unicode.P, "S": unicode.S} {
		s := categories()[name]
		not := s.not()
		for r := rune(0); r <= unicode.MaxRune; r++ {
			if r > 0x3400 {
				r += 6 // not to take long
			}
			later := name == "L" && r >= letters151.lo && r <= letters151.hi || name == "S" && union(symbols151...).has(r)
			if got, want := s.has(r), unicode.Is(table, r) || later; got != want || not.has(r) == got {
				t.Fatalf("%U in %s: %v, want %v; in its complement: %v", r, name, got, want, not.has(r))
			}
		}
	}
}

func FuzzCompile(f *testing.F) {
	for _, expr := range []string{gpt2, llama3, `a{2,3}b?`, `[^a-c\s]+$`, `((?=\p{L})[^a-z])*x`, `(a|b)*c`} {
		f.Add(expr, "abc 'S 12\n x")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(expr) > 200 || strings.Count(expr, "{") > 3 {
			return // compiling is bounded, but not fast
		}
		p, err := Compile(expr)
		if err != nil {
			return
		}
		if got := pieces(p, text); strings.Join(got, "") != text || slices.Contains(got, "") {
			t.Errorf("%q on %q: %q", expr, text, got)
		}
	})
}

func BenchmarkSplit(b *testing.B) {
	text := strings.Repeat("The quick brown fox doesn't jump over 13 lazy dogs; «кофе» 漢字.\n", 1<<20/70)
	for name, expr := range map[string]string{"gpt2": gpt2, "llama3": llama3} {
		p := mustCompile(b, expr)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				p.Split(text, func(string) {})
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		mustCompile(b, llama3)
	}
}
