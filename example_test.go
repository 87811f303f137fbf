package fucina_test

import (
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand/v2"

	"github.com/fucina-go/fucina"
)

// session opens an engine on the CPU with one context. The function that it returns closes
// both.
func session() (*fucina.Context, func()) {
	e, err := fucina.Open(fucina.WithProvider("cpu"))
	if err != nil {
		log.Fatal(err)
	}
	c, err := e.NewContext()
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		if err := e.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

// must panics if err is not nil. Programs handle the error instead.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// mlp is a network of two layers; the first layer is gated.
type mlp struct{ up, gate, down, bias fucina.Tensor }

func (m *mlp) forward(x fucina.Tensor) fucina.Tensor {
	f := x.Frame()
	h := x.Dot(m.up, "in").SwiGLU(x.Dot(m.gate, "in"))
	return f.Return(h.Dot(m.down, "hidden").Add(m.bias))
}

// A function of tensors opens a frame, and returns one of its tensors or its first failure.
func Example_network() {
	c, end := session()
	defer end()
	m := &mlp{
		up:   fucina.FromSlice(c, []float32{1, 0, 0, 1, 1, 1}, fucina.Ax("hidden", 3), fucina.Ax("in", 2)),
		gate: c.Full(fucina.F32, 10, fucina.Ax("hidden", 3), fucina.Ax("in", 2)),
		down: c.Ones(fucina.F32, fucina.Ax("hidden", 3), fucina.Ax("class", 2)),
		bias: fucina.FromSlice(c, []float32{0, 0.5}, fucina.Ax("class", 2)),
	}
	y := m.forward(fucina.FromSlice(c, []float32{1, 2}, fucina.Ax("batch", 1), fucina.Ax("in", 2)))
	fmt.Println(y, must(fucina.Data[float32](y)))
	fmt.Println(errors.Unwrap(m.forward(c.Ones(fucina.F32, fucina.Ax("batch", 1), fucina.Ax("wrong", 2))).Err()))
	// Output:
	// f32 {batch:1 class:2} [180 180.5]
	// dot over "in": left {batch:1 wrong:2}, right {hidden:3 in:2}: no axis "in"
}

// attend is self-attention without a mask.
func attend(x, wq, wk, wv, wo fucina.Tensor, heads int) fucina.Tensor {
	f := x.Frame()
	split := func(t fucina.Tensor) fucina.Tensor { return t.Split("o", fucina.Ax("head", heads), fucina.Ax("d", -1)) }
	q := split(x.Dot(wq, "model"))
	k := split(x.Dot(wk, "model")).Rename("seq", "key")
	v := split(x.Dot(wv, "model")).Rename("seq", "key")
	p := q.Dot(k, "d").Softmax("key", fucina.SoftmaxOptions{Scale: 1 / math.Sqrt(float64(q.Dim("d")))})
	y := p.Dot(v, "key").Permute("batch", "seq", "head", "d").Contiguous().Merge("o", "head", "d")
	return f.Return(y.Dot(wo, "o").Expect("batch", "seq", "model"))
}

// Attention consists of eight lines of other operations. Rename is necessary because seq
// would otherwise be an axis of both operands, and therefore a batch axis.
func Example_attention() {
	c, end := session()
	defer end()
	model, o := fucina.Ax("model", 8), fucina.Ax("o", 8)
	x := c.Normal(rand.New(rand.NewPCG(1, 1)), 1, fucina.Ax("batch", 2), fucina.Ax("seq", 5), model)
	w := c.Zeros(fucina.F32, model, o)
	fmt.Println(attend(x, w, w, w, c.Zeros(fucina.F32, o, model), 2))
	// Output: f32 {batch:2 seq:5 model:8}
}

// The axes that both operands have and that Dot does not contract are batch axes.
func ExampleTensor_Dot_batch() {
	c, end := session()
	defer end()
	a := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		fucina.Ax("batch", 2), fucina.Ax("m", 2), fucina.Ax("k", 3))
	b := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		fucina.Ax("batch", 2), fucina.Ax("k", 3), fucina.Ax("n", 2))
	y := a.Dot(b, "k")
	fmt.Println(y, must(fucina.Data[float32](y)))
	// Output: f32 {batch:2 m:2 n:2} [22 28 49 64 220 244 301 334]
}

