package fucina_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/providers/cpu"
)

// equal fails the test unless x and y have the same axes, and f32 elements of the same bits.
func equal(t *testing.T, what string, x, y fucina.Tensor) {
	t.Helper()
	if x.String() != y.String() {
		t.Errorf("%s: %v, want %v", what, x, y)
		return
	}
	got, wanted := values[float32](t, x), values[float32](t, y)
	for i := range got {
		if math.Float32bits(got[i]) != math.Float32bits(wanted[i]) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], wanted[i])
			return
		}
	}
}

// normal returns an f32 tensor of the given axes, with random elements and a random layout.
func normal(c *fucina.Context, r *rand.Rand, axes string) fucina.Tensor {
	a := ax(axes)
	names := make([]string, len(a))
	for i := range a {
		names[i] = a[i].Name
	}
	r.Shuffle(len(a), func(i, j int) { a[i], a[j] = a[j], a[i] })
	return c.Normal(r, 1, a...).Permute(names...)
}

// indexes returns an i32 tensor of the given axes.
func indexes(c *fucina.Context, axes string, values ...int32) fucina.Tensor {
	return fucina.FromSlice(c, values, ax(axes)...)
}

// SetRows writes entries to places along one axis or two, converted to the dtype of the
// destination, and leaves the other entries. Gather along these places returns the entries.
func TestSetRows(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(1, 2))
		places := []int32{4, 0, 5}
		for _, tt := range []struct {
			dst, x string
			dtype  fucina.DType
			axes   []string
			view   func(x fucina.Tensor) fucina.Tensor // of the destination
		}{
			{dst: "key:6 d:3", x: "seq:3 d:3", dtype: fucina.F32, axes: []string{"key"}},
			{dst: "key:6 kv_head:2 d:32", x: "d:32 seq:3 kv_head:2", dtype: fucina.F16, axes: []string{"key"}},
			{dst: "key:6 kv_head:2 d:32", x: "kv_head:2 seq:3 d:32", dtype: fucina.Q8_0, axes: []string{"key"}},
			{dst: "page:3 key:2 d:4", x: "seq:3 d:4", dtype: fucina.F32, axes: []string{"page", "key"}},
			{dst: "page:3 key:2 d:32", x: "seq:3 d:32", dtype: fucina.Q8_0, axes: []string{"page", "key"}},
			{dst: "key:6", x: "seq:3", dtype: fucina.F32, axes: []string{"key"}},
			{dst: "key:7 d:4", x: "seq:3 d:2", dtype: fucina.F32, axes: []string{"key"}, view: func(x fucina.Tensor) fucina.Tensor {
				return x.Narrow("key", 1, 6).Narrow("d", 2, 2)
			}},
		} {
			whole := c.Full(fucina.F32, 0.5, ax(tt.dst)...).To(tt.dtype)
			dst := whole
			if tt.view != nil {
				dst = tt.view(whole)
			}
			x := normal(c, r, tt.x)
			y := dst.SetRows(x, indexes(c, "seq:3", places...), tt.axes[0], tt.axes[1:]...)
			if err := y.Err(); err != nil || !y.Same(dst) {
				t.Errorf("%s %s: %v, %v", tt.dtype, tt.dst, y, err)
				continue
			}
			rows := dst.To(fucina.F32)
			if len(tt.axes) == 2 {
				rows = rows.Merge("key", tt.axes...)
			}
			// The entries are those of a copy, converted to the dtype and back.
			names := []string{"seq"}
			for _, a := range dst.Axes() {
				if !slices.Contains(tt.axes, a.Name) {
					names = append(names, a.Name)
				}
			}
			stored := x.Permute(names...).Contiguous().To(tt.dtype).To(fucina.F32)
			equal(t, tt.dst, rows.Gather(indexes(c, "seq:3", places...), "key"), stored)
			rest := rows.Gather(indexes(c, "seq:3", 1, 2, 3), "key")
			equal(t, tt.dst+", the others", rest, c.Full(fucina.F32, 0.5, rest.Axes()...).To(tt.dtype).To(fucina.F32))
		}
		// The places may have several axes, or none.
		dst := c.Zeros(fucina.F32, ax("key:5 d:2")...)
		x := fucina.FromSlice(c, []float32{1, 2, 3, 4, 5, 6, 7, 8}, ax("a:2 b:2 d:2")...)
		dst.SetRows(x, indexes(c, "b:2 a:2", 0, 1, 2, 4), "key")
		want(t, dst, "{key:5 d:2}", []float32{1, 2, 5, 6, 3, 4, 0, 0, 7, 8})
		dst.SetRows(fucina.FromSlice(c, []float32{9, 9}, ax("d:2")...), indexes(c, "", 3), "key")
		want(t, dst, "{key:5 d:2}", []float32{1, 2, 5, 6, 3, 4, 9, 9, 7, 8})
	})
}

// A place that is out of range fails the call or, if a device has the places, the read of the
// destination.
func TestPlacesOutOfRange(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		dst := c.Zeros(fucina.F32, ax("key:3 d:2")...)
		x := c.Ones(fucina.F32, ax("seq:2 d:2")...)
		y := dst.SetRows(x, indexes(c, "seq:2", 0, 3), "key")
		refused(t, y.Err(), fucina.ErrIndexOutOfBounds, "set_rows: input {seq:2 d:2}, places {seq:2}, destination {key:3 d:2}: ", "3 at position 1 of the places, want 0 to 2")
		want(t, dst, "{key:3 d:2}", make([]float32, 6))
		// The conversion leaves the places where it ran.
		made := fucina.FromSlice(c, []float32{1, -1}, ax("seq:2")...).Scale(1).To(fucina.I32)
		y = dst.SetRows(x, made, "key")
		err := y.Err()
		if err == nil {
			_, err = fucina.Data[float32](dst)
		}
		refused(t, err, fucina.ErrIndexOutOfBounds, "-1 at position 1 of the places")
	})
}

