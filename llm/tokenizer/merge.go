package tokenizer

import "slices"

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

// bigram is a pair of neighbours that may merge. It is stale once either was
// merged: then size is no longer the sum of theirs.
type bigram struct {
	// key is the priority above the index of the left symbol: bigrams merge by
	// priority, then leftmost.
	key   uint64
	right int32
	size  int32
	id    int32
}

// merger merges neighbours in a text until no pair is left that merges. Its
// memory serves one text after the other.
type merger struct {
	text    string
	symbols []symbol
	queue   []bigram // a binary heap by key
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
	for i := range len(m.symbols) - 1 {
		m.propose(p, int32(i), int32(i)+1, false)
	}
	for i := len(m.queue)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	for len(m.queue) > 0 {
		b := m.pop()
		li := int32(uint32(b.key))
		left, right := &m.symbols[li], &m.symbols[b.right]
		if left.size == 0 || right.size == 0 || left.size+right.size != b.size {
			continue
		}
		left.size = b.size
		left.id = b.id
		left.next = right.next
		right.size = 0
		if left.next >= 0 {
			m.symbols[left.next].prev = li
		}
		m.propose(p, left.prev, li, true)
		m.propose(p, li, left.next, true)
	}
}

// propose queues two neighbours if they merge, in heap order if sift is set.
func (m *merger) propose(p pairer, left, right int32, sift bool) {
	if left < 0 || right < 0 {
		return
	}
	l, r := &m.symbols[left], &m.symbols[right]
	priority, id, ok := p.pair(m.text, l, r)
	if !ok {
		return
	}
	m.queue = append(m.queue, bigram{uint64(priority)<<32 | uint64(uint32(left)), right, l.size + r.size, id})
	if sift {
		m.up(len(m.queue) - 1)
	}
}

func (m *merger) up(i int) {
	q := m.queue
	for i > 0 {
		parent := (i - 1) / 2
		if q[i].key >= q[parent].key {
			return
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
		if child+1 < len(q) && q[child+1].key < q[child].key {
			child++
		}
		if q[child].key >= q[i].key {
			return
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
