package fucina_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/fucina-go/fucina"
)

// session opens an engine on the CPU with one context, and returns what ends both.
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

// must is for examples only: programs handle errors.
func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func release(ts ...fucina.Tensor) {
	for _, t := range ts {
		if err := t.Release(); err != nil {
			log.Fatal(err)
		}
	}
}

// Axes that both operands have and that are not contracted are batch axes.
func ExampleTensor_Dot_batch() {
	c, end := session()
	defer end()
	a := must(fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		fucina.Ax("batch", 2), fucina.Ax("m", 2), fucina.Ax("k", 3)))
	b := must(fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12},
		fucina.Ax("batch", 2), fucina.Ax("k", 3), fucina.Ax("n", 2)))
	y := must(a.Dot(c, b, "k"))
	defer release(a, b, y)
	fmt.Println(y, must(fucina.Data[float32](y)))
	// Output: f32 {batch:2 m:2 n:2} [22 28 49 64 220 244 301 334]
}

// The order of axes in memory does not change a contraction.
func ExampleTensor_Dot_order() {
	c, end := session()
	defer end()
	a := must(fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("m", 2), fucina.Ax("k", 3)))
	b := must(fucina.FromSlice(c, []float32{7, 9, 11, 8, 10, 12}, fucina.Ax("n", 2), fucina.Ax("k", 3)))
	bt := must(fucina.FromSlice(c, []float32{7, 8, 9, 10, 11, 12}, fucina.Ax("k", 3), fucina.Ax("n", 2)))
	y := must(a.Dot(c, b, "k"))
	z := must(a.Dot(c, bt, "k"))
	defer release(a, b, bt, y, z)
	fmt.Println(must(fucina.Data[float32](y)), must(fucina.Data[float32](z)))
	// Output: [58 64 139 154] [58 64 139 154]
}

// Contracting the only axis of two vectors gives a scalar.
func ExampleTensor_Dot_scalar() {
	c, end := session()
	defer end()
	a := must(fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3)))
	b := must(fucina.FromSlice(c, []float32{4, 5, 6}, fucina.Ax("d", 3)))
	y := must(a.Dot(c, b, "d"))
	defer release(a, b, y)
	fmt.Println(y, must(y.AsRaw()).Shape, must(fucina.Data[float32](y)))
	// Output: f32 {} [1] [32]
}

// Errors print the axes of both operands.
func ExampleTensor_Dot_error() {
	c, end := session()
	defer end()
	a := must(fucina.FromSlice(c, make([]float32, 12), fucina.Ax("batch", 2), fucina.Ax("m", 2), fucina.Ax("k", 3)))
	b := must(fucina.FromSlice(c, make([]float32, 4), fucina.Ax("n", 4)))
	defer release(a, b)
	_, err := a.Dot(c, b, "k")
	fmt.Println(err, errors.Is(err, fucina.ErrTag))
	// Output: dot over "k": left {batch:2 m:2 k:3}, right {n:4}: no axis "k" true
}

// Operands are aligned by name; an axis that one side lacks repeats there.
func ExampleTensor_Add() {
	c, end := session()
	defer end()
	x := must(fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("batch", 2), fucina.Ax("d", 3)))
	bias := must(fucina.FromSlice(c, []float32{10, 20, 30}, fucina.Ax("d", 3)))
	y := must(x.Add(c, bias))
	z := must(bias.Add(c, x))
	defer release(x, bias, y, z)
	fmt.Println(y, must(fucina.Data[float32](y)))
	fmt.Println(z, must(fucina.Data[float32](z)))
	// Output:
	// f32 {batch:2 d:3} [11 22 33 14 25 36]
	// f32 {d:3 batch:2} [11 14 22 25 33 36]
}

// Axes of one name and different sizes do not fit.
func ExampleTensor_Add_conflict() {
	c, end := session()
	defer end()
	a := must(fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3)))
	b := must(fucina.FromSlice(c, []float32{10, 20}, fucina.Ax("d", 2)))
	defer release(a, b)
	_, err := a.Add(c, b)
	fmt.Println(err, errors.Is(err, fucina.ErrShapeMismatch))
	_, err = a.Dot(c, b, "d")
	fmt.Println(err, errors.Is(err, fucina.ErrShapeMismatch))
	// Output:
	// add: left {d:3}, right {d:2}: axis "d" is 3 and 2 true
	// dot over "d": left {d:3}, right {d:2}: axis "d" is 3 and 2 true
}