// The order of the axes in memory does not change the result of a contraction.
func ExampleTensor_Dot_order() {
	c, end := session()
	defer end()
	a := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("m", 2), fucina.Ax("k", 3))
	b := fucina.FromSlice(c, []float32{7, 9, 11, 8, 10, 12}, fucina.Ax("n", 2), fucina.Ax("k", 3))
	bt := fucina.FromSlice(c, []float32{7, 8, 9, 10, 11, 12}, fucina.Ax("k", 3), fucina.Ax("n", 2))
	fmt.Println(must(fucina.Data[float32](a.Dot(b, "k"))), must(fucina.Data[float32](a.Dot(bt, "k"))))
	// Output: [58 64 139 154] [58 64 139 154]
}

// Contracting the only axis of two vectors gives a scalar.
func ExampleTensor_Dot_scalar() {
	c, end := session()
	defer end()
	a := fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3))
	b := fucina.FromSlice(c, []float32{4, 5, 6}, fucina.Ax("d", 3))
	y := a.Dot(b, "d")
	fmt.Println(y, must(y.AsRaw()).Shape, must(y.Float()))
	// Output: f32 {} [1] 32
}

// An error shows the axes of both operands. It begins with the place of the call, which
// Unwrap removes.
func ExampleTensor_Dot_error() {
	c, end := session()
	defer end()
	a := c.Zeros(fucina.F32, fucina.Ax("batch", 2), fucina.Ax("m", 2), fucina.Ax("k", 3))
	b := c.Zeros(fucina.F32, fucina.Ax("n", 4))
	err := a.Dot(b, "k").Err()
	fmt.Println(errors.Unwrap(err), errors.Is(err, fucina.ErrTag))
	// Output: dot over "k": left {batch:2 m:2 k:3}, right {n:4}: no axis "k" true
}

// Operands are aligned by the names of their axes. An axis that one operand lacks repeats in
// that operand.
func ExampleTensor_Add() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("batch", 2), fucina.Ax("d", 3))
	bias := fucina.FromSlice(c, []float32{10, 20, 30}, fucina.Ax("d", 3))
	fmt.Printf("%+v\n", x.Add(bias))
	fmt.Printf("%+v\n", bias.Add(x))
	// Output:
	// f32 {batch:2 d:3}
	// batch=0 d [11 22 33]
	// batch=1 d [14 25 36]
	// f32 {d:3 batch:2}
	// d=0 batch [11 14]
	// d=1 batch [22 25]
	// d=2 batch [33 36]
}

// Axes with the same name and different sizes are an error.
func ExampleTensor_Add_conflict() {
	c, end := session()
	defer end()
	a := c.Zeros(fucina.F32, fucina.Ax("d", 3))
	b := c.Zeros(fucina.F32, fucina.Ax("d", 2))
	for _, y := range []fucina.Tensor{a.Add(b), a.Dot(b, "d")} {
		fmt.Println(errors.Unwrap(y.Err()), errors.Is(y.Err(), fucina.ErrShapeMismatch))
	}
	// Output:
	// add: left {d:3}, right {d:2}: axis "d" is 3 and 2 true
	// dot over "d": left {d:3}, right {d:2}: axis "d" is 3 and 2 true
}

// A difference is the receiver minus the operand. What repeats is found by name, on either
// side.
func ExampleTensor_Sub() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("batch", 2), fucina.Ax("d", 3))
	mean := fucina.FromSlice(c, []float32{2, 5}, fucina.Ax("batch", 2))
	fmt.Printf("%+v\n", x.Sub(mean))
	fmt.Println(must(fucina.Data[float32](mean.Sub(x))))
	// Output:
	// f32 {batch:2 d:3}
	// batch=0 d [-1 0 1]
	// batch=1 d [-1 0 1]
	// [1 0 -1 1 0 -1]
}

// Operands without a common axis give an outer product.
func ExampleTensor_Mul() {
	c, end := session()
	defer end()
	rows := fucina.FromSlice(c, []float32{1, 10}, fucina.Ax("batch", 2))
	cols := fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3))
	outer := rows.Mul(cols)
	fmt.Println(outer, must(fucina.Data[float32](outer)))
	// Output: f32 {batch:2 d:3} [1 2 3 10 20 30]
}

