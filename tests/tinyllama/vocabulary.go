package tinyllama

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/llm/tokenizer"
)

// merges are pieces of several characters, the best first. Each is the concatenation of two
// pieces of the vocabulary. "_" means U+2581, the space.
const merges = "_t he _a in er _the _s nd _w ou _and re _b on ed at it _o " +
	"_to ing an _h is _wa or _was up _up _m me ti time ight"

// letters are the characters that are pieces. All others are encoded as bytes.
const letters = "_etaoinshrdlucmfwygpbvkqxjz.,!?'\"-é"

type vocabulary struct {
	tokens []string
	scores []float32
	types  []int32
	pieces int // id of the first token that is neither a special token nor a byte
}

func newVocabulary() *vocabulary {
	v := &vocabulary{}
	add := func(text string, score float32, t tokenizer.TokenType) {
		v.tokens = append(v.tokens, strings.ReplaceAll(text, "_", "\u2581"))
		v.scores = append(v.scores, score)
		v.types = append(v.types, int32(t))
	}
	add("<unk>", 0, tokenizer.Unknown)
	add("<s>", 0, tokenizer.Control)
	add("</s>", 0, tokenizer.Control)
	for b := range 256 {
		add(fmt.Sprintf("<0x%02X>", b), 0, tokenizer.Byte)
	}
	v.pieces = len(v.tokens)
	// As in SentencePiece, a score is the negated rank.
	rank := 0
	for _, s := range strings.Fields(merges) {
		add(s, float32(-rank), tokenizer.Normal)
		rank++
	}
	for _, r := range letters {
		add(string(r), float32(-rank), tokenizer.Normal)
		rank++
	}
	return v
}

// set gives m the vocabulary's metadata.
func (v *vocabulary) set(m *Model) {
	m.Set("tokenizer.ggml.model", "llama")
	m.Set("tokenizer.ggml.tokens", v.tokens)
	m.Set("tokenizer.ggml.scores", v.scores)
	m.Set("tokenizer.ggml.token_type", v.types)
	m.Set("tokenizer.ggml.unknown_token_id", uint32(0))
	m.Set("tokenizer.ggml.bos_token_id", uint32(1))
	m.Set("tokenizer.ggml.eos_token_id", uint32(2))
}

// SetToken gives a token of the vocabulary a spelling and a type.
func (m *Model) SetToken(id int32, text string, kind tokenizer.TokenType) {
	for _, p := range slices.Clone(m.Meta) {
		switch p.Key {
		case "tokenizer.ggml.tokens":
			tokens := slices.Clone(p.Value.([]string))
			tokens[id] = text
			m.Set(p.Key, tokens)
		case "tokenizer.ggml.token_type":
			types := slices.Clone(p.Value.([]int32))
			types[id] = int32(kind)
			m.Set(p.Key, types)
		}
	}
}