// AddRMSNorm has two results, the bits of Add and RMSNorm, which the innermost frame owns.
func TestAddRMSNorm(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(3, 4))
		for _, axes := range [][2]string{{"seq:3 d:5", "seq:3 d:5"}, {"seq:3 d:5", "d:5 seq:3"}, {"d:64 a:2 b:3", "b:3 d:64 a:2"}, {"d:7", "d:7"}} {
			x, y := normal(c, r, axes[0]), normal(c, r, axes[1])
			w := c.Normal(r, 1, fucina.Ax("d", x.Dim("d")))
			sum, norm := x.AddRMSNorm(y, w, "d", 1e-5)
			wanted := x.Add(y)
			equal(t, "sum of "+axes[0], sum, wanted)
			equal(t, "norm of "+axes[0], norm, wanted.RMSNorm(w, "d", 1e-5))
		}
		e := c.Engine()
		x, w := numbered(c, "seq:2 d:3"), numbered(c, "d:3")
		before := e.Stats().Handles
		f := c.Frame()
		sum, norm := x.AddRMSNorm(x, w, "d", 0)
		if n := e.Stats().Handles - before; n != 2 || sum.Same(norm) {
			t.Errorf("%d new tensors, want 2", n)
		}
		kept := f.Return(norm)
		if n := e.Stats().Handles - before; n != 1 || sum.Valid() || !kept.Valid() {
			t.Errorf("%d tensors after the frame, want the kept one", n)
		}
		drop(kept)

		// A failure is that of both results, and of what is made of either.
		pool := e.Stats().Pool.Outstanding
		sum, norm = x.AddRMSNorm(numbered(c, "seq:2 d:2"), w, "d", 0)
		refused(t, sum.Err(), fucina.ErrShapeMismatch, "step_test.go:", `add_rms_norm over "d": left {seq:2 d:3}, right {seq:2 d:2}, weight {d:3}: axis "d" of the right is 2, want 3`)
		if norm.Err() != sum.Err() {
			t.Errorf("the norm has error %v, the sum %v", norm.Err(), sum.Err())
		}
		again, both := norm.AddRMSNorm(x, w, "d", 0)
		if again.Err() != sum.Err() || both.Err() != sum.Err() {
			t.Errorf("of failed operands: %v and %v", again.Err(), both.Err())
		}
		if n := e.Stats().Pool.Outstanding - pool; n != 1 {
			t.Errorf("%d buffers more, want that of the operand", n)
		}
	})
}

// A trace shows both results of an operation and no absent operand, and a NaN in either result
// is the failure of both.
func TestDebugOfTwoResults(t *testing.T) {
	c, end := open(t)
	x, w := numbered(c, "seq:2 d:3"), fucina.FromSlice(c, []float32{1, float32(math.NaN()), 1}, ax("d:3")...)
	var lines []string
	c.Debug(fucina.DebugOptions{Trace: func(line string) { lines = append(lines, line) }, CheckNaN: true})
	sum, norm := x.AddRMSNorm(x, w, "d", 0)
	refused(t, norm.Err(), norm.Err(), "add_rms_norm", "NaN")
	if sum.Err() == nil || sum.Err() != norm.Err() {
		t.Errorf("sum %v, norm %v", sum.Err(), norm.Err())
	}
	x.Project("d", "e", fucina.Tensor{}, fucina.Projection{Weight: numbered(c, "e:2 d:3")})
	c.Debug(fucina.DebugOptions{})
	for i, part := range []string{
		" add_rms_norm {seq:2 d:3} {seq:2 d:3} {d:3} -> f32 {seq:2 d:3}, f32 {seq:2 d:3}", " project {seq:2 d:3} {e:2 d:3} -> f32 {seq:2 e:2}",
	} {
		if i >= len(lines) || !strings.HasSuffix(lines[i], part) {
			t.Errorf("lines %q, want %q in line %d", lines, part, i)
		}
	}
	end()
}

// projected returns the product that Project computes for one matrix, as a chain of operations.
func projected(x fucina.Tensor, axis string, m fucina.Projection) fucina.Tensor {
	y := x.Dot(m.Weight, axis)
	scale := func() {
		if m.Scale != 0 && m.Scale != 1 {
			y = y.Scale(m.Scale)
		}
	}
	if !m.BiasFirst {
		scale()
	}
	if !m.Bias.IsZero() {
		y = y.Add(m.Bias)
	}
	if m.BiasFirst {
		scale()
	}
	return y
}

// Project has the bits of a chain of products, scales, biases and sums, for one matrix to three
// of several formats and layouts.
func TestProject(t *testing.T) {
	for _, exact := range []bool{false, true} {
		t.Run(fmt.Sprint("exact ", exact), func(t *testing.T) { projects(t, exact) })
	}
}

func projects(t *testing.T, exact bool) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(5, 6))
		axes := "seq:3 d:64"
		x := normal(c, r, axes)
		q := fucina.Projection{Weight: normal(c, r, "q:5 d:64"), Bias: normal(c, r, "q:5"), Scale: 0.5}
		k := fucina.Projection{Weight: normal(c, r, "d:64 k:3").To(fucina.F16), Scale: 3}
		v := fucina.Projection{Weight: c.Normal(r, 1, ax("v:4 d:64")...).To(fucina.Q8_0), Bias: normal(c, r, "v:4")}
		square := fucina.Projection{Weight: normal(c, r, "o:64 d:64"), Bias: normal(c, r, "o:64"), Scale: 0.25, BiasFirst: true}
		residual := normal(c, r, "out:64 seq:3")
		for _, tt := range []struct {
			name     string
			residual fucina.Tensor
			m        []fucina.Projection
		}{
			{"one", fucina.Tensor{}, []fucina.Projection{q}},
			{"two", fucina.Tensor{}, []fucina.Projection{k, q}},
			{"three", fucina.Tensor{}, []fucina.Projection{q, k, v}},
			{"residual", residual, []fucina.Projection{square}},
			{"three and residual", c.Ones(fucina.F32, ax("seq:3 out:12")...), []fucina.Projection{v, q, k}},
		} {
			y := x.Project("d", "out", tt.residual, tt.m...)
			if err := y.Err(); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
			at := 0
			for i, m := range tt.m {
				part := projected(x, "d", m)
				name := part.Axes()[1].Name
				n := part.Dim(name)
				part = part.Rename(name, "out")
				if !tt.residual.IsZero() {
					part = part.Add(tt.residual.Narrow("out", at, n))
				}
				equal(t, fmt.Sprintf("%s, matrix %d", tt.name, i), y.Narrow("out", at, n), part)
				at += n
			}
			if at != y.Dim("out") {
				t.Errorf("%s: %d columns, want %d", tt.name, y.Dim("out"), at)
			}
		}
		// The axis may be the only one, or among others.
		row := x.Narrow("seq", 0, 1).Merge("d", "seq", "d")
		equal(t, "a vector", row.Project("d", "q", fucina.Tensor{}, q), projected(row, "d", q))
		wide := normal(c, r, "d:64 a:2 b:3")
		equal(t, "several axes", wide.Project("d", "q", fucina.Tensor{}, q), projected(wide, "d", q))
		if c.Engine().Exact() {
			// Two chunks are two sums, in exact mode.
			halves := projected(x.Narrow("d", 0, 32), "d", fucina.Projection{Weight: q.Weight.Narrow("d", 0, 32)}).
				Add(projected(x.Narrow("d", 32, 32), "d", fucina.Projection{Weight: q.Weight.Narrow("d", 32, 32)}))
			equal(t, "chunks", x.Project("d", "q", fucina.Tensor{}, fucina.Projection{Weight: q.Weight, Chunks: 2}), halves)
		}
	}, fucina.WithExact(exact))
}

