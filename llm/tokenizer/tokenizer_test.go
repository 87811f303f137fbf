package tokenizer

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/repo"
)

// readJSON reads a file of testdata.
func readJSON(t testing.TB, name string, dst any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, dst); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// loadConfig reads a vocabulary of testdata. Its lines are [text, score, type].
func loadConfig(t testing.TB, name string) Config {
	t.Helper()
	cfg, err := Defaults(ModelSPM)
	if err != nil {
		t.Fatal(err)
	}
	var rows [][3]json.RawMessage
	readJSON(t, name, &rows)
	for i, r := range rows {
		var text string
		var score float32
		var kind TokenType
		if err := errors.Join(json.Unmarshal(r[0], &text), json.Unmarshal(r[1], &score), json.Unmarshal(r[2], &kind)); err != nil {
			t.Fatalf("%s, token %d: %v", name, i, err)
		}
		cfg.Tokens = append(cfg.Tokens, text)
		cfg.Scores = append(cfg.Scores, score)
		cfg.Types = append(cfg.Types, kind)
	}
	return cfg
}

func mustNew(t testing.TB, cfg Config) *Tokenizer {
	t.Helper()
	tok, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func stories(t testing.TB) *Tokenizer {
	t.Helper()
	return mustNew(t, loadConfig(t, "stories260K_vocab.json"))
}

func encode(t testing.TB, tok *Tokenizer, text string, opt EncodeOptions) []int32 {
	t.Helper()
	ids, err := tok.Encode(text, opt)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return ids
}

func unhex(t testing.TB, s string) string {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The vocabulary of a small model gives the ids of llama.cpp.
func TestStoriesGolden(t *testing.T) {
	tok := stories(t)
	var golden []struct {
		TextHex string  `json:"text_hex"`
		IDs     []int32 `json:"ids"`
		BOS     []int32 `json:"ids_bos"`
		Special []int32 `json:"ids_special"`
	}
	readJSON(t, "stories260K_golden.json", &golden)
	if len(golden) == 0 {
		t.Fatal("no cases")
	}
	for _, g := range golden {
		text := unhex(t, g.TextHex)
		if got := encode(t, tok, text, EncodeOptions{}); !slices.Equal(got, g.IDs) {
			t.Errorf("%q:\n got %v\nwant %v", text, got, g.IDs)
		}
		if got := encode(t, tok, text, EncodeOptions{Frame: TextFrame}); !slices.Equal(got, g.BOS) {
			t.Errorf("%q with BOS:\n got %v\nwant %v", text, got, g.BOS)
		}
		if got := encode(t, tok, text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, g.Special) {
			t.Errorf("%q with special tokens parsed:\n got %v\nwant %v", text, got, g.Special)
		}
		if got := tok.Decode(g.IDs); got != text {
			t.Errorf("decoded %q, want %q", got, text)
		}
	}
}

// goldenFile holds results of llama.cpp for random texts of tokens and bytes.
type goldenFile struct {
	EOG   []int32 `json:"eog"`
	Cases []struct {
		TextHex     string  `json:"text_hex"`
		Plain       []int32 `json:"plain"`            // without options
		Full        []int32 `json:"full"`             // with TextFrame and ParseSpecial
		Decoded     string  `json:"decoded_hex"`      // the text of Plain
		DecodedFull string  `json:"decoded_full_hex"` // the text of Full
		Special     string  `json:"special_hex"`      // the text of Full, with special tokens
	} `json:"cases"`
}

func checkGolden(t *testing.T, tok *Tokenizer, g *goldenFile) {
	t.Helper()
	if len(g.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range g.Cases {
		text := unhex(t, c.TextHex)
		if got := encode(t, tok, text, EncodeOptions{}); !slices.Equal(got, c.Plain) {
			t.Errorf("%q:\n got %v\nwant %v", text, got, c.Plain)
		}
		if got := encode(t, tok, text, EncodeOptions{Frame: TextFrame, ParseSpecial: true}); !slices.Equal(got, c.Full) {
			t.Errorf("%q with special tokens:\n got %v\nwant %v", text, got, c.Full)
		}
		if got, want := tok.Decode(c.Plain), unhex(t, c.Decoded); got != want {
			t.Errorf("%v decoded %q, want %q", c.Plain, got, want)
		}
		if got, want := tok.Decode(c.Full), unhex(t, c.DecodedFull); got != want {
			t.Errorf("%v decoded %q, want %q", c.Full, got, want)
		}
		s := tok.NewStream(StreamOptions{Start: true, Special: true})
		var b strings.Builder
		for _, id := range c.Full {
			b.WriteString(s.Next(id))
		}
		b.WriteString(s.Flush())
		if got, want := b.String(), strings.ToValidUTF8(unhex(t, c.Special), "\uFFFD"); got != want {
			t.Errorf("%v streamed %q, want %q", c.Full, got, want)
		}
	}
}

// Vocabularies give the results of llama.cpp that have special tokens which nest, overlap and
// repeat, unused and undefined tokens, and roles that follow from the spelling.
func TestSpecialGolden(t *testing.T) {
	for _, tc := range []struct {
		file   string
		change func(*Config)
	}{
		{"special_golden.json", func(*Config) {}},
		{"noprefix_golden.json", func(c *Config) { c.AddBOS, c.AddEOS, c.AddSpacePrefix = false, true, false }},
	} {
		t.Run(tc.file, func(t *testing.T) {
			cfg := loadConfig(t, "special_vocab.json")
			tc.change(&cfg)
			tok := mustNew(t, cfg)
			var g goldenFile
			readJSON(t, tc.file, &g)
			checkGolden(t, tok, &g)
			if eog := endsOf(tok); !slices.Equal(eog, g.EOG) {
				t.Errorf("end of generation: %v, want %v", eog, g.EOG)
			}
		})
	}
}

// A prompt has no end token, even if a whole text has one. If a text spells a token of its
// frame, both tokens remain, and Doubled reports it.
func TestFrames(t *testing.T) {
	spm := func(bos, eos bool) Config {
		cfg := small("a")
		cfg.AddBOS, cfg.AddEOS, cfg.AddSpacePrefix = bos, eos, false
		return cfg
	}
	wordPiece := smallWordPiece("a")
	for _, tc := range []struct {
		name       string
		cfg        Config
		head, tail bool
	}{
		{"both", spm(true, true), true, true},
		{"head", spm(true, false), true, false},
		{"tail", spm(false, true), false, true},
		{"none", spm(false, false), false, false},
		{"WordPiece", wordPiece, true, true},
	} {
		tok := mustNew(t, tc.cfg)
		end := tc.cfg.EOS
		if tc.cfg.Model == ModelWordPiece {
			end = tc.cfg.SEP
		}
		inner := encode(t, tok, "a", EncodeOptions{})
		prompt := slices.Clone(inner)
		if tc.head {
			prompt = slices.Insert(prompt, 0, tc.cfg.BOS)
		}
		text := slices.Clone(prompt)
		if tc.tail {
			text = append(text, end)
		}
		for frame, want := range map[Frame][]int32{NoFrame: inner, PromptFrame: prompt, TextFrame: text} {
			got := encode(t, tok, "a", EncodeOptions{Frame: frame})
			if !slices.Equal(got, want) {
				t.Errorf("%s, frame %d: %v, want %v", tc.name, frame, got, want)
			}
			if head, tail := tok.Doubled(got, frame); head || tail {
				t.Errorf("%s, frame %d: Doubled reports %v", tc.name, frame, got)
			}
		}
		spelled := tok.Text(tc.cfg.BOS) + "a" + tok.Text(end)
		got := encode(t, tok, spelled, EncodeOptions{Frame: TextFrame, ParseSpecial: true})
		if head, tail := tok.Doubled(got, TextFrame); head != tc.head || tail != tc.tail {
			t.Errorf("%s: %v doubles %v, %v, want %v, %v", tc.name, got, head, tail, tc.head, tc.tail)
		}
		got = encode(t, tok, spelled+tok.Text(end), EncodeOptions{Frame: PromptFrame, ParseSpecial: true})
		if head, tail := tok.Doubled(got, PromptFrame); head != tc.head || tail {
			t.Errorf("%s: the prompt %v doubles %v, %v, want %v, false", tc.name, got, head, tail, tc.head)
		}
	}
	if head, tail := mustNew(t, spm(true, true)).Doubled([]int32{1}, TextFrame); head || tail {
		t.Error("Doubled reports a single token")
	}
	cfg := spm(true, true)
	cfg.EOS = cfg.BOS
	tok := mustNew(t, cfg)
	empty := encode(t, tok, "", EncodeOptions{Frame: TextFrame})
	if head, tail := tok.Doubled(empty, TextFrame); head || tail || len(empty) != 2 {
		t.Errorf("Doubled reports the frame %v of an empty text", empty)
	}
}

// endsOf returns the tokens that end a generation.
func endsOf(tok *Tokenizer) (ids []int32) {
	for id := range int32(tok.VocabSize()) {
		if tok.IsEOG(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// In some vocabularies, a token that ends a turn in other vocabularies ends a part of an
// answer, or is text. The results are those of llama.cpp.
func TestInnerEndsGolden(t *testing.T) {
	for _, name := range []string{"tiny-harmony", "tiny-toolresponse"} {
		t.Run(name, func(t *testing.T) {
			tok := mustNew(t, configFromFile(t, filepath.Join("testdata", name+".gguf")))
			var g struct {
				EOG   []int32 `json:"eog"`
				Cases []struct {
					Text   string  `json:"text"`
					Plain  []int32 `json:"plain"`
					Parsed []int32 `json:"parsed"` // with ParseSpecial
				} `json:"cases"`
			}
			readJSON(t, name+"_golden.json", &g)
			if got := endsOf(tok); !slices.Equal(got, g.EOG) || len(g.Cases) == 0 {
				t.Errorf("end of generation: %v, want %v; %d cases", got, g.EOG, len(g.Cases))
			}
			for _, c := range g.Cases {
				if got := encode(t, tok, c.Text, EncodeOptions{}); !slices.Equal(got, c.Plain) {
					t.Errorf("%q: %v, want %v", c.Text, got, c.Plain)
				}
				if got := encode(t, tok, c.Text, EncodeOptions{ParseSpecial: true}); !slices.Equal(got, c.Parsed) {
					t.Errorf("%q with special tokens: %v, want %v", c.Text, got, c.Parsed)
				}
			}
		})
	}
}

// The other tokens of a vocabulary determine whether "<|end|>" and "</s>" end a generation,
// for every type that the file gives them.
func TestInnerEnds(t *testing.T) {
	for _, tc := range []struct {
		beside []string
		inner  string
		ends   bool
		kind   TokenType
	}{
		{[]string{"<|return|>", "<|call|>"}, "<|end|>", false, UserDefined},
		{[]string{"<|calls|>", "<|flush|>"}, "<|end|>", false, UserDefined},
		{[]string{"<|return|>", "<|calls|>"}, "<|end|>", true, Control},
		{[]string{"<|call|>"}, "<|end|>", true, Control},
		{[]string{"<|tool_response>"}, "</s>", false, Normal},
		{[]string{"<|return|>", "<|call|>"}, "</s>", true, Control},
		{nil, "<|channel|>", false, UserDefined},
		{nil, "<|message|>", false, UserDefined},
		{nil, "<|start|>", false, UserDefined},
		{nil, "<|constrain|>", false, UserDefined},
	} {
		for _, kind := range []TokenType{Normal, Control, UserDefined} {
			cfg := smallBPE(nil, append(tc.beside, tc.inner)...)
			cfg.Types = make([]TokenType, len(cfg.Tokens))
			for i := range cfg.Types {
				cfg.Types[i] = kind
			}
			tok := mustNew(t, cfg)
			id := tok.Lookup(tc.inner)
			if tok.IsEOG(id) != tc.ends || tok.vocab.kind[id] != tc.kind {
				t.Errorf("%s beside %v, typed %d: ends %v, type %d; want %v, %d", tc.inner, tc.beside, kind, tok.IsEOG(id), tok.vocab.kind[id], tc.ends, tc.kind)
			}
			for _, text := range tc.beside {
				if !tok.IsEOG(tok.Lookup(text)) {
					t.Errorf("%s beside %s does not end", text, tc.inner)
				}
			}
		}
	}
}

func configFromFile(t testing.TB, path string) Config {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cfg, err := FromMetadata(func(key string) (any, bool) {
		v, ok := f.Value(key)
		if !ok {
			return nil, false
		}
		return v.Interface(), true
	})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// The vocabulary of Llama 2 gives llama.cpp's results for llama.cpp's test texts.
func TestLlamaVocabGolden(t *testing.T) {
	checkVocab(t, "llama-spm", "TestStoriesGolden takes this path with the vocabulary in testdata")
}

// checkVocab encodes and decodes the texts beside a vocabulary of llama.cpp.
func checkVocab(t *testing.T, name, twin string) {
	t.Helper()
	path := repo.Shared(t, twin, "vocab", "ggml-vocab-"+name+".gguf")
	tok := mustNew(t, configFromFile(t, path))
	in, err := os.ReadFile(path + ".inp")
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path + ".out")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	texts := strings.Split(string(in), "\n__ggml_vocab_test__\n")
	if len(lines) < 40 || len(texts) < len(lines) {
		t.Fatalf("%d texts and %d results", len(texts), len(lines))
	}
	for i, line := range lines {
		var want []int32
		for _, f := range strings.Fields(line) {
			id, err := strconv.Atoi(f)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, int32(id))
		}
		got := encode(t, tok, texts[i], EncodeOptions{})
		if !slices.Equal(got, want) {
			t.Errorf("%q:\n got %v\nwant %v", texts[i], got, want)
		}
		if text := tok.Decode(got); text != texts[i] {
			t.Errorf("decoded %q, want %q", text, texts[i])
		}
	}
}

// The vocabulary in testdata is that of the model file.
func TestStoriesVocabIsTheModels(t *testing.T) {
	got := loadConfig(t, "stories260K_vocab.json")
	want := configFromFile(t, repo.Shared(t, "TestStoriesGolden checks what the copy in testdata gives", "models", "stories260K.gguf"))
	if !slices.Equal(got.Tokens, want.Tokens) || !slices.Equal(got.Scores, want.Scores) || !slices.Equal(got.Types, want.Types) {
		t.Error("testdata/stories260K_vocab.json differs from the model file")
	}
	if got.BOS != want.BOS || got.EOS != want.EOS || got.UNK != want.UNK || got.AddBOS != want.AddBOS || got.AddEOS != want.AddEOS {
		t.Errorf("roles: %+v, %+v", got, want)
	}
}

// small returns a vocabulary that consists of <unk>, <s>, </s>, the 256 byte tokens, and
// normal tokens of descending score.
func small(normal ...string) Config {
	cfg, err := Defaults(ModelSPM)
	if err != nil {
		panic(err)
	}
	add := func(text string, score float32, kind TokenType) {
		cfg.Tokens = append(cfg.Tokens, text)
		cfg.Scores = append(cfg.Scores, score)
		cfg.Types = append(cfg.Types, kind)
	}
	add("<unk>", 0, Unknown)
	add("<s>", 0, Control)
	add("</s>", 0, Control)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 0, Byte)
	}
	for i, text := range normal {
		add(text, float32(-i), Normal)
	}
	return cfg
}

func texts(tok *Tokenizer, ids []int32) []string {
	out := []string{}
	for _, id := range ids {
		out = append(out, tok.Text(id))
	}
	return out
}

func TestMergeOrder(t *testing.T) {
	for _, tc := range []struct {
		name   string
		normal []string
		equal  bool // whether all scores are equal
		text   string
		want   []string
	}{
		{"highest score first", []string{"bc", "ab", "a", "b", "c"}, false, "abc", []string{"a", "bc"}},
		{"then the other order", []string{"ab", "bc", "a", "b", "c"}, false, "abc", []string{"ab", "c"}},
		{"ties leftmost", []string{"bc", "ab", "a", "b", "c"}, true, "abc", []string{"ab", "c"}},
		{"ties leftmost in a run", []string{"aa", "a"}, true, "aaaaa", []string{"aa", "aa", "a"}},
		{"merges of merges", []string{"aaaa", "aa", "a"}, false, "aaaaaaa", []string{"aaaa", "aa", "a"}},
		{"no token without a path of pairs", []string{"abc", "a", "b", "c"}, false, "abc", []string{"a", "b", "c"}},
		{"a better pair appears by a merge", []string{"abc", "cd", "ab", "a", "b", "c", "d"}, false, "abcd", []string{"ab", "cd"}},
		{"bytes where no token is", []string{"a"}, false, "aé", []string{"a", "<0xC3>", "<0xA9>"}},
	} {
		cfg := small(tc.normal...)
		cfg.AddSpacePrefix = false
		if tc.equal {
			cfg.Scores = nil
		}
		tok := mustNew(t, cfg)
		if got := texts(tok, encode(t, tok, tc.text, EncodeOptions{})); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q gives %q, want %q", tc.name, tc.text, got, tc.want)
		}
	}
}

// Without all byte tokens of a character, the character becomes one unknown token.
func TestUnknown(t *testing.T) {
	cfg, _ := Defaults(ModelSPM)
	cfg.Tokens = []string{"<unk>", "<s>", "</s>", "a", "b", "\u2581", "<0xC3>"}
	cfg.Types = []TokenType{Unknown, Control, Control, Normal, Normal, Normal, Byte}
	tok := mustNew(t, cfg)
	got := encode(t, tok, "aéc b\xff", EncodeOptions{})
	if want := []int32{5, 3, 0, 0, 5, 4, 0}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if text := tok.Decode(got); text != "a b" {
		t.Errorf("decoded %q, want %q", text, "a b")
	}
}

// If there is no token <0xNN>, a token that consists of the byte replaces it.
func TestByteSpelledAsItself(t *testing.T) {
	cfg, _ := Defaults(ModelSPM)
	cfg.Tokens = []string{"<unk>", "<s>", "</s>", "\xc3", "\xa9"}
	cfg.AddSpacePrefix = false
	tok := mustNew(t, cfg)
	if got, want := encode(t, tok, "é", EncodeOptions{}), []int32{3, 4}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNewErrors(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*Config)
		want   error
		says   string
	}{
		{"no model", func(c *Config) { c.Model = "" }, ErrModel, `""`},
		{"other model", func(c *Config) { c.Model = "t5" }, ErrModel, `"t5"`},
		{"no tokens", func(c *Config) { c.Tokens, c.Scores, c.Types = nil, nil, nil }, ErrVocab, "no tokens"},
		{"few scores", func(c *Config) { c.Scores = c.Scores[1:] }, ErrVocab, "259 scores for 260 tokens"},
		{"empty scores", func(c *Config) { c.Scores = []float32{} }, ErrVocab, "0 scores"},
		{"many types", func(c *Config) { c.Types = append(c.Types, Normal) }, ErrVocab, "261 types for 260 tokens"},
		{"type 7", func(c *Config) { c.Types[9] = 7 }, ErrVocab, "token 9 has type 7"},
		{"type -1", func(c *Config) { c.Types[9] = -1 }, ErrVocab, "token 9 has type -1"},
		{"duplicate", func(c *Config) { c.Tokens[259] = "<0x41>" }, ErrVocab, "tokens 68 and 259"},
		{"byte spelled wrong", func(c *Config) { c.Types[259] = Byte }, ErrVocab, "token 259 of type byte"},
		{"byte with a sign", func(c *Config) { c.Types[259], c.Tokens[259] = Byte, "<0x+1>" }, ErrVocab, "token 259 of type byte"},
		{"BOS out of range", func(c *Config) { c.BOS = 260 }, ErrVocab, "bos_token_id is 260"},
		{"EOS negative", func(c *Config) { c.EOS = -2 }, ErrVocab, "eos_token_id is -2"},
		{"FIM out of range", func(c *Config) { c.FIM.Sep = math.MaxInt32 }, ErrVocab, "fim_sep_token_id"},
		{"BOS to add", func(c *Config) { c.BOS = None }, ErrVocab, "no BOS"},
		{"EOS to add", func(c *Config) { c.EOS, c.AddEOS = None, true }, ErrVocab, "no EOS"},
		{"byte without token", func(c *Config) { c.Tokens[3+0x41], c.Types[3+0x41], c.UNK = "x", Normal, None }, ErrVocab, "<0x41>"},
		{"StripBefore out of range", func(c *Config) { c.StripBefore = []int32{0, 260} }, ErrVocab, "StripBefore holds token 260"},
		{"StripAfter none", func(c *Config) { c.StripAfter = []int32{None} }, ErrVocab, "StripAfter holds token -1"},
		{"long special tokens", func(c *Config) { c.Types[259], c.Tokens[259] = Control, strings.Repeat("x", 5<<20) }, ErrVocab, "special tokens"},
	} {
		cfg := small("a")
		tc.change(&cfg)
		tok, err := New(cfg)
		if !errors.Is(err, tc.want) || tok != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %v that says %q", tc.name, err, tc.want, tc.says)
		}
	}
}

