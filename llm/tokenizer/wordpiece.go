package tokenizer

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// maxWordPiece bounds the length of a token of a WordPiece vocabulary in bytes, because
// encoding a word may look that far from each of its bytes. The vocabularies of real models
// stay below 100.
const maxWordPiece = 512

// wordPiece encodes with a WordPiece vocabulary. It normalises text and cuts it into words,
// and cuts a word into the longest tokens from left to right. The first token of a word has
// U+2581 in front. A word that cannot be cut becomes one unknown token. (M. Schuster,
// K. Nakajima, "Japanese and Korean voice search", 2012; J. Devlin et al., "BERT", 2019.)
type wordPiece struct {
	lower, strip bool
	unk          int32
	text         []string // the spellings, by id
	// order holds the ids sorted by spelling. within holds, for each entry of order, the
	// index in order of the longest other token that is a prefix of its spelling, or None.
	order, within []int32
}

func newWordPiece(v *vocab, cfg *Config) (*wordPiece, error) {
	if cfg.UNK == None {
		return nil, fmt.Errorf("%w: no unknown token, want one in UNK (tokenizer.ggml.unknown_token_id)", ErrVocab)
	}
	if v.maxLen > maxWordPiece {
		return nil, fmt.Errorf("%w: a token of %d bytes, want at most %d", ErrVocab, v.maxLen, maxWordPiece)
	}
	w := &wordPiece{
		lower: cfg.Lowercase, strip: cfg.StripAccents,
		unk:    cfg.UNK,
		text:   v.text,
		order:  make([]int32, len(v.text)),
		within: make([]int32, len(v.text)),
	}
	for i := range w.order {
		w.order[i] = int32(i)
	}
	slices.SortFunc(w.order, func(a, b int32) int { return strings.Compare(w.text[a], w.text[b]) })
	for i := range w.order {
		w.within[i] = w.prefix(int32(i)-1, []byte(w.text[w.order[i]]))
	}
	return w, nil
}

// longest returns the longest token that is a prefix of text, or None. Every spelling that is
// sorted between a prefix of text and text begins with that prefix. The result is therefore
// the last token that is not sorted after text, or a prefix of that token.
func (w *wordPiece) longest(text []byte) int32 {
	n := sort.Search(len(w.order), func(i int) bool { return w.text[w.order[i]] > string(text) })
	if i := w.prefix(int32(n)-1, text); i != None {
		return w.order[i]
	}
	return None
}

// prefix returns the index in order of the longest token that is a prefix of text, among the
// token at index i and its prefixes.
func (w *wordPiece) prefix(i int32, text []byte) int32 {
	if i == None {
		return None
	}
	n, last := 0, w.text[w.order[i]]
	for n < len(last) && n < len(text) && last[n] == text[n] {
		n++
	}
	for i != None && len(w.text[w.order[i]]) > n {
		i = w.within[i]
	}
	return i
}

func (w *wordPiece) appendText(dst []int32, text string) ([]int32, error) {
	// word holds spaceMark and the part of the word that was read.
	word := []byte(spaceMark)
	flush := func() {
		if len(word) > len(spaceMark) {
			dst = w.appendWord(dst, word)
			word = word[:len(spaceMark)]
		}
	}
	for i := 0; i < len(text); {
		r, size := looseRune(text[i:])
		i += size
		if w.strip {
			r = base(r)
		}
		var k charKind
		if r < utf8.RuneSelf {
			k = asciiKinds[r]
		} else {
			k = kindOf(r)
		}
		alone := k == standsAlone
		switch {
		case k == separates:
			flush()
			continue
		case k == ignored, k == accent && w.strip:
			continue
		case alone:
			flush()
		}
		if w.lower {
			r = unicode.ToLower(r)
		}
		word = utf8.AppendRune(word, r)
		if alone {
			flush()
		}
	}
	flush()
	return dst, nil
}

// appendWord appends the tokens of a word, or the unknown token.
func (w *wordPiece) appendWord(dst []int32, word []byte) []int32 {
	n := len(dst)
	for pos := 0; pos < len(word); {
		id := w.longest(word[pos:])
		if id == None {
			return append(dst[:n], w.unk)
		}
		dst = append(dst, id)
		pos += len(w.text[id])
	}
	return dst
}

// base returns the first character of the canonical decomposition of r. The other characters
// of the decomposition are accents, except for a Hangul syllable, of which only the leading
// consonant remains, as in llama.cpp.
func base(r rune) rune {
	if r < 0xC0 {
		return r
	}
	const (
		firstSyllable, syllables = 0xAC00, 11172
		firstConsonant           = 0x1100
		perConsonant             = 588
	)
	if i := r - firstSyllable; i >= 0 && i < syllables {
		return firstConsonant + i/perConsonant
	}
	var buf [utf8.UTFMax]byte
	d := norm.NFD.Properties(buf[:utf8.EncodeRune(buf[:], r)]).Decomposition()
	if len(d) == 0 {
		return r
	}
	first, _ := utf8.DecodeRune(d)
	return first
}

// charKind says how a character affects the words around it.
type charKind uint8

const (
	partOfWord charKind = iota
	separates
	standsAlone // a word by itself
	accent      // part of a word, unless accents are stripped
	ignored
)

func kindOf(r rune) charKind {
	switch {
	case unicode.Is(unicode.White_Space, r):
		return separates
	case r == 0, r == utf8.RuneError, unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
		return ignored
	case unicode.Is(unicode.M, r):
		return accent
	case unicode.Is(unicode.P, r), r < 0x7F && unicode.Is(unicode.S, r), chinese(r):
		return standsAlone
	}
	return partOfWord
}

var asciiKinds = func() (kinds [utf8.RuneSelf]charKind) {
	for r := range kinds {
		kinds[r] = kindOf(rune(r))
	}
	return kinds
}()

// chineseRanges are the ideographs that are words by themselves. The gap at U+2B820 is that
// of the tokenizers that these vocabularies were trained with.
var chineseRanges = [][2]rune{
	{0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF},
	{0x20000, 0x2A6DF}, {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
}

func chinese(r rune) bool {
	return slices.ContainsFunc(chineseRanges, func(x [2]rune) bool { return x[0] <= r && r <= x[1] })
}
