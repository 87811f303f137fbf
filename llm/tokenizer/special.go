package tokenizer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// specials finds the tokens that are recognised in raw text.
//
// The tokens take turns, longest first, and each claims its occurrences among
// the bytes that are still free. Trying every token on every text would cost
// their product, and vocabularies with thousands of special tokens are common;
// so one pass of an Aho-Corasick automaton first tells which tokens occur at
// all. (A. Aho, M. Corasick, "Efficient string matching", CACM 18(6), 1975.)
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

type node struct {
	fail   int32 // longest proper suffix of this node that is a node
	token  int32 // index of the token that ends here, or -1
	output int32 // nearest node on the fail chain where a token ends, or 0
}

// match is a special token, and the white space that it strips, at text[start:end].
type match struct {
	start, end int
	id         int32
}

// maxSpecialBytes bounds the text of all special tokens. The automaton takes
// some eighty bytes for each, and vocabularies in use hold under 1 MiB.
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
	s := &specials{turns: make(map[int32]int32), next: make(map[edge]int32), nodes: []node{{token: -1}}}
	for i, kind := range v.kind {
		if kind == Control || kind == Unknown || kind == UserDefined {
			if total += len(v.text[i]); total > maxSpecialBytes {
				return nil, fmt.Errorf("%w: special tokens hold more than %d bytes of text", ErrVocab, maxSpecialBytes)
			}
			id := int32(i)
			s.tokens = append(s.tokens, special{v.text[i], id, kind == UserDefined, before[id], after[id]})
		}
	}
	slices.SortFunc(s.tokens, func(a, b special) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.id, b.id))
	})
	for i, t := range s.tokens {
		s.insert(t.text, int32(i))
		if t.stripBefore || t.stripAfter {
			s.turns[t.id] = int32(i)
		}
	}
	s.link()
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

func (s *specials) insert(text string, token int32) {
	at := int32(0)
	for i := range len(text) {
		to := s.step(at, text[i])
		if to == 0 {
			to = int32(len(s.nodes))
			s.nodes = append(s.nodes, node{token: -1})
			if at == 0 {
				s.root[text[i]] = to
			} else {
				s.next[edge{at, text[i]}] = to
			}
		}
		at = to
	}
	s.nodes[at].token = token
}

// link sets the fail and output links, nodes nearer to the root first.
func (s *specials) link() {
	type child struct {
		edge
		to int32
	}
	children := make([][]child, len(s.nodes))
	for e, to := range s.next {
		children[e.node] = append(children[e.node], child{e, to})
	}
	var queue []int32
	for _, to := range s.root {
		if to != 0 {
			queue = append(queue, to)
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, c := range children[at] {
			fail := s.advance(s.nodes[at].fail, c.b)
			n := &s.nodes[c.to]
			n.fail = fail
			n.output = fail
			if s.nodes[fail].token < 0 {
				n.output = s.nodes[fail].output
			}
			queue = append(queue, c.to)
		}
	}
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

// present returns the indices of the tokens that occur in text, in order.
func (s *specials) present(text string) []int32 {
	var found []int32
	var seen []bool // by node; allocated on the first occurrence
	at := int32(0)
	for i := range len(text) {
		at = s.advance(at, text[i])
		n := at
		if n != 0 && s.nodes[n].token < 0 {
			n = s.nodes[n].output
		}
		// A node that was seen has had the rest of its chain seen with it.
		for n != 0 && (seen == nil || !seen[n]) {
			if seen == nil {
				seen = make([]bool, len(s.nodes))
			}
			seen[n] = true
			found = append(found, s.nodes[n].token)
			n = s.nodes[n].output
		}
	}
	slices.Sort(found)
	return found
}

// find returns the special tokens of text, in order, and where what they leave
// begins and ends: at 0 and len(text), but for the white space that before and
// after strip. These are the special tokens in front of text and behind it, or
// None.
func (s *specials) find(text string, parseSpecial bool, before, after int32) (matches []match, from, to int) {
	turns := s.present(text)
	for _, id := range []int32{before, after} {
		if i, ok := s.turns[id]; ok {
			turns = append(turns, i)
		}
	}
	slices.Sort(turns)
	f := finder{text: text}
	from, to = 0, len(text)
	for _, i := range slices.Compact(turns) {
		t := &s.tokens[i]
		if t.id == before && t.stripAfter {
			from = f.spaceAfter(0)
			f.claim(0, from)
		}
		if t.always || parseSpecial {
			f.take(t)
		}
		if t.id == after && t.stripBefore {
			to = f.spaceBefore(len(text))
			f.claim(to, len(text))
		}
	}
	slices.SortFunc(f.matches, func(a, b match) int { return cmp.Compare(a.start, b.start) })
	return f.matches, from, to
}

// finder is the state of find.
type finder struct {
	text    string
	matches []match
	// until holds, for every byte that is claimed, the end of its claim, and 0 for
	// the others. It is nil until the first claim.
	until []int32
}

// take claims the occurrences of t that are free, and the white space it strips.
func (f *finder) take(t *special) {
	for pos := 0; ; {
		k := strings.Index(f.text[pos:], t.text)
		if k < 0 {
			return
		}
		start := pos + k
		end := start + len(t.text)
		// Earlier claims are at least as long, or reach the start or the end of the
		// text. So one that overlaps this occurrence holds its first or its last
		// byte, and overlaps every further occurrence that starts before the end of
		// that claim.
		if f.until != nil {
			if u := max(f.until[start], f.until[end-1]); u != 0 {
				pos = int(u)
				continue
			}
		}
		if t.stripBefore {
			start = f.spaceBefore(start)
		}
		if t.stripAfter {
			end = f.spaceAfter(end)
		}
		f.claim(start, end)
		f.matches = append(f.matches, match{start, end, t.id})
		pos = end
	}
}

func (f *finder) claim(start, end int) {
	if f.until == nil {
		f.until = make([]int32, len(f.text))
	}
	for i := start; i < end; i++ {
		f.until[i] = int32(end)
	}
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
	return (b == ' ' || b >= '\t' && b <= '\r') && (f.until == nil || f.until[i] == 0)
}