// Operands without a common axis give the outer product.
func ExampleTensor_Mul() {
	c, end := session()
	defer end()
	rows := must(fucina.FromSlice(c, []float32{1, 10}, fucina.Ax("batch", 2)))
	cols := must(fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3)))
	outer := must(rows.Mul(c, cols))
	defer release(rows, cols, outer)
	fmt.Println(outer, must(fucina.Data[float32](outer)))
	// Output: f32 {batch:2 d:3} [1 2 3 10 20 30]
}

// Split and Merge rename factors of an axis without copying.
func ExampleTensor_Split() {
	c, end := session()
	defer end()
	x := must(fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, fucina.Ax("batch", 2), fucina.Ax("d_model", 6)))
	heads := must(x.Split(c, "d_model", fucina.Ax("head", 2), fucina.Ax("head_dim", 3)))
	flat := must(heads.Merge(c, "features", "head", "head_dim"))
	defer release(x, heads, flat)
	fmt.Println(heads)
	fmt.Println(flat, must(fucina.Data[float32](flat)))
	// Output:
	// f32 {batch:2 head:2 head_dim:3}
	// f32 {batch:2 features:6} [1 2 3 4 5 6 7 8 9 10 11 12]
}

// A transposed layout is not that of a split axis; nothing is copied silently.
func ExampleTensor_Merge() {
	c, end := session()
	defer end()
	x := must(fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6}, fucina.Ax("a", 2), fucina.Ax("b", 3)))
	t := must(x.Permute(c, "b", "a"))
	_, err := t.Merge(c, "m", "b", "a")
	fmt.Println(errors.Is(err, fucina.ErrUnsupportedView))
	flat := must(t.Materialize(c))
	m := must(flat.Merge(c, "m", "b", "a"))
	defer release(x, t, flat, m)
	fmt.Println(must(fucina.Data[float32](m)))
	// Output:
	// true
	// [1 4 2 5 3 6]
}

// Missing axes are added without copying; Materialize copies.
func ExampleTensor_BroadcastTo() {
	c, end := session()
	defer end()
	bias := must(fucina.FromSlice(c, []float32{10, 20, 30}, fucina.Ax("d", 3)))
	wide := must(bias.BroadcastTo(c, fucina.Ax("batch", 2), fucina.Ax("d", 3)))
	flat := must(wide.Materialize(c))
	defer release(bias, wide, flat)
	fmt.Println(must(wide.AsRaw()).Strides, must(fucina.Data[float32](flat)))
	// Output: [0 1] [10 20 30 10 20 30]
}

// Results inside a scope belong to it: the code that releases them runs unchanged.
func ExampleContext_OpenScope() {
	c, end := session()
	defer end()
	x := must(fucina.FromSlice(c, []float32{3, 4}, fucina.Ax("d", 2)))
	defer release(x)
	scope := must(c.OpenScope())
	y := must(x.Add(c, x))
	release(y) // nothing happens
	fmt.Println(must(fucina.Data[float32](y)))
	if err := scope.Close(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y.Valid())
	// Output:
	// [6 8]
	// false
}

// A released buffer serves the next result of its size.
func ExampleTensor_Release() {
	c, end := session()
	defer end()
	pool := func() {
		s := c.Engine().Stats().Pool
		fmt.Println(s.Outstanding, "in use,", s.Cached, "bytes idle")
	}
	a := must(fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3)))
	first := must(a.Add(c, a))
	release(first)
	pool()
	second := must(a.Add(c, a))
	defer release(a, second)
	pool()
	_, err := first.Add(c, a)
	fmt.Println(err)
	// Output:
	// 1 in use, 64 bytes idle
	// 2 in use, 0 bytes idle
	// add: tensor was released (left)
}

// Read and Update lend a tensor's memory for the length of a call; Data copies it.
func ExampleUpdate() {
	c, end := session()
	defer end()
	x := must(fucina.FromSlice(c, []float32{1, 2, 3}, fucina.Ax("d", 3)))
	defer release(x)
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
