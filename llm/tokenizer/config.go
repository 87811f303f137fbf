package tokenizer

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Errors that New, FromMetadata and Encode wrap.
var (
	// ErrModel reports a tokenizer model, or a pre-tokenizer, that this package
	// does not know.
	ErrModel = errors.New("tokenizer: unknown model")
	// ErrVocab reports arrays or ids that do not make a vocabulary.
	ErrVocab = errors.New("tokenizer: invalid vocabulary")
	// ErrMetadata reports a metadata value that is missing or of the wrong type.
	ErrMetadata = errors.New("tokenizer: invalid metadata")
	// ErrNoVocab reports text for a model that has no vocabulary.
	ErrNoVocab = errors.New("tokenizer: no vocabulary")
	// ErrTooLong reports a text too long for 32-bit offsets.
	ErrTooLong = errors.New("tokenizer: text too long")
)

// None is the id of a token that a vocabulary does not have.
const None int32 = -1

// The values of tokenizer.ggml.model that this package knows.
const (
	// ModelSPM is a SentencePiece byte-pair vocabulary.
	ModelSPM = "llama"
	// ModelBPE is a byte-level byte-pair vocabulary.
	ModelBPE = "gpt2"
	// ModelWordPiece is a WordPiece vocabulary.
	ModelWordPiece = "bert"
	// ModelNone is no vocabulary at all: the model takes ids and gives ids. Such a
	// Tokenizer has VocabSize 0, and Encode always fails with ErrNoVocab.
	ModelNone = "no_vocab"
)

// TokenType is the kind of a token, numbered as in tokenizer.ggml.token_type.
type TokenType int32

// The token types of GGUF files.
const (
	Undefined   TokenType = 0 // no kind; has no text
	Normal      TokenType = 1 // text, spelled as the model has it
	Unknown     TokenType = 2 // stands for what the vocabulary cannot spell
	Control     TokenType = 3 // marks structure, such as the start of a text
	UserDefined TokenType = 4 // text that is always one token
	Unused      TokenType = 5 // reserved; has no text
	Byte        TokenType = 6 // one byte, spelled <0xNN>
)

// Config holds what a Tokenizer is built from. Start from Defaults or
// FromMetadata: the zero value names token 0 as every special token.
type Config struct {
	// Model selects the algorithm: ModelSPM, ModelBPE, ModelWordPiece or ModelNone.
	Model string
	// Pre names the pre-tokenizer of ModelBPE, as in tokenizer.ggml.pre: "gpt-2",
	// "llama-bpe", "qwen2" and others.
	Pre string
	// Merges holds the pairs of pieces that ModelBPE merges, best first, each with
	// a space between its parts.
	Merges []string
	// Tokens holds the text of every token; its length is the vocabulary size.
	Tokens []string
	// Scores holds the merge priority of every token. Nil means all zero. A NaN is
	// below every number.
	Scores []float32
	// Types holds the kind of every token. Nil means all Normal.
	Types []TokenType

	// Ids of the tokens with a role, or None.
	BOS, EOS, UNK int32
	SEP           int32 // ends a text of ModelWordPiece
	EOT, EOM      int32 // end of turn, end of message
	FIM           FIM

	// AddBOS and AddEOS say whether a Frame puts BOS in front and EOS behind. They have
	// no effect for ModelWordPiece: BOS, which is [CLS], goes in front and SEP behind.
	AddBOS, AddEOS bool
	// AddSpacePrefix says whether a text of ModelSPM starts with one space more
	// than it is given, and loses it again in decoding. Other models ignore it.
	AddSpacePrefix bool
	// StripBefore and StripAfter hold the ids of tokens that, where they are
	// recognised in a text, take the white space in front of them, or behind them,
	// with them: any of the six that C's isspace knows, up to the next token that
	// was recognised before. Ids of tokens that are not special mean nothing.
	StripBefore, StripAfter []int32
	// Lowercase and StripAccents say how ModelWordPiece normalises text.
	Lowercase, StripAccents bool
}

