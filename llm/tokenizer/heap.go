package tokenizer

// keyed is a value with a key that gives its order.
type keyed[T any] struct {
	value T
	key   uint64
}

// heap is a priority queue whose lowest key comes first. Each node has four children, which
// makes the heap shallow.
type heap[T any] []keyed[T]

func (h *heap[T]) push(e keyed[T]) {
	*h = append(*h, e)
	q := *h
	i := len(q) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if q[parent].key <= e.key {
			break
		}
		q[i] = q[parent]
		i = parent
	}
	q[i] = e
}

func (h *heap[T]) pop() keyed[T] {
	q := *h
	top, last := q[0], q[len(q)-1]
	q = q[:len(q)-1]
	*h = q
	if len(q) == 0 {
		return top
	}
	i := 0 // the hole that last fills
	for {
		first := 4*i + 1
		if first >= len(q) {
			break
		}
		child, key := first, q[first].key
		for c := first + 1; c < min(first+4, len(q)); c++ {
			if k := q[c].key; k < key {
				child, key = c, k
			}
		}
		if key >= last.key {
			break
		}
		q[i] = q[child]
		i = child
	}
	q[i] = last
	return top
}
