package net_test

import (
	"math"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/kv"
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

// sequence is a sequence of tokens on a network.
type sequence struct {
	n      *net.Network
	c      *fucina.Context
	cache  *kv.Cache
	angles net.Angles
}

// shape returns the shape of a cache for n.
func shape(n *net.Network, format dtype.DType, tokens int) kv.Shape {
	p := n.Params()
	return kv.Shape{Format: format, Tokens: tokens, Blocks: p.Layers, Heads: p.KVHeads, KeyLength: p.KeyLength, ValueLength: p.ValueLength}
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
	angles, err := n.NewAngles(eng, tokens)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(angles.Release)
	return &sequence{n, c, cache, angles}
}

// decode appends ids to the sequence and returns the logits that follow the last of them.
func (s *sequence) decode(t *testing.T, ids ...int32) []float32 {
	t.Helper()
	f := s.c.Frame()
	defer f.Close()
	x := s.n.Forward(s.c, ids, s.cache, s.angles)
	logits := make([]float32, s.n.Params().Vocabulary)
	if err := fucina.CopyOut(s.n.Logits(x.Narrow("seq", len(ids)-1, 1)), logits); err != nil {
		t.Fatal(err)
	}
	s.cache.Advance(len(ids))
	return logits
}

// held returns the keys and the values of block i of the cache, which the innermost frame owns.
// To get them, it appends a row that it does not count.
func (s *sequence) held(i int) (keys, values fucina.Tensor) {
	p, past := s.n.Params(), s.cache.Len()
	row := func(length int) fucina.Tensor {
		return fucina.FromSlice(s.c, make([]float32, p.KVHeads*length), fucina.Ax("seq", 1), fucina.Ax("kv_head", p.KVHeads), fucina.Ax("d_head", length))
	}
	keys, values = s.cache.Block(i).Append(row(p.KeyLength), row(p.ValueLength))
	return keys.Narrow("key", 0, past), values.Narrow("key", 0, past)
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
