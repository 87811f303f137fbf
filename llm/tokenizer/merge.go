package tokenizer

import (
	"cmp"
	"slices"
)

// symbol is a run of text that is one piece or one character, in a list that
// links neighbours. A symbol merged into its left neighbour has size 0.
type symbol struct {
	start, size int32
	prev, next  int32 // index of the neighbour, or -1
	id          int32 // for the pairer; of no meaning to the merger
}

// pairer tells which neighbours merge.
type pairer interface {
	// pair returns the priority of merging l and r, which are neighbours in
	// text, and the id of the symbol that results. Lower priorities merge first.
	pair(text string, l, r *symbol) (priority uint32, id int32, ok bool)
}

// bigram is a symbol that may merge with the one behind it. Its key is the
// priority above the index of the left symbol: bigrams merge by priority, then
// leftmost.
type bigram = keyed[union]

// union is what a bigram merges into. It is stale once either symbol was merged:
// both only grow, so size is then no longer the sum of theirs.
type union struct{ size, id int32 }

// merger merges neighbours in a text until no pair is left that merges. Its
// memory serves one text after the other.
type merger struct {
	text    string
	symbols []symbol
	first   []bigram    // of the text as it was, sorted by key
	queue   heap[union] // those that merges make
}

// reset begins a text of at most n symbols.
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

// merge joins neighbours until no pair of them merges. The symbols that are
// left are linked from the first.
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

// bigram returns the pair of two neighbours, if they merge.
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