// A token whose score is NaN, of either sign, merges after all other tokens. Several such
// tokens merge from left to right.
func TestNaNScores(t *testing.T) {
	for _, nan := range []float32{float32(math.NaN()), math.Float32frombits(0xFFC00000), math.Float32frombits(0x7F800001)} {
		for _, tc := range []struct {
			scores map[string]float32
			want   []string
		}{
			{map[string]float32{"ab": nan, "bc": -1}, []string{"a", "bc"}},
			{map[string]float32{"ab": nan, "bc": float32(math.Inf(-1))}, []string{"a", "bc"}},
			{map[string]float32{"ab": nan, "bc": nan}, []string{"ab", "c"}},
		} {
			cfg := small("a", "b", "c", "ab", "bc")
			cfg.AddSpacePrefix = false
			for text, score := range tc.scores {
				cfg.Scores[slices.Index(cfg.Tokens, text)] = score
			}
			tok := mustNew(t, cfg)
			if got := texts(tok, encode(t, tok, "abc", EncodeOptions{})); !slices.Equal(got, tc.want) {
				t.Errorf("with %v: %q, want %q", tc.scores, got, tc.want)
			}
		}
	}
}

// An unknown type becomes Undefined, and such a token has no text.
func TestUnknownTypes(t *testing.T) {
	for name, types := range map[string]any{
		"signed":   []int32{2, 3, 3, 1, 7, -1, math.MinInt32, 6, 0},
		"unsigned": []uint32{2, 3, 3, 1, 7, math.MaxUint32, 1 << 31, 6, 0},
	} {
		metadata := map[string]any{
			"tokenizer.ggml.model":      "llama",
			"tokenizer.ggml.tokens":     []string{"<unk>", "<s>", "</s>", "a", "b", "c", "d", "<0x41>", "e"},
			"tokenizer.ggml.token_type": types,
		}
		cfg, err := FromMetadata(func(key string) (any, bool) {
			v, ok := metadata[key]
			return v, ok
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []TokenType{Unknown, Control, Control, Normal, Undefined, Undefined, Undefined, Byte, Undefined}
		if !slices.Equal(cfg.Types, want) {
			t.Errorf("%s: types %v, want %v", name, cfg.Types, want)
		}
		if text := mustNew(t, cfg).Decode([]int32{4, 3, 5, 6, 7, 8}); text != "aA" {
			t.Errorf("%s: decoded %q", name, text)
		}
	}
}

// Real files have tokens with an empty spelling. They get distinct names.
func TestEmptyTokens(t *testing.T) {
	cfg := small("", "", "a")
	cfg.Types[259] = UserDefined
	tok := mustNew(t, cfg)
	if got := tok.Text(260); got != "[EMPTY_260]" {
		t.Errorf("got %q", got)
	}
	if got := encode(t, tok, "a", EncodeOptions{}); len(got) == 0 || got[len(got)-1] != 261 {
		t.Errorf("got %v", got)
	}
}

func TestFromMetadata(t *testing.T) {
	full := func() map[string]any {
		return map[string]any{
			"tokenizer.ggml.model":             "llama",
			"tokenizer.ggml.tokens":            []string{"<unk>", "<s>", "</s>", "a"},
			"tokenizer.ggml.scores":            []float32{0, 0, 0, -1},
			"tokenizer.ggml.token_type":        []int32{2, 3, 3, 1},
			"tokenizer.ggml.bos_token_id":      uint32(2),
			"tokenizer.ggml.eos_token_id":      uint64(1),
			"tokenizer.ggml.eot_token_id":      int32(3),
			"tokenizer.ggml.unknown_token_id":  uint32(math.MaxUint32),
			"tokenizer.ggml.fim_pad_token_id":  uint32(math.MaxUint32),
			"tokenizer.ggml.fim_sep_token_id":  int64(-1),
			"tokenizer.ggml.add_bos_token":     false,
			"tokenizer.ggml.add_eos_token":     true,
			"tokenizer.ggml.add_space_prefix":  false,
			"tokenizer.ggml.padding_token_id":  "ignored",
			"tokenizer.ggml.middle_token_id":   uint16(3),
			"tokenizer.ggml.fim_mid_token_id":  uint16(2),
			"tokenizer.ggml.add_unknown_thing": 3,
		}
	}
	from := func(m map[string]any) (Config, error) {
		return FromMetadata(func(key string) (any, bool) { v, ok := m[key]; return v, ok })
	}
	cfg, err := from(full())
	if err != nil {
		t.Fatal(err)
	}
	if cfg.BOS != 2 || cfg.EOS != 1 || cfg.EOT != 3 || cfg.UNK != 0 || cfg.FIM.Pad != None || cfg.FIM.Sep != None || cfg.FIM.Middle != 3 {
		t.Errorf("roles: %+v", cfg)
	}
	if cfg.AddBOS || !cfg.AddEOS || cfg.AddSpacePrefix {
		t.Errorf("flags: %+v", cfg)
	}
	if !slices.Equal(cfg.Types, []TokenType{Unknown, Control, Control, Normal}) || len(cfg.Tokens) != 4 || cfg.Scores[3] != -1 {
		t.Errorf("arrays: %+v", cfg)
	}

	m := full()
	for key := range m {
		if key != "tokenizer.ggml.model" && key != "tokenizer.ggml.tokens" {
			delete(m, key)
		}
	}
	m["tokenizer.ggml.tokens"] = []string{"<unk>", "<s>"}
	if cfg, err = from(m); err != nil {
		t.Fatal(err)
	}
	if cfg.BOS != 1 || cfg.EOS != None || cfg.UNK != 0 || !cfg.AddBOS || cfg.AddEOS || !cfg.AddSpacePrefix || cfg.Scores != nil || cfg.Types != nil {
		t.Errorf("defaults: %+v", cfg)
	}

	for _, tc := range []struct {
		key   string
		value any // nil means that the key is missing
		want  error
	}{
		{"tokenizer.ggml.model", nil, ErrModel},
		{"tokenizer.ggml.model", "t5", ErrModel},
		{"tokenizer.ggml.model", 4, ErrMetadata},
		{"tokenizer.ggml.tokens", nil, ErrMetadata},
		{"tokenizer.ggml.tokens", []string{}, ErrMetadata},
		{"tokenizer.ggml.tokens", []int32{1}, ErrMetadata},
		{"tokenizer.ggml.scores", []float64{1}, ErrMetadata},
		{"tokenizer.ggml.token_type", []float32{1}, ErrMetadata},
		{"tokenizer.ggml.bos_token_id", "1", ErrMetadata},
		{"tokenizer.ggml.bos_token_id", 1.0, ErrMetadata},
		{"tokenizer.ggml.add_bos_token", uint8(1), ErrMetadata},
	} {
		m := full()
		if tc.value == nil {
			delete(m, tc.key)
		} else {
			m[tc.key] = tc.value
		}
		if _, err := from(m); !errors.Is(err, tc.want) {
			t.Errorf("%s = %v: %v, want %v", tc.key, tc.value, err, tc.want)
		}
	}
}

func TestPieces(t *testing.T) {
	cfg := small("\u2581the", "a\u2581b", "x", "y", "\u2581z")
	n := int32(len(cfg.Tokens))
	cfg.Types[n-3], cfg.Types[n-2], cfg.Types[n-1] = Unused, Undefined, UserDefined
	tok := mustNew(t, cfg)
	for _, tc := range []struct {
		id      int32
		special bool
		want    string
	}{
		{0, false, ""}, {0, true, "<unk>"},
		{1, false, ""}, {1, true, "<s>"},
		{3 + 0xE2, false, "\xe2"}, {3, true, "\x00"},
		{n - 5, false, " the"}, {n - 4, false, "a b"},
		{n - 3, true, ""}, {n - 2, true, ""},
		{n - 1, false, "\u2581z"},
		{-1, true, ""}, {n, true, ""}, {math.MaxInt32, true, ""}, {math.MinInt32, true, ""},
	} {
		if got := string(tok.AppendPiece([]byte("|"), tc.id, tc.special)); got != "|"+tc.want {
			t.Errorf("token %d, special %v: %q, want %q", tc.id, tc.special, got, "|"+tc.want)
		}
	}
	the := n - 5
	for _, tc := range []struct {
		ids  []int32
		want string
	}{
		{nil, ""},
		{[]int32{the}, "the"},
		{[]int32{the, the}, "the the"},
		{[]int32{1, the}, " the"},
		{[]int32{3 + ' ', the}, " the"},
		{[]int32{-5, the, n}, " the"},
	} {
		if got := tok.Decode(tc.ids); got != tc.want {
			t.Errorf("%v decoded %q, want %q", tc.ids, got, tc.want)
		}
	}
	if tok.LookupSpecial("</s>") != 2 || tok.LookupSpecial("<unk>") != 0 || tok.LookupSpecial("\u2581the") != None || tok.LookupSpecial("nope") != None {
		t.Error("LookupSpecial")
	}
	if tok.Lookup("\u2581the") != the || tok.Lookup("nope") != None || tok.Text(-1) != "" || tok.Text(n) != "" || tok.IsEOG(-1) || tok.IsEOG(n) {
		t.Error("Lookup, Text or IsEOG outside of the vocabulary")
	}
	if tok.BOS() != 1 || tok.EOS() != 2 || tok.VocabSize() != int(n) || !tok.IsEOG(2) || tok.IsEOG(1) {
		t.Error("roles")
	}
}

func byteIDs(s string) []int32 {
	var ids []int32
	for i := range len(s) {
		ids = append(ids, 3+int32(s[i]))
	}
	return ids
}

func TestStreamSteps(t *testing.T) {
	tok := mustNew(t, small("a", "\u2581b"))
	for _, tc := range []struct {
		name string
		ids  []int32
		want []string // of each Next, then of Flush
	}{
		{"euro", byteIDs("€"), []string{"", "", "€", ""}},
		{"four bytes", byteIDs("🦙"), []string{"", "", "", "🦙", ""}},
		{"spaces stay", []int32{260, 260}, []string{" b", " b", ""}},
		{"control", []int32{1, 260, 2}, []string{"", " b", "", ""}},
		{"control within a character", []int32{3 + 0xC3, 1, 3 + 0xA9}, []string{"", "", "é", ""}},
		{"cut", byteIDs("\xe2\x82"), []string{"", "", "\uFFFD"}},
		{"cut by a letter", append(byteIDs("\xe2\x82"), 259), []string{"", "", "\uFFFDa", ""}},
		{"never valid", byteIDs("\xff\xfe"), []string{"\uFFFD", "", ""}},
		{"run reaches the end", byteIDs("\xff\xe2"), []string{"\uFFFD", "", ""}},
		{"two runs", []int32{3 + 0xFF, 259, 3 + 0xFF}, []string{"\uFFFD", "a", "\uFFFD", ""}},
		{"surrogate", byteIDs("\xed\xa0\x80"), []string{"", "\uFFFD", "", ""}},
	} {
		s := tok.NewStream(StreamOptions{})
		var got []string
		for _, id := range tc.ids {
			got = append(got, s.Next(id))
		}
		got = append(got, s.Flush())
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
	s := tok.NewStream(StreamOptions{Start: true})
	if got := s.Next(260) + s.Next(260); got != "b b" {
		t.Errorf("from the start: %q", got)
	}
}

// Encoding word by word gives the ids of the whole text, even if invalid bytes contain the
// start of a word.
func TestWords(t *testing.T) {
	tok := mustNew(t, small("\u2581", "\u2581\u2581", "a", "\u2581a", "aa", "\u2581\u2581a", "\xf0", "\u2581b", "b"))
	s := tok.enc.(*spm)
	if !s.words {
		t.Fatal("no token crosses into a word")
	}
	whole := *s
	whole.words = false
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var b strings.Builder
		for range rng.IntN(12) {
			b.WriteString([]string{"a", "b", " ", " ", "\u2581", "\xf0", "\xe2", "\x96\x81", "é"}[rng.IntN(9)])
		}
		if b.Len() == 0 {
			continue
		}
		got, err := s.appendText(nil, b.String())
		if err != nil {
			t.Fatal(err)
		}
		want, err := whole.appendText(nil, b.String())
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", b.String(), texts(tok, got), texts(tok, want))
		}
	}
	if tok := mustNew(t, small("a\u2581")); tok.enc.(*spm).words {
		t.Error("a token crosses into a word")
	}
}

// A word of a million characters and long runs of special tokens take little time, because no
// step looks at the whole text again.
func TestLongText(t *testing.T) {
	const long, n = 1_000_000, 200_000
	cfg := small("aaaaaaaa", "aaaa", "aa", "a", "xy", "x", "y")
	cfg.Tokens = append(cfg.Tokens, "<t>", "<tt>", "q", "qq", "qqq")
	cfg.Scores = append(cfg.Scores, 0, 0, 0, 0, 0)
	cfg.Types = append(cfg.Types, UserDefined, UserDefined, UserDefined, UserDefined, UserDefined)
	tok := mustNew(t, cfg)
	for _, tc := range []struct {
		name, text string
		ids        int
	}{
		{"a run", strings.Repeat("a", long), 3 + long/8},
		{"pairs", strings.Repeat("xy", n/2), 3 + n/2},
		{"no pair", strings.Repeat("yx", n/2), 3 + n/2 + 1},
		{"bytes", strings.Repeat("€", n/3), 3 + n/3*3},
		{"invalid", strings.Repeat("\xf0", n), 3 + n},
		{"special tokens", strings.Repeat("<t>", n/4), n / 4},
		{"nested special tokens", strings.Repeat("q", n), n/3 + 1},
	} {
		if got := encode(t, tok, tc.text, EncodeOptions{}); len(got) != tc.ids {
			t.Errorf("%s: %d ids, want %d", tc.name, len(got), tc.ids)
		}
	}
}

func TestConcurrent(t *testing.T) {
	tok := stories(t)
	want := encode(t, tok, "Once upon a time", EncodeOptions{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 50 {
				got, err := tok.Encode("Once upon a time", EncodeOptions{})
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("got %v, %v, want %v", got, err, want)
				}
			}
		})
	}
	wg.Wait()
}

