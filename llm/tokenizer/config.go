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
	// ErrModel reports a model or a pre-tokenizer that this package does not know.
	ErrModel = errors.New("tokenizer: unknown model")
	// ErrVocab reports arrays or ids that do not form a vocabulary.
	ErrVocab = errors.New("tokenizer: invalid vocabulary")
	// ErrMetadata reports a metadata value that is missing or of the wrong type.
	ErrMetadata = errors.New("tokenizer: invalid metadata")
	// ErrNoVocab reports that text was encoded without a vocabulary.
	ErrNoVocab = errors.New("tokenizer: no vocabulary")
	// ErrTooLong reports a text that is too long for 32-bit offsets.
	ErrTooLong = errors.New("tokenizer: text too long")
)

// None is the id of a token that does not exist.
const None int32 = -1

// The values of tokenizer.ggml.model that this package knows.
const (
	// ModelSPM is a SentencePiece byte-pair vocabulary.
	ModelSPM = "llama"
	// ModelBPE is a byte-level byte-pair vocabulary.
	ModelBPE = "gpt2"
	// ModelWordPiece is a WordPiece vocabulary.
	ModelWordPiece = "bert"
	// ModelNone has no vocabulary: the model takes and returns ids. A Tokenizer of it
	// has VocabSize 0, and its Encode always fails with ErrNoVocab.
	ModelNone = "no_vocab"
)

// TokenType is the kind of a token, numbered as in tokenizer.ggml.token_type.
type TokenType int32

// The token types of GGUF files.
const (
	Undefined   TokenType = 0 // unknown kind; has no text
	Normal      TokenType = 1 // text, in the spelling of the model
	Unknown     TokenType = 2 // replaces text that the vocabulary cannot spell
	Control     TokenType = 3 // marks structure, such as the start of a text
	UserDefined TokenType = 4 // text that is always one token
	Unused      TokenType = 5 // reserved; has no text
	Byte        TokenType = 6 // one byte, spelled <0xNN>
)

// Config describes a Tokenizer. Start from Defaults or FromMetadata, because in the zero
// value every special token is token 0.
type Config struct {
	// Model selects the algorithm: ModelSPM, ModelBPE, ModelWordPiece or ModelNone.
	Model string
	// Pre is the name of the pre-tokenizer of ModelBPE, as in tokenizer.ggml.pre:
	// "gpt-2", "llama-bpe", "qwen2" and others.
	Pre string
	// Merges holds the pairs of pieces that ModelBPE merges, best first, with a space
	// between the two pieces.
	Merges []string
	// Tokens holds the spelling of every token. Its length is the size of the
	// vocabulary.
	Tokens []string
	// Scores holds the merge priority of every token. Nil means zero for all. A NaN is
	// below every number.
	Scores []float32
	// Types holds the kind of every token. Nil means Normal for all.
	Types []TokenType

	// The ids of tokens with a role, or None.
	BOS, EOS, UNK int32
	SEP           int32 // ends a text of ModelWordPiece
	EOT, EOM      int32 // end of turn, end of message
	FIM           FIM

	// AddBOS and AddEOS say whether a Frame adds BOS in front and EOS at the end. They
	// have no effect for ModelWordPiece, whose frame is BOS ([CLS]) and SEP.
	AddBOS, AddEOS bool
	// AddSpacePrefix says whether ModelSPM adds one space in front of a text, which
	// decoding removes again. Other models ignore it.
	AddSpacePrefix bool
	// StripBefore and StripAfter hold the ids of special tokens that remove the white
	// space in front of them, or after them, when they are recognised in a text. White
	// space is one of the six characters of C's isspace. It is removed up to the next
	// token that was recognised earlier. Ids of tokens that are not special have no
	// effect.
	StripBefore, StripAfter []int32
	// Lowercase and StripAccents say how ModelWordPiece normalises text.
	Lowercase, StripAccents bool
}

// FIM holds the ids, or None, of the tokens of fill-in-the-middle prompts.
type FIM struct {
	Prefix int32 // marks the text before the gap
	Suffix int32 // marks the text after the gap
	Middle int32 // marks the beginning of the answer
	Pad    int32 // pads the prompt
	Repo   int32 // marks the name of a repository
	Sep    int32 // marks the end of one of several files
}

var noFIM = FIM{None, None, None, None, None, None}

// Defaults returns the Config of a model, without a vocabulary. A model file overrides
// these values:
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

// idKeys lists the keys of a model file that hold the ids of tokens with a role. Of
// several keys for one role, the last one counts.
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

// FromMetadata reads a Config from the metadata of a model file. get returns the value of a
// key: a string, a bool, an integer of any Go type, or a slice ([]string, []float32,
// []int32 or []uint32) for an array. The Config keeps the slices without copying them,
// except for the token types.
//
// The keys are those of tokenizer.ggml, general.name and general.architecture. The last two
// identify models whose special tokens strip white space (StripBefore, StripAfter). A
// token type that this package does not know becomes Undefined.
//
// If a key is missing, the default of the model remains. It also remains if a token id is
// outside of the vocabulary, because files use 2^32-1 for "none". A default id outside of
// the vocabulary becomes None.
//
// FromMetadata fails with ErrMetadata if tokens or merges are missing or a value has the
// wrong type, and with ErrModel for a model or a pre-tokenizer that this package does not
// know. It ignores keys that do not affect the texts of the model; for ModelNone these are
// all keys except the model.
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

// needed reports whether the id under key affects the texts of the model. The separator
// affects only ModelWordPiece. The ids of prefix, suffix and middle affect only
// fill-in-the-middle prompts.
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

// readFlags reads the flags that affect the model.
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

// stripRules lists the models with tokens that strip white space. Files do not contain that
// fact. As in llama.cpp, the value of a key identifies the model; general.name is compared
// in lower case. The first rule applies whose value contains one of the texts.
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

// stripAfterSpecial sets StripAfter to all special tokens except three, including the tokens
// that New may make special because of their spelling.
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

// readStrips applies the first of stripRules that matches. A value that is not a string does
// not match.
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

// readBPE reads the pre-tokenizer and the merges of ModelBPE.
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

// read stores the value of key in dst. It does not change dst if the key is missing, and
// fails if the value has another type.
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
		// As in llama.cpp, an unknown type has no attributes.
		if t := TokenType(v); t >= Undefined && t <= Byte {
			types[i] = t
		}
	}
	return types
}

// integer widens an integer of any Go type. A negative value becomes larger than any
// vocabulary size.
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
