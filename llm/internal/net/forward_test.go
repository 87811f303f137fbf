package net_test

import (
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// For each token, a batch needs at most three rows of the MLP's width and four rows of the
// residual stream's width, because large values are moved into their last use.
func TestMemoryOfBatch(t *testing.T) {
	const tokens = 256
	eng := engine.Open(t, fucina.WithProvider("cpu"), fucina.WithExact(true)) // all memory of the CPU's results is in the pool
	n := load(t, eng, tinyllama.New(tinyllama.Options{Embedding: 128, FeedForward: 512, Heads: 8, KVHeads: 2}))
	s := begin(t, eng, n, dtype.F32, tokens)
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = prompt[i%len(prompt)]
	}
	f := s.c.Frame()
	defer f.Close()
	if err := s.forward(t, ids).Err(); err != nil {
		t.Fatal(err)
	}
	p, pool := n.Params(), eng.Stats().Pool
	if pool.Outstanding != 1 {
		t.Errorf("%d buffers outstanding, want only the buffer of the result", pool.Outstanding)
	}
	took, most := pool.Cached+4*tokens*int64(p.Embedding), 4*tokens*int64(3*p.FeedForward+4*p.Embedding)
	if took > most {
		t.Errorf("a batch needed %d bytes, want at most %d", took, most)
	}
}
