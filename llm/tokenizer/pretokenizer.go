package tokenizer

import (
	"fmt"
	"slices"

	"github.com/fucina-go/fucina/llm/tokenizer/internal/split"
)

// preTokenizer says how a byte-level vocabulary cuts text into words.
type preTokenizer struct {
	// names are the values of tokenizer.ggml.pre that stand for it.
	names []string
	// words are expressions, applied in order, each to the pieces that the one
	// before left.
	words []string
	// whole says that a word that is a token is not taken apart by merges.
	whole bool
	// addBOS says that BOS is added where the file is silent.
	addBOS bool
	// noBOS says that there is no BOS token where the file names none.
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

	// Letters that end, or begin, in some that are not upper case, or not lower.
	toLower = `[^\r\n\p{L}\p{N}]?((?=\p{L})[^a-z])*((?=\p{L})[^A-Z])+`
	toUpper = `[^\r\n\p{L}\p{N}]?((?=\p{L})[^a-z])+((?=\p{L})[^A-Z])*`
	paths   = ` ?[^\s\p{L}\p{N}]+[\r\n/]*`
)

// preTokenizers holds what tokenizer.ggml.pre may name; another one is another
// row. Expressions are in the syntax of package split.
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
		names:  []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
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
		names: []string{"qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "grok-2", "solar-open"},
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
			`\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+`,
			`\s?[!-/:-~！-／：-～‘-‟　-。]+`,
			`\s+$`,
			`[一-龥ࠀ-一가-퟿]+`,
			`\p{N}+`,
		},
	},
	{
		names: []string{"deepseek-coder"},
		words: []string{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, `[一-龥ࠀ-一가-퟿]+`, `\p{N}`},
	},
	{
		names: []string{"deepseek-v3", "hunyuan-dense"},
		words: []string{
			`\p{N}{1,3}`,
			`[一-龥぀-ゟ゠-ヿ]+`,
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
		names: []string{"gpt-4o", "llama4", "minimax-m2"},
		words: []string{toLower + contraction + `?|` + toUpper + contraction + `?|\p{N}{1,3}|` + paths + `|` + space},
	},
	{
		names: []string{"poro-chat", "bloom", "gpt3-finnish"},
		words: []string{` ?[^(\s|.,!?…。，、।۔،)]+`},
	},
	{
		names: []string{"viking"},
		words: []string{` ?[^(\s|.,!?…。，、।۔،)]+`, `\p{N}`},
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

// findPreTokenizer returns the pre-tokenizer of a name. It fails with ErrModel
// for one that this package does not know.
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
