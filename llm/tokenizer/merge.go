package tokenizer

import (
	"cmp"
	"slices"
)

// symbol is a part of a text, a piece or a character, in a list of neighbours. A symbol that
// was merged into its left neighbour has size 0.
type symbol struct {
	start, size int32
	prev, next  int32 // index of the neighbour, or -1
	id          int32 // used by the pairer only
}

// pairer decides which neighbours merge.
type pairer interface {
	// pair returns the priority of merging l and r, which are neighbours in
	// text, and the id of the symbol that results. Lower priorities merge first.
	pair(text string, l, r *symbol) (priority uint32, id int32, ok bool)
}

// bigram is a pair of neighbours that may merge. The high bits of its key are the priority
// and the low bits the index of the left symbol, so bigrams merge by priority and then from
// left to right.
type bigram = keyed[union]

// union is the result of merging a bigram. It is stale once one of the two symbols has
// merged: symbols only grow, so size is then not the sum of their sizes.
type union struct{ size, id int32 }

// merger merges neighbours in a text until no pair merges. It reuses its memory for the next
// text.
type merger struct {
	text    string
	symbols []symbol
	first   []bigram    // the bigrams of the original text, sorted by key
	queue   heap[union] // the bigrams that arise from merges
}

// reset starts a new text of at most n symbols.
func (m *merger) reset(text string, n int) {
	m.text = text
	m.symbols = slices.Grow(m.symbols[:0], n)
	m.queue = m.queue[:0]
}

// append adds the next size bytes of the text as a symbol.
func (m *merger) append(size int, id int32) {
	i := int32(len(m.symbols))
	start := int32(0)
	if i > 0 {
		last := &m.symbols[i-1]
		last.next = i
		start = last.start + last.size
	}
	m.symbols = append(m.symbols, symbol{start: start, size: int32(size), prev: i - 1, next: -1, id: id})
}

// merge merges neighbours until no pair merges. The remaining symbols are linked from the
// first one.
func (m *merger) merge(p pairer) {
	m.first = slices.Grow(m.first[:0], len(m.symbols))
	for i := range len(m.symbols) - 1 {
		if b, ok := m.bigram(p, int32(i), int32(i)+1); ok {
			m.first = append(m.first, b)
		}
	}
	slices.SortFunc(m.first, func(a, b bigram) int { return cmp.Compare(a.key, b.key) })
	for first := m.first; len(first) > 0 || len(m.queue) > 0; {
		var b bigram
		if len(m.queue) == 0 || len(first) > 0 && first[0].key <= m.queue[0].key {
			b, first = first[0], first[1:]
		} else {
			b = m.queue.pop()
		}
		li := int32(uint32(b.key))
		left := &m.symbols[li]
		if left.size == 0 || left.next < 0 {
			continue
		}
		right := &m.symbols[left.next]
		if left.size+right.size != b.value.size {
			continue
		}
		left.size = b.value.size
		left.id = b.value.id
		left.next = right.next
		right.size = 0
		if left.prev >= 0 {
			m.propose(p, left.prev, li)
		}
		if left.next >= 0 {
			m.symbols[left.next].prev = li
			m.propose(p, li, left.next)
		}
	}
}

// bigram returns the bigram of two neighbours, and whether they merge.
func (m *merger) bigram(p pairer, left, right int32) (bigram, bool) {
	l, r := &m.symbols[left], &m.symbols[right]
	priority, id, ok := p.pair(m.text, l, r)
	return bigram{union{l.size + r.size, id}, uint64(priority)<<32 | uint64(uint32(left))}, ok
}

// propose queues two neighbours if they merge.
func (m *merger) propose(p pairer, left, right int32) {
	if b, ok := m.bigram(p, left, right); ok {
		m.queue.push(b)
	}
}
