package conformance

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// noScales are the factors of products that are not scaled.
var noScales = [3]float32{1, 1, 1}

// tryComposite is try for a composite operation. The case also runs the parts of the operation
// on the provider, whose results have the same bits. If the provider declines a part, the case
// is declined.
func (s *suite) tryComposite(id op.ID, formats, detail string, build func(rng *rand.Rand) op.Args) {
	s.t.Helper()
	s.tryWith(id, formats, detail, func(rng *rand.Rand) error {
		a := build(rng)
		mem, err := s.b.check(id, &a, s.opt, s.digest)
		if err != nil {
			return err
		}
		return s.b.likeParts(id, &a, &mem)
	})
}

// parts runs the parts of a composite operation. After an error it runs nothing.
type parts struct {
	b    *bench
	args *op.Args // of the composite
	err  error
}

// run runs an operation and returns its output, which is contiguous.
func (p *parts) run(id op.ID, params op.Params, in ...op.Operand) op.Operand {
	a := reference.Args(params, op.Operand{}, in...)
	a.Exact, a.Generated = p.args.Exact, p.args.Generated
	if p.err != nil {
		return op.Operand{}
	}
	if r := op.Infer(id, &a); !r.OK() {
		p.err = fmt.Errorf("the part %s does not fit: %s", id, r.Text(id))
		return op.Operand{}
	}
	a.Out[0] = reference.New(a.Out[0].DType, reference.Plain, a.Out[0].Shape.Slice()...)
	return p.finish(id, &a)
}

// finish runs an operation and returns its output.
func (p *parts) finish(id op.ID, a *op.Args) op.Operand {
	if p.err != nil {
		return op.Operand{}
	}
	mem, err := p.b.run(id, a)
	p.err = err
	out := a.Out[0]
	out.Mem = op.Mem{Host: mem[0], Len: len(mem[0])}
	return out
}

// store writes the rows of x into a view of a cache and returns the cache's new memory.
func (p *parts) store(x op.Operand, view op.Operand) op.Mem {
	if p.err != nil {
		return op.Mem{}
	}
	a := reference.Args(op.Params{}, view, x, p.args.In[4])
	a.Status = p.args.Status
	return p.finish(op.SetRows, &a).Mem
}

// likeParts returns an error if the memories of a composite operation's outputs differ from
// those of its parts.
func (b *bench) likeParts(id op.ID, a *op.Args, mem *memories) error {
	p := &parts{b: b, args: a}
	var want [op.MaxOut]op.Operand
	switch id {
	case op.AddRMSNorm:
		want[0] = p.run(op.Add, op.Params{}, a.In[0], a.In[1])
		want[1] = p.run(op.RMSNorm, a.Params, want[0], a.In[2])
	case op.Project:
		want[0] = p.project()
	case op.GatedProject:
		act := op.SwiGLU
		if a.Act == op.GELU {
			act = op.GeGLU
		}
		gate, up := p.product(0, 3), p.product(1, 4)
		want[0] = p.run(act, op.Params{}, up, gate)
	case op.RotateStore:
		want[0], want[1] = p.rotateStore()
	default:
		return fmt.Errorf("%s has no parts", id)
	}
	return p.same(id, mem, want)
}

// same returns an error if the memories of the outputs of the parts' composite, which is an
// operation of id, differ from want.
func (p *parts) same(id op.ID, mem *memories, want [op.MaxOut]op.Operand) error {
	var d declineError
	if errors.As(p.err, &d) {
		return declineError{id, fmt.Sprintf("the comparison needs %s, which is declined: %s", d.id, d.reason)}
	}
	if p.err != nil {
		return p.err
	}
	for i, role := range id.Outputs() {
		if role.Into {
			if !bytes.Equal(mem[i], want[i].Mem.Host) {
				return fmt.Errorf("the %s has other bits than that of the operation's parts", role.Name)
			}
			continue
		}
		got := p.args.Out[i]
		got.Mem = op.Mem{Host: mem[i], Len: len(mem[i])}
		if err := reference.Compare(reference.Read(&got), reference.Read(&want[i]), 0); err != nil {
			return fmt.Errorf("the %s has other bits than that of the operation's parts: %w", role.Name, err)
		}
	}
	return nil
}

