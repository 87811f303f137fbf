package tokenizer

import (
	"fmt"
	"math"
)

// encoder encodes plain text for one tokenizer model. Implementations are read-only after
// construction.
type encoder interface {
	// appendText appends the ids of text to dst. text is not empty and contains no
	// special token that must be recognised. It is the whole input, or the part of it
	// between two special tokens or a special token and an end of the input.
	appendText(dst []int32, text string) ([]int32, error)
}

// Tokenizer encodes text into token ids and decodes ids into text. It is
// immutable and safe for concurrent use. New makes one; the zero value is not usable.
type Tokenizer struct {
	vocab *vocab
	enc   encoder
	// stripSpace says that Decode removes the space that encoding added in front.
	stripSpace bool
	bos, eos   int32
	fim        FIM
	// head and tail are the tokens that TextFrame adds around a text, or None.
	head, tail int32
}

// New returns a tokenizer for cfg. It keeps cfg's slices, which must not change later. For
// ModelNone it ignores all fields of cfg except Model.
//
// New fails with ErrModel for an unknown model or pre-tokenizer. It fails with ErrVocab if
//
//   - the arrays differ in length, or a token occurs twice;
//   - a type or an id is out of range, including those of StripBefore and StripAfter;
//   - a byte token is not spelled <0xNN>;
//   - the special tokens have more than 4 MiB of text together;
//   - a token that the frame adds is None;
//   - ModelSPM has a byte without a token, and UNK is None;
//   - a merge of ModelBPE does not consist of two pieces;
//   - ModelWordPiece has no UNK, or a token of more than 512 bytes.
func New(cfg Config) (*Tokenizer, error) {
	if cfg.Model == ModelNone {
		return &Tokenizer{
			vocab: &vocab{},
			bos:   None, eos: None, fim: noFIM, head: None, tail: None,
		}, nil
	}
	if _, err := Defaults(cfg.Model); err != nil {
		return nil, err
	}
	v, err := newVocab(&cfg)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v, bos: cfg.BOS, eos: cfg.EOS, fim: cfg.FIM}
	if t.head, t.tail, err = frame(&cfg); err != nil {
		return nil, err
	}
	switch cfg.Model {
	case ModelSPM:
		t.stripSpace = cfg.AddSpacePrefix
		t.enc, err = newSPM(v, &cfg)
	case ModelBPE:
		t.enc, err = newBPE(v, &cfg)
	case ModelWordPiece:
		t.enc, err = newWordPiece(v, &cfg)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// frame returns the tokens that TextFrame adds around a text, or None.
func frame(cfg *Config) (head, tail int32, err error) {
	if cfg.Model == ModelWordPiece {
		if cfg.BOS == None || cfg.SEP == None {
			return None, None, fmt.Errorf("%w: there is no BOS or no SEP token", ErrVocab)
		}
		return cfg.BOS, cfg.SEP, nil
	}
	head, tail = None, None
	if cfg.AddBOS {
		if head = cfg.BOS; head == None {
			return None, None, fmt.Errorf("%w: AddBOS is set but there is no BOS token", ErrVocab)
		}
	}
	if cfg.AddEOS {
		if tail = cfg.EOS; tail == None {
			return None, None, fmt.Errorf("%w: AddEOS is set but there is no EOS token", ErrVocab)
		}
	}
	return head, tail, nil
}

// Frame says which tokens Encode adds around a text, if the vocabulary wants them.
type Frame uint8

const (
	// NoFrame adds nothing. It is for a part of a text.
	NoFrame Frame = iota
	// TextFrame is for a whole text, such as models are trained on. It adds BOS in front
	// and EOS at the end, or [CLS] and [SEP].
	TextFrame
	// PromptFrame is for a text that a model continues. It adds only the token that
	// TextFrame adds in front, because a model does not continue a text that has ended.
	PromptFrame
)

// EncodeOptions are the options of Encode. The zero value encodes plain text.
type EncodeOptions struct {
	// Frame adds tokens around the text, if the vocabulary wants them.
	Frame Frame
	// ParseSpecial recognises control and unknown tokens in the text by their
	// spelling. Leave it false for text from an untrusted user.
	ParseSpecial bool
}

// Encode returns the ids of text. Empty text has only the ids of opt.Frame. Text need not be
// valid UTF-8. Encode fails with ErrTooLong for text of 2 GiB or more; each space (ModelSPM)
// or invalid byte (ModelBPE) counts as three bytes. It fails with ErrNoVocab for ModelNone,
// even if text is empty.
func (t *Tokenizer) Encode(text string, opt EncodeOptions) ([]int32, error) {
	var ids []int32
	if opt.Frame != NoFrame && t.head != None {
		ids = append(ids, t.head)
	}
	ids, err := t.appendIDs(ids, text, opt.ParseSpecial, None, None)
	if err != nil {
		return nil, err
	}
	if opt.Frame == TextFrame && t.tail != None {
		ids = append(ids, t.tail)
	}
	return ids, nil
}

// Doubled reports whether ids, which Encode returned for frame, begin with the first token of
// the frame twice, and whether they end with its last token twice. That happens if the text
// spells the token and ParseSpecial recognises it. Encode keeps both tokens, because it
// cannot know which one is intended. Models are not trained on such texts, so callers should
// warn.
func (t *Tokenizer) Doubled(ids []int32, frame Frame) (head, tail bool) {
	first, end := 0, len(ids) // the range of the text in ids
	if frame != NoFrame && t.head != None {
		first++
	}
	if frame == TextFrame && t.tail != None {
		end--
	}
	if first >= end {
		return false, false
	}
	return first > 0 && ids[first] == t.head, end < len(ids) && ids[end-1] == t.tail
}

// EncodeBetween returns the ids of text between two special tokens, before and after. None
// means the start or the end of the whole text. The ids are those of Encode without options
// for text without the white space that the two tokens strip (Config.StripBefore,
// Config.StripAfter). Tokens that strip nothing, or are not special, have no effect. It fails
// as Encode does.
func (t *Tokenizer) EncodeBetween(before int32, text string, after int32) ([]int32, error) {
	return t.appendIDs(nil, text, false, before, after)
}

// appendIDs appends the ids of text between before and after, which are None or
// special tokens.
func (t *Tokenizer) appendIDs(dst []int32, text string, parseSpecial bool, before, after int32) ([]int32, error) {
	if len(t.vocab.text) == 0 {
		return nil, ErrNoVocab
	}
	if len(text) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes, want at most %d", ErrTooLong, len(text), math.MaxInt32)
	}
	matches, pos, end := t.vocab.specials.find(text, parseSpecial, before, after)
	for _, m := range matches {
		if pos < m.start {
			var err error
			if dst, err = t.enc.appendText(dst, text[pos:m.start]); err != nil {
				return nil, err
			}
		}
		dst = append(dst, m.id)
		pos = m.end
	}
	if pos < end {
		return t.enc.appendText(dst, text[pos:end])
	}
	return dst, nil
}

