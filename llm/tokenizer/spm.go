package tokenizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// spm encodes with a SentencePiece byte-pair vocabulary. (R. Sennrich et al.,
// "Neural machine translation of rare words with subword units", 2016;
// T. Kudo, J. Richardson, "SentencePiece", 2018.)
type spm struct {
	vocab  *vocab
	scores []float32 // nil: all zero
	bytes  [256]int32
	unk    int32
	prefix bool
	// words is set if no token crosses from other text into U+2581. Then no
	// merge does either, and the words of a text are encoded one by one.
	words bool
}

func newSPM(v *vocab, cfg *Config) (*spm, error) {
	s := &spm{vocab: v, scores: cfg.Scores, unk: cfg.UNK, prefix: cfg.AddSpacePrefix, words: true}
	for b := range s.bytes {
		id := v.lookup(fmt.Sprintf("<0x%02X>", b))
		if id == None {
			// A vocabulary may spell the byte as itself.
			id = v.lookup(string([]byte{byte(b)}))
		}
		if id == None && s.unk == None {
			return nil, fmt.Errorf("%w: no token <0x%02X> and no unknown token in its place", ErrVocab, b)
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

// symbol is a run of text that is one token or one character, in a list that
// links neighbours. A symbol merged into its left neighbour has size 0.
type symbol struct {
	start, size int32
	prev, next  int32 // index of the neighbour, or -1
}

// bigram is a pair of neighbours that form a token. It is stale once either
// was merged: then size is no longer the sum of theirs.
type bigram struct {
	score       float32
	left, right int32
	size        int32
}

// before orders bigrams: highest score, then leftmost.
func (a bigram) before(b bigram) bool {
	return a.score > b.score || a.score == b.score && a.left < b.left
}

func (s *spm) appendText(dst []int32, text string) ([]int32, error) {
	if n := len(text) + (len(spaceMark)-1)*strings.Count(text, " ") + len(spaceMark); n > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes with spaces escaped, want at most %d", ErrTooLong, n, math.MaxInt32)
	}
	text = strings.ReplaceAll(text, " ", spaceMark)
	if s.prefix {
		text = spaceMark + text
	}
	m := merger{spm: s}
	for pos := 0; pos < len(text); {
		end := s.segment(text, pos)
		m.text = text[pos:end]
		m.split()
		m.merge()
		for i := int32(0); i >= 0; i = m.symbols[i].next {
			sym := m.symbols[i]
			dst = s.appendSymbol(dst, m.text[sym.start:sym.start+sym.size])
		}
		pos = end
	}
	return dst, nil
}

// segment returns the end of the stretch of text that begins at pos and that no
// merge leaves.
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

// appendSymbol appends the id of a symbol. Only tokens come out of a merge, so
// a symbol without an id is a single character.
func (s *spm) appendSymbol(dst []int32, text string) []int32 {
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

// merger is the working state of one appendText.
type merger struct {
	spm     *spm
	text    string // one segment
	symbols []symbol
	queue   []bigram // a binary heap by before
}

// split makes a symbol of every character. In text that is not UTF-8 a
// character is as long as its first byte says.
func (m *merger) split() {
	m.symbols = slices.Grow(m.symbols[:0], len(m.text))
	for pos := 0; pos < len(m.text); {
		size := min(charLen(m.text[pos]), len(m.text)-pos)
		i := int32(len(m.symbols))
		m.symbols = append(m.symbols, symbol{int32(pos), int32(size), i - 1, i + 1})
		pos += size
	}
	m.symbols[len(m.symbols)-1].next = -1
}

// charLen returns the length of a UTF-8 sequence by its first byte, and 1 for a
// byte that does not begin one.
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

// merge joins neighbours until no pair of them is a token.
func (m *merger) merge() {
	for i := range len(m.symbols) - 1 {
		if b, ok := m.pair(int32(i), int32(i)+1); ok {
			m.queue = append(m.queue, b)
		}
	}
	for i := len(m.queue)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	for len(m.queue) > 0 {
		b := m.pop()
		left, right := &m.symbols[b.left], &m.symbols[b.right]
		if left.size == 0 || right.size == 0 || left.size+right.size != b.size {
			continue
		}
		left.size += right.size
		right.size = 0
		left.next = right.next
		if left.next >= 0 {
			m.symbols[left.next].prev = b.left
		}
		if p, ok := m.pair(left.prev, b.left); ok {
			m.push(p)
		}
		if p, ok := m.pair(b.left, left.next); ok {
			m.push(p)
		}
	}
}

// pair returns the bigram of two neighbours, if they form a token.
func (m *merger) pair(left, right int32) (bigram, bool) {
	if left < 0 || right < 0 {
		return bigram{}, false
	}
	l := m.symbols[left]
	size := l.size + m.symbols[right].size
	if int(size) > m.spm.vocab.maxLen {
		return bigram{}, false
	}
	id := m.spm.vocab.lookup(m.text[l.start : l.start+size])
	if id == None {
		return bigram{}, false
	}
	b := bigram{left: left, right: right, size: size}
	if m.spm.scores != nil {
		b.score = m.spm.scores[id]
	}
	return b, true
}

func (m *merger) push(b bigram) {
	m.queue = append(m.queue, b)
	q := m.queue
	for i := len(q) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q[i].before(q[parent]) {
			break
		}
		q[i], q[parent] = q[parent], q[i]
		i = parent
	}
}

func (m *merger) pop() bigram {
	top := m.queue[0]
	last := len(m.queue) - 1
	m.queue[0] = m.queue[last]
	m.queue = m.queue[:last]
	m.down(0)
	return top
}

func (m *merger) down(i int) {
	q := m.queue
	for {
		child := 2*i + 1
		if child >= len(q) {
			return
		}
		if child+1 < len(q) && q[child+1].before(q[child]) {
			child++
		}
		if !q[child].before(q[i]) {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
