package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// partition finds special tokens by the algorithm of llama.cpp: each token in turn cuts each
// remaining piece of the text. The bytes between two pieces are claimed. The white space that
// before and after strip is in front of the first piece and after the last.
func partition(tokens []special, text string, parseSpecial bool, before, after int32) (matches []match, from, to int) {
	type piece struct {
		start, end int
		id         int32
	}
	isSpace := func(b byte) bool { return strings.IndexByte(" \t\n\v\f\r", b) >= 0 }
	from, to = 0, len(text)
	pieces := []piece{{0, len(text), None}}
	for _, t := range tokens {
		if t.id == before && t.stripAfter {
			for p := &pieces[0]; p.start < p.end && isSpace(text[p.start]); from = p.start {
				p.start++
			}
		}
		var next []piece
		for _, p := range pieces {
			for p.id == None && (t.always || parseSpecial) {
				k := strings.Index(text[p.start:p.end], t.text)
				if k < 0 {
					break
				}
				m := piece{p.start + k, p.start + k + len(t.text), t.id}
				for t.stripBefore && m.start > p.start && isSpace(text[m.start-1]) {
					m.start--
				}
				for t.stripAfter && m.end < p.end && isSpace(text[m.end]) {
					m.end++
				}
				next = append(next, piece{p.start, m.start, None}, m)
				p.start = m.end
			}
			next = append(next, p)
		}
		pieces = next
		if t.id == after && t.stripBefore {
			for p := &pieces[len(pieces)-1]; p.start < p.end && isSpace(text[p.end-1]); to = p.end {
				p.end--
			}
		}
	}
	for _, p := range pieces {
		if p.id != None {
			matches = append(matches, match(p))
		}
	}
	return matches, from, to
}

// randomSpecials returns a vocabulary of special tokens that consist of one letter and two
// kinds of white space. The tokens overlap, and strip white space at random.
func randomSpecials(rng *rand.Rand) Config {
	cfg := small()
	seen := map[string]bool{}
	for range 1 + rng.IntN(10) {
		w := randomWord(rng, 1+rng.IntN(6))
		if seen[w] {
			continue
		}
		seen[w] = true
		id := int32(len(cfg.Tokens))
		if rng.IntN(4) == 0 {
			cfg.StripBefore = append(cfg.StripBefore, id)
		}
		if rng.IntN(3) == 0 {
			cfg.StripAfter = append(cfg.StripAfter, id)
		}
		cfg.Tokens = append(cfg.Tokens, w)
		cfg.Scores = append(cfg.Scores, 0)
		cfg.Types = append(cfg.Types, []TokenType{Control, UserDefined}[rng.IntN(2)])
	}
	return cfg
}

func randomWord(rng *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "aab \n"[rng.IntN(5)]
	}
	return string(b)
}

func TestFindIsPartition(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	stripped := 0
	for range 1000 {
		cfg := randomSpecials(rng)
		s := mustNew(t, cfg).vocab.specials
		// The tokens around the text include None and tokens that are not special.
		around := func() int32 { return rng.Int32N(int32(len(cfg.Tokens))-250) + 250 }
		for range 20 {
			text := randomWord(rng, rng.IntN(40))
			for _, parse := range []bool{false, true} {
				for _, ids := range [][2]int32{{None, None}, {around(), around()}} {
					got, from, to := s.find(text, parse, ids[0], ids[1])
					want, wantFrom, wantTo := partition(s.tokens, text, parse, ids[0], ids[1])
					if !slices.Equal(got, want) || from != wantFrom || to != wantTo {
						t.Fatalf("tokens %+v, text %q between %v: %v in %d:%d, want %v in %d:%d", s.tokens, text, ids, got, from, to, want, wantFrom, wantTo)
					}
					if from > 0 && to < len(text) {
						stripped++
					}
				}
			}
		}
	}
	if stripped < 50 {
		t.Errorf("white space was stripped on both sides only %d times", stripped)
	}
}