// FIM holds the ids, or None, of the tokens that mark the parts of a prompt whose
// middle is to be filled in: what comes before the gap, what comes after it, and where
// the answer begins; and padding, a repository's name, and the end of a file among
// several.
type FIM struct {
	Prefix, Suffix, Middle int32
	Pad, Repo, Sep         int32
}

var noFIM = FIM{None, None, None, None, None, None}

// Defaults returns the Config that holds for a model where its file is silent,
// without a vocabulary:
//
//	ModelSPM        BOS 1, EOS 2, UNK 0, BOS and the space prefix added
//	ModelBPE        BOS 11, EOS 11; FromMetadata adjusts BOS and AddBOS to Pre
//	ModelWordPiece  BOS 101, UNK 100, SEP 102, lower case without accents
//	ModelNone       nothing
//
// It fails with ErrModel for an unknown model.
func Defaults(model string) (Config, error) {
	cfg := Config{
		Model: model,
		BOS:   None, EOS: None, UNK: None, SEP: None,
		EOT: None, EOM: None,
		FIM: noFIM,
	}
	switch model {
	case ModelSPM:
		cfg.BOS, cfg.EOS, cfg.UNK = 1, 2, 0
		cfg.AddBOS, cfg.AddSpacePrefix = true, true
	case ModelBPE:
		cfg.BOS, cfg.EOS = 11, 11
	case ModelWordPiece:
		cfg.BOS, cfg.UNK, cfg.SEP = 101, 100, 102
		cfg.Lowercase, cfg.StripAccents = true, true
	case ModelNone:
	default:
		return Config{}, fmt.Errorf("%w: %.80q, want %q, %q, %q or %q", ErrModel, model, ModelSPM, ModelBPE, ModelWordPiece, ModelNone)
	}
	return cfg, nil
}

// idKeys lists where a model file names the tokens with a role. Later entries
// for one role win over earlier ones.
var idKeys = []struct {
	key string
	id  func(*Config) *int32
}{
	{"tokenizer.ggml.bos_token_id", func(c *Config) *int32 { return &c.BOS }},
	{"tokenizer.ggml.eos_token_id", func(c *Config) *int32 { return &c.EOS }},
	{"tokenizer.ggml.eot_token_id", func(c *Config) *int32 { return &c.EOT }},
	{"tokenizer.ggml.eom_token_id", func(c *Config) *int32 { return &c.EOM }},
	{"tokenizer.ggml.unknown_token_id", func(c *Config) *int32 { return &c.UNK }},
	{"tokenizer.ggml.seperator_token_id", func(c *Config) *int32 { return &c.SEP }}, // sic
	{"tokenizer.ggml.fim_pre_token_id", func(c *Config) *int32 { return &c.FIM.Prefix }},
	{"tokenizer.ggml.fim_suf_token_id", func(c *Config) *int32 { return &c.FIM.Suffix }},
	{"tokenizer.ggml.fim_mid_token_id", func(c *Config) *int32 { return &c.FIM.Middle }},
	{"tokenizer.ggml.fim_pad_token_id", func(c *Config) *int32 { return &c.FIM.Pad }},
	{"tokenizer.ggml.fim_rep_token_id", func(c *Config) *int32 { return &c.FIM.Repo }},
	{"tokenizer.ggml.fim_sep_token_id", func(c *Config) *int32 { return &c.FIM.Sep }},
	{"tokenizer.ggml.prefix_token_id", func(c *Config) *int32 { return &c.FIM.Prefix }},
	{"tokenizer.ggml.suffix_token_id", func(c *Config) *int32 { return &c.FIM.Suffix }},
	{"tokenizer.ggml.middle_token_id", func(c *Config) *int32 { return &c.FIM.Middle }},
}

