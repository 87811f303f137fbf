package tokenizer_test

import (
	"fmt"
	"slices"

	"github.com/fucina-go/fucina/llm/tokenizer"
)

// config returns a vocabulary of a few words. Model files have thousands.
func config() tokenizer.Config {
	cfg, err := tokenizer.Defaults(tokenizer.ModelSPM)
	if err != nil {
		panic(err)
	}
	cfg.Tokens = []string{"<unk>", "<s>", "</s>", "\u2581", "h", "i", "hi", "\u2581hi"}
	cfg.Scores = []float32{0, 0, 0, -3, -4, -5, -1, -2}
	cfg.Types = []tokenizer.TokenType{
		tokenizer.Unknown, tokenizer.Control, tokenizer.Control,
		tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal,
	}
	for b := range 256 {
		cfg.Tokens = append(cfg.Tokens, fmt.Sprintf("<0x%02X>", b))
		cfg.Scores = append(cfg.Scores, 0)
		cfg.Types = append(cfg.Types, tokenizer.Byte)
	}
	return cfg
}

func Example() {
	tok, err := tokenizer.New(config())
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("hi hi!", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(ids)
	fmt.Printf("%q\n", tok.Decode(ids[1:]))
	// Output:
	// [1 7 7 41]
	// "hi hi!"
}

func ExampleTokenizer_Encode_parseSpecial() {
	tok, err := tokenizer.New(config())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, parse := range []bool{false, true} {
		ids, err := tok.Encode("hi</s>", tokenizer.EncodeOptions{ParseSpecial: parse})
		fmt.Println(ids, err)
	}
	// Output:
	// [7 68 55 123 70] <nil>
	// [7 2] <nil>
}

func ExampleStream() {
	tok, err := tokenizer.New(config())
	if err != nil {
		fmt.Println(err)
		return
	}
	s := tok.NewStream(tokenizer.StreamOptions{})
	for _, id := range []int32{tok.Lookup("<0xC3>"), tok.Lookup("<0xA9>"), 7} {
		fmt.Printf("%q ", s.Next(id))
	}
	fmt.Printf("%q\n", s.Flush())
	// Output: "" "é" " hi" ""
}

func ExampleFromMetadata() {
	metadata := map[string]any{
		"tokenizer.ggml.model":            "llama",
		"tokenizer.ggml.tokens":           []string{"<unk>", "<s>", "</s>", "\u2581", "a"},
		"tokenizer.ggml.token_type":       []int32{2, 3, 3, 1, 1},
		"tokenizer.ggml.add_space_prefix": false,
	}
	cfg, err := tokenizer.FromMetadata(func(key string) (any, bool) {
		v, ok := metadata[key]
		return v, ok
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	tok, err := tokenizer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("a a", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame})
	fmt.Println(ids, err)
	// Output: [1 4 3 4] <nil>
}

// A byte-level vocabulary spells a space as "Ġ", and merges pairs by their rank.
func ExampleNew_byteLevel() {
	cfg, err := tokenizer.Defaults(tokenizer.ModelBPE)
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg.Pre = "llama-bpe"
	cfg.Tokens = []string{"<|begin|>", "h", "i", "!", "Ġ", "hi", "Ġhi"}
	cfg.Types = []tokenizer.TokenType{
		tokenizer.Control, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal, tokenizer.Normal,
	}
	cfg.Merges = []string{"h i", "Ġ hi"}
	cfg.BOS, cfg.EOS, cfg.AddBOS = 0, tokenizer.None, true
	tok, err := tokenizer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	ids, err := tok.Encode("hi hi!", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame})
	fmt.Println(ids, err)
	fmt.Printf("%q\n", tok.Decode(ids))
	// Output:
	// [0 5 6 3] <nil>
	// "hi hi!"
}

// The markers of Phi 3 remove the white space after them. EncodeBetween does the same for
// untrusted text, which must be encoded without its markers.
func ExampleTokenizer_EncodeBetween() {
	cfg, err := tokenizer.Defaults(tokenizer.ModelSPM)
	if err != nil {
		panic(err)
	}
	cfg.Tokens = []string{"<unk>", "<s>", "</s>", "\u2581hi", "\u2581h", "\u2581", "h", "i", "<|user|>", "<|end|>"}
	cfg.Scores = []float32{0, 0, 0, 3, 2, 1, 0, 0, 0, 0}
	cfg.Types = slices.Repeat([]tokenizer.TokenType{tokenizer.Normal}, len(cfg.Tokens))
	cfg.Types[8], cfg.Types[9] = tokenizer.Control, tokenizer.Control
	cfg.StripAfter = []int32{8, 9}
	tok, err := tokenizer.New(cfg)
	if err != nil {
		panic(err)
	}
	whole, err := tok.Encode("<|user|>\nhi<|end|>", tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		panic(err)
	}
	text, err := tok.EncodeBetween(8, "\nhi", 9)
	if err != nil {
		panic(err)
	}
	fmt.Println(whole, text)
	// Output: [8 3 9] [3]
}

// FIM names the tokens of a fill-in-the-middle prompt.
func ExampleTokenizer_FIM() {
	cfg := config()
	cfg.Tokens = append(cfg.Tokens, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
	cfg.Types = append(cfg.Types, tokenizer.Control, tokenizer.Control, tokenizer.Control)
	cfg.Scores = nil
	tok, err := tokenizer.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fim := tok.FIM()
	for _, id := range []int32{fim.Prefix, fim.Suffix, fim.Middle} {
		fmt.Println(tok.Text(id))
	}
	fmt.Println(fim.Pad == tokenizer.None)
	// Output:
	// <|fim_prefix|>
	// <|fim_suffix|>
	// <|fim_middle|>
	// true
}
