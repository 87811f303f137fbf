package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fucina-go/fucina/tests/repo"
)

// loadBPE reads a byte-level vocabulary of testdata.
func loadBPE(t testing.TB, pre string) Config {
	t.Helper()
	cfg, err := Defaults(ModelBPE)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Tokens [][2]json.RawMessage
		Merges []string
	}
	readJSON(t, "bpe_vocab.json", &file)
	for i, r := range file.Tokens {
		var text string
		var kind TokenType
		if err := errors.Join(json.Unmarshal(r[0], &text), json.Unmarshal(r[1], &kind)); err != nil {
			t.Fatalf("token %d: %v", i, err)
		}
		cfg.Tokens = append(cfg.Tokens, text)
		cfg.Types = append(cfg.Types, kind)
	}
	cfg.Pre, cfg.Merges = pre, file.Merges
	cfg.BOS = int32(slices.Index(cfg.Tokens, "<|endoftext|>"))
	cfg.EOS = cfg.BOS
	row, err := findPreTokenizer(pre)
	if err != nil {
		t.Fatal(err)
	}
	cfg.AddBOS = row.addBOS
	return cfg
}

// golden holds results of llama.cpp.
type golden struct {
	EOG   []int32 `json:"eog"`
	Cases []struct {
		TextHex string  `json:"text_hex"`
		Plain   []int32 `json:"plain"`       // without options
		Full    []int32 `json:"full"`        // with TextFrame and ParseSpecial
		Special string  `json:"special_hex"` // the text of Full, with special tokens
	} `json:"cases"`
}

func (g *golden) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	if len(g.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range g.Cases {
		text := unhex(t, c.TextHex)
		if got := encode(t, tok, text, EncodeOptions{}); !slices.Equal(got, c.Plain) {
			t.Errorf("%q:\n got %q\nwant %q", text, texts(tok, got), texts(tok, c.Plain))
		}
		if got := encode(t, tok, text, EncodeOptions{Frame: TextFrame, ParseSpecial: true}); !slices.Equal(got, c.Full) {
			t.Errorf("%q with special tokens:\n got %q\nwant %q", text, texts(tok, got), texts(tok, c.Full))
		}
		var got []byte
		for _, id := range c.Full {
			got = tok.AppendPiece(got, id, true)
		}
		if want := unhex(t, c.Special); string(got) != want {
			t.Errorf("%v decoded %q, want %q", c.Full, got, want)
		}
	}
	if eog := endsOf(tok); !slices.Equal(eog, g.EOG) {
		t.Errorf("end of generation: %v, want %v", eog, g.EOG)
	}
}

// Each pre-tokenizer of the table gives the ids of llama.cpp for random texts of tokens,
// scripts, spaces, digits, contractions and bytes.
func TestBPEGolden(t *testing.T) {
	var goldens []struct {
		Pre string `json:"pre"`
		golden
	}
	readJSON(t, "bpe_golden.json", &goldens)
	tested := make(map[string]bool)
	for _, g := range goldens {
		tested[g.Pre] = true
		t.Run(g.Pre, func(t *testing.T) {
			g.check(t, mustNew(t, loadBPE(t, g.Pre)))
		})
	}
	names := make(map[string]bool)
	for _, p := range preTokenizers {
		if !slices.ContainsFunc(p.names, func(name string) bool { return tested[name] }) {
			t.Errorf("no case for %q", p.names)
		}
		for _, name := range p.names {
			if names[name] {
				t.Errorf("two rows for %q", name)
			}
			names[name] = true
		}
	}
}

// The vocabularies of GPT-2 and Qwen 2 give llama.cpp's results for llama.cpp's test texts.
func TestBPEVocabGolden(t *testing.T) {
	for _, name := range []string{"gpt-2", "qwen2"} {
		t.Run(name, func(t *testing.T) {
			checkVocab(t, name, "TestBPEGolden takes this path with the vocabulary in testdata")
		})
	}
}

// spelled returns the spelling of bytes in a byte-level vocabulary.
func spelled(raw string) string {
	var b strings.Builder
	for i := range len(raw) {
		b.WriteRune(byteRunes[raw[i]])
	}
	return b.String()
}