// roundTrips reports whether decoding must restore text. It does not if U+2581 becomes a
// space, if text merges into a control token, which has no text, or if a truncated character
// includes the first byte of an escaped space.
func roundTrips(tok *Tokenizer, text string, ids []int32) bool {
	for _, id := range ids {
		if tok.vocab.silent(id) {
			return false
		}
	}
	return utf8.ValidString(text) && !strings.Contains(text, spaceMark)
}

func FuzzEncode(f *testing.F) {
	tok := stories(f)
	special := mustNew(f, loadConfig(f, "special_vocab.json"))
	for _, s := range []string{"", " ", "Once upon a time", "<s>Hello</s>", "\xff\xe2\x96", "🦙 é\u2581", "<uu><u>abcde", "\x00", "\xcf0\xa0\xcd "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := encode(t, tok, text, EncodeOptions{})
		decoded := tok.Decode(ids)
		if roundTrips(tok, text, ids) && decoded != text {
			t.Errorf("%q decoded %q", text, decoded)
		}
		s := tok.NewStream(StreamOptions{Start: true})
		var b strings.Builder
		for _, id := range ids {
			p := s.Next(id)
			if !utf8.ValidString(p) {
				t.Errorf("%q streamed %q", text, p)
			}
			b.WriteString(p)
		}
		b.WriteString(s.Flush())
		if want := strings.ToValidUTF8(decoded, "\uFFFD"); b.String() != want {
			t.Errorf("%q streamed %q, want %q", text, b.String(), want)
		}
		for _, opt := range []EncodeOptions{{}, {Frame: TextFrame}, {ParseSpecial: true}, {Frame: TextFrame, ParseSpecial: true}} {
			for _, id := range encode(t, special, text, opt) {
				if !special.vocab.has(id) {
					t.Errorf("%q: id %d", text, id)
				}
			}
		}
	})
}