// GatedProject has the bits of two products and an activation.
func TestGatedProject(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(7, 8))
		x := normal(c, r, "seq:3 d:32")
		for _, tt := range []struct {
			name     string
			gate, up fucina.Projection
		}{
			{"plain", fucina.Projection{Weight: normal(c, r, "ff:6 d:32")}, fucina.Projection{Weight: normal(c, r, "d:32 up:6")}},
			{"scales and biases", fucina.Projection{Weight: c.Normal(r, 1, ax("ff:6 d:32")...).To(fucina.Q8_0), Bias: normal(c, r, "ff:6"), Scale: 0.5, BiasFirst: true},
				fucina.Projection{Weight: normal(c, r, "ff:6 d:32").To(fucina.BF16), Bias: normal(c, r, "ff:6"), Scale: 2, BiasFirst: true}},
			{"one bias", fucina.Projection{Weight: normal(c, r, "ff:6 d:32"), BiasFirst: true}, fucina.Projection{Weight: normal(c, r, "ff:6 d:32"), Bias: normal(c, r, "ff:6")}},
		} {
			gate, up := projected(x, "d", tt.gate), projected(x, "d", tt.up)
			gate, up = gate.Rename(gate.Axes()[1].Name, "out"), up.Rename(up.Axes()[1].Name, "out")
			equal(t, tt.name+", silu", x.GatedProject("d", "out", tt.gate, tt.up, fucina.SiLU), up.SwiGLU(gate))
			equal(t, tt.name+", gelu", x.GatedProject("d", "out", tt.gate, tt.up, fucina.GELU), up.GeGLU(gate))
		}
	})
}

// The position of each query may be given, and the keys of several sequences may lie in pages.
// The results are those of attention over each sequence.
func TestAttentionOfSequences(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(9, 10))
		q := normal(c, r, "seq:5 head:4 d:32")
		// Sequence 0 has 6 keys in the pages 3 and 1, sequence 1 has 3 keys in page 0.
		positions, sequences := []int32{4, 5, 0, 2, 1}, []int32{0, 0, 1, 1, 0}
		tables := indexes(c, "sequence:2 slot:2", 3, 1, 0, -7)
		for _, d := range []fucina.DType{fucina.F32, fucina.F16, fucina.Q8_0} {
			k, v := c.Normal(r, 1, ax("page:4 key:4 kv_head:2 d:32")...).To(d), c.Normal(r, 1, ax("page:4 key:4 kv_head:2 d:32")...).To(d)
			opt := fucina.AttentionOptions{Scale: 0.2, Window: 4, Positions: indexes(c, "seq:5", positions...)}
			paged := opt
			paged.Sequences, paged.Tables = indexes(c, "seq:5", sequences...), tables
			y := fucina.Attention(q, k, v, paged)
			if err := y.Err(); err != nil {
				t.Fatal(err)
			}
			of := func(x fucina.Tensor, pages ...int32) fucina.Tensor {
				all := x.To(fucina.F32).Gather(indexes(c, fmt.Sprintf("slot:%d", len(pages)), pages...), "page")
				return all.Merge("key", "slot", "key").To(d)
			}
			keys := [2]fucina.Tensor{of(k, 3, 1), of(k, 0)}
			cells := [2]fucina.Tensor{of(v, 3, 1), of(v, 0)}
			for i, pos := range positions {
				s := sequences[i]
				row := q.Narrow("seq", i, 1)
				one := fucina.AttentionOptions{Scale: 0.2, Window: 4, Past: int(pos)}
				equal(t, fmt.Sprintf("%s, query %d", d, i), y.Narrow("seq", i, 1), fucina.Attention(row, keys[s], cells[s], one))
				if s == 0 {
					one.Past, one.Positions = 0, indexes(c, "seq:1", pos)
					equal(t, fmt.Sprintf("%s, query %d at its position", d, i), y.Narrow("seq", i, 1), fucina.Attention(row, keys[s], cells[s], one))
				}
			}
			// Without positions, they are those after Past.
			past := paged
			past.Positions, past.Past, past.Sequences = fucina.Tensor{}, 3, indexes(c, "seq:5", 0, 0, 0, 0, 0)
			equal(t, "after 3 keys", fucina.Attention(q, k, v, past), fucina.Attention(q, keys[0], cells[0], fucina.AttentionOptions{Scale: 0.2, Window: 4, Past: 3}))
		}
		// The names of all axes can be chosen.
		k := normal(c, r, "p:2 r:4 h:2 e:8")
		x := normal(c, r, "t:1 hq:2 e:8")
		y := fucina.Attention(x, k, k, fucina.AttentionOptions{
			Scale: 1, Query: "t", Head: "hq", KVHead: "h", Dim: "e", Page: "p", Key: "r", Sequence: "s", Slot: "j",
			Positions: indexes(c, "t:1", 0), Sequences: indexes(c, "t:1", 0), Tables: indexes(c, "j:1 s:1", 1),
		})
		first := k.Narrow("p", 1, 1).Narrow("r", 0, 1).Contiguous().Merge("t", "p", "r").Rename("h", "hq")
		equal(t, "one key", y, first)
	})
}