// A bias with a misspelled axis gives an outer product. Expect reports it.
func ExampleTensor_Expect() {
	c, end := session()
	defer end()
	x, bias := c.Zeros(fucina.F32, fucina.Ax("batch", 2), fucina.Ax("d", 3)), c.Ones(fucina.F32, fucina.Ax("b", 3))
	fmt.Println(x.Add(bias))
	fmt.Println(errors.Unwrap(x.Add(bias).Expect("d", "batch").Err()))
	// Output:
	// f32 {batch:2 d:3 b:3}
	// expect: have {batch:2 d:3 b:3}, want {d batch}
}

// Split and Merge change the factors of an axis without copying.
func ExampleTensor_Split() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, fucina.Ax("batch", 2), fucina.Ax("d_model", 6))
	heads := x.Split("d_model", fucina.Ax("head", 2), fucina.Ax("head_dim", -1))
	flat := heads.Merge("features", "head", "head_dim")
	fmt.Println(heads)
	fmt.Println(flat, must(fucina.Data[float32](flat)))
	// Output:
	// f32 {batch:2 head:2 head_dim:3}
	// f32 {batch:2 features:6} [1 2 3 4 5 6 7 8 9 10 11 12]
}

// A transposed layout cannot be merged: Merge fails and does not copy.
func ExampleTensor_Merge() {
	c, end := session()
	defer end()
	t := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("a", 2), fucina.Ax("b", 3)).Permute("b", "a")
	fmt.Println(errors.Is(t.Merge("m", "b", "a").Err(), fucina.ErrUnsupportedView))
	fmt.Println(must(fucina.Data[float32](t.Contiguous().Merge("m", "b", "a"))))
	// Output:
	// true
	// [1 4 2 5 3 6]
}

// One tensor holds integers and floats. Bitcast reads a part of it as floats.
func ExampleTensor_Bitcast() {
	c, end := session()
	defer end()
	step := fucina.FromSlice(c, []int32{7, 9, int32(math.Float32bits(0.5)), int32(math.Float32bits(2))}, fucina.Ax("i", 4))
	ids, scales := step.Narrow("i", 0, 2), step.Narrow("i", 2, 2).Bitcast(fucina.F32)
	fmt.Println(must(fucina.Data[int32](ids)), scales, must(fucina.Data[float32](scales)))
	fmt.Println(errors.Unwrap(step.Bitcast(fucina.F16).Err()))
	// Output:
	// [7 9] f32 {i:2} [0.5 2]
	// bitcast of i32 {i:4}: to f16, want numbers of one size
}

// BroadcastTo adds axes without copying. Copy makes them contiguous.
func ExampleTensor_BroadcastTo() {
	c, end := session()
	defer end()
	bias := fucina.FromSlice(c, []float32{10, 20, 30}, fucina.Ax("d", 3))
	wide := bias.BroadcastTo(fucina.Ax("batch", 2), fucina.Ax("d", 3))
	fmt.Println(must(wide.AsRaw()).Strides, must(wide.Copy().AsRaw()).Strides, must(fucina.Data[float32](wide)))
	// Output: [0 1] [3 1] [10 20 30 10 20 30]
}

// Each iteration of Frames has a frame, which also closes on break and return. Replace gives
// a variable its next value, which outlives the frame of the iteration.
func ExampleContext_Frames() {
	c, end := session()
	defer end()
	x := c.Ones(fucina.F32, fucina.Ax("d", 2))
	for i := range c.Frames(10) {
		y := x.Add(x)
		if must(y.Dot(y, "d").Float()) > 100 {
			fmt.Println("turn", i)
			break
		}
		if err := fucina.Replace(&x, y.Scale(1)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(must(fucina.Data[float32](x)), c.Engine().Stats().Handles, "tensor")
	// Output:
	// turn 2
	// [4 4] 1 tensor
}

// A tensor that is made inside a scope ends as in a frame. The scope holds its memory until
// the scope closes.
func ExampleContext_Scope() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{3, 4}, fucina.Ax("d", 2))
	buffers := func() int64 { return c.Engine().Stats().Pool.Outstanding }
	scope := c.Scope()
	y := x.Add(x)
	y.Release()
	fmt.Println(y.Valid(), buffers())
	z := scope.Keep(x.Scale(2))
	scope.Close()
	fmt.Println(must(fucina.Data[float32](z)), buffers())
	// Output:
	// false 2
	// [6 8] 2
}

