package tokenizer

import (
	"fmt"
	"math"
	"strings"
)

// spm encodes with a SentencePiece byte-pair vocabulary. (R. Sennrich et al.,
// "Neural machine translation of rare words with subword units", 2016;
// T. Kudo, J. Richardson, "SentencePiece", 2018.)
type spm struct {
	vocab  *vocab
	scores []float32 // nil means zero for all
	bytes  [256]int32
	unk    int32
	prefix bool
	// words says that in no token other text is followed by U+2581. Then no merge crosses
	// the start of a word, and the words of a text are encoded one by one.
	words bool
}

func newSPM(v *vocab, cfg *Config) (*spm, error) {
	s := &spm{vocab: v, scores: cfg.Scores, unk: cfg.UNK, prefix: cfg.AddSpacePrefix, words: true}
	for b := range s.bytes {
		id := v.lookup(fmt.Sprintf("<0x%02X>", b))
		if id == None {
			// A vocabulary may have the byte itself as a token.
			id = v.lookup(string([]byte{byte(b)}))
		}
		if id == None && s.unk == None {
			return nil, fmt.Errorf("%w: no token <0x%02X> and no unknown token to replace it", ErrVocab, b)
		}
		s.bytes[b] = id
	}
	for _, text := range v.text {
		for i := 1; i < len(text); i++ {
			if wordStart(text, i) {
				s.words = false
				return s, nil
			}
		}
	}
	return s, nil
}

// wordStart reports whether text[i:] begins with U+2581 and text[:i] does not
// end with one.
func wordStart(text string, i int) bool {
	return strings.HasPrefix(text[i:], spaceMark) && !strings.HasSuffix(text[:i], spaceMark)
}

func (s *spm) appendText(dst []int32, text string) ([]int32, error) {
	if n := len(text) + (len(spaceMark)-1)*strings.Count(text, " ") + len(spaceMark); n > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes with spaces escaped, want at most %d", ErrTooLong, n, math.MaxInt32)
	}
	text = strings.ReplaceAll(text, " ", spaceMark)
	if s.prefix {
		text = spaceMark + text
	}
	var m merger
	for pos := 0; pos < len(text); {
		end := s.segment(text, pos)
		splitChars(&m, text[pos:end])
		m.merge(s)
		for i := int32(0); i >= 0; i = m.symbols[i].next {
			dst = s.appendSymbol(dst, m.text, &m.symbols[i])
		}
		pos = end
	}
	return dst, nil
}

// segment returns the end of the part of text that begins at pos and that no merge crosses.
func (s *spm) segment(text string, pos int) int {
	if !s.words {
		return len(text)
	}
	for {
		pos += charLen(text[pos])
		if pos >= len(text) {
			return len(text)
		}
		if wordStart(text, pos) {
			return pos
		}
	}
}

// appendSymbol appends the ids of a symbol. The result of a merge is always a token, so a
// symbol without an id is a single character.
func (s *spm) appendSymbol(dst []int32, text string, sym *symbol) []int32 {
	if sym.id != None {
		return append(dst, sym.id)
	}
	text = text[sym.start : sym.start+sym.size]
	if id := s.vocab.lookup(text); id != None {
		return append(dst, id)
	}
	n := len(dst)
	for i := range len(text) {
		id := s.bytes[text[i]]
		if id == None {
			return append(dst[:n], s.unk)
		}
		dst = append(dst, id)
	}
	return dst
}

// splitChars makes each character of text a symbol. The first byte of a character gives its
// length, in invalid UTF-8 too.
func splitChars(m *merger, text string) {
	m.reset(text, len(text))
	for pos := 0; pos < len(text); {
		size := min(charLen(text[pos]), len(text)-pos)
		m.append(size, None)
		pos += size
	}
}

// charLen returns the length of a UTF-8 sequence that begins with first, or 1 if first does
// not begin one.
func charLen(first byte) int {
	switch {
	case first < 0xC0:
		return 1
	case first < 0xE0:
		return 2
	case first < 0xF0:
		return 3
	}
	return 4
}

// pair merges neighbours whose concatenation is a token. The priority is the score of the
// token.
func (s *spm) pair(text string, l, r *symbol) (priority uint32, id int32, ok bool) {
	size := l.size + r.size
	if int(size) > s.vocab.maxLen {
		return 0, None, false
	}
	id = s.vocab.lookup(text[l.start : l.start+size])
	if id == None {
		return 0, None, false
	}
	score := float32(0)
	if s.scores != nil {
		score = s.scores[id]
	}
	return descending(score), id, true
}

// descending maps floats to integers in the opposite order. NaN comes after all numbers, so
// that a token with that score merges last. In llama.cpp's queue a NaN compares as equal to
// any score, so the order there depends on the other entries of the queue. descending does
// not reproduce that order.
func descending(f float32) uint32 {
	if f != f {
		return math.MaxUint32
	}
	b := math.Float32bits(f + 0) // turns -0 into 0
	if b>>31 != 0 {
		return b
	}
	return ^b &^ (1 << 31)
}