// product returns the product with the matrix i, scaled and with the bias at the place bias.
func (p *parts) product(i int, bias op.Place) op.Operand {
	a := p.args
	y := p.run(op.MatMul, op.Params{Chunks: a.Chunks}, a.In[0], a.In[1+i])
	scale := func() {
		if a.Scales[i] != 1 {
			y = p.run(op.Scale, op.Params{Scale: a.Scales[i]}, y)
		}
	}
	if !a.BiasFirst {
		scale()
	}
	if a.Has(bias) && p.err == nil {
		b := a.In[bias]
		strides := make([]int, y.Shape.Rank())
		strides[len(strides)-1] = b.Strides.Dim(0)
		y = p.run(op.Add, op.Params{}, y, reference.View(b, 0, y.Shape.Slice(), strides))
	}
	if a.BiasFirst {
		scale()
	}
	return y
}

// project returns the result of the parts of Project.
func (p *parts) project() op.Operand {
	a := p.args
	out := empty(reference.Plain, a.Out[0].Shape.Slice()...)
	at, width := 0, out.Shape.Dim(-1)
	for i := range 3 {
		if !a.Has(op.Place(1 + i)) {
			continue
		}
		y := p.product(i, op.Place(4+i))
		if p.err != nil {
			return out
		}
		n := y.Shape.Dim(-1)
		for from, to := y.Mem.Host, out.Mem.Host[4*at:]; len(from) > 0; from, to = from[4*n:], to[min(4*width, len(to)):] {
			copy(to, from[:4*n])
		}
		at += n
	}
	if a.Has(7) {
		out = p.run(op.Add, op.Params{}, out, a.In[7])
	}
	return out
}

// rotateStore returns the results of the parts of RotateStore.
func (p *parts) rotateStore() (queries, cache op.Operand) {
	a := p.args
	turned := func(x, weight op.Place) op.Operand {
		o := a.In[x]
		if a.Has(weight) {
			o = p.run(op.RMSNorm, op.Params{Eps: a.Eps}, o, a.In[weight])
		}
		return p.run(op.RoPE, op.Params{Mode: a.Mode}, o, a.In[3])
	}
	queries = turned(0, 5)
	keys, values := turned(1, 6), plain(&a.In[2])
	cache = a.Out[1]
	rows, page, block := a.PageRows(), cache.Strides.Dim(0), cache.DType.BlockSize()
	at := 0
	for _, x := range []op.Operand{keys, values} {
		if p.err != nil {
			return queries, cache
		}
		n := x.Shape.Dim(1) * x.Shape.Dim(2)
		view := reference.View(cache, at, []int{cache.Shape.Dim(0), rows, n}, []int{page, n / block, 1})
		cache.Mem = p.store(reference.View(x, 0, []int{x.Shape.Dim(0), n}, []int{n, 1}), view)
		at += rows * n / block
	}
	return queries, cache
}

// plain returns a contiguous copy of an f32 operand.
func plain(o *op.Operand) op.Operand {
	var values []float32
	for _, v := range reference.Read(o) {
		values = append(values, float32(v))
	}
	return reference.Of(values, o.Shape.Slice()...)
}

func addRMSNorm(s *suite) {
	for _, dims := range [][]int{{1}, {5}, {1, 64}, {3, 33}, {53, 8}, {1, 11008}, {2, 2, 3, 17}, {2, 1, 2, 2, 1, 2, 2, 9}} {
		for i, l := range []struct{ x, y, w, sum, out reference.Layout }{
			{reference.Plain, reference.Plain, reference.Plain, reference.Plain, reference.Plain},
			{reference.Padded, reference.Broadcast, reference.Spread, reference.Padded, reference.Plain},
			{reference.Broadcast, reference.Padded, reference.Padded, reference.Plain, reference.Padded},
		} {
			if noRow(l.x, dims) || noRow(l.y, dims) {
				continue
			}
			s.tryComposite(op.AddRMSNorm, "f32", fmt.Sprint(dims, " layouts ", i), func(rng *rand.Rand) op.Args {
				return reference.Args2(op.Params{Eps: 1e-3}, empty(l.sum, dims...), empty(l.out, dims...),
					f32(rng, l.x, dims...), f32(rng, l.y, dims...), f32(rng, l.w, dims[len(dims)-1]))
			})
		}
	}
}

// projectCase has the sizes and parameters of a product by several matrices.
type projectCase struct {
	outer    []int  // axes of the input before the last
	n        [3]int // rows of the matrices; 0 where there is none
	blocks   int    // length of a row, in blocks; long for 4096 elements
	biases   [3]bool
	residual bool
	params   op.Params
}

