package tokenizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// specials finds the tokens that are recognised in raw text.
//
// The tokens take turns, longest first. In its turn, a token claims its occurrences among
// the bytes that are still free. Vocabularies with thousands of special tokens are common,
// so trying each token on the text would be too slow. Instead, one pass of an Aho-Corasick
// automaton finds the longest token that ends at each byte, and a queue orders these
// tokens by their turns. (A. Aho, M. Corasick, "Efficient string matching", CACM 18(6),
// 1975.)
type specials struct {
	tokens []special // in the order of their turns
	// turns holds, by id, the index in tokens of each token that strips white space.
	turns map[int32]int32
	// Node 0 is the root. root holds the transitions of the root, and next those of the
	// other nodes; 0 means that there is none.
	root  [256]int32
	next  map[edge]int32
	nodes []node
}

type special struct {
	text string
	id   int32
	// always is set for tokens recognised without ParseSpecial.
	always bool
	// stripBefore and stripAfter say that the token removes the white space next to it.
	stripBefore, stripAfter bool
}

type edge struct {
	node int32
	b    byte
}

// node represents a prefix of a token.
type node struct {
	fail int32 // the node of the longest proper suffix of the prefix
	// any is the index of the longest token that ends here. always is the index of the
	// longest one that is recognised without ParseSpecial. Both may be none.
	any, always int32
}

// none means that there is no token.
const none = -1

// match is an occurrence of a special token at text[start:end], with the white space that
// the token strips.
type match struct {
	start, end int
	id         int32
}

// maxSpecialBytes bounds the total length of the special tokens. The automaton needs about
// thirty bytes for each byte of them, and three times as much while it is built. The
// vocabularies of real models have less than 1 MiB.
const maxSpecialBytes = 4 << 20

func newSpecials(v *vocab, cfg *Config) (*specials, error) {
	before, err := idSet("StripBefore", cfg.StripBefore, v)
	if err != nil {
		return nil, err
	}
	after, err := idSet("StripAfter", cfg.StripAfter, v)
	if err != nil {
		return nil, err
	}
	total := 0
	s := &specials{turns: make(map[int32]int32)}
	for i, kind := range v.kind {
		if id := int32(i); v.special(id) {
			if total += len(v.text[i]); total > maxSpecialBytes {
				return nil, fmt.Errorf("%w: special tokens hold more than %d bytes of text", ErrVocab, maxSpecialBytes)
			}
			s.tokens = append(s.tokens, special{v.text[i], id, kind == UserDefined, before[id], after[id]})
		}
	}
	slices.SortFunc(s.tokens, func(a, b special) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.id, b.id))
	})
	for i, t := range s.tokens {
		if t.stripBefore || t.stripAfter {
			s.turns[t.id] = int32(i)
		}
	}
	s.build()
	return s, nil
}

// idSet returns ids, which Config has under name, as a set.
func idSet(name string, ids []int32, v *vocab) (map[int32]bool, error) {
	set := make(map[int32]bool, len(ids))
	for _, id := range ids {
		if !v.has(id) {
			return nil, fmt.Errorf("%w: %s holds token %d, want 0..%d", ErrVocab, name, id, len(v.text)-1)
		}
		set[id] = true
	}
	return set, nil
}

// build builds the automaton breadth first.
func (s *specials) build() {
	s.next = make(map[edge]int32)
	s.nodes = []node{{any: none, always: none}}
	at := make([]int32, len(s.tokens)) // the node that each token has reached
	for depth := 0; ; depth++ {
		for len(at) > 0 && len(s.tokens[len(at)-1].text) == depth {
			at = at[:len(at)-1] // the shortest remaining token has ended
		}
		if len(at) == 0 {
			return
		}
		for i, from := range at {
			t := &s.tokens[i]
			to := s.child(from, t.text[depth])
			at[i] = to
			if len(t.text) == depth+1 {
				s.nodes[to].any = int32(i)
				if t.always {
					s.nodes[to].always = int32(i)
				}
			}
		}
	}
}

// child returns the node that follows at by b, and adds it if it does not exist. All nodes
// of the depth of at exist.
func (s *specials) child(at int32, b byte) int32 {
	if to := s.step(at, b); to != 0 {
		return to
	}
	to := int32(len(s.nodes))
	n := node{any: none, always: none}
	if at == 0 {
		s.root[b] = to
	} else {
		n.fail = s.advance(s.nodes[at].fail, b)
		n.any, n.always = s.nodes[n.fail].any, s.nodes[n.fail].always
		s.next[edge{at, b}] = to
	}
	s.nodes = append(s.nodes, n)
	return to
}

func (s *specials) step(at int32, b byte) int32 {
	if at == 0 {
		return s.root[b]
	}
	return s.next[edge{at, b}]
}

// advance returns the node of the longest suffix of the prefix of at followed by b.
func (s *specials) advance(at int32, b byte) int32 {
	for {
		if to := s.step(at, b); to != 0 {
			return to
		}
		if at == 0 {
			return 0
		}
		at = s.nodes[at].fail
	}
}