// smallBPE returns a vocabulary that consists of the 256 bytes and the given tokens.
func smallBPE(merges []string, tokens ...string) Config {
	cfg, err := Defaults(ModelBPE)
	if err != nil {
		panic(err)
	}
	cfg.Pre, cfg.BOS, cfg.EOS = "gpt-2", None, None
	for b := range 256 {
		cfg.Tokens = append(cfg.Tokens, spelled(string([]byte{byte(b)})))
	}
	cfg.Tokens = append(cfg.Tokens, tokens...)
	cfg.Merges = merges
	return cfg
}

func TestByteRunes(t *testing.T) {
	seen := make(map[rune]bool)
	for b, r := range byteRunes {
		if seen[r] {
			t.Errorf("%U stands for two bytes", r)
		}
		seen[r] = true
		if raw, ok := fromByteRunes(string(r)); !ok || raw != string([]byte{byte(b)}) {
			t.Errorf("%U gives %q, %v, want byte %#x", r, raw, ok, b)
		}
	}
	for b, want := range map[byte]rune{0: 0x100, ' ': 'Ġ', '\n': 'Ċ', '!': '!', '~': '~', 0x7F: 0x121, 0xAD: 0x143, 0xAE: '®', 0xFF: 'ÿ'} {
		if byteRunes[b] != want {
			t.Errorf("byte %#x is %U, want %U", b, byteRunes[b], want)
		}
	}
	for _, text := range []string{" ", "\u00ad", "\u0144", "a漢", "\xff", "\uFFFD", "🦙"} {
		if raw, ok := fromByteRunes(text); ok {
			t.Errorf("%q stands for %q", text, raw)
		}
	}
}

func TestWellFormed(t *testing.T) {
	for _, tc := range [][2]string{
		{"é漢🦙", "é漢🦙"},
		{"a\xffb", "a\uFFFDb"},
		{"\xe2\x82", "\uFFFD\uFFFD"},
		{"\xc0\x80", "\x00"},
		{"\xc1\xa1\xe0\x81\xa1\xf0\x80\x81\xa1", "aaa"},
		{"\xed\xa0\x80", "\xed\xa0\x80"},
		{"\xf4\x90\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},
		{"\xf8\x88\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD"},
	} {
		if got := wellFormed(tc[0]); got != tc[1] {
			t.Errorf("%q: %q, want %q", tc[0], got, tc[1])
		}
	}
}

func TestBPEMerges(t *testing.T) {
	for _, tc := range []struct {
		name   string
		merges []string
		tokens []string
		text   string
		want   []string
	}{
		{"by rank", []string{"b c", "a b"}, []string{"ab", "bc"}, "abc", []string{"a", "bc"}},
		{"ties leftmost", []string{"a a"}, []string{"aa"}, "aaaaa", []string{"aa", "aa", "a"}},
		{"the first of two ranks", []string{"a b", "b c", "a b"}, []string{"ab", "bc"}, "abc", []string{"ab", "c"}},
		{"a token without a merge", nil, []string{"abc"}, "abc", []string{"a", "b", "c"}},
		{"a merge of merges", []string{"a b", "ab c"}, []string{"ab", "abc"}, "abcab", []string{"abc", "ab"}},
		{"through what is no token", []string{"a b", "ab c"}, []string{"abc"}, "abcab", []string{"abc", "a", "b"}},
		{"a space within a word", []string{"Ġ a"}, []string{"Ġa"}, "a a", []string{"a", "Ġa"}},
		{"lost where neither token nor ASCII", []string{"Ġ a"}, nil, "a a", []string{"a", "a"}},
		{"never across words", []string{"a Ġ"}, []string{"aĠ"}, "a a", []string{"a", "Ġ", "a"}},
		{"pieces that no text spells", []string{"▁ a", "a 漢", "  a"}, []string{"▁a"}, "▁a", []string{"â", "ĸ", "ģ", "a"}},
	} {
		tok := mustNew(t, smallBPE(tc.merges, tc.tokens...))
		if got := texts(tok, encode(t, tok, tc.text, EncodeOptions{})); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q gives %q, want %q", tc.name, tc.text, got, tc.want)
		}
	}
}

// Pre-tokenizers that encode a word that is a token as that token do so only for whole words.
func TestBPEWholeWords(t *testing.T) {
	cfg := smallBPE([]string{"b c"}, "abc", "bc", "abcd")
	for pre, want := range map[string][]string{
		"gpt-2":     {"a", "bc", "Ġ", "a", "bc"},
		"llama-bpe": {"abc", "Ġ", "a", "bc"},
	} {
		cfg.Pre = pre
		tok := mustNew(t, cfg)
		if got := texts(tok, encode(t, tok, "abc abc", EncodeOptions{})); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", pre, got, want)
		}
	}
}