// RotateStore has the bits of norms, rotations and writes of rows. Attention reads its cache.
func TestRotateStore(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		r := rand.New(rand.NewPCG(11, 12))
		const tokens, rows = 3, 2
		places := []int32{5, 0, 2}
		angles, err := fucina.NewAngles(fucina.RoPE{Dims: 32, FreqBase: 100}, 100)
		if err != nil {
			t.Fatal(err)
		}
		table := c.Zeros(fucina.F32, ax("seq:3 pair:16 cos_sin:2")...)
		if err := fucina.Update(table, func(v []float32) error { return angles.Put(v, []int32{9, 0, 40}) }); err != nil {
			t.Fatal(err)
		}
		for _, d := range []fucina.DType{fucina.F32, fucina.F16, fucina.Q8_0} {
			for _, normed := range []bool{false, true} {
				what := fmt.Sprintf("%s, normed %t", d, normed)
				q, k, v := normal(c, r, "seq:3 head:4 d:64"), normal(c, r, "d:64 kv_head:2 seq:3"), normal(c, r, "seq:3 kv_head:2 d:32")
				opt := fucina.RotateStoreOptions{Mode: fucina.RoPENeoX}
				rq, rk := q, k
				if normed {
					opt.QueryNorm, opt.KeyNorm, opt.Eps = normal(c, r, "d:64"), normal(c, r, "d:64"), 0.5
					rq, rk = q.RMSNorm(opt.QueryNorm, "d", 0.5), k.RMSNorm(opt.KeyNorm, "d", 0.5)
				}
				rq = rq.RoPE(table, fucina.RoPENeoX, "seq", "d")
				rk = rk.RoPE(table, fucina.RoPENeoX, "seq", "d")
				row := rows * 2 * (64 + 32)
				cache := c.Full(fucina.F32, 0.5, fucina.Ax("page", 3), fucina.Ax("row", row)).To(d)
				y := fucina.RotateStore(q, k, v, table, indexes(c, "seq:3", places...), cache, opt)
				if err := y.Err(); err != nil {
					t.Errorf("%s: %v", what, err)
					continue
				}
				equal(t, what+", queries", y, rq)
				part := func(x fucina.Tensor, at, size int) fucina.Tensor {
					return x.Narrow("row", at, rows*2*size).Split("row", fucina.Ax("key", rows), fucina.Ax("kv_head", 2), fucina.Ax("d", size))
				}
				other := c.Full(fucina.F32, 0.5, fucina.Ax("page", 3), fucina.Ax("row", row)).To(d)
				for _, w := range []struct {
					at, size int
					x        fucina.Tensor
				}{{0, 64, rk}, {rows * 2 * 64, 32, v}} {
					if err := part(other, w.at, w.size).SetRows(w.x, indexes(c, "seq:3", places...), "page", "key").Err(); err != nil {
						t.Fatal(err)
					}
				}
				equal(t, what+", cache", cache.To(fucina.F32), other.To(fucina.F32))
			}
		}
		// Queries, keys and values may lie side by side.
		all := normal(c, r, "seq:3 all:448")
		opt := fucina.RotateStoreOptions{Mode: fucina.RoPENeoX, KeyNorm: normal(c, r, "d:64"), Eps: 0.5}
		cut := func(start int, axis string, n, d int) fucina.Tensor {
			return all.Narrow("all", start, n*d, fucina.Ax(axis, n), fucina.Ax("d", d))
		}
		row := func() fucina.Tensor { return c.Zeros(fucina.F32, ax("page:3 row:384")...) }
		want := row()
		queries := fucina.RotateStore(cut(0, "head", 4, 64), cut(256, "kv_head", 2, 64), cut(384, "kv_head", 2, 32), table, indexes(c, "seq:3", places...), want, opt)
		opt.Packed, opt.Heads, opt.KVHeads, opt.KeyLength = "all", 4, 2, 64
		inner := c.Zeros(fucina.F32, ax("seq:3 all:512")...).Narrow("all", 32, 448).CopyFrom(all)
		for _, x := range []fucina.Tensor{all, all.Permute("all", "seq").Contiguous(), inner} {
			got := row()
			y := fucina.RotateStore(x, fucina.Tensor{}, fucina.Tensor{}, table, indexes(c, "seq:3", places...), got, opt)
			equal(t, "packed, queries", y, queries)
			equal(t, "packed, cache", got, want)
		}

		// Attention reads the cache through views of its pages.
		q, k, v := normal(c, r, "seq:3 head:4 d:32"), normal(c, r, "seq:3 kv_head:2 d:32"), normal(c, r, "seq:3 kv_head:2 d:32")
		cache := check{t}.of(c.Engine().Empty(fucina.Q8_0, fucina.Ax("page", 3), fucina.Ax("row", rows*2*64))).On(c)
		rotated := fucina.RotateStore(q, k, v, table, indexes(c, "seq:3", 4, 5, 2), cache, fucina.RotateStoreOptions{})
		view := func(at int) fucina.Tensor {
			return cache.Narrow("row", at, rows*64).Split("row", fucina.Ax("key", rows), fucina.Ax("kv_head", 2), fucina.Ax("d", 32))
		}
		y := fucina.Attention(rotated, view(0), view(rows*64), fucina.AttentionOptions{
			Scale: 1, Positions: indexes(c, "seq:3", 0, 1, 2), Sequences: indexes(c, "seq:3", 0, 0, 0), Tables: indexes(c, "sequence:1 slot:2", 2, 1),
		})
		through := func(x fucina.Tensor) fucina.Tensor { return x.Contiguous().To(fucina.Q8_0).Rename("seq", "key") }
		direct := fucina.AttentionOptions{Scale: 1}
		key := through(k.RoPE(table, fucina.RoPEInterleaved, "seq", "d"))
		equal(t, "attention", y, fucina.Attention(rotated, key, through(v), direct))
		direct.Out = "o"
		equal(t, "attention with one axis", fucina.Attention(rotated, key, through(v), direct), y.Merge("o", "head", "d"))
		cache.Release()
	})
}

