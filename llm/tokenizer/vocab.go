package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// spaceMark represents a space in the spelling of tokens.
const spaceMark = "\u2581"

// vocab is the part of a tokenizer that all models share.
type vocab struct {
	text     []string // spelling
	piece    []string // the text of the token in a decoded text
	kind     []TokenType
	index    map[string]int32 // spelling to id
	maxLen   int              // longest spelling, in bytes
	eog      map[int32]struct{}
	specials *specials
}

func (v *vocab) has(id int32) bool { return id >= 0 && int(id) < len(v.text) }

func (v *vocab) lookup(text string) int32 {
	if id, ok := v.index[text]; ok {
		return id
	}
	return None
}

// newVocab checks cfg. If cfg leaves a role open, newVocab looks for a token with a known
// spelling for that role, and sets it in cfg.
func newVocab(cfg *Config) (*vocab, error) {
	n := len(cfg.Tokens)
	switch {
	case n == 0:
		return nil, fmt.Errorf("%w: no tokens", ErrVocab)
	case n > math.MaxInt32:
		return nil, fmt.Errorf("%w: %d tokens, want at most %d", ErrVocab, n, math.MaxInt32)
	case cfg.Scores != nil && len(cfg.Scores) != n:
		return nil, fmt.Errorf("%w: %d scores for %d tokens", ErrVocab, len(cfg.Scores), n)
	case cfg.Types != nil && len(cfg.Types) != n:
		return nil, fmt.Errorf("%w: %d types for %d tokens", ErrVocab, len(cfg.Types), n)
	}
	for _, k := range idKeys {
		if id := *k.id(cfg); id != None && (id < 0 || int(id) >= n) {
			return nil, fmt.Errorf("%w: %s is %d, want %d (none) or 0..%d", ErrVocab, k.key, id, None, n-1)
		}
	}
	v := &vocab{
		text:  make([]string, n),
		piece: make([]string, n),
		kind:  make([]TokenType, n),
		index: make(map[string]int32, n),
		eog:   make(map[int32]struct{}),
	}
	for i, text := range cfg.Tokens {
		if text == "" {
			// A token with an empty spelling gets a name, so that the spellings differ.
			text = "[EMPTY_" + strconv.Itoa(i) + "]"
		}
		v.text[i] = text
		if v.index[text] = int32(i); len(v.index) == i {
			return nil, fmt.Errorf("%w: tokens %d and %d are both %.80q", ErrVocab, slices.Index(v.text, text), i, text)
		}
		v.maxLen = max(v.maxLen, len(text))
		v.kind[i] = Normal
		if cfg.Types != nil {
			v.kind[i] = cfg.Types[i]
		}
		if k := v.kind[i]; k < Undefined || k > Byte {
			return nil, fmt.Errorf("%w: token %d has type %d, want %d..%d", ErrVocab, i, k, Undefined, Byte)
		}
	}
	v.assignRoles(cfg)
	for i := range v.text {
		var err error
		if v.piece[i], err = v.spell(i, cfg.Model); err != nil {
			return nil, err
		}
	}
	var err error
	if v.specials, err = newSpecials(v, cfg); err != nil {
		return nil, err
	}
	return v, nil
}

// spell returns the decoded text of a token, even if Decode does not show it.
func (v *vocab) spell(id int, model string) (string, error) {
	text := v.text[id]
	switch v.kind[id] {
	case Normal:
		if model == ModelBPE {
			if raw, ok := fromByteRunes(text); ok {
				return raw, nil
			}
			return text, nil
		}
		return strings.ReplaceAll(text, spaceMark, " "), nil
	case Byte:
		b, ok := parseByte(text)
		if !ok {
			return "", fmt.Errorf("%w: token %d of type byte is %.80q, want <0x00>..<0xFF>", ErrVocab, id, text)
		}
		return string([]byte{b}), nil
	case Unknown, Control, UserDefined:
		return text, nil
	}
	return "", nil
}

// parseByte reads the spelling <0xNN> of a byte token.
func parseByte(text string) (byte, bool) {
	if len(text) != 6 || text[:3] != "<0x" || text[5] != '>' {
		return 0, false
	}
	b, err := strconv.ParseUint(text[3:5], 16, 8)
	return byte(b), err == nil
}

