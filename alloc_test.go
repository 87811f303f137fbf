package fucina_test

import (
	"context"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/invariants"
)

// block is a small transformer block over a cache.
type block struct {
	c                                            *fucina.Context
	table, ids, norm, wq, wk, wo, gate, up, down fucina.Tensor
	k, v, angles                                 fucina.Tensor

	best [1]int32
}

const (
	vocab, width, heads, kvHeads, headDim, hidden, keys = 11, 8, 4, 2, 4, 12, 6
)

func ramp(n int, scale float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = scale * float32(i%7-3)
	}
	return x
}

func newBlock(t check, c *fucina.Context) *block {
	t.Helper()
	f32 := func(axes ...fucina.Axis) fucina.Tensor {
		n := 1
		for _, a := range axes {
			n *= a.Size
		}
		return t.of(fucina.FromSlice(c, ramp(n, 0.1), axes...))
	}
	ax := fucina.Ax
	e := c.Engine()
	b := &block{
		c:     c,
		table: f32(ax("vocab", vocab), ax("d", width)),
		ids:   t.of(fucina.FromSlice(c, []int32{3}, ax("seq", 1))),
		norm:  f32(ax("d", width)),
		wq:    f32(ax("q", heads*headDim), ax("d", width)),
		wk:    f32(ax("kv", kvHeads*headDim), ax("d", width)),
		wo:    f32(ax("out", width), ax("q", heads*headDim)),
		gate:  f32(ax("ff", hidden), ax("d", width)),
		up:    f32(ax("ff", hidden), ax("d", width)),
		down:  f32(ax("d", width), ax("ff", hidden)),
		k:     t.of(e.Empty(dtype.F16, ax("key", keys), ax("kv_head", kvHeads), ax("hd", headDim))),
		v:     t.of(e.Empty(dtype.F16, ax("key", keys), ax("kv_head", kvHeads), ax("hd", headDim))),
	}
	b.angles = t.of(e.RoPETable(fucina.RoPE{Dims: headDim, FreqBase: 10000}, keys, "seq"))
	return b
}

func (b *block) release(t check) {
	drop(t, b.table, b.ids, b.norm, b.wq, b.wk, b.wo, b.gate, b.up, b.down, b.k, b.v, b.angles)
}

// step runs the block for one position and returns the best entry along "d".
func (b *block) step(t check, pos int) int32 {
	c := b.c
	x := t.of(b.table.GetRows(c, b.ids, "vocab"))
	n := t.of(x.RMSNorm(c, b.norm, "d", 1e-5))
	q := t.of(n.Dot(c, b.wq, "d"))
	qh := t.of(q.Split(c, "q", fucina.Ax("head", heads), fucina.Ax("hd", headDim)))
	kf := t.of(n.Dot(c, b.wk, "d"))
	kh := t.of(kf.Split(c, "kv", fucina.Ax("kv_head", kvHeads), fucina.Ax("hd", headDim)))
	angles := t.of(b.angles.Narrow(c, "seq", pos, 1))
	qr := t.of(qh.RoPE(c, angles, fucina.RoPENeoX, "seq", "hd"))
	kr := t.of(kh.RoPE(c, angles, fucina.RoPENeoX, "seq", "hd"))
	for _, cache := range [2]fucina.Tensor{b.k, b.v} {
		row := t.of(cache.Narrow(c, "key", pos, 1))
		named := t.of(row.Rename(c, "key", "seq"))
		if err := named.CopyFrom(c, kr); err != nil {
			t.Fatal(err)
		}
		drop(t.TB, row, named)
	}
	k := t.of(b.k.Narrow(c, "key", 0, pos+1))
	v := t.of(b.v.Narrow(c, "key", 0, pos+1))
	a := t.of(fucina.Attention(c, qr, k, v, fucina.AttentionOptions{Scale: 0.5, Past: pos, Dim: "hd"}))
	flat := t.of(a.Merge(c, "q", "head", "hd"))
	o := t.of(flat.Dot(c, b.wo, "q"))
	o2 := t.of(o.Rename(c, "out", "d"))
	h := t.of(x.Add(c, o2))
	gate := t.of(h.Dot(c, b.gate, "d"))
	up := t.of(h.Dot(c, b.up, "d"))
	act := t.of(up.SwiGLU(c, gate))
	down := t.of(act.Dot(c, b.down, "ff"))
	y := t.of(h.Mul(c, down))
	if err := fucina.Replace(&h, y, nil); err != nil {
		t.Fatal(err)
	}
	p := t.of(h.Softmax(c, "d", 1))
	best := t.of(p.Argmax(c, "d"))
	if err := fucina.ReadInto(context.Background(), best, b.best[:]); err != nil {
		t.Fatal(err)
	}
	drop(t.TB, x, n, q, qh, kf, kh, angles, qr, kr, k, v, a, flat, o, o2, h, gate, up, act, down, p, best)
	return b.best[0]
}

// A forward pass in its steady state leaves the collector nothing to do.
func TestForwardAllocatesNothing(t *testing.T) {
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checks allocate")
	}
	for _, threads := range []int{1, 2} {
		c, end := open(t, fucina.WithThreads(threads))
		k := check{t}
		b := newBlock(k, c)
		for pos := range keys {
			b.step(k, pos)
		}
		if n := testing.AllocsPerRun(20, func() { b.step(k, 3) }); n != 0 {
			t.Errorf("%d threads: %v allocations in a forward pass, want 0", threads, n)
		}
		b.release(k)
		end()
	}
}

func BenchmarkForward(b *testing.B) {
	c, end := open(b, fucina.WithThreads(1))
	defer end()
	k := check{b}
	m := newBlock(k, c)
	defer m.release(k)
	m.step(k, 0)
	b.ReportAllocs()
	for b.Loop() {
		m.step(k, 1)
	}
}
