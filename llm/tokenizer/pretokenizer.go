package tokenizer

import (
	"fmt"
	"slices"

	"github.com/fucina-go/fucina/llm/tokenizer/internal/split"
)

// preTokenizer describes how a byte-level vocabulary cuts text into words.
type preTokenizer struct {
	// names are its values of tokenizer.ggml.pre.
	names []string
	// words are expressions, applied in order. Each cuts the pieces of the one before it.
	words []string
	// whole says that a word that is a token becomes that token.
	whole bool
	// addBOS says that BOS is added unless the file says otherwise.
	addBOS bool
	// noBOS says that there is no BOS token unless the file has one.
	noBOS bool
}

// The expressions that several pre-tokenizers share.
const (
	gpt2Words = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`

	contraction = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	letters     = `[^\r\n\p{L}\p{N}]?\p{L}+`
	symbols     = ` ?[^\s\p{L}\p{N}]+[\r\n]*`
	space       = `\s*[\r\n]+|\s+(?!\S)|\s+`

	llama3Words = contraction + `|` + letters + `|\p{N}{1,3}|` + symbols + `|` + space
	qwen2Words  = contraction + `|` + letters + `|\p{N}|` + symbols + `|` + space

	// A word of letters that ends in letters that are not upper case (toLower), or begins
	// with letters that are not lower case (toUpper).
	toLower = `[^\r\n\p{L}\p{N}]?((?=\p{L})[^a-z])*((?=\p{L})[^A-Z])+`
	toUpper = `[^\r\n\p{L}\p{N}]?((?=\p{L})[^a-z])+((?=\p{L})[^A-Z])*`
	paths   = ` ?[^\s\p{L}\p{N}]+[\r\n/]*`

	// llama.cpp excludes the white space in this range, such as U+1680.
	cjkRun       = "((?=\\S)[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff])+"
	unpunctuated = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
)

// preTokenizers has a row for each pre-tokenizer that tokenizer.ggml.pre can name. The
// expressions have the syntax of package split.
var preTokenizers = []preTokenizer{
	{
		names: []string{"", "default"},
		words: []string{`[\p{P}\$\+<=>\^~\|]+`, gpt2Words, `\p{N}+`, `[0-9][0-9][0-9]`},
	},
	{
		names: []string{
			"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum", "modern-bert",
			"jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
		},
		words: []string{gpt2Words},
	},
	{
		names:  []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
		words:  []string{llama3Words},
		whole:  true,
		addBOS: true,
	},
	{
		names: []string{"dbrx", "smaug-bpe"},
		words: []string{llama3Words},
	},
	{
		names: []string{"glm4", "chatglm-bpe"},
		words: []string{llama3Words},
		noBOS: true,
	},
	{
		names: []string{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open", "kormo", "f2llmv2"},
		words: []string{qwen2Words},
	},
	{
		names: []string{"qwen35"},
		words: []string{contraction + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|` + space},
	},
	{
		names: []string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
		words: []string{`\p{N}`, gpt2Words},
	},
	{
		names: []string{"falcon"},
		words: []string{"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2Words, `[0-9][0-9][0-9]`},
	},
	{
		names: []string{"deepseek-llm"},
		words: []string{
			`[\r\n]`,
			"\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373" +
				"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f" +
				"\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77" +
				"\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d" +
				"\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4" +
				"\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134" +
				"\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3" +
				"\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17" +
				"\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2" +
				"\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+",
			"\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
			`\s+$`,
			cjkRun,
			`\p{N}+`,
		},
	},
	{
		names: []string{"deepseek-coder"},
		words: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, cjkRun, `\p{N}`},
	},
	{
		names: []string{"deepseek-v3", "hunyuan-dense", "joyai-llm"},
		words: []string{
			`\p{N}{1,3}`,
			"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
			"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|" + space,
		},
	},
	{
		names:  []string{"tekken"},
		words:  []string{toLower + `|` + toUpper + `|\p{N}|` + paths + `|` + space},
		whole:  true,
		addBOS: true,
	},
	{
		names: []string{"gpt-4o", "llama4", "minimax-m2", "kanana2", "talkie"},
		words: []string{toLower + contraction + `?|` + toUpper + contraction + `?|\p{N}{1,3}|` + paths + `|` + space},
	},
	{
		names: []string{"poro-chat", "bloom", "gpt3-finnish"},
		words: []string{unpunctuated},
	},
	{
		names: []string{"viking"},
		words: []string{unpunctuated, `\p{N}`},
	},
	{
		names: []string{"bailingmoe", "bailingmoe2", "llada-moe"},
		words: []string{`'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|` + letters + `|\p{N}|` + symbols + `|\s*[\r\n]|\s+(?!\S)|\s+`},
	},
	{
		names: []string{"seed-coder"},
		words: []string{contraction + `|` + letters + `|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|` + space},
	},
}

// findPreTokenizer returns the pre-tokenizer called name. It fails with ErrModel for an
// unknown name.
func findPreTokenizer(name string) (*preTokenizer, error) {
	for i := range preTokenizers {
		if slices.Contains(preTokenizers[i].names, name) {
			return &preTokenizers[i], nil
		}
	}
	return nil, fmt.Errorf("%w: pre-tokenizer %.80q", ErrModel, name)
}

func (p *preTokenizer) compile() ([]*split.Pattern, error) {
	patterns := make([]*split.Pattern, len(p.words))
	for i, expr := range p.words {
		var err error
		if patterns[i], err = split.Compile(expr); err != nil {
			return nil, err
		}
	}
	return patterns, nil
}
