package net_test

import (
	"math"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/llm/internal/net"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// load returns the network of a seeded model, and releases it at the end of the test.
func load(t *testing.T, eng *fucina.Engine, m *tinyllama.Model) *net.Network {
	t.Helper()
	f, err := gguf.Parse(m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, fam, err := arch.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	n, err := net.Load(eng, f, net.Config{Params: p, Family: fam})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Release)
	return n
}

// sequence is a sequence of tokens on a network, with a cache of its own.
type sequence struct {
	n      *net.Network
	c      *fucina.Context
	cache  *kv.Cache
	pages  *page.Sequence
	angles *net.Angles
	step   net.Step
}

// shape returns the shape of a cache for n.
func shape(n *net.Network, format dtype.DType, tokens int) kv.Shape {
	s := n.CacheShape(format)
	s.Pages = (tokens + page.Rows - 1) / page.Rows
	return s
}

// begin returns an empty sequence, and closes it at the end of the test.
func begin(t *testing.T, eng *fucina.Engine, n *net.Network, format dtype.DType, tokens int) *sequence {
	t.Helper()
	c, err := eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	cache, err := kv.New(eng, shape(n, format, tokens))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Release)
	angles, _, err := n.NewAngles(tokens)
	if err != nil {
		t.Fatal(err)
	}
	pool := page.New(page.Options{Rows: tokens, Windows: cache.Groups()})
	return &sequence{n: n, c: c, cache: cache, pages: pool.NewSequence(page.SequenceOptions{KeepWindows: true}), angles: angles}
}

// forward computes ids, and returns the result of the network's blocks. The caller commits ids.
func (s *sequence) forward(t *testing.T, ids []int32) fucina.Tensor {
	t.Helper()
	if _, err := s.pages.Reserve(len(ids)); err != nil {
		t.Fatal(err)
	}
	rows := net.Rows{IDs: ids, Past: s.pages.Len(), Angles: s.angles}
	for g := range s.cache.Groups() {
		rows.Tables = append(rows.Tables, s.pages.Table(g))
	}
	s.step.Rows = []net.Rows{rows}
	return s.n.Forward(s.c, &s.step, s.cache)
}

// decode appends ids to the sequence and returns the logits that follow the last of them.
func (s *sequence) decode(t *testing.T, ids ...int32) []float32 {
	t.Helper()
	f := s.c.Frame()
	defer f.Close()
	x := s.forward(t, ids)
	logits := make([]float32, s.n.Params().Vocabulary)
	if err := fucina.CopyOut(s.n.Logits(x.Narrow("seq", len(ids)-1, 1)), logits); err != nil {
		t.Fatal(err)
	}
	s.pages.Commit(ids)
	return logits
}

// held returns the keys and then the values of block i of the cache, page by page. The innermost
// frame owns them.
func (s *sequence) held(i int) (halves []fucina.Tensor) {
	b := s.cache.Block(i)
	for _, half := range []fucina.Tensor{b.Keys, b.Values} {
		for j, number := range s.pages.Table(b.Group) {
			rows := min(page.Rows, s.pages.Len()-j*page.Rows)
			halves = append(halves, half.On(s.c).Narrow("page", int(number), 1).Narrow("key", 0, rows))
		}
	}
	return halves
}

// distance returns the largest difference between elements of a and b, or NaN if an element is
// NaN.
func distance(a, b []float32) float64 {
	d := 0.0
	for i := range a {
		d = max(d, math.Abs(float64(a[i])-float64(b[i])))
	}
	return d
}