// The operations of a step refuse operands that do not fit, with a text that names the operands
// and the axes.
func TestRefusalsOfSteps(t *testing.T) {
	c, end := open(t)
	x, w, b := numbered(c, "seq:2 d:3"), numbered(c, "n:4 d:3"), numbered(c, "n:4")
	ids := indexes(c, "seq:2", 0, 1)
	q, k := numbered(c, "seq:2 head:4 d:32"), numbered(c, "key:3 kv_head:2 d:32")
	paged := numbered(c, "page:2 key:3 kv_head:2 d:32")
	tables := indexes(c, "sequence:1 slot:2", 0, 1)
	kv := numbered(c, "seq:2 kv_head:2 d:32")
	angles := numbered(c, "seq:2 pair:4 cos_sin:2")
	cache := numbered(c, "page:2 row:256")
	quantised := numbered(c, "page:3 row:256").To(fucina.Q8_0)
	wide := c.Zeros(fucina.F32, ax("key:3 a:2 b:2")...).Permute("key", "b", "a")
	project := func(m ...fucina.Projection) fucina.Tensor { return x.Project("d", "out", fucina.Tensor{}, m...) }
	attend := func(k, v fucina.Tensor, opt fucina.AttentionOptions) fucina.Tensor {
		return fucina.Attention(q, k, v, opt)
	}
	first := func(x, _ fucina.Tensor) fucina.Tensor { return x }
	store := func(change func(in []fucina.Tensor, opt *fucina.RotateStoreOptions)) fucina.Tensor {
		in, opt := []fucina.Tensor{q, kv, kv, angles, ids, cache}, fucina.RotateStoreOptions{}
		change(in, &opt)
		return fucina.RotateStore(in[0], in[1], in[2], in[3], in[4], in[5], opt)
	}
	var none fucina.Tensor
	packed := func(heads, kv, d int, change func(in []fucina.Tensor)) fucina.Tensor {
		in := []fucina.Tensor{numbered(c, "seq:2 all:256"), none, none, angles, ids, cache}
		change(in)
		return fucina.RotateStore(in[0], in[1], in[2], in[3], in[4], in[5], fucina.RotateStoreOptions{Packed: "all", Heads: heads, KVHeads: kv, KeyLength: d})
	}
	for _, tt := range []struct {
		got  fucina.Tensor
		kind error
		part string
	}{
		{x.SetRows(x, ids, "key"), fucina.ErrTag, `set_rows: input {seq:2 d:3}, places {seq:2}, destination {seq:2 d:3}: the destination has no axis "key"`},
		{x.SetRows(x, ids, "seq", "seq"), fucina.ErrTag, `axis "seq" appears twice`},
		{x.SetRows(x, ids, "seq", "d", "e"), fucina.ErrTag, "3 axes of places, want one or two"},
		{x.SetRows(x, ids.Rename("seq", "d"), "seq"), fucina.ErrTag, `axis "d" appears twice`},
		{w.SetRows(x.Rename("d", "e"), ids, "n"), fucina.ErrTag, `the input: want axes {seq d}, got {seq:2 e:3}`},
		{w.SetRows(x.Narrow("d", 0, 2), ids, "n"), fucina.ErrShapeMismatch, `axis "d" is 2 and 3`},
		{w.SetRows(x, ids.Narrow("seq", 0, 1), "n"), fucina.ErrShapeMismatch, `axis "seq" is 2 and 1`},
		{w.SetRows(x.To(fucina.F16), ids, "n"), fucina.ErrDType, "the input is f16, want f32; convert with To"},
		{w.SetRows(x, numbered(c, "seq:2"), "n"), fucina.ErrDType, "the places is f32, want i32"},
		{w.To(fucina.BF16).SetRows(x, ids, "n"), fucina.ErrDType, "the destination is bf16, want"},
		{wide.SetRows(numbered(c, "seq:2 b:2 a:2"), ids, "key"), fucina.ErrUnsupportedView, "the rows of the destination have strides [4 1 2], want a contiguous row"},
		{w.BroadcastTo(ax("n:4 d:3 e:2")...).SetRows(numbered(c, "seq:2 d:3 e:2"), ids, "n"), fucina.ErrUnsupportedView, "the rows of the destination"},
		{b.BroadcastTo(ax("m:3 n:4")...).SetRows(numbered(c, "seq:2 n:4"), ids, "m"), fucina.ErrUnsupportedView, "elements of the destination share memory"},
		{none.SetRows(x, ids, "n"), fucina.ErrReleased, "set_rows: the destination: the zero Tensor"},
		{w.SetRows(x, none, "n"), fucina.ErrReleased, "set_rows: the places: the zero Tensor"},

		{first(x.AddRMSNorm(w, b, "d", 1)), fucina.ErrTag, `add_rms_norm over "d": left {seq:2 d:3}, right {n:4 d:3}, weight {n:4}: the weight has no axis "d"`},
		{first(x.AddRMSNorm(w, w, "d", 1)), fucina.ErrTag, `the weight has axes other than "d"`},
		{first(x.AddRMSNorm(w, numbered(c, "d:3"), "d", 1)), fucina.ErrTag, `the right: want axes {seq d}, got {n:4 d:3}`},
		{first(x.AddRMSNorm(x, w, "e", 1)), fucina.ErrTag, `no axis "e"`},
		{first(x.AddRMSNorm(x, numbered(c, "d:3"), "d", -1)), op.ErrParam, "the eps is -1"},
		{first(x.AddRMSNorm(x.To(fucina.F16), numbered(c, "d:3"), "d", 1)), fucina.ErrDType, "the right is f16, want f32; convert with To"},
		{first(x.AddRMSNorm(x, none, "d", 1)), fucina.ErrReleased, "the weight: the zero Tensor"},

		{project(), fucina.ErrReleased, "project: the weight: the zero Tensor"},
		{project(fucina.Projection{Weight: w}, fucina.Projection{Weight: w}, fucina.Projection{Weight: w}, fucina.Projection{Weight: w}), op.ErrParam, "4 matrices, want at most 3"},
		{project(fucina.Projection{Weight: b}), fucina.ErrTag, `project over "d": input {seq:2 d:3}, weight {n:4}: the weight has no axis "d"`},
		{project(fucina.Projection{Weight: w}, fucina.Projection{Weight: numbered(c, "n:4 d:3 e:1")}), fucina.ErrTag, `the second weight: want axis "d" and one other, got {n:4 d:3 e:1}`},
		{project(fucina.Projection{Weight: w, Bias: numbered(c, "m:4")}), fucina.ErrTag, `the bias has no axis "n"`},
		{project(fucina.Projection{Weight: w, Bias: numbered(c, "n:3")}), fucina.ErrShapeMismatch, `axis "n" of the bias is 3, want 4, as axis "n" of the weight`},
		{project(fucina.Projection{Weight: w}, fucina.Projection{Bias: b}), fucina.ErrShapeMismatch, "got the second bias without the second weight"},
		{project(fucina.Projection{Weight: numbered(c, "n:4 d:2")}), fucina.ErrShapeMismatch, `axis "d" of the weight is 2, want 3, as axis "d" of the input`},
		{project(fucina.Projection{Weight: w, Bias: b, BiasFirst: true}, fucina.Projection{Weight: w, Bias: b}), op.ErrParam, "BiasFirst of one bias and not of the other"},
		{project(fucina.Projection{Weight: w, Chunks: 2}, fucina.Projection{Weight: w, Chunks: 1}), op.ErrParam, "2 chunks for one matrix and 1 for another"},
		{project(fucina.Projection{Weight: w, Chunks: 3}), op.ErrParam, "number of chunks is 3, want 1, 2, 4 or 8"},
		{project(fucina.Projection{Weight: w, Scale: math.Inf(1)}), op.ErrParam, "the scale is +Inf"},
		{x.Project("e", "out", none, fucina.Projection{Weight: w}), fucina.ErrTag, `no axis "e"`},
		{x.Project("d", "", none, fucina.Projection{Weight: w}), fucina.ErrTag, "empty name"},
		{x.Project("d", "seq", none, fucina.Projection{Weight: w}), fucina.ErrTag, `axis "seq" appears twice`},
		{x.Project("d", "out", x, fucina.Projection{Weight: w}), fucina.ErrTag, `the residual: want axes {seq out}, got {seq:2 d:3}`},
		{x.Project("d", "d", x, fucina.Projection{Weight: w}), fucina.ErrShapeMismatch, `axis "d" of the residual is 3, want 4`},
		{numbered(c, "d:3 page:3").Project("page", "out", none, fucina.Projection{Weight: quantised}), fucina.ErrUnsupportedView, `the weight of q8_0 needs axis "page" last`},

		{x.GatedProject("d", "out", fucina.Projection{Weight: w}, fucina.Projection{}, fucina.SiLU), fucina.ErrReleased, "gated_project: the weight: the zero Tensor"},
		{x.GatedProject("d", "out", fucina.Projection{Weight: w}, fucina.Projection{Weight: numbered(c, "m:3 d:3")}, fucina.SiLU), fucina.ErrShapeMismatch, `axis "m" of the weight is 3, want 4, as axis "n" of the gate`},
		{x.GatedProject("d", "out", fucina.Projection{Weight: w}, fucina.Projection{Weight: w}, 7), op.ErrParam, "the activation is 7"},

		{attend(k, k, fucina.AttentionOptions{Past: 1, Out: "seq"}), fucina.ErrTag, `axis "seq" appears twice`},
		{attend(k, k, fucina.AttentionOptions{Past: 2}), fucina.ErrIndexOutOfBounds, "2 queries after 2 keys, but there are only 3 keys"},
		{attend(k, k, fucina.AttentionOptions{Past: -1}), fucina.ErrIndexOutOfBounds, "2 queries after -1 keys"},
		{attend(k, k, fucina.AttentionOptions{Past: math.MaxInt}), fucina.ErrIndexOutOfBounds, "but there are only 3 keys"},
		{attend(k, k, fucina.AttentionOptions{Past: 1, Positions: ids}), op.ErrParam, `attention: query {seq:2 head:4 d:32}, key {key:3 kv_head:2 d:32}, value {key:3 kv_head:2 d:32}, positions {seq:2}: got positions, and 1 keys`},
		{attend(k, k, fucina.AttentionOptions{Positions: indexes(c, "seq:2", 0, 3)}), fucina.ErrIndexOutOfBounds, "3 at position 1 of the positions, want 0 to 2"},
		{attend(k, k, fucina.AttentionOptions{Positions: ids.Rename("seq", "t")}), fucina.ErrTag, `the positions has no axis "seq"`},
		{attend(k, k, fucina.AttentionOptions{Positions: numbered(c, "seq:2")}), fucina.ErrDType, "the positions is f32, want i32"},
		{attend(k, k, fucina.AttentionOptions{Positions: ids.Narrow("seq", 0, 1)}), fucina.ErrShapeMismatch, `axis "seq" of the positions is 1, want 2, as axis "seq" of the query`},
		{attend(k, k, fucina.AttentionOptions{Sequences: ids, Tables: tables}), fucina.ErrTag, `the key: want axes {page key kv_head d}, got {key:3 kv_head:2 d:32}`},
		{attend(paged, paged, fucina.AttentionOptions{Sequences: ids}), fucina.ErrShapeMismatch, "got the sequences without the table"},
		{attend(paged, paged, fucina.AttentionOptions{Tables: tables}), fucina.ErrShapeMismatch, "got the table without the sequences"},
		{attend(paged, paged, fucina.AttentionOptions{Positions: ids}), fucina.ErrTag, "the key: want axes {key kv_head d}, got"},
		{attend(paged, paged, fucina.AttentionOptions{Sequences: ids, Tables: ids}), fucina.ErrTag, "the table: want axes {sequence slot}, got {seq:2}"},
		{attend(paged, paged, fucina.AttentionOptions{Sequences: ids, Tables: tables}), fucina.ErrIndexOutOfBounds, "1 at position 1 of the sequences, want 0 to 0"},
		{attend(paged, paged, fucina.AttentionOptions{Sequences: ids, Tables: tables, Past: 5}), fucina.ErrIndexOutOfBounds, "2 queries after 5 keys, but there are only 6 keys"},
		{attend(paged, paged, fucina.AttentionOptions{Sequences: indexes(c, "seq:2", 0, 0), Tables: indexes(c, "sequence:1 slot:1", 2)}), fucina.ErrIndexOutOfBounds, "2 at position 0 of the table, want 0 to 1"},

		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[1] = k }), fucina.ErrTag, `rotate_store: query {seq:2 head:4 d:32}, key {key:3 kv_head:2 d:32}, value {seq:2 kv_head:2 d:32}, table {seq:2 pair:4 cos_sin:2}, places {seq:2}, cache {page:2 row:256}: the key: want axes {seq kv_head d}, got {key:3 kv_head:2 d:32}`},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[3] = x }), fucina.ErrTag, "the table: want axes {seq pair cos_sin}, got {seq:2 d:3}"},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[4] = tables }), fucina.ErrTag, `the places has no axis "seq"`},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[5] = b }), fucina.ErrTag, `the cache has no axis "page"`},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[5] = paged }), fucina.ErrTag, `the cache: want axis "page" and one other, got {page:2 key:3 kv_head:2 d:32}`},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[5] = numbered(c, "page:2 row:255") }), fucina.ErrShapeMismatch, `axis "row" of the cache is 255, want a multiple of 128`},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[5] = cache.To(fucina.BF16) }), fucina.ErrDType, "the cache is bf16, want"},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) {
			in[5] = quantised.Rename("row", "r").Rename("page", "row").Rename("r", "page")
		}), fucina.ErrUnsupportedView, "moves the block axis"},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[5] = none }), fucina.ErrReleased, "rotate_store: the cache: the zero Tensor"},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[4] = indexes(c, "seq:2", 0, 4) }), fucina.ErrIndexOutOfBounds, "4 at position 1 of the places, want 0 to 3"},
		{store(func(_ []fucina.Tensor, opt *fucina.RotateStoreOptions) { opt.QueryNorm = b }), fucina.ErrTag, `the weight of the query has no axis "d"`},
		{store(func(_ []fucina.Tensor, opt *fucina.RotateStoreOptions) { opt.KeyNorm = numbered(c, "d:31") }), fucina.ErrShapeMismatch, `axis "d" of the weight of the key is 31, want 32`},
		{store(func(_ []fucina.Tensor, opt *fucina.RotateStoreOptions) { opt.Query = "t" }), fucina.ErrTag, "the query: want axes {t head d}"},
		{packed(4, 2, 32, func(in []fucina.Tensor) { in[0] = in[0].To(fucina.Q8_0) }), fucina.ErrDType, "the input is q8_0, want f32; convert with To"},
		{store(func(in []fucina.Tensor, _ *fucina.RotateStoreOptions) { in[1] = none }), fucina.ErrReleased, "rotate_store: the key: the zero Tensor"},

		{packed(4, 2, 32, func([]fucina.Tensor) {}), nil, ""},
		{packed(4, 2, 32, func(in []fucina.Tensor) { in[2] = kv }), op.ErrParam, `keys or values besides those along axis "all"`},
		{packed(4, 2, 32, func(in []fucina.Tensor) { in[1] = kv }), op.ErrParam, `keys or values besides those along axis "all"`},
		{packed(4, 2, 32, func(in []fucina.Tensor) { in[0] = none }), fucina.ErrReleased, "rotate_store packed: the input: the zero Tensor"},
		{packed(4, 2, 32, func(in []fucina.Tensor) { in[0] = in[0].To(fucina.F16) }), fucina.ErrDType, "the input is f16, want f32; convert with To"},
		{packed(4, 2, 32, func(in []fucina.Tensor) { in[0] = x }), fucina.ErrTag, "the input: want axes {seq all}, got {seq:2 d:3}"},
		{packed(0, 2, 32, func([]fucina.Tensor) {}), fucina.ErrInvalidShape, `axis "head" has size 0, want at least 1`},
		{packed(4, -2, 32, func([]fucina.Tensor) {}), fucina.ErrInvalidShape, `axis "kv_head" has size -2, want at least 1`},
		{packed(4, 2, 0, func([]fucina.Tensor) {}), fucina.ErrShapeMismatch, `rotate_store packed over "all": input {seq:2 all:256}, table {seq:2 pair:4 cos_sin:2}, places {seq:2}, cache {page:2 row:256}: axis "all" is 256, want 4 query heads and 2 key heads of 0 elements, then 2 value heads`},
		{packed(4, 2, -1, func([]fucina.Tensor) {}), fucina.ErrShapeMismatch, "2 key heads of -1 elements"},
		{packed(4, 3, 32, func([]fucina.Tensor) {}), fucina.ErrShapeMismatch, "want 4 query heads and 3 key heads of 32 elements, then 3 value heads"},
		{packed(6, 2, 32, func([]fucina.Tensor) {}), fucina.ErrShapeMismatch, "then 2 value heads"},
		{packed(math.MaxInt, 2, 32, func([]fucina.Tensor) {}), fucina.ErrShapeMismatch, "then 2 value heads"},
	} {
		switch err := tt.got.Err(); {
		case tt.kind == nil:
			if err != nil {
				t.Error(err)
			}
		case err == nil:
			t.Errorf("no error, want %q", tt.part)
		default:
			refused(t, err, tt.kind, "step_test.go:", tt.part)
		}
	}

	// Weights are read-only, and operands of another context or engine are refused by role.
	far, endFar := open(t)
	refused(t, x.Project("d", "out", numbered(far, "seq:2 out:4").On(c), fucina.Projection{Weight: w}).Err(), fucina.ErrEngine, "project: the residual: ")
	endFar()
	c2, err := c.Engine().NewContext()
	if err != nil {
		t.Fatal(err)
	}
	refused(t, attend(k, k, fucina.AttentionOptions{Positions: ids.On(c2)}).Err(), fucina.ErrContext, "attention: the positions: i32 {seq:2} is driven by context")
	released := x.Ref()
	released.Release()
	refused(t, project(fucina.Projection{Weight: w, Bias: released}).Err(), fucina.ErrReleased, "project: the bias: tensor was released")
	bad := c.Fail(errors.New("mine"))
	if y := project(fucina.Projection{Weight: w, Bias: bad}); y.Err() != bad.Err() {
		t.Errorf("of a failed bias: %v", y.Err())
	}
	if err := c2.Close(); err != nil {
		t.Error(err)
	}
	end()
}