// BOS returns the id of the token that begins a text, or None.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS returns the id of the token that ends a text, or None.
func (t *Tokenizer) EOS() int32 { return t.eos }

// FIM returns the tokens of fill-in-the-middle prompts, which the metadata or their spelling
// determines.
func (t *Tokenizer) FIM() FIM { return t.fim }

// VocabSize returns the number of tokens. Ids run from 0 to VocabSize()-1.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.text) }

// IsEOG reports whether id ends a generation: it ends a text, a turn or a message, according
// to the metadata or to its spelling. It is false for an id outside of the vocabulary.
func (t *Tokenizer) IsEOG(id int32) bool {
	_, ok := t.vocab.eog[id]
	return ok
}

// Text returns the spelling of a token ("\u2581the", "<0x0A>", "</s>"), or "" for an id outside
// of the vocabulary.
func (t *Tokenizer) Text(id int32) string {
	if !t.vocab.has(id) {
		return ""
	}
	return t.vocab.text[id]
}

// Lookup returns the id of the token with the spelling text, or None.
func (t *Tokenizer) Lookup(text string) int32 { return t.vocab.lookup(text) }

// LookupSpecial returns the id of the control, unknown or user-defined token with the
// spelling text, or None.
func (t *Tokenizer) LookupSpecial(text string) int32 {
	if id := t.vocab.lookup(text); id != None && t.vocab.special(id) {
		return id
	}
	return None
}