// long is a number of blocks that stands for 4096 elements.
const long = 128

// length returns the length of a row of the dtype with the case's blocks.
func (c *projectCase) length(d dtype.DType) int {
	switch {
	case c.blocks == long:
		return 4096
	case d.IsScalar():
		return 37*c.blocks + 1
	}
	return c.blocks * d.BlockSize()
}

// args returns the arguments of the operation with the given layouts of the activations and
// weights, whose dtypes are d.
func (c *projectCase) args(rng *rand.Rand, lx, lw reference.Layout, d ...dtype.DType) op.Args {
	k := c.length(d[0])
	a := reference.Args(c.params, op.Operand{}, f32(rng, lx, append(slices.Clone(c.outer), k)...))
	if a.Scales == [3]float32{} {
		a.Scales = noScales
	}
	columns := 0
	for i, n := range c.n {
		if n == 0 {
			continue
		}
		columns += n
		a.In[1+i] = reference.Random(reference.New(d[i%len(d)], lw, n, k), rng)
		if c.biases[i] {
			a.In[4+i] = f32(rng, reference.Padded, n)
		}
	}
	out := append(slices.Clone(c.outer), columns)
	if c.residual {
		a.In[7] = f32(rng, lx, out...)
	}
	a.NIn = op.MaxIn
	for !a.Has(op.Place(a.NIn - 1)) {
		a.NIn--
	}
	a.Out[0] = empty(lx, out...)
	a.Generated = min(1, len(c.outer))
	return a
}

func project(s *suite) {
	for _, d := range op.Project.Inputs()[1].Formats.List() {
		for i, c := range []projectCase{
			{outer: []int{1}, n: [3]int{5, 3, 2}, blocks: 2, biases: [3]bool{true, true, true}},
			{outer: []int{3}, n: [3]int{4, 9}, blocks: 3},
			{n: [3]int{7}, blocks: 1, biases: [3]bool{true}, residual: true, params: op.Params{Scales: [3]float32{0.5}}},
			{outer: []int{1}, n: [3]int{2, 1, 2}, blocks: long},
			{outer: []int{70}, n: [3]int{3}, blocks: 1, residual: true},
		} {
			lx, lw := reference.Plain, reference.Plain
			if i%2 == 1 {
				lx, lw = reference.Padded, reference.Padded
			}
			s.tryComposite(op.Project, d.String(), fmt.Sprint(c, lx), func(rng *rand.Rand) op.Args { return c.args(rng, lx, lw, d) })
		}
	}
	scales := [3]float32{-1.5, 1, float32(math.Pi)}
	for i, c := range []projectCase{
		{outer: []int{2}, n: [3]int{3, 0, 4}, blocks: 2, biases: [3]bool{false, false, true}, residual: true},
		{outer: []int{2}, n: [3]int{3, 4}, blocks: 2, biases: [3]bool{false, true}},
		{outer: []int{3}, n: [3]int{3, 4, 2}, blocks: 2, biases: [3]bool{true, true, true}, residual: true, params: op.Params{Scales: scales}},
		{outer: []int{3}, n: [3]int{3, 4, 2}, blocks: 2, biases: [3]bool{true, true, true}, residual: true, params: op.Params{Scales: scales, BiasFirst: true}},
		{outer: []int{3}, n: [3]int{3, 4, 2}, blocks: 1, params: op.Params{Scales: scales, BiasFirst: true}},
		{outer: []int{2, 1, 2, 3}, n: [3]int{3, 4, 2}, blocks: 2, biases: [3]bool{true, false, true}},
		{outer: []int{1}, n: [3]int{300}, blocks: 1, biases: [3]bool{true}, residual: true},
		{outer: []int{2}, n: [3]int{3, 2}, blocks: long, residual: true, params: op.Params{Chunks: op.MaxChunks}},
	} {
		for _, d := range []dtype.DType{dtype.F32, dtype.Q8_0} {
			s.tryComposite(op.Project, d.String(), fmt.Sprint("parameters ", i, " ", c.params.BiasFirst), func(rng *rand.Rand) op.Args {
				return c.args(rng, reference.Padded, reference.Plain, d)
			})
		}
	}
	for _, lw := range freeLayouts {
		c := projectCase{outer: []int{2}, n: [3]int{5, 6}, blocks: 1}
		s.tryComposite(op.Project, "f32", fmt.Sprint("matrices ", lw), func(rng *rand.Rand) op.Args { return c.args(rng, reference.Plain, lw, dtype.F32) })
	}
	c := projectCase{outer: []int{3}, n: [3]int{5, 6, 4}, biases: [3]bool{true, true, true}, blocks: 64}
	s.tryComposite(op.Project, "q8_0, f16 and f32", "", func(rng *rand.Rand) op.Args {
		return c.args(rng, reference.Plain, reference.Plain, dtype.Q8_0, dtype.F16, dtype.F32)
	})
}

