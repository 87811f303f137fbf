package fucina_test

import (
	"context"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/internal/invariants"
)

// block is a small transformer block with a KV cache.
type block struct {
	c                                            *fucina.Context
	table, ids, norm, wq, wk, wo, gate, up, down fucina.Tensor
	k, v, angles, last                           fucina.Tensor

	ctx  context.Context
	best [1]int32
}

const (
	width, heads, headDim, keys = 8, 4, 4, 6
)

func ramp(n int, scale float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = scale * float32(i%7-3)
	}
	return x
}

func newBlock(t check, c *fucina.Context) *block {
	f32 := func(axes string) fucina.Tensor {
		a := ax(axes)
		return fucina.FromSlice(c, ramp(count(a), 0.1), a...)
	}
	e := c.Engine()
	b := &block{
		c: c, ctx: t.Context(), ids: fucina.FromSlice(c, []int32{3}, fucina.Ax("seq", 1)),
		table: f32("vocab:11 d:8"), norm: f32("d:8"), wq: f32("q:16 d:8"), wk: f32("kv:8 d:8"), wo: f32("out:8 q:16"),
		gate: f32("ff:12 d:8"), up: f32("ff:12 d:8"), down: f32("d:8 ff:12"),
		k: t.of(e.Empty(fucina.F16, ax("key:6 kv_head:2 hd:4")...)).On(c),
		v: t.of(e.Empty(fucina.F16, ax("key:6 kv_head:2 hd:4")...)).On(c),
	}
	b.angles = t.of(e.RoPETable(fucina.RoPE{Dims: headDim, FreqBase: 10000}, keys, "seq")).On(c)
	return b
}

func (b *block) release() { drop(b.k, b.v, b.angles) }

// forward returns the probabilities along "d" at one position.
func (b *block) forward(pos int) fucina.Tensor {
	f := b.c.Frame()
	x := b.table.Gather(b.ids, "vocab")
	n := x.RMSNorm(b.norm, "d", 1e-5)
	angles := b.angles.Narrow("seq", pos, 1)
	q := n.Dot(b.wq, "d").Split("q", fucina.Ax("head", heads), fucina.Ax("hd", headDim)).RoPE(angles, fucina.RoPENeoX, "seq", "hd")
	k := n.Dot(b.wk, "d").Split("kv", fucina.Ax("kv_head", -1), fucina.Ax("hd", headDim)).RoPE(angles, fucina.RoPENeoX, "seq", "hd")
	for _, cache := range [2]fucina.Tensor{b.k, b.v} {
		cache.Narrow("key", pos, 1).Rename("key", "seq").CopyFrom(k)
	}
	a := fucina.Attention(q, b.k.Narrow("key", 0, pos+1), b.v.Narrow("key", 0, pos+1), fucina.AttentionOptions{Scale: 0.5, Past: pos, Dim: "hd"})
	h := x.Add(a.Merge("q", "head", "hd").Dot(b.wo, "q").Rename("out", "d"))
	return f.Return(h.Mul(h.Dot(b.up, "d").SwiGLU(h.Dot(b.gate, "d")).Dot(b.down, "ff")).Softmax("d"))
}

// step runs the block for one position and returns the best entry along "d".
func (b *block) step(t check, pos int) int32 {
	f := b.c.Frame()
	defer f.Close()
	b.c.SetCancel(b.ctx)
	p := b.forward(pos).Expect("d", "seq")
	if err := fucina.Replace(&b.last, p.Move().Scale(1)); err != nil {
		t.Fatal(err)
	}
	if err := fucina.CopyOut(b.last.Argmax("d"), b.best[:]); err != nil {
		t.Fatal(err)
	}
	for i, g := range b.c.Frames(2) {
		if g.Keep(b.last.Ref().Narrow("seq", 0, 1)).Dim("d") != width || i > 1 {
			t.Fatal("a frame of a loop")
		}
	}
	s := b.c.Scope()
	s.Keep(b.last.Permute("d", "seq").Contiguous().Copy()).Shared().Release()
	s.Close()
	b.c.SetCancel(context.Background())
	return b.best[0]
}

// A forward pass in its steady state allocates nothing on the Go heap. The pass has
// operations, views, frames, scopes, moves, replacements, reads and SetCancel.
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
		b.release()
		end()
	}
}

func BenchmarkForward(b *testing.B) {
	c, end := open(b, fucina.WithThreads(1))
	defer end()
	k := check{b}
	m := newBlock(k, c)
	defer m.release()
	m.step(k, 0)
	b.ReportAllocs()
	for b.Loop() {
		m.step(k, 1)
	}
}

// BenchmarkAdd16 measures an operation on 16 elements, whose cost is mostly that of the
// package's own bookkeeping.
func BenchmarkAdd16(b *testing.B) {
	c, end := open(b, fucina.WithThreads(1))
	defer end()
	x := c.Ones(fucina.F32, fucina.Ax("d", 16))
	b.ReportAllocs()
	for b.Loop() {
		x.Add(x).Release()
	}
}
