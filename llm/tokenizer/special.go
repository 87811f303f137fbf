package tokenizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// specials finds the tokens that are recognised in raw text.
//
// The tokens take turns, longest first, and each claims its occurrences among
// the bytes that are still free. Trying every token on every text would cost
// their product, and vocabularies with thousands of special tokens are common;
// so one pass of an Aho-Corasick automaton finds the longest token that ends with
// each byte, and a queue brings these in the order of their turns. (A. Aho,
// M. Corasick, "Efficient string matching", CACM 18(6), 1975.)
type specials struct {
	tokens []special // in the order of their turns
	// turns holds the index in tokens of those that strip white space, by id.
	turns map[int32]int32
	// Node 0 is the root, and next its transitions, with 0 for none.
	root  [256]int32
	next  map[edge]int32
	nodes []node
}

type special struct {
	text string
	id   int32
	// always is set for tokens recognised without ParseSpecial.
	always bool
	// stripBefore and stripAfter say that the token takes the white space next to
	// it with it.
	stripBefore, stripAfter bool
}

type edge struct {
	node int32
	b    byte
}

// node stands for a text that begins a token.
type node struct {
	fail int32 // longest proper suffix of this node that is a node
	// any is the index of the longest token that ends here, and always that of the
	// longest that is always recognised; none if there is none.
	any, always int32
}

// none is the turn of no token.
const none = -1

// match is a special token, and the white space that it strips, at text[start:end].
type match struct {
	start, end int
	id         int32
}

// maxSpecialBytes bounds the text of all special tokens. The automaton takes
// some thirty bytes for each and three times that while it is built, and vocabularies
// in use hold under 1 MiB.
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

// idSet makes a set of a list of ids that Config has under name.
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

// build makes the automaton, nodes nearer to the root first.
func (s *specials) build() {
	s.next = make(map[edge]int32)
	s.nodes = []node{{any: none, always: none}}
	at := make([]int32, len(s.tokens)) // where the first bytes of each lead
	for depth := 0; ; depth++ {
		for len(at) > 0 && len(s.tokens[len(at)-1].text) == depth {
			at = at[:len(at)-1] // it has ended, as the shortest of those that are left
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

// child returns the node behind at by b, which it makes if there is none. All
// nodes as near to the root as at are there.
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

// advance returns the node of the longest suffix of at's text plus b.
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

// find returns the special tokens of text, in order, and where what they leave
// begins and ends: at 0 and len(text), but for the white space that before and
// after strip. These are the special tokens in front of text and behind it, or
// None.
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
// For every free byte it knows the longest token that ends there and lies in free
// bytes, and only that one waits: the shorter ones that end there wait for nothing,
// since it claims their last byte when its turn comes. A claim leaves what waits
// without its last byte, which ends it, or only without bytes in front; scanning
// anew from the end of the claim then finds a shorter token in its place, if there
// is one. The shorter token's turn is later, so no turn is missed.
type finder struct {
	*specials
	text    string
	parse   bool
	matches []match
	// longest holds, for every byte, the token that may end with it: none, or
	// claimed if the byte is not free. It is nil as long as there is no other.
	longest []int32
	// waiting holds the tokens whose turn is to come, and those that have lost
	// bytes since. The key is the turn above where the token ends.
	waiting heap[struct{}]
}

// claimed stands for the token that ends with a byte that is taken.
const claimed = -2

// What waits beside tokens in the text, as if it ended at one of these: the token
// in front of the text, ahead of its own occurrences, and the one behind the text,
// after them.
const (
	textStart uint32 = 0
	textEnd   uint32 = math.MaxUint32
)

func (f *finder) wait(turn int32, end uint32) {
	f.waiting.push(keyed[struct{}]{key: uint64(turn)<<32 | uint64(end)})
}

// scan makes the longest tokens in text[start:end] wait, as far as its bytes are
// free.
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

// take claims an occurrence of t, and the white space that it strips.
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

// claim takes text[start:end], which is free, in the turn of t. The tokens that
// wait are no longer than t: those that lose bytes, but not the last, end less
// than its length behind the claim.
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

// spaceAfter returns the end of the white space that is free from pos on.
func (f *finder) spaceAfter(pos int) int {
	for pos < len(f.text) && f.freeSpace(pos) {
		pos++
	}
	return pos
}

// spaceBefore returns the start of the white space that is free up to pos.
func (f *finder) spaceBefore(pos int) int {
	for pos > 0 && f.freeSpace(pos-1) {
		pos--
	}
	return pos
}

// freeSpace reports whether a byte is white space, as C has it, and free.
func (f *finder) freeSpace(i int) bool {
	b := f.text[i]
	return (b == ' ' || b >= '\t' && b <= '\r') && (f.longest == nil || f.longest[i] != claimed)
}