// FuzzNew builds vocabularies from arbitrary strings, and uses those that New accepts.
func FuzzNew(f *testing.F) {
	f.Add("<unk>\n<s>\n</s>\na\nb\nab", "\x02\x03\x03\x01\x01\x04", "abab", int32(1))
	f.Add("<0x41>\n<0x4>", "\x06\x06", "A", int32(-1))
	f.Add("\n\n<PAD>", "", "[EMPTY_0]", int32(0))
	f.Fuzz(func(t *testing.T, tokens, types, text string, id int32) {
		cfg, _ := Defaults(ModelSPM)
		cfg.Tokens = strings.Split(tokens, "\n")
		if types != "" {
			for i := range len(types) {
				cfg.Types = append(cfg.Types, TokenType(int8(types[i])))
			}
		}
		cfg.BOS, cfg.EOS, cfg.UNK = id, None, 0
		cfg.AddBOS = id != None
		tok, err := New(cfg)
		if err != nil {
			if !errors.Is(err, ErrVocab) {
				t.Fatal(err)
			}
			return
		}
		ids := encode(t, tok, text, EncodeOptions{Frame: TextFrame, ParseSpecial: true})
		for _, id := range ids {
			if !tok.vocab.has(id) {
				t.Fatalf("id %d", id)
			}
		}
		tok.Decode(ids)
	})
}