// generated is a provider that keeps the number of generated rows of each operation.
type generated struct {
	provider.Provider
	rows *[]int
}

func (g generated) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	*g.rows = append(*g.rows, a.Generated)
	return g.Provider.Submit(ctx, q, id, a)
}

// SetGenerated applies to the operations after it, as far as they have rows. A context that is
// closed or zero ignores it.
func TestSetGenerated(t *testing.T) {
	p, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var rows []int
	c, end := open(t, fucina.WithCPU(generated{p, &rows}))
	x := numbered(c, "seq:3 d:2")
	for _, n := range []int{0, 2, 5, -1} {
		c.SetGenerated(n)
		x.Add(x)
	}
	if want := []int{0, 2, 3, 0}; !slices.Equal(rows, want) {
		t.Errorf("generated rows %v, want %v", rows, want)
	}
	end()
	c.SetGenerated(1)
	new(fucina.Context).SetGenerated(1)
}

// pagedStep is a step of a small block over a paged cache, of tokens of two sequences.
type pagedStep struct {
	c                       *fucina.Context
	step, cache             fucina.Tensor
	h, norm, headNorm       fucina.Tensor
	q, k, v, out            fucina.Projection
	gate, up, down          fucina.Projection
	angles                  *fucina.Angles
	last                    [16]float32
	tokens, heads, dim, row int
}