// find returns the special tokens of text in order, and the range of text that is not
// stripped by before and after. These are the special tokens in front of text and after it,
// or None.
func (s *specials) find(text string, parseSpecial bool, before, after int32) (matches []match, from, to int) {
	f := finder{specials: s, text: text, parse: parseSpecial}
	f.scan(0, len(text))
	if i, ok := s.turns[before]; ok && s.tokens[i].stripAfter {
		f.wait(i, textStart)
	}
	if i, ok := s.turns[after]; ok && s.tokens[i].stripBefore {
		f.wait(i, textEnd)
	}
	from, to = 0, len(text)
	for len(f.waiting) > 0 {
		key := f.waiting.pop().key
		turn, end := int32(key>>32), uint32(key)
		t := &s.tokens[turn]
		switch {
		case end == textStart:
			from = f.spaceAfter(0)
			f.claim(0, from, t)
		case end == textEnd:
			to = f.spaceBefore(len(text))
			f.claim(to, len(text), t)
		case f.longest[end-1] == turn:
			f.take(t, int(end))
		}
	}
	slices.SortFunc(f.matches, func(a, b match) int { return cmp.Compare(a.start, b.start) })
	return f.matches, from, to
}

// finder is the state of find.
//
// For each free byte, finder knows the longest token that ends there and consists of free
// bytes. Only that token is in waiting: shorter tokens that end there need not be, because
// it claims their last byte in its turn. If a claim takes the last byte of a waiting token,
// the token no longer occurs. If a claim takes only earlier bytes of it, a new scan from the
// end of the claim finds a shorter token that ends at the same byte, if there is one. The
// turn of the shorter token is later, so no turn is missed.
type finder struct {
	*specials
	text    string
	parse   bool
	matches []match
	// longest holds, for each byte, the token that may end with it, none, or claimed if
	// the byte is not free. It is nil while every byte has none.
	longest []int32
	// waiting holds the tokens whose turn is to come. Some of them may have lost bytes.
	// The high bits of the key are the turn, the low bits the end of the token.
	waiting heap[struct{}]
}

// claimed is the value of longest for a byte that a token has claimed.
const claimed = -2

// The ends in waiting of the tokens around the text. The token in front of the text comes
// before its own occurrences in the text, and the token after the text comes after them.
const (
	textStart uint32 = 0
	textEnd   uint32 = math.MaxUint32
)

func (f *finder) wait(turn int32, end uint32) {
	f.waiting.push(keyed[struct{}]{key: uint64(turn)<<32 | uint64(end)})
}

// scan adds the longest tokens in text[start:end] to waiting, up to the first byte that is
// not free.
func (f *finder) scan(start, end int) {
	at := int32(0)
	for i := start; i < end; i++ {
		if f.longest != nil && f.longest[i] == claimed {
			return
		}
		at = f.advance(at, f.text[i])
		turn := f.nodes[at].always
		if f.parse {
			turn = f.nodes[at].any
		}
		if f.longest == nil {
			if turn == none {
				continue
			}
			f.allocate()
		}
		if f.longest[i] != turn {
			f.longest[i] = turn
			if turn != none {
				f.wait(turn, uint32(i)+1)
			}
		}
	}
}

func (f *finder) allocate() {
	f.longest = make([]int32, len(f.text))
	for i := range f.longest {
		f.longest[i] = none
	}
}

// take claims an occurrence of t with the white space that t strips.
func (f *finder) take(t *special, end int) {
	start := end - len(t.text)
	if t.stripBefore {
		start = f.spaceBefore(start)
	}
	if t.stripAfter {
		end = f.spaceAfter(end)
	}
	f.matches = append(f.matches, match{start, end, t.id})
	f.claim(start, end, t)
}

// claim claims text[start:end], which is free, in the turn of t. The waiting tokens are not
// longer than t. A token that loses bytes, but not its last byte, therefore ends less than
// the length of t after the claim.
func (f *finder) claim(start, end int, t *special) {
	if start == end {
		return
	}
	if f.longest == nil {
		f.allocate()
	}
	for i := start; i < end; i++ {
		f.longest[i] = claimed
	}
	f.scan(end, min(end+len(t.text)-1, len(f.text)))
}

// spaceAfter returns the end of the free white space that begins at pos.
func (f *finder) spaceAfter(pos int) int {
	for pos < len(f.text) && f.freeSpace(pos) {
		pos++
	}
	return pos
}

// spaceBefore returns the start of the free white space that ends at pos.
func (f *finder) spaceBefore(pos int) int {
	for pos > 0 && f.freeSpace(pos-1) {
		pos--
	}
	return pos
}

// freeSpace reports whether byte i is free and white space according to C's isspace.
func (f *finder) freeSpace(i int) bool {
	b := f.text[i]
	return (b == ' ' || b >= '\t' && b <= '\r') && (f.longest == nil || f.longest[i] != claimed)
}
