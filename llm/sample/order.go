package sample

import (
	"cmp"
	"slices"
)

// compare orders candidates: negative where a comes before b. Equal ids are equal
// candidates, so the order is total and does not depend on where candidates lay.
type compare func(a, b candidate) int

// byLogit puts large logits first.
func byLogit(a, b candidate) int {
	if a.logit != b.logit {
		return cmp.Compare(b.logit, a.logit)
	}
	return cmp.Compare(a.id, b.id)
}

// byWeight puts small weights first.
func byWeight(a, b candidate) int {
	if a.weight != b.weight {
		return cmp.Compare(a.weight, b.weight)
	}
	return cmp.Compare(a.id, b.id)
}

// order puts the first k candidates in order into c[:k], in about len(c) steps
// while k is small against len(c), and the others behind them.
func order(c []candidate, k int, by compare) {
	if k < len(c) {
		partition(c, k, by)
	}
	slices.SortFunc(c[:k], by)
}

// partition moves the first k candidates in order into c[:k]. c[:k] is a heap with
// the last of its candidates at the root; a candidate that comes before it takes its
// place. Of n in random order, about k log(n/k) do.
func partition(c []candidate, k int, by compare) {
	if k == 0 {
		return
	}
	heap := c[:k]
	for i := k/2 - 1; i >= 0; i-- {
		sink(heap, i, by)
	}
	for i := k; i < len(c); i++ {
		if by(c[i], heap[0]) < 0 {
			c[i], heap[0] = heap[0], c[i]
			sink(heap, 0, by)
		}
	}
}

// sink restores the heap below i.
func sink(heap []candidate, i int, by compare) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && by(heap[child], heap[child+1]) < 0 {
			child++
		}
		if by(heap[i], heap[child]) >= 0 {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

// firstSorted is how many candidates extend sorts first: the mass of a language
// model's distribution mostly lies in fewer.
const firstSorted = 128

// extend is given that the first sorted candidates of c are in order, and sorts more
// if c[i] is not among them. It returns how many are sorted. A loop over i thus
// sorts little more than it looks at.
func extend(c []candidate, sorted, i int, by compare) int {
	if i < sorted {
		return sorted
	}
	more := min(max(firstSorted, 3*sorted), len(c)-sorted)
	if more > (len(c)-sorted)/8 {
		more = len(c) - sorted
	}
	order(c[sorted:], more, by)
	return sorted + more
}
