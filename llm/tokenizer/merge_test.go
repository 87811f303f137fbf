package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// anyPair merges two of three pairs of symbols, with one of a few priorities.
type anyPair struct{ seed int32 }

func (p anyPair) pair(_ string, l, r *symbol) (priority uint32, id int32, ok bool) {
	h := uint32(p.seed+l.id*31+r.id*17) * 2654435761
	return (h >> 16) % 40, int32((h >> 8) % 50), (h>>4)%3 != 0
}

// naiveMerge merges symbols, given by id. It searches for the best pair in each step.
func naiveMerge(p pairer, ids []int32) []symbol {
	var symbols []symbol
	for i, id := range ids {
		symbols = append(symbols, symbol{start: int32(i), size: 1, id: id})
	}
	for {
		best, at, id := ^uint32(0), -1, int32(0)
		for i := range len(symbols) - 1 {
			if priority, merged, ok := p.pair("", &symbols[i], &symbols[i+1]); ok && (at < 0 || priority < best) {
				best, at, id = priority, i, merged
			}
		}
		if at < 0 {
			return symbols
		}
		symbols[at].size += symbols[at+1].size
		symbols[at].id = id
		symbols = slices.Delete(symbols, at+1, at+2)
	}
}

// Merges happen by priority and then from left to right. The texts are long enough for a
// deep queue.
func TestMergeIsNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var m merger
	for range 300 {
		p := anyPair{rng.Int32N(1000)}
		ids := make([]int32, 1+rng.IntN(300))
		m.reset("", len(ids))
		for i := range ids {
			ids[i] = rng.Int32N(50)
			m.append(1, ids[i])
		}
		m.merge(p)
		want := naiveMerge(p, ids)
		n := 0
		for i := int32(0); i >= 0; i = m.symbols[i].next {
			got := m.symbols[i]
			if n == len(want) || got.start != want[n].start || got.size != want[n].size || got.id != want[n].id {
				t.Fatalf("%d symbols: symbol %d is %+v, want %+v", len(ids), n, got, want[min(n, len(want)-1)])
			}
			n++
		}
		if n != len(want) {
			t.Fatalf("%d symbols of %d are left, want %d", n, len(ids), len(want))
		}
	}
}