// A released buffer is reused for the next result of its size.
func ExampleTensor_Release() {
	c, end := session()
	defer end()
	pool := func() {
		s := c.Engine().Stats().Pool
		fmt.Println(s.Outstanding, "in use,", s.Cached, "bytes idle")
	}
	a := fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3))
	first := a.Add(a)
	first.Release()
	pool()
	a.Add(a)
	pool()
	fmt.Println(errors.Unwrap(first.Add(a).Err()))
	// Output:
	// 1 in use, 64 bytes idle
	// 2 in use, 0 bytes idle
	// add: the left: tensor was released, or its frame has ended
}

// An operation ends the operands that are moved, here the old value of a variable.
func ExampleTensor_Move() {
	c, end := session()
	defer end()
	x := c.Ones(fucina.F32, fucina.Ax("d", 2))
	for range 3 {
		x = x.Move().Add(x.Scale(2))
	}
	fmt.Println(must(fucina.Data[float32](x)), x.Valid())
	// Output: [27 27] true
}

// A Shared tensor has no owner and no context. Any context may use it, on any goroutine.
func ExampleTensor_Shared() {
	c, end := session()
	defer end()
	x := c.Range("d", 3).To(fucina.F32)
	w := x.Scale(10).Shared()
	defer w.Release()
	sums := make(chan float64)
	go func() {
		own := must(c.Engine().NewContext())
		sum := must(w.On(own).Dot(w, "d").Float())
		if err := own.Close(); err != nil {
			log.Fatal(err)
		}
		sums <- sum // Engine.Close fails while a context is being closed
	}()
	fmt.Println(<-sums, must(x.Dot(w, "d").Float()))
	// Output: 500 50
}

// Read and Update lend a tensor's memory for the length of a call. Data copies it.
func ExampleUpdate() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3))
	before := must(fucina.Data[float32](x))
	err := fucina.Update(x, func(v []float32) error {
		v[0] = 10
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	sum := float32(0)
	err = fucina.Read(x, func(v []float32) error {
		for _, f := range v {
			sum += f
		}
		return nil
	})
	fmt.Println(before, must(fucina.Data[float32](x)), sum, err)
	// Output: [1 2 3] [10 2 3] 15 <nil>
}

// The tokens of a step may have any positions. Put computes their angles into memory that the
// step uploads.
func ExampleAngles() {
	c, end := session()
	defer end()
	angles := must(fucina.NewAngles(fucina.RoPE{Dims: 2, FreqBase: 10000}, 1024))
	rows := c.Zeros(fucina.F32, fucina.Ax("seq", 2), fucina.Ax(fucina.PairAxis, 1), fucina.Ax(fucina.CosSinAxis, 2))
	err := fucina.Update(rows, func(v []float32) error { return angles.Put(v, []int32{0, 512}) })
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3f\n", must(fucina.Data[float32](rows)))
	fmt.Println(angles.Put(make([]float32, 2), []int32{1024}))
	// Output:
	// [1.000 0.000 -0.997 0.080]
	// index out of bounds: position 1024 at index 0, want 0 to 1023
}

// A cache has room for many pages. The pages that are in use cost memory, and Discard frees one
// that is no longer in use.
func ExampleTensor_Discard() {
	c, end := session()
	defer end()
	cache := must(c.Engine().Empty(fucina.F32, fucina.Ax("page", 1000), fucina.Ax("d", 16384))).On(c)
	defer cache.Release()
	page := cache.Narrow("page", 3, 1)
	page.CopyFrom(c.Ones(fucina.F32, fucina.Ax("page", 1), fucina.Ax("d", 16384)))
	fmt.Println(must(fucina.Data[float32](page))[0], page.Discard())
	fmt.Println(errors.Unwrap(cache.Narrow("d", 0, 1).Discard()))
	// Output:
	// 1 <nil>
	// discard: f32 {page:1000 d:1}: unsupported view: strides [16384 1], want a contiguous tensor
}

// SetRows writes entries to places, and Gather reads them.
func ExampleTensor_SetRows() {
	c, end := session()
	defer end()
	cache := c.Zeros(fucina.F32, fucina.Ax("page", 2), fucina.Ax("key", 2), fucina.Ax("d", 2))
	x := fucina.FromSlice(c, []float32{1, 2, 3, 4}, fucina.Ax("seq", 2), fucina.Ax("d", 2))
	wrong := fucina.FromSlice(c, []int32{3, 4}, fucina.Ax("seq", 2))
	places := fucina.FromSlice(c, []int32{3, 0}, fucina.Ax("seq", 2))
	fmt.Printf("%+v\n", cache.SetRows(x, places, "page", "key"))
	fmt.Println(errors.Is(cache.SetRows(x, wrong, "page", "key").Err(), fucina.ErrIndexOutOfBounds))
	// Output:
	// f32 {page:2 key:2 d:2}
	// page=0 key=0 d [3 4]
	//        key=1 d [0 0]
	// page=1 key=0 d [0 0]
	//        key=1 d [1 2]
	// true
}

// AddRMSNorm has two results: the sum, which the next block adds to, and its norm.
func ExampleTensor_AddRMSNorm() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2}, fucina.Ax("seq", 1), fucina.Ax("d", 2))
	y := fucina.FromSlice(c, []float32{2, 2}, fucina.Ax("seq", 1), fucina.Ax("d", 2))
	sum, norm := x.AddRMSNorm(y, c.Ones(fucina.F32, fucina.Ax("d", 2)), "d", 0)
	fmt.Println(must(fucina.Data[float32](sum)), norm)
	fmt.Printf("%.3f\n", must(fucina.Data[float32](norm)))
	// Output:
	// [3 4] f32 {seq:1 d:2}
	// [0.849 1.131]
}