func TestBPEPieces(t *testing.T) {
	cfg := smallBPE(nil, "Ġhi", "not Ġ bytes", "<|end|>", "<0x41>", "ÃĠ")
	cfg.Types = slices.Repeat([]TokenType{Normal}, len(cfg.Tokens))
	cfg.Types[258], cfg.Types[259] = UserDefined, Byte
	tok := mustNew(t, cfg)
	for id, want := range map[int32]string{256: " hi", 257: "not Ġ bytes", 258: "", 259: "A", 260: "\xc3 ", 0: "\x00", 255: "\xff"} {
		if got := string(tok.AppendPiece(nil, id, false)); got != want {
			t.Errorf("token %d: %q, want %q", id, got, want)
		}
	}
	if got := tok.Decode([]int32{256, 256}); got != " hi hi" {
		t.Errorf("decoded %q, want a leading space", got)
	}
	s := tok.NewStream(StreamOptions{Start: true})
	if got := []string{s.Next(256), s.Next(0xC3), s.Next(0xA9), s.Next(0xE2), s.Flush()}; !slices.Equal(got, []string{" hi", "", "é", "", "\uFFFD"}) {
		t.Errorf("streamed %q", got)
	}
}

func TestBPEErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   error
		says   string
	}{
		{"unknown pre-tokenizer", func(c *Config) { c.Pre = "gpt-3" }, ErrModel, `"gpt-3"`},
		{"empty merge", func(c *Config) { c.Merges = []string{"a b", ""} }, ErrVocab, "merge 1"},
		{"merge of one piece", func(c *Config) { c.Merges = []string{"ab"} }, ErrVocab, "merge 0"},
		{"merge without right", func(c *Config) { c.Merges = []string{"ab "} }, ErrVocab, "merge 0"},
		{"merge without left", func(c *Config) { c.Merges = []string{" a"} }, ErrVocab, "merge 0"},
		{"a space alone", func(c *Config) { c.Merges = []string{" "} }, ErrVocab, "merge 0"},
		{"BOS to add", func(c *Config) { c.AddBOS = true }, ErrVocab, "no BOS"},
		{"duplicate", func(c *Config) { c.Tokens = append(c.Tokens, "a") }, ErrVocab, `"a"`},
	} {
		cfg := smallBPE(nil)
		tc.change(&cfg)
		tok, err := New(cfg)
		if !errors.Is(err, tc.want) || tok != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v that says %q", tc.name, err, tc.want, tc.says)
		}
	}
}

func TestBPEFromMetadata(t *testing.T) {
	for _, tc := range []struct {
		pre    any // nil means that the key is missing
		addBOS bool
		bos    int32
		want   error
	}{
		{"gpt-2", false, 11, nil},
		{nil, false, 11, nil},
		{"default", false, 11, nil},
		{"llama-bpe", true, 11, nil},
		{"jina-v5-nano", true, 11, nil},
		{"qwen2", false, 11, nil},
		{"glm4", false, None, nil},
		{"nope", false, 0, ErrModel},
		{3, false, 0, ErrMetadata},
	} {
		m := map[string]any{
			"tokenizer.ggml.model":  ModelBPE,
			"tokenizer.ggml.tokens": smallBPE(nil).Tokens,
			"tokenizer.ggml.merges": []string{"a b"},
		}
		if tc.pre != nil {
			m["tokenizer.ggml.pre"] = tc.pre
		}
		get := func(key string) (any, bool) { v, ok := m[key]; return v, ok }
		cfg, err := FromMetadata(get)
		if !errors.Is(err, tc.want) {
			t.Errorf("pre %v: %v, want %v", tc.pre, err, tc.want)
		}
		if err != nil {
			continue
		}
		if cfg.AddBOS != tc.addBOS || cfg.BOS != tc.bos || cfg.EOS != 11 || cfg.AddEOS || cfg.AddSpacePrefix || len(cfg.Merges) != 1 {
			t.Errorf("pre %v: %+v", tc.pre, cfg)
		}
		m["tokenizer.ggml.add_bos_token"] = !tc.addBOS
		if cfg, err = FromMetadata(get); err != nil || cfg.AddBOS == tc.addBOS {
			t.Errorf("pre %v: add_bos_token of the file has no effect: %v", tc.pre, err)
		}
		delete(m, "tokenizer.ggml.merges")
		if _, err := FromMetadata(get); !errors.Is(err, ErrMetadata) {
			t.Errorf("without merges: %v, want %v", err, ErrMetadata)
		}
		m["tokenizer.ggml.merges"] = []int32{1}
		if _, err := FromMetadata(get); !errors.Is(err, ErrMetadata) {
			t.Errorf("merges of integers: %v, want %v", err, ErrMetadata)
		}
	}
}

