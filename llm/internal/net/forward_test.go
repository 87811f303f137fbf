package net_test

import (
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// A batch needs at most three rows of the MLP's width for each token, beside four of the
// residual stream's: what is large ends in its last use.
func TestMemoryOfBatch(t *testing.T) {
	const tokens = 256
	eng := engine.Open(t, fucina.WithProvider("cpu"), fucina.WithExact(true)) // whose memory is all in the pool
	n := load(t, eng, tinyllama.New(tinyllama.Options{Embedding: 128, FeedForward: 512, Heads: 8, KVHeads: 2}))
	s := begin(t, eng, n, dtype.F32, tokens)
	ids := make([]int32, tokens)
	for i := range ids {
		ids[i] = prompt[i%len(prompt)]
	}
	f := s.c.Frame()
	defer f.Close()
	if err := n.Forward(s.c, ids, s.cache, s.angles).Err(); err != nil {
		t.Fatal(err)
	}
	p, pool := n.Params(), eng.Stats().Pool
	if pool.Outstanding != 1 {
		t.Errorf("%d buffers outstanding, want that of the result", pool.Outstanding)
	}
	took, most := pool.Cached+4*tokens*int64(p.Embedding), 4*tokens*int64(3*p.FeedForward+4*p.Embedding)
	if took > most {
		t.Errorf("a batch took %d bytes, want at most %d", took, most)
	}
}