// Project multiplies by several matrices, whose columns lie side by side, or adds a residual.
func ExampleTensor_Project() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2}, fucina.Ax("seq", 1), fucina.Ax("d", 2))
	q := fucina.Projection{Weight: c.Ones(fucina.F32, fucina.Ax("q", 2), fucina.Ax("d", 2)), Scale: 0.5}
	k := fucina.Projection{Weight: c.Ones(fucina.F32, fucina.Ax("k", 1), fucina.Ax("d", 2)), Bias: c.Ones(fucina.F32, fucina.Ax("k", 1))}
	y := x.Project("d", "qk", fucina.Tensor{}, q, k)
	fmt.Println(y, must(fucina.Data[float32](y)))
	z := x.Project("d", "d", x, q)
	fmt.Println(z, must(fucina.Data[float32](z)))
	// Output:
	// f32 {seq:1 qk:3} [1.5 1.5 4]
	// f32 {seq:1 d:2} [2.5 3.5]
}

// GatedProject is the first half of the feed-forward network of most language models.
func ExampleTensor_GatedProject() {
	c, end := session()
	defer end()
	x := fucina.FromSlice(c, []float32{1, 2}, fucina.Ax("seq", 1), fucina.Ax("in", 2))
	w := fucina.Projection{Weight: c.Ones(fucina.F32, fucina.Ax("hidden", 3), fucina.Ax("in", 2))}
	y := x.GatedProject("in", "hidden", w, w, fucina.SiLU)
	fmt.Printf("%v %.3f\n", y, must(fucina.Data[float32](y)))
	// Output: f32 {seq:1 hidden:3} [8.573 8.573 8.573]
}

// Two queries of two sequences share a step. Their keys lie in pages of two entries.
func ExampleAttention() {
	c, end := session()
	defer end()
	ints := func(axis string, v ...int32) fucina.Tensor { return fucina.FromSlice(c, v, fucina.Ax(axis, len(v))) }
	q := c.Zeros(fucina.F32, fucina.Ax("seq", 2), fucina.Ax("head", 1), fucina.Ax("d", 1))
	v := c.Range("n", 8).To(fucina.F32).Split("n", fucina.Ax("page", 4), fucina.Ax("key", 2), fucina.Ax("kv_head", 1), fucina.Ax("d", 1))
	y := fucina.Attention(q, v, v, fucina.AttentionOptions{
		Scale:     1,
		Positions: ints("seq", 2, 0), // the first query sees three keys, the second one
		Sequences: ints("seq", 0, 1),
		Tables:    ints("table", 3, 0, 2, -1).Split("table", fucina.Ax("sequence", 2), fucina.Ax("slot", 2)),
	})
	fmt.Println(y)
	fmt.Printf("%.3f\n", must(fucina.Data[float32](y)))
	// Output:
	// f32 {seq:2 head:1 d:1}
	// [4.333 4.000]
}