// All names of a pre-tokenizer give the same ids.
func TestPreTokenizerAliases(t *testing.T) {
	const text = "It's 12345 HTTPServers'LL a/b//\n\n  C\u0301 \u4e16\u754c\r\n "
	for alias, name := range map[string]string{
		"jina-v5-nano": "llama-bpe",
		"joyai-llm":    "deepseek-v3",
		"kormo":        "qwen2",
		"f2llmv2":      "qwen2",
		"kanana2":      "gpt-4o",
		"talkie":       "gpt-4o",
	} {
		got, want := loadBPE(t, alias), loadBPE(t, name)
		if got.AddBOS != want.AddBOS {
			t.Errorf("%s: AddBOS %v, %s has %v", alias, got.AddBOS, name, want.AddBOS)
		}
		if a, b := encode(t, mustNew(t, got), text, EncodeOptions{}), encode(t, mustNew(t, want), text, EncodeOptions{}); !slices.Equal(a, b) {
			t.Errorf("%s: %v, %s gives %v", alias, a, name, b)
		}
	}
}

// Words and spaces of a million characters take little time, for any merges.
func TestBPELongText(t *testing.T) {
	cfg := smallBPE([]string{"a a", "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ", "x y"}, "aa", "aaaa", "aaaaaaaa", "ĠĠ", "ĠĠĠĠ", "xy")
	for pre, n := range map[string]int{"gpt-2": 1_000_000, "llama-bpe": 80_000, "tekken": 80_000, "default": 80_000} {
		cfg.Pre = pre
		tok := mustNew(t, cfg)
		for _, tc := range []struct {
			name, text string
			ids        int
		}{
			{"a run", strings.Repeat("a", n), n / 8},
			{"pairs", strings.Repeat("xy", n/10), n / 10},
			{"spaces", strings.Repeat(" ", n), n / 4},
			{"invalid", strings.Repeat("\xf0", n/20), 3 * n / 20},
		} {
			if got := encode(t, tok, tc.text, EncodeOptions{}); len(got) != tc.ids {
				t.Errorf("%s, %s: %d ids, want %d", pre, tc.name, len(got), tc.ids)
			}
		}
	}
}

func TestNoVocab(t *testing.T) {
	cfg, err := FromMetadata(func(key string) (any, bool) { return ModelNone, key == "tokenizer.ggml.model" })
	if err != nil {
		t.Fatal(err)
	}
	tok := mustNew(t, cfg)
	if n := tok.VocabSize(); n != 0 {
		t.Errorf("%d tokens", n)
	}
	for _, text := range []string{"", "a"} {
		if ids, err := tok.Encode(text, EncodeOptions{Frame: TextFrame, ParseSpecial: true}); !errors.Is(err, ErrNoVocab) || ids != nil {
			t.Errorf("%q: %v, %v, want %v", text, ids, err, ErrNoVocab)
		}
	}
	s := tok.NewStream(StreamOptions{Start: true, Special: true})
	if got := tok.Decode([]int32{0, 1}) + s.Next(0) + s.Flush() + tok.Text(0); got != "" {
		t.Errorf("decoded %q", got)
	}
	if tok.BOS() != None || tok.EOS() != None || tok.IsEOG(0) || tok.Lookup("") != None {
		t.Error("roles")
	}
}