// EncodeBetween gives the ids that text between two special tokens has in the whole text.
func TestEncodeBetween(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	tested := 0
	for range 1000 {
		cfg := randomSpecials(rng)
		// These tokens overlap with no other token, and are neither the first nor the last
		// to cut.
		cfg.Tokens = append(cfg.Tokens, "<1>", "<2>")
		cfg.Scores = append(cfg.Scores, 0, 0)
		cfg.Types = append(cfg.Types, Control, Control)
		one := int32(len(cfg.Tokens) - 2)
		for _, id := range []int32{one, one + 1} {
			if rng.IntN(2) == 0 {
				cfg.StripBefore = append(cfg.StripBefore, id)
			}
			if rng.IntN(2) == 0 {
				cfg.StripAfter = append(cfg.StripAfter, id)
			}
		}
		for i, kind := range cfg.Types {
			if kind == Control && int32(i) < one && i > 2 {
				cfg.Types[i] = UserDefined
			}
		}
		tok := mustNew(t, cfg)
		for range 10 {
			text := randomWord(rng, rng.IntN(12))
			whole := encode(t, tok, "<1>"+text+"<2>", EncodeOptions{ParseSpecial: true})
			got, err := tok.EncodeBetween(one, text, one+1)
			if err != nil {
				t.Fatal(err)
			}
			if want := whole[1 : len(whole)-1]; !slices.Equal(got, want) {
				t.Fatalf("tokens %+v, text %q: %q, want %q", tok.vocab.specials.tokens, text, texts(tok, got), texts(tok, want))
			}
			if len(got) != len(encode(t, tok, text, EncodeOptions{})) {
				tested++
			}
			if got, err = tok.EncodeBetween(None, text, None); err != nil || !slices.Equal(got, encode(t, tok, text, EncodeOptions{})) {
				t.Fatalf("%q between nothing: %v, %v", text, got, err)
			}
		}
	}
	if tested < 1000 {
		t.Errorf("white space was stripped only %d times", tested)
	}
}

// A hostile vocabulary of a thousand special tokens that are prefixes of each other takes
// little time, for a text that contains them all.
func TestNestedSpecialTokens(t *testing.T) {
	cfg := small()
	for i := 1; i <= 1000; i++ {
		cfg.Tokens = append(cfg.Tokens, strings.Repeat("q", i))
		cfg.Scores = append(cfg.Scores, 0)
		cfg.Types = append(cfg.Types, UserDefined)
	}
	tok := mustNew(t, cfg)
	got := encode(t, tok, strings.Repeat("q", 100_999), EncodeOptions{})
	if len(got) != 101 || got[0] != 259+999 || got[100] != 259+998 {
		t.Errorf("%d ids: %v", len(got), got)
	}
}

// Hostile vocabularies take little time. They take minutes if the text is searched again for
// each token in it, or a token for each of its suffixes that is a token.
func TestManySpecialTokens(t *testing.T) {
	const n = 1 << 16
	numbers := func(format string) (texts []string) {
		for i := range n {
			texts = append(texts, fmt.Sprintf(format, i))
		}
		return texts
	}
	nested := func(n int) (texts []string) {
		for i := 1; i <= n; i++ {
			texts = append(texts, strings.Repeat("q", i))
		}
		return texts
	}
	for _, tc := range []struct {
		name    string
		tokens  []string // a user-defined token, followed by control tokens
		text    string
		parse   bool
		matches int
	}{
		{"all in one text", numbers("<%05d>"), strings.Join(numbers("<%05d>"), ""), true, n},
		{"overlapping", append(numbers("<%05d>"), numbers("%05d>>")...), strings.Join(numbers("<%05d>>"), ""), true, n},
		{"nested", nested(1000), strings.Repeat("q", 300_000), true, 300},
		{"nested in what is longer", append(nested(1000), "p"+strings.Repeat("q", 1000)), strings.Repeat("p"+strings.Repeat("q", 1001), 200), true, 400},
		{"nested, one recognised", nested(1000), strings.Repeat("q", 300_000), false, 300_000},
	} {
		cfg := small()
		for i, text := range tc.tokens {
			kind := Control
			if i == 0 {
				kind = UserDefined
			}
			cfg.Tokens = append(cfg.Tokens, text)
			cfg.Scores = append(cfg.Scores, 0)
			cfg.Types = append(cfg.Types, kind)
		}
		s := mustNew(t, cfg).vocab.specials
		if got, _, _ := s.find(tc.text, tc.parse, None, None); len(got) != tc.matches {
			t.Errorf("%s: %d matches, want %d", tc.name, len(got), tc.matches)
		}
	}
}

// The search of a text without special tokens allocates nothing.
func TestFindAllocatesNothing(t *testing.T) {
	s := stories(t).vocab.specials
	text := strings.Repeat("Once upon a time <s", 1000)
	if n := testing.AllocsPerRun(10, func() { s.find(text, true, None, None) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
