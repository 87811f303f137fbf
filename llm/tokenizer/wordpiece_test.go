package tokenizer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/fucina-go/fucina/tests/repo"
)

// loadWordPiece reads the WordPiece vocabulary of testdata.
func loadWordPiece(t testing.TB) Config {
	t.Helper()
	cfg, err := Defaults(ModelWordPiece)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][2]any
	readJSON(t, "wordpiece_vocab.json", &rows)
	for _, r := range rows {
		cfg.Tokens = append(cfg.Tokens, r[0].(string))
		cfg.Types = append(cfg.Types, TokenType(r[1].(float64)))
	}
	cfg.UNK, cfg.BOS, cfg.SEP = 1, 2, 3
	return cfg
}

func TestWordPieceGolden(t *testing.T) {
	var goldens []struct {
		Lowercase    bool `json:"lowercase"`
		StripAccents bool `json:"strip_accents"`
		golden
	}
	readJSON(t, "wordpiece_golden.json", &goldens)
	if len(goldens) != 4 {
		t.Fatalf("%d ways to normalise", len(goldens))
	}
	for _, g := range goldens {
		t.Run(fmt.Sprintf("lowercase=%v,strip_accents=%v", g.Lowercase, g.StripAccents), func(t *testing.T) {
			cfg := loadWordPiece(t)
			cfg.Lowercase, cfg.StripAccents = g.Lowercase, g.StripAccents
			g.check(t, mustNew(t, cfg))
		})
	}
}

func smallWordPiece(tokens ...string) Config {
	cfg, err := Defaults(ModelWordPiece)
	if err != nil {
		panic(err)
	}
	cfg.Tokens = append([]string{"[UNK]", "[CLS]", "[SEP]"}, tokens...)
	cfg.Types = append([]TokenType{Control, Control, Control}, slices.Repeat([]TokenType{Normal}, len(tokens))...)
	cfg.UNK, cfg.BOS, cfg.SEP = 0, 1, 2
	return cfg
}

func TestWordPiece(t *testing.T) {
	tokens := []string{"▁un", "aff", "able", "affable", "ab", "▁a", "▁e", "e", "▁!", "▁漢", "▁字", "▁ᄀ", "▁+", "▁\u00d7", "a"}
	for _, tc := range []struct {
		text string
		want []string
	}{
		{"unaffable", []string{"▁un", "affable"}},
		{"unaffab", []string{"▁un", "aff", "ab"}},
		{"unaffabl", []string{"[UNK]"}}, // the whole word is unknown if a part of it is
		{"  a\t\u00a0\u3000unable \n", []string{"▁a", "▁un", "able"}},
		{"aa!!a", []string{"▁a", "a", "▁!", "▁!", "▁a"}},
		{"a漢字a", []string{"▁a", "▁漢", "▁字", "▁a"}},
		{"a+a", []string{"▁a", "▁+", "▁a"}},
		{"a\u00d7a", []string{"[UNK]"}}, // a symbol outside of ASCII is part of a word
		{"ÀÉ é\u0301", []string{"▁a", "e", "▁e"}},
		{"각", []string{"▁ᄀ"}},
		{"a\x00\uFFFD\u200d\xff\u0301a", []string{"▁a", "a"}},
		{"\u0301", []string{}},
		{"▁a", []string{"[UNK]"}},
	} {
		tok := mustNew(t, smallWordPiece(tokens...))
		if got := texts(tok, encode(t, tok, tc.text, EncodeOptions{})); !slices.Equal(got, tc.want) {
			t.Errorf("%q gives %q, want %q", tc.text, got, tc.want)
		}
	}
	cfg := smallWordPiece(tokens...)
	cfg.AddBOS, cfg.AddEOS = false, true // no effect for ModelWordPiece
	tok := mustNew(t, cfg)
	for text, want := range map[string][]int32{"": {1, 2}, "a": {1, 8, 2}, "[SEP]a": {1, 2, 8, 2}} {
		if got := encode(t, tok, text, EncodeOptions{Frame: TextFrame, ParseSpecial: true}); !slices.Equal(got, want) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := tok.Decode([]int32{1, 3, 6, 2}); got != " unaffable" {
		t.Errorf("decoded %q", got)
	}
}

// longest agrees with a search through all tokens, in vocabularies whose tokens are prefixes
// of each other.
func TestLongestIsNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "aab\x00\xff"[rng.IntN(5)]
		}
		return string(b)
	}
	for range 300 {
		var tokens []string
		for range rng.IntN(30) {
			if text := random(1 + rng.IntN(7)); !slices.Contains(tokens, text) {
				tokens = append(tokens, text)
			}
		}
		cfg := smallWordPiece(tokens...)
		w := mustNew(t, cfg).enc.(*wordPiece)
		for range 100 {
			text := random(rng.IntN(10))
			want := None
			for id, token := range cfg.Tokens {
				if strings.HasPrefix(text, token) && (want == None || len(token) > len(cfg.Tokens[want])) {
					want = int32(id)
				}
			}
			if got := w.longest([]byte(text)); got != want {
				t.Fatalf("%q in %q: token %d, want %d", text, cfg.Tokens, got, want)
			}
		}
	}
}

func TestChinese(t *testing.T) {
	for _, x := range chineseRanges {
		if chinese(x[0]-1) && x[0] != 0x2B740 || !chinese(x[0]) || !chinese(x[1]) || chinese(x[1]+1) && x[1] != 0x2B73F {
			t.Errorf("%U to %U: not where the ideographs begin and end", x[0], x[1])
		}
	}
	for r, want := range map[rune]bool{0x3400: true, 0x4DC0: false, '漢': true, 0xF900: true, 0x20000: true, 0x2A700: true, 0x2B740: true, 0x2B820: false, 0x2B920: true, 0x2F800: true, 'あ': false, 0x3005: false} {
		if chinese(r) != want {
			t.Errorf("%U: %v, want %v", r, !want, want)
		}
	}
}