func BenchmarkEncode(b *testing.B) {
	tok := stories(b)
	const n = 1 << 20
	for _, bc := range []struct{ name, text string }{
		{"text", strings.Repeat("Once upon a time, there was a little girl named Lily. She loved to play outside in the park.\n", n/94)},
		{"word", strings.Repeat("abcdefghijklmnopqrstuvwxyz", n/26)},
		{"special", strings.Repeat("<s>Lily and Timmy</s>", n/21)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(int64(len(bc.text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tok.Encode(bc.text, EncodeOptions{ParseSpecial: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	tok := stories(b)
	ids := encode(b, tok, strings.Repeat("Once upon a time, there was a little girl. ", 100), EncodeOptions{})
	b.ReportAllocs()
	for b.Loop() {
		s := tok.NewStream(StreamOptions{})
		for _, id := range ids {
			s.Next(id)
		}
		s.Flush()
	}
}

func TestDescending(t *testing.T) {
	order := []float32{float32(math.Inf(1)), math.MaxFloat32, 1, math.SmallestNonzeroFloat32, 0, -math.SmallestNonzeroFloat32, -1, -math.MaxFloat32, float32(math.Inf(-1))}
	for i := 1; i < len(order); i++ {
		if a, b := descending(order[i-1]), descending(order[i]); a >= b {
			t.Errorf("%v is %#x, %v is %#x", order[i-1], a, order[i], b)
		}
	}
	if descending(float32(math.Copysign(0, -1))) != descending(0) {
		t.Error("the two zeros differ")
	}
}