// silent reports whether a token appears in decoded text only if the caller asks for it.
func (v *vocab) silent(id int32) bool {
	return v.kind[id] == Control || v.kind[id] == Unknown
}

// special reports whether a token can be recognised in raw text.
func (v *vocab) special(id int32) bool {
	return v.silent(id) || v.kind[id] == UserDefined
}

// roleTexts has the spellings of tokens with a role, for models whose metadata leaves the
// role open.
var roleTexts = []struct {
	id    func(*Config) *int32
	eog   bool // whether a token with this role ends a generation
	texts []string
}{
	{func(c *Config) *int32 { return &c.FIM.Prefix }, false, []string{
		"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}},
	{func(c *Config) *int32 { return &c.FIM.Suffix }, false, []string{
		"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}},
	{func(c *Config) *int32 { return &c.FIM.Middle }, false, []string{
		"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"}},
	{func(c *Config) *int32 { return &c.FIM.Pad }, true, []string{
		"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
	{func(c *Config) *int32 { return &c.FIM.Repo }, true, []string{
		"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
	{func(c *Config) *int32 { return &c.FIM.Sep }, true, []string{
		"<|file_sep|>"}},
}

// eogTexts are the spellings of tokens that end a generation. The metadata does not change
// that.
var eogTexts = []string{
	"</s>", "<eos>", "[EOS]", "<EOT>", "_<EOT>", "[EOT]",
	"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>",
	"<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<|tool_response>", "<turn|>",
	"<end_of_turn>", "<end_of_utterance>", "<｜end▁of▁sentence｜>", "[e~[",
}

// partTexts are the spellings of tokens that mark the parts of an answer: its channel, its
// role and the beginning of its text. Such a token is user-defined, even if the file gives it
// another type, so that it is shown and is recognised in any text.
var partTexts = []string{"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"}

// inner has exceptions to eogTexts. If a vocabulary has all tokens of beside, the token with
// the spelling text does not end a generation: it ends a part of an answer, or is text.
var inner = []struct {
	beside []string
	text   string
	kind   TokenType
}{
	{[]string{"<|return|>", "<|call|>"}, "<|end|>", UserDefined}, // gpt-oss
	{[]string{"<|calls|>", "<|flush|>"}, "<|end|>", UserDefined}, // solar-open
	{[]string{"<|tool_response>"}, "</s>", Normal},               // gemma 4
}

// byRole reports whether the spelling of a token can give it a role.
func byRole(text string) bool {
	if slices.Contains(eogTexts, text) || slices.Contains(partTexts, text) {
		return true
	}
	for _, r := range roleTexts {
		if slices.Contains(r.texts, text) {
			return true
		}
	}
	return false
}

// assignRoles fills in the roles that cfg leaves open, and collects the tokens that end a
// generation. A token that gets a role by its spelling becomes a control token, because some
// converted files give it another type. partTexts and inner have the exceptions.
func (v *vocab) assignRoles(cfg *Config) {
	for _, r := range roleTexts {
		id := r.id(cfg)
		for _, text := range r.texts {
			if *id != None {
				break
			}
			if *id = v.lookup(text); *id != None {
				v.kind[*id] = Control
			}
		}
		if r.eog && *id != None {
			v.eog[*id] = struct{}{}
		}
	}
	for _, text := range eogTexts {
		if id := v.lookup(text); id != None {
			v.kind[id] = Control
			v.eog[id] = struct{}{}
		}
	}
	for _, id := range []int32{cfg.EOS, cfg.EOT, cfg.EOM} {
		if id != None {
			v.eog[id] = struct{}{}
		}
	}
	for _, text := range partTexts {
		if id := v.lookup(text); id != None {
			v.kind[id] = UserDefined
		}
	}
	for _, r := range inner {
		id := v.lookup(r.text)
		if id == None || slices.ContainsFunc(r.beside, func(text string) bool { return v.lookup(text) == None }) {
			continue
		}
		v.kind[id] = r.kind
		delete(v.eog, id)
	}
}