func newPagedStep(t check, c *fucina.Context) *pagedStep {
	s := &pagedStep{c: c, tokens: 2, heads: 2, dim: 4, row: 4}
	f32 := func(axes string) fucina.Tensor {
		a := ax(axes)
		return fucina.FromSlice(c, ramp(count(a), 0.1), a...)
	}
	s.h, s.norm, s.headNorm = f32("seq:2 d:8"), f32("d:8"), f32("hd:4")
	s.q = fucina.Projection{Weight: f32("q:8 d:8"), Bias: f32("q:8")}
	s.k, s.v = fucina.Projection{Weight: f32("k:4 d:8"), Scale: 0.5}, fucina.Projection{Weight: f32("v:4 d:8")}
	s.out = fucina.Projection{Weight: f32("d:8 o:8")}
	s.gate, s.up, s.down = fucina.Projection{Weight: f32("ff:6 d:8")}, fucina.Projection{Weight: f32("ff:6 d:8")}, fucina.Projection{Weight: f32("d:8 ff:6")}
	s.cache = t.of(c.Engine().Empty(fucina.F32, ax("page:5 row:32")...)).On(c)
	var err error
	if s.angles, err = fucina.NewAngles(fucina.RoPE{Dims: 4, FreqBase: 10000}, 100); err != nil {
		t.Fatal(err)
	}
	s.step = c.Zeros(fucina.I32, fucina.Ax("i", 18))
	return s
}