// FuzzBPE checks that decoding restores valid text, as a whole and as a stream.
func FuzzBPE(f *testing.F) {
	var toks []*Tokenizer
	for _, p := range preTokenizers {
		toks = append(toks, mustNew(f, loadBPE(f, p.names[0])))
	}
	for _, s := range []string{"", " ", "Hello, world's  end\r\n\n 12345", "\xff\xe2\x96", "🦙 é\u2581\u00a0\u3000", "<|endoftext|>", "\xed\xa0\x80\xc0\x80", "ABCdefGHI'LL/\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for i, tok := range toks {
			ids := encode(t, tok, text, EncodeOptions{})
			// The result of the merge "qz" is not a token and becomes its letters.
			got := tok.Decode(ids)
			if got != wellFormed(text) {
				t.Errorf("%q: %q decoded %q", preTokenizers[i].names[0], text, got)
			}
			var b strings.Builder
			s := tok.NewStream(StreamOptions{})
			for _, id := range ids {
				p := s.Next(id)
				if !utf8.ValidString(p) {
					t.Errorf("%q streamed %q", text, p)
				}
				b.WriteString(p)
			}
			b.WriteString(s.Flush())
			if want := strings.ToValidUTF8(got, "\uFFFD"); b.String() != want {
				t.Errorf("%q streamed %q, want %q", text, b.String(), want)
			}
			for _, id := range encode(t, tok, text, EncodeOptions{Frame: TextFrame, ParseSpecial: true}) {
				if !tok.vocab.has(id) {
					t.Errorf("%q: id %d", text, id)
				}
			}
		}
	})
}

// FuzzBPEVocab checks that the vocabularies of GPT-2 and Qwen 2 restore text.
func FuzzBPEVocab(f *testing.F) {
	var toks []*Tokenizer
	for _, name := range []string{"gpt-2", "qwen2"} {
		toks = append(toks, mustNew(f, configFromFile(f, repo.Shared(f, "FuzzBPE does the same with the vocabulary in testdata", "vocab", "ggml-vocab-"+name+".gguf"))))
	}
	f.Add("Hello, world's  end\r\n\n 12345 🦙 é\u00a0漢字 ABCdef")
	f.Fuzz(func(t *testing.T, text string) {
		for _, tok := range toks {
			ids := encode(t, tok, text, EncodeOptions{})
			if slices.ContainsFunc(ids, tok.vocab.silent) {
				continue // the text spells a token with a role
			}
			if got := tok.Decode(ids); utf8.ValidString(text) && got != text {
				t.Errorf("%q decoded %q", text, got)
			}
		}
	})
}

// FuzzNewBPE builds byte-level vocabularies from arbitrary strings, and uses those that New
// accepts.
func FuzzNewBPE(f *testing.F) {
	f.Add("a\nb\nab\nĠ", "a b\nab a", "abab a", uint8(0))
	f.Add("Ã\n©\nÃ©", "Ã ©\n▁ a", "é", uint8(2))
	f.Fuzz(func(t *testing.T, tokens, merges, text string, pre uint8) {
		cfg, _ := Defaults(ModelBPE)
		cfg.BOS, cfg.EOS = None, None
		cfg.Pre = preTokenizers[int(pre)%len(preTokenizers)].names[0]
		cfg.Tokens, cfg.Merges = strings.Split(tokens, "\n"), strings.Split(merges, "\n")
		tok, err := New(cfg)
		if err != nil {
			if !errors.Is(err, ErrVocab) {
				t.Fatal(err)
			}
			return
		}
		ids := encode(t, tok, text, EncodeOptions{ParseSpecial: true})
		for _, id := range ids {
			if !tok.vocab.has(id) {
				t.Fatalf("id %d", id)
			}
		}
		tok.Decode(ids)
	})
}

func BenchmarkBPE(b *testing.B) {
	const n = 1 << 20
	for _, name := range []string{"gpt-2", "qwen2"} {
		path := repo.Shared(b, "nothing as large is in testdata", "vocab", "ggml-vocab-"+name+".gguf")
		tok := mustNew(b, configFromFile(b, path))
		for _, bc := range []struct{ name, text string }{
			{"text", strings.Repeat("Once upon a time, there was a little girl named Lily. She didn't like 1234 games; «кофе» 漢字!\n", n/105)},
			{"word", strings.Repeat("abcdefghijklmnopqrstuvwxyz", n/26)},
			{"spaces", strings.Repeat(" ", n)},
		} {
			b.Run(fmt.Sprintf("%s/%s", name, bc.name), func(b *testing.B) {
				b.SetBytes(int64(len(bc.text)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := tok.Encode(bc.text, EncodeOptions{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkNewBPE(b *testing.B) {
	cfg := configFromFile(b, repo.Shared(b, "nothing as large is in testdata", "vocab", "ggml-vocab-qwen2.gguf"))
	for b.Loop() {
		if _, err := New(cfg); err != nil {
			b.Fatal(err)
		}
	}
}