// With Out, the result has the heads side by side, as the next matrix takes them.
func ExampleAttention_out() {
	c, end := session()
	defer end()
	q := c.Zeros(fucina.F32, fucina.Ax("seq", 1), fucina.Ax("head", 2), fucina.Ax("d", 2))
	v := c.Range("n", 8).To(fucina.F32).Split("n", fucina.Ax("key", 2), fucina.Ax("kv_head", 2), fucina.Ax("d", 2))
	y := fucina.Attention(q, v, v, fucina.AttentionOptions{Scale: 1, Past: 1, Out: "hidden"})
	fmt.Println(y, must(fucina.Data[float32](y)))
	// Output: f32 {seq:1 hidden:4} [2 3 4 5]
}

// RotateStore rotates queries and keys, and writes keys and values to the pages of a cache.
func ExampleRotateStore() {
	c, end := session()
	defer end()
	axes := []fucina.Axis{fucina.Ax("seq", 1), fucina.Ax("kv_head", 1), fucina.Ax("d", 2)}
	q := fucina.FromSlice(c, []float32{1, 0}, axes...).Rename("kv_head", "head")
	k, v := fucina.FromSlice(c, []float32{0, 1}, axes...), fucina.FromSlice(c, []float32{5, 6}, axes...)
	quarter := fucina.FromSlice(c, []float32{0, 1}, fucina.Ax("seq", 1), fucina.Ax(fucina.PairAxis, 1), fucina.Ax(fucina.CosSinAxis, 2))
	cache := c.Zeros(fucina.F32, fucina.Ax("page", 2), fucina.Ax("row", 8)) // two keys, then two values
	place := fucina.FromSlice(c, []int32{3}, fucina.Ax("seq", 1))
	y := fucina.RotateStore(q, k, v, quarter, place, cache, fucina.RotateStoreOptions{})
	fmt.Println(y, must(fucina.Data[float32](y)))
	fmt.Printf("%+v\n", cache)
	// Output:
	// f32 {seq:1 head:1 d:2} [0 1]
	// f32 {page:2 row:8}
	// page=0 row [0 0 0 0 0 0 0 0]
	// page=1 row [0 0 -1 0 0 0 5 6]
}

// Project returns the queries, keys and values of a token side by side, and RotateStore takes them
// as they are.
func ExampleRotateStore_packed() {
	c, end := session()
	defer end()
	x := c.Ones(fucina.F32, fucina.Ax("seq", 1), fucina.Ax("in", 1))
	weight := func(out string, v ...float32) fucina.Projection {
		return fucina.Projection{Weight: fucina.FromSlice(c, v, fucina.Ax(out, len(v)), fucina.Ax("in", 1))}
	}
	qkv := x.Project("in", "qkv", fucina.Tensor{}, weight("q", 1, 0, 2, 0), weight("k", 0, 1), weight("v", 5, 6))
	quarter := fucina.FromSlice(c, []float32{0, 1}, fucina.Ax("seq", 1), fucina.Ax(fucina.PairAxis, 1), fucina.Ax(fucina.CosSinAxis, 2))
	cache := c.Zeros(fucina.F32, fucina.Ax("page", 1), fucina.Ax("row", 4)) // one key, then one value
	place := fucina.FromSlice(c, []int32{0}, fucina.Ax("seq", 1))
	none := fucina.Tensor{}
	y := fucina.RotateStore(qkv, none, none, quarter, place, cache, fucina.RotateStoreOptions{Packed: "qkv", Heads: 2, KVHeads: 1, KeyLength: 2})
	fmt.Println(y, must(fucina.Data[float32](y)))
	fmt.Println(cache, must(fucina.Data[float32](cache)))
	// Output:
	// f32 {seq:1 head:2 d:2} [0 1 0 2]
	// f32 {page:1 row:4} [-1 0 5 6]
}

// A step of two generated tokens and a prompt of three says which rows are which.
func ExampleContext_SetGenerated() {
	c, end := session()
	defer end()
	x := c.Ones(fucina.F32, fucina.Ax("seq", 5), fucina.Ax("d", 2))
	w := c.Ones(fucina.F32, fucina.Ax("out", 1), fucina.Ax("d", 2))
	c.SetGenerated(2)
	y := x.Dot(w, "d")
	c.SetGenerated(0)
	fmt.Println(must(fucina.Data[float32](y)))
	// Output: [2 2 2 2 2]
}