// fill sets the integers of a step: positions, sequences, places, tables and angles.
func (s *pagedStep) fill(v []int32) error {
	copy(v, []int32{5, 0, 0, 1, 1, 16, 3, 0, 4, -1})
	return nil
}

func (s *pagedStep) run(t check) {
	f := s.c.Frame()
	defer f.Close()
	if err := fucina.Update(s.step, s.fill); err != nil {
		t.Fatal(err)
	}
	floats := s.step.Narrow("i", 10, 8).Bitcast(fucina.F32)
	if err := fucina.Update(floats, func(v []float32) error { return s.angles.Put(v, []int32{5, 0}) }); err != nil {
		t.Fatal(err)
	}
	ints := func(at int) fucina.Tensor { return s.step.Narrow("i", at, s.tokens).Rename("i", "seq") }
	table := floats.Split("i", fucina.Ax("seq", s.tokens), fucina.Ax(fucina.PairAxis, 2), fucina.Ax(fucina.CosSinAxis, 2))
	tables := s.step.Narrow("i", 6, 4).Split("i", fucina.Ax("sequence", 2), fucina.Ax("slot", 2))
	s.c.SetGenerated(1)
	n := s.h.RMSNorm(s.norm, "d", 1e-5)
	qkv := n.Project("d", "o", fucina.Tensor{}, s.q, s.k, s.v)
	part := func(at, size int, head string) fucina.Tensor {
		return qkv.Narrow("o", at, size).Split("o", fucina.Ax(head, -1), fucina.Ax("hd", s.dim))
	}
	q := fucina.RotateStore(part(0, 8, "head"), part(8, 4, "kv_head"), part(12, 4, "kv_head"), table, ints(4), s.cache,
		fucina.RotateStoreOptions{Mode: fucina.RoPENeoX, QueryNorm: s.headNorm, KeyNorm: s.headNorm, Eps: 1e-5, Dim: "hd"})
	view := func(at int) fucina.Tensor {
		return s.cache.Narrow("row", at, 16).Split("row", fucina.Ax("key", s.row), fucina.Ax("kv_head", 1), fucina.Ax("hd", s.dim))
	}
	view(0).SetRows(part(8, 4, "kv_head"), ints(4), "page", "key")
	a := fucina.Attention(q, view(0), view(16), fucina.AttentionOptions{
		Scale: 0.5, Dim: "hd", Positions: ints(0), Sequences: ints(2), Tables: tables,
	})
	h := a.Merge("o", "head", "hd").Project("o", "d", s.h, s.out)
	h, n = h.AddRMSNorm(h, s.norm, "d", 1e-5)
	h = n.GatedProject("d", "ff", s.gate, s.up, fucina.GELU).Project("ff", "d", h, s.down)
	if err := fucina.CopyOut(h, s.last[:]); err != nil {
		t.Fatal(err)
	}
	s.c.SetGenerated(0)
	if err := s.cache.Narrow("page", 2, 1).Discard(); err != nil {
		t.Fatal(err)
	}
}

// A step over a paged cache, with one upload for all its integers and angles, allocates nothing
// on the Go heap.
func TestPagedStepAllocatesNothing(t *testing.T) {
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checks allocate")
	}
	c, end := open(t, fucina.WithThreads(2))
	k := check{t}
	s := newPagedStep(k, c)
	for range 3 {
		s.run(k)
	}
	if n := testing.AllocsPerRun(20, func() { s.run(k) }); n != 0 {
		t.Errorf("%v allocations in a step, want 0", n)
	}
	s.cache.Release()
	end()
}

// A step gives back what it takes, on every provider.
func TestPagedStep(t *testing.T) {
	on(t, func(t *testing.T, c *fucina.Context) {
		k := check{t}
		s := newPagedStep(k, c)
		s.run(k)
		before := c.Engine().Stats()
		s.run(k)
		if after := c.Engine().Stats(); after.Handles != before.Handles || after.Pool.Outstanding != before.Pool.Outstanding {
			t.Errorf("%d tensors and %d buffers, want %d and %d", after.Handles, after.Pool.Outstanding, before.Handles, before.Pool.Outstanding)
		}
		s.cache.Release()
	})
}