// FromMetadata reads a Config from the metadata of a model file. get returns
// the value of a key: a string, a bool, an integer of any Go type, or a slice
// ([]string, []float32, []int32 or []uint32) for an array; the slices are kept,
// not copied, except the token types.
//
// A token type that this package does not know is read as Undefined. The keys are
// those of tokenizer.ggml, and general.name and general.architecture,
// by which models are known whose special tokens strip white space (StripBefore,
// StripAfter).
//
// A missing key leaves the default of the model. So does a token id outside of
// the vocabulary, which files in use hold for "none" (2^32-1); a default id
// outside of it becomes None. Missing tokens or merges and values of the wrong
// type are errors: ErrMetadata, or ErrModel for a model or a pre-tokenizer this
// package does not know. Keys that do not matter to texts of the model are ignored,
// whatever they hold: for ModelNone, all but the model.
func FromMetadata(get func(key string) (value any, ok bool)) (Config, error) {
	var model string
	if err := read(get, "tokenizer.ggml.model", &model); err != nil {
		return Config{}, err
	}
	cfg, err := Defaults(model)
	if err != nil {
		return Config{}, err
	}
	if model == ModelNone {
		return cfg, nil
	}
	if model == ModelBPE {
		if err := readBPE(get, &cfg); err != nil {
			return Config{}, err
		}
	}
	if err := read(get, "tokenizer.ggml.tokens", &cfg.Tokens); err != nil {
		return Config{}, err
	}
	if len(cfg.Tokens) == 0 {
		return Config{}, fmt.Errorf("%w: tokenizer.ggml.tokens is missing or empty", ErrMetadata)
	}
	if model == ModelSPM {
		if err := read(get, "tokenizer.ggml.scores", &cfg.Scores); err != nil {
			return Config{}, err
		}
	}
	if err := readTypes(get, &cfg.Types); err != nil {
		return Config{}, err
	}
	for _, k := range idKeys {
		id := k.id(&cfg)
		if int64(*id) >= int64(len(cfg.Tokens)) {
			*id = None
		}
		v, ok := get(k.key)
		if !ok {
			continue
		}
		n, ok := integer(v)
		if !ok && !needed(k.key, model) {
			continue
		}
		if !ok {
			return Config{}, fmt.Errorf("%w: %s is %T, want an integer", ErrMetadata, k.key, v)
		}
		if n < uint64(len(cfg.Tokens)) && n <= math.MaxInt32 {
			*id = int32(n)
		}
	}
	if err := readFlags(get, &cfg); err != nil {
		return Config{}, err
	}
	readStrips(get, &cfg)
	return cfg, nil
}

// needed reports whether the id under key matters to texts of the model. That of
// WordPiece's separator does not to others, nor do those that only prompts with a gap to
// fill have.
func needed(key, model string) bool {
	switch key {
	case "tokenizer.ggml.seperator_token_id":
		return model == ModelWordPiece
	case "tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.fim_mid_token_id",
		"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.suffix_token_id", "tokenizer.ggml.middle_token_id":
		return false
	}
	return true
}

// readFlags reads the flags that the model knows.
func readFlags(get func(string) (any, bool), cfg *Config) error {
	if cfg.Model == ModelWordPiece {
		if err := read(get, "tokenizer.ggml.normalizer.lowercase", &cfg.Lowercase); err != nil {
			return err
		}
		cfg.StripAccents = cfg.Lowercase
		return read(get, "tokenizer.ggml.normalizer.strip_accents", &cfg.StripAccents)
	}
	if err := read(get, "tokenizer.ggml.add_bos_token", &cfg.AddBOS); err != nil {
		return err
	}
	if err := read(get, "tokenizer.ggml.add_eos_token", &cfg.AddEOS); err != nil {
		return err
	}
	if cfg.Model == ModelSPM {
		return read(get, "tokenizer.ggml.add_space_prefix", &cfg.AddSpacePrefix)
	}
	return nil
}

// stripRules tells which models have tokens that strip white space. Files do not
// say so; llama.cpp knows the models by the value of a key, in lower case where it
// is a name. The first rule whose key contains one of the texts holds.
var stripRules = []struct {
	key   string
	texts []string
	strip func(*Config)
}{
	{"tokenizer.ggml.pre", []string{"jina-v2-de", "jina-v2-es", "jina-v2-code"}, stripBeforeMask("<mask>")},
	{"general.architecture", []string{"nomic-bert-moe", "jina-bert-v3"}, stripBeforeMask("<mask>")},
	{"general.name", []string{"phi-3", "phi3"}, stripAfterSpecial},
	{"general.name", []string{"modern-bert"}, stripBeforeMask("[MASK]")},
}

