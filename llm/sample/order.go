package sample

import (
	"cmp"
	"slices"
)

// compare orders candidates: the result is negative if a comes before b. Candidates with
// equal logits or weights are ordered by id, so the order is total.
type compare func(a, b candidate) int

// byLogit orders candidates by descending logit.
func byLogit(a, b candidate) int {
	if a.logit != b.logit {
		return cmp.Compare(b.logit, a.logit)
	}
	return cmp.Compare(a.id, b.id)
}

// byWeight orders candidates by ascending weight.
func byWeight(a, b candidate) int {
	if a.weight != b.weight {
		return cmp.Compare(a.weight, b.weight)
	}
	return cmp.Compare(a.id, b.id)
}

// order moves the first k candidates of the order into c[:k], sorted, and the others after
// them. It takes about len(c) steps if k is small compared with len(c).
func order(c []candidate, k int, by compare) {
	if k < len(c) {
		partition(c, k, by)
	}
	slices.SortFunc(c[:k], by)
}

// partition moves the first k candidates of the order into c[:k]. c[:k] is a heap whose root
// is the last of its candidates. A candidate that comes before the root replaces it; of n
// candidates in random order, about k log(n/k) do.
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

// firstSorted is the number of candidates that extend sorts first. Fewer candidates usually
// have most of the probability of a language model's distribution.
const firstSorted = 128

// extend sorts more candidates of c if c[i] is not among the first sorted ones, which are in
// order. It returns the new number of sorted candidates. A loop over i therefore sorts only a
// few more candidates than it visits.
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