// shrink multiplies the whole memory of an f32 operand by a factor.
func shrink(o *op.Operand, factor float64) {
	for m := o.Mem.Host; len(m) >= 4; m = m[4:] {
		v := math.Float32frombits(binary.LittleEndian.Uint32(m))
		binary.LittleEndian.PutUint32(m, math.Float32bits(float32(float64(v)*factor)))
	}
}

func gatedProject(s *suite) {
	build := func(c projectCase, lx, lw reference.Layout, d ...dtype.DType) func(rng *rand.Rand) op.Args {
		return func(rng *rand.Rand) op.Args {
			a := c.args(rng, lx, lw, d...)
			n := a.In[1].Shape.Dim(0)
			a.In[3], a.In[4], a.In[5] = a.In[4], a.In[5], op.Operand{}
			for a.NIn = 5; !a.Has(op.Place(a.NIn - 1)); {
				a.NIn--
			}
			a.Out[0] = empty(lx, append(slices.Clone(c.outer), n)...)
			if d[0].IsBlockQuantized() {
				// The blocks have large numbers. Few activations of large numbers have digits.
				shrink(&a.In[0], 1/(16*math.Sqrt(float64(a.In[0].Shape.Dim(-1)))))
			}
			return a
		}
	}
	for _, d := range op.GatedProject.Inputs()[1].Formats.List() {
		for i, c := range []projectCase{
			{outer: []int{1}, n: [3]int{5, 5}, blocks: 2},
			{outer: []int{3}, n: [3]int{9, 9}, blocks: 3, biases: [3]bool{true, true}, params: op.Params{Act: op.GELU}},
			{n: [3]int{3, 3}, blocks: long},
			{outer: []int{70}, n: [3]int{2, 2}, blocks: 1, params: op.Params{Scales: [3]float32{0.25, 2, 1}}},
		} {
			lx, lw := reference.Plain, reference.Plain
			if i%2 == 1 {
				lx, lw = reference.Padded, reference.Padded
			}
			s.tryComposite(op.GatedProject, d.String(), fmt.Sprint(c, lx), build(c, lx, lw, d))
		}
	}
	scales := [3]float32{-1.5, float32(math.Pi), 1}
	for i, c := range []projectCase{
		{outer: []int{2}, n: [3]int{3, 3}, blocks: 2, biases: [3]bool{false, true}, params: op.Params{Scales: scales}},
		{outer: []int{2}, n: [3]int{3, 3}, blocks: 2, biases: [3]bool{true, true}, params: op.Params{Scales: scales, BiasFirst: true, Act: op.GELU}},
		{outer: []int{2, 1, 2, 3}, n: [3]int{4, 4}, blocks: 1, biases: [3]bool{true}},
		{outer: []int{1}, n: [3]int{300, 300}, blocks: 1},
		{outer: []int{2}, n: [3]int{3, 3}, blocks: long, params: op.Params{Chunks: 4}},
	} {
		for _, d := range []dtype.DType{dtype.F32, dtype.Q8_0} {
			s.tryComposite(op.GatedProject, d.String(), fmt.Sprint("parameters ", i), build(c, reference.Padded, reference.Plain, d))
		}
	}
	for _, lw := range freeLayouts {
		s.tryComposite(op.GatedProject, "f32", fmt.Sprint("matrices ", lw), build(projectCase{outer: []int{2}, n: [3]int{5, 5}, blocks: 1}, reference.Plain, lw, dtype.F32))
	}
	s.tryComposite(op.GatedProject, "q8_0 and f16", "", build(projectCase{outer: []int{3}, n: [3]int{5, 5}, blocks: 64}, reference.Plain, reference.Plain, dtype.Q8_0, dtype.F16))
}

// storeCase has the sizes and parameters of RotateStore.
type storeCase struct {
	tokens, heads, kvHeads, d, dv, pairs int
	rows, pages                          int
	qNorm, kNorm                         bool
	mode                                 op.RoPEMode
}