func stripBeforeMask(text string) func(*Config) {
	return func(cfg *Config) {
		if i := slices.Index(cfg.Tokens, text); i >= 0 {
			cfg.StripBefore = []int32{int32(i)}
		}
	}
}

// stripAfterSpecial names all special tokens but three, and all that New may make
// special by their spelling.
func stripAfterSpecial(cfg *Config) {
	for i, text := range cfg.Tokens {
		switch text {
		case "<unk>", "<s>", "<|endoftext|>":
			continue
		}
		special := byRole(text)
		if i < len(cfg.Types) {
			switch cfg.Types[i] {
			case Unknown, Control, UserDefined:
				special = true
			}
		}
		if special {
			cfg.StripAfter = append(cfg.StripAfter, int32(i))
		}
	}
}

// readStrips applies the first rule that holds. A value that is no text is no name of
// such a model.
func readStrips(get func(string) (any, bool), cfg *Config) {
	for _, r := range stripRules {
		v, _ := get(r.key)
		value, _ := v.(string)
		if r.key == "general.name" {
			value = strings.ToLower(value)
		}
		if slices.ContainsFunc(r.texts, func(text string) bool { return strings.Contains(value, text) }) {
			r.strip(cfg)
			return
		}
	}
}

// readBPE reads what ModelBPE has beside a vocabulary.
func readBPE(get func(string) (any, bool), cfg *Config) error {
	if err := read(get, "tokenizer.ggml.pre", &cfg.Pre); err != nil {
		return err
	}
	pre, err := findPreTokenizer(cfg.Pre)
	if err != nil {
		return err
	}
	cfg.AddBOS = pre.addBOS
	if pre.noBOS {
		cfg.BOS = None
	}
	const key = "tokenizer.ggml.merges"
	if _, ok := get(key); !ok {
		return fmt.Errorf("%w: %s is missing", ErrMetadata, key)
	}
	return read(get, key, &cfg.Merges)
}

// read stores the value of key in dst, leaves dst alone where the key is
// missing, and fails where the value has another type.
func read[T any](get func(string) (any, bool), key string, dst *T) error {
	v, ok := get(key)
	if !ok {
		return nil
	}
	t, ok := v.(T)
	if !ok {
		return fmt.Errorf("%w: %s is %T, want %T", ErrMetadata, key, v, *dst)
	}
	*dst = t
	return nil
}

func readTypes(get func(string) (any, bool), dst *[]TokenType) error {
	const key = "tokenizer.ggml.token_type"
	v, ok := get(key)
	if !ok {
		return nil
	}
	switch a := v.(type) {
	case []int32:
		*dst = convertTypes(a)
	case []uint32:
		*dst = convertTypes(a)
	default:
		return fmt.Errorf("%w: %s is %T, want []int32", ErrMetadata, key, v)
	}
	return nil
}

func convertTypes[T int32 | uint32](a []T) []TokenType {
	types := make([]TokenType, len(a))
	for i, v := range a {
		// llama.cpp gives a type that it does not know no attribute.
		if t := TokenType(v); t >= Undefined && t <= Byte {
			types[i] = t
		}
	}
	return types
}

// integer widens an integer of any Go type. Negative values come out above
// every vocabulary size.
func integer(v any) (uint64, bool) {
	switch n := v.(type) {
	case uint8:
		return uint64(n), true
	case uint16:
		return uint64(n), true
	case uint32:
		return uint64(n), true
	case uint64:
		return n, true
	case uint:
		return uint64(n), true
	case int8:
		return uint64(n), true
	case int16:
		return uint64(n), true
	case int32:
		return uint64(n), true
	case int64:
		return uint64(n), true
	case int:
		return uint64(n), true
	}
	return 0, false
}
