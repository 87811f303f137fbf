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

// match is a special token at text[start:end].
type match struct {
	start, end int
	id         int32
}

// maxSpecialBytes bounds the text of all special tokens. The automaton takes
// some eighty bytes for each, and vocabularies in use hold under 1 MiB.
const maxSpecialBytes = 4 << 20

func newSpecials(v *vocab) (*specials, error) {
	total := 0
	s := &specials{next: make(map[edge]int32), nodes: []node{{token: -1}}}
	for i, kind := range v.kind {
		if kind == Control || kind == Unknown || kind == UserDefined {
			if total += len(v.text[i]); total > maxSpecialBytes {
				return nil, fmt.Errorf("%w: special tokens hold more than %d bytes of text", ErrVocab, maxSpecialBytes)
			}
			s.tokens = append(s.tokens, special{v.text[i], int32(i), kind == UserDefined})
		}
	}
	slices.SortFunc(s.tokens, func(a, b special) int {
		return cmp.Or(cmp.Compare(len(b.text), len(a.text)), cmp.Compare(a.id, b.id))
	})
	for i, t := range s.tokens {
		s.insert(t.text, int32(i))
	}
	s.link()
	return s, nil
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

// find returns the special tokens of text, in the order of the text.
func (s *specials) find(text string, parseSpecial bool) []match {
	var matches []match
	// until[i] is the end of the match that holds byte i, or 0.
	var until []int32
	for _, i := range s.present(text) {
		t := s.tokens[i]
		if !t.always && !parseSpecial {
			continue
		}
		if until == nil {
			until = make([]int32, len(text))
		}
		for pos := 0; ; {
			k := strings.Index(text[pos:], t.text)
			if k < 0 {
				break
			}
			start := pos + k
			end := start + len(t.text)
			// Earlier matches are at least as long, so one that overlaps this
			// occurrence holds its first or its last byte, and overlaps every
			// further occurrence that starts before the end of that match.
			if u := max(until[start], until[end-1]); u != 0 {
				pos = int(u)
				continue
			}
			for j := start; j < end; j++ {
				until[j] = int32(end)
			}
			matches = append(matches, match{start, end, t.id})
			pos = end
		}
	}
	slices.SortFunc(matches, func(a, b match) int { return cmp.Compare(a.start, b.start) })
	return matches
}