// args returns arguments in which queries, keys and values are columns of one product of layout
// l. The cache has the dtype d and the layout lc, and the queries that are returned have layout
// lo.
func (c *storeCase) args(rng *rand.Rand, d dtype.DType, l, lc, lo reference.Layout) op.Args {
	n := c.heads*c.d + c.kvHeads*(c.d+c.dv)
	x := f32(rng, l, c.tokens, n)
	at := 0
	columns := func(heads, d int) op.Operand {
		o := reference.View(x, at, []int{c.tokens, heads, d}, []int{x.Strides.Dim(0), d, 1})
		at += heads * d
		return o
	}
	q, k, v := columns(c.heads, c.d), columns(c.kvHeads, c.d), columns(c.kvHeads, c.dv)
	cache := reference.Random(reference.New(d, lc, c.pages, c.rows*c.kvHeads*(c.d+c.dv)), rng)
	a := reference.Args2(op.Params{Mode: c.mode, Eps: 1e-3}, empty(lo, c.tokens, c.heads, c.d), cache,
		q, k, v, f32(rng, reference.Plain, c.tokens, c.pairs, 2), places(rng, c.tokens, c.pages*c.rows))
	if c.qNorm {
		a.In[5], a.NIn = f32(rng, reference.Spread, c.d), 6
	}
	if c.kNorm {
		a.In[6], a.NIn = f32(rng, reference.Plain, c.d), 7
	}
	return a
}

// places returns n different places below limit, in any order.
func places(rng *rand.Rand, n, limit int) op.Operand {
	list := make([]int64, n)
	for i, p := range rng.Perm(limit)[:n] {
		list[i] = int64(p)
	}
	return reference.Ints(dtype.I32, list...)
}

func rotateStore(s *suite) {
	for _, d := range op.RotateStore.Outputs()[1].Formats.List() {
		for i, c := range []storeCase{
			{tokens: 1, heads: 4, kvHeads: 2, d: 64, dv: 64, pairs: 32, rows: 32, pages: 3, qNorm: true, kNorm: true, mode: op.RoPENeoX},
			{tokens: 37, heads: 2, kvHeads: 1, d: 32, dv: 32, pairs: 16, rows: 32, pages: 2},
			{tokens: 5, heads: 6, kvHeads: 3, d: 32, dv: 96, pairs: 7, rows: 3, pages: 4, qNorm: true, mode: op.RoPENeoX},
			{tokens: 4, heads: 2, kvHeads: 2, d: 96, dv: 32, pairs: 16, rows: 1, pages: 5, kNorm: true},
			{tokens: 3, heads: 3, kvHeads: 1, d: 5, dv: 7, pairs: 2, rows: 5, pages: 2, qNorm: true, kNorm: true},
			{tokens: 2, heads: 3, kvHeads: 3, d: 7, dv: 1, pairs: 3, rows: 2, pages: 3, mode: op.RoPENeoX},
			{tokens: 1, heads: 1, kvHeads: 1, d: 2, dv: 1, pairs: 1, rows: 1, pages: 1},
		} {
			if c.d%d.BlockSize() != 0 || c.dv%d.BlockSize() != 0 {
				continue // rows must be whole blocks
			}
			for _, lc := range rowOut {
				l, lo := rowLayouts[i%len(rowLayouts)], rowOut[i%len(rowOut)]
				s.tryComposite(op.RotateStore, d.String(), fmt.Sprint(c, l, " cache ", lc), func(rng *rand.Rand) op.Args { return c.args(rng, d, l, lc, lo) })
			}
		}
		// Operands of their own, whose heads have gaps.
		c := storeCase{tokens: 3, heads: 4, kvHeads: 2, d: 32, dv: 64, pairs: 16, rows: 4, pages: 2, qNorm: true, kNorm: true}
		s.tryComposite(op.RotateStore, d.String(), "heads with gaps", func(rng *rand.Rand) op.Args {
			a := c.args(rng, d, reference.Plain, reference.Padded, reference.Padded)
			a.In[0], a.In[1] = f32(rng, reference.Padded, c.tokens, c.heads, c.d), f32(rng, reference.Padded, c.tokens, c.kvHeads, c.d)
			a.In[2] = f32(rng, reference.Padded, c.tokens, c.kvHeads, c.dv)
			return a
		})
	}
}