func TestBaseIsNFD(t *testing.T) {
	for r := rune(0); r < 0x30000; r++ {
		if want := []rune(norm.NFD.String(string(r))); r < 0xD800 || r > 0xDFFF {
			if got := base(r); got != want[0] {
				t.Fatalf("%U: %U, want %U", r, got, want[0])
			}
		}
	}
}

func TestWordPieceErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		says   string
	}{
		{"no UNK", func(c *Config) { c.UNK = None }, "unknown token"},
		{"no BOS", func(c *Config) { c.BOS = None }, "BOS"},
		{"no SEP", func(c *Config) { c.SEP = None }, "SEP"},
		{"SEP out of range", func(c *Config) { c.SEP = 100 }, "seperator_token_id is 100"},
		{"long token", func(c *Config) { c.Tokens[3] = strings.Repeat("a", 513) }, "513 bytes"},
	} {
		cfg := smallWordPiece("a")
		tc.change(&cfg)
		if tok, err := New(cfg); !errors.Is(err, ErrVocab) || tok != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v that says %q", tc.name, err, ErrVocab, tc.says)
		}
	}
}

func TestWordPieceFromMetadata(t *testing.T) {
	m := map[string]any{
		"tokenizer.ggml.model":              ModelWordPiece,
		"tokenizer.ggml.tokens":             make([]string, 200),
		"tokenizer.ggml.seperator_token_id": uint32(7),
	}
	get := func(key string) (any, bool) { v, ok := m[key]; return v, ok }
	for _, tc := range []struct {
		lower, strip         any // nil means that the key is missing
		wantLower, wantStrip bool
	}{
		{nil, nil, true, true},
		{false, nil, false, false},
		{nil, false, true, false},
		{false, true, false, true},
	} {
		for key, v := range map[string]any{"lowercase": tc.lower, "strip_accents": tc.strip} {
			delete(m, "tokenizer.ggml.normalizer."+key)
			if v != nil {
				m["tokenizer.ggml.normalizer."+key] = v
			}
		}
		cfg, err := FromMetadata(get)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Lowercase != tc.wantLower || cfg.StripAccents != tc.wantStrip || cfg.BOS != 101 || cfg.UNK != 100 || cfg.SEP != 7 || cfg.EOS != None {
			t.Errorf("lowercase %v, strip_accents %v: %+v", tc.lower, tc.strip, cfg)
		}
	}
}

// Long words and texts take little time, even if tokens of the largest length almost match at
// every byte.
func TestWordPieceLongText(t *testing.T) {
	tok := mustNew(t, smallWordPiece("▁a", "a", strings.Repeat("a", 500)+"b"))
	for _, tc := range []struct {
		text string
		ids  int
	}{
		{strings.Repeat("a", 30_000), 30_000},
		{strings.Repeat("a ", 500_000), 500_000},
		{strings.Repeat("漢", 300) + strings.Repeat("a", 30_000) + "c", 301},
	} {
		if got := encode(t, tok, tc.text, EncodeOptions{}); len(got) != tc.ids {
			t.Errorf("%.20q...: %d ids, want %d", tc.text, len(got), tc.ids)
		}
	}
}

func FuzzWordPiece(f *testing.F) {
	cfg := loadWordPiece(f)
	tok := mustNew(f, cfg)
	cfg.Lowercase, cfg.StripAccents = false, false
	cased := mustNew(f, cfg)
	for _, s := range []string{"", " ", "Hello, World!", "ÀÉ 漢字 각", "\xff\xed\xa0\x80\xc0\x80\xf4\x90\x80\x80", "[CLS]a[SEP]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range []*Tokenizer{tok, cased} {
			ids := encode(t, tok, text, EncodeOptions{Frame: TextFrame, ParseSpecial: true})
			if len(ids) < 2 || ids[0] != 2 || ids[len(ids)-1] != 3 {
				t.Errorf("%q: %v", text, ids)
			}
			for _, id := range ids {
				if !tok.vocab.has(id) {
					t.Errorf("%q: id %d", text, id)
				}
			}
		}
	})
}

// The benchmark uses the vocabulary of testdata, and one as large as those of real models.
func BenchmarkWordPiece(b *testing.B) {
	for _, bc := range []struct {
		name string
		cfg  func(testing.TB) Config
	}{
		{"small", loadWordPiece},
		{"large", func(t testing.TB) Config {
			gpt2 := configFromFile(t, repo.Shared(t, "the small case has the vocabulary in testdata", "vocab", "ggml-vocab-gpt-2.gguf"))
			cfg := smallWordPiece()
			seen := make(map[string]bool)
			for _, text := range gpt2.Tokens {
				text = strings.ToLower(strings.ReplaceAll(text, "Ġ", spaceMark))
				if !seen[text] {
					seen[text] = true
					cfg.Tokens = append(cfg.Tokens, text)
				}
			}
			cfg.Types = nil
			return cfg
		}},
	} {
		b.Run(bc.name, func(b *testing.B) {
			tok := mustNew(b, bc.cfg(b))
			text := strings.Repeat("Once upon a time, there was a little girl named Lily; «кофе» 漢字!\nInternational organisations disestablished unquestionably.\n", 1<<20/132)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(text, EncodeOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
