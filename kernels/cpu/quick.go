package cpu

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/kernels/cpu/dense"
	"github.com/fucina-go/fucina/kernels/cpu/simd"
	"github.com/fucina-go/fucina/kernels/cpu/vector"
	"github.com/fucina-go/fucina/quant"
)

// quickProduct is the kernel of op.MatMul, op.Project and op.GatedProject, unless the operation is
// exact. It multiplies the rows of the weights as they are stored, by activations of 8 bits.
//
// If there is one row of x, a unit multiplies a few rows of a matrix by it. Otherwise it multiplies a
// panel of rows of a matrix by a block of rows of x: already for two rows that is faster than to
// multiply them one by one. In both, a value depends on its row of x and its row of the matrix only.
type quickProduct struct {
	op         op.ID
	batches, m int // m is the number of rows of x in a batch
	kk         int // the length of the dot products
	xr, or, rr rows
	x, out     []float32
	residual   []float32
	factors    [3]factor
	n          int // number of factors
	units      int // of the rows of all factors
	division
	blocks     int // units for all rows of x of a batch
	copies     int // bytes of the copies of strided rows, with which a lane's workspace begins
	loops      *vector.Loops
	activation op.ID
	quantizing quantizing
}

// quantizing is the phase that makes activations of 8 bits. A unit is a row of x.
type quantizing struct {
	k     *quickProduct
	forms [3]*simd.Kernel // one for each arrangement of activations that the matrices need
	n     int
	bytes int // of the rows of an arrangement
	act   []byte
}

// factor is a matrix of a quick product, with the steps that follow its product.
type factor struct {
	ints        *simd.Kernel  // of a block format, or nil
	floats      *dense.Kernel // of f32, f16 or bf16, or nil
	form        int           // which of the forms of the activations ints multiplies
	n           int           // rows of a batch
	size        int           // bytes of a row
	batch, row  int           // strides in bytes
	inner       int           // stride of the elements of a row, in elements
	dt          dtype.DType
	decode      quant.Decoder // of rows whose elements are strided, or nil
	bytes       []byte
	units       int // units of a batch
	column      int // of the output, where the columns of the matrix begin
	scale       float32
	bias        []byte // from the first element on, or nil
	stride      int    // of the bias
	biasFirst   bool
	vectorRows  bool
	vectorPanel bool
}

// division says how a quick product is divided.
type division struct {
	one   bool // x has one row
	rows  int  // of a matrix in a unit
	block int  // rows of x in a unit
}

// longestRow is the largest length of dot products. One takes less than 100 us.
const longestRow = 1 << 18

// blockRows is the largest number of rows of x in a unit. With so many, the preparation of a panel
// is a small part of a unit.
const blockRows = 512

// leastBlock is the least number of rows of x in a unit, if there are as many.
const leastBlock = 4

// blockBytes is the size of activations of 8 bits that should stay in the second cache.
const blockBytes = 2 << 20

// matrices returns the places of the matrices of a product.
func matrices(id op.ID) (first, last op.Place) {
	switch id {
	case op.Project:
		return 1, 3
	case op.GatedProject:
		return 1, 2
	}
	return 1, 1
}

// takesQuick reports whether a quick product computes the operation.
func takesQuick(id op.ID, a *op.Args) bool {
	if a.Exact {
		return false
	}
	first, last := matrices(id)
	for p := first; p <= last; p++ {
		if !a.Has(p) {
			continue
		}
		w := a.At(p)
		_, floats := dense.KernelOf(w.DType, isa.Generic)
		if !simd.Has(w.DType) && !floats || w.Shape.Dim(-1) > longestRow {
			return false
		}
	}
	return true
}

// divide returns how the operation, with m rows of x in a batch, is divided.
func divide(id op.ID, a *op.Args, m int) division {
	ints := false
	first, last := matrices(id)
	for p := first; p <= last; p++ {
		ints = ints || a.Has(p) && simd.Has(a.At(p).DType)
	}
	kk := a.In[0].Shape.Dim(-1)
	switch {
	case m == 1:
		return division{one: true, rows: rowGroup, block: 1}
	case !ints:
		return division{rows: dense.UnitRows, block: min(m, dense.Chunk(kk))}
	}
	block := min(m, blockRows, max(blockRows/4, blockBytes/simd.ActSize(kk)))
	if id == op.GatedProject {
		block = min(block, blockRows/2) // there are two panels
	}
	return division{rows: simd.PanelRows, block: block}
}

// rowsOf returns the number of rows of x in a batch.
func rowsOf(a *op.Args) int {
	x := &a.In[0].Shape
	m := 1
	for i := range x.Rank() - 1 {
		m *= x.Dim(i)
	}
	if w := &a.In[1].Shape; w.Rank() == 3 {
		m /= w.Dim(0)
	}
	return m
}

// strided reports whether the elements of the rows of a matrix are not one after the other.
func strided(w *op.Operand) bool { return !w.Has(op.Rows) && w.Strides.Dim(-1) != 1 }

// copiesOf returns the bytes of a panel of rows, if a matrix has rows that are strided.
func copiesOf(id op.ID, a *op.Args) float64 {
	first, last := matrices(id)
	for p := first; p <= last; p++ {
		if a.Has(p) && strided(a.At(p)) {
			return 4 * simd.PanelRows * float64(a.In[0].Shape.Dim(-1))
		}
	}
	return 0
}

// quickLane returns the workspace of a lane in bytes: the products of a panel, of each of the two
// matrices of op.GatedProject, and the scratch of a kernel, and copies of rows that are strided.
func quickLane(id op.ID) func(a *op.Args) float64 {
	return func(a *op.Args) float64 {
		copies, m := copiesOf(id, a), rowsOf(a)
		d := divide(id, a, m)
		if d.one {
			return copies
		}
		m = d.block
		bytes := 4 * simd.PanelRows * m
		if id == op.GatedProject {
			bytes *= 2
		}
		scratch := 0
		first, last := matrices(id)
		for p := first; p <= last; p++ {
			switch {
			case !a.Has(p):
			case simd.Has(a.At(p).DType):
				scratch = max(scratch, simd.ScratchBytes)
			default:
				scratch = max(scratch, dense.ScratchBytes(simd.PanelRows, m, a.In[0].Shape.Dim(-1)))
			}
		}
		return copies + float64(bytes+scratch)
	}
}

// quickShared returns the workspace of the activations of 8 bits in bytes.
func quickShared(id op.ID) func(a *op.Args) float64 {
	return func(a *op.Args) float64 {
		var list [3]*simd.Kernel
		n := 0
		first, last := matrices(id)
		for p := first; p <= last; p++ {
			if a.Has(p) {
				if k, ok := simd.KernelOf(a.At(p).DType, isa.Generic); ok {
					_, n = addForm(&list, n, k)
				}
			}
		}
		x := &a.In[0].Shape
		rows := 1.0
		for i := range x.Rank() - 1 {
			rows *= float64(x.Dim(i))
		}
		return rows * float64(n) * float64(simd.ActSize(x.Dim(-1)))
	}
}

// addForm finds the arrangement of activations of k in a list of n, or adds it.
func addForm(list *[3]*simd.Kernel, n int, k *simd.Kernel) (i, count int) {
	for i, f := range list[:n] {
		if f.SharesActivations(k) {
			return i, n
		}
	}
	list[n] = k
	return n, n + 1
}

func (f *factor) init(a *op.Args, i int, bias op.Place, q *quantizing, level isa.Level) (err error) {
	w := &a.In[1+i]
	var ok bool
	f.floats, f.decode = nil, nil
	if f.ints, ok = simd.KernelOf(w.DType, level); ok {
		f.vectorRows, f.vectorPanel = f.ints.Vectorized()
		f.form, q.n = addForm(&q.forms, q.n, f.ints)
	} else {
		dt := w.DType
		if f.dt, f.inner = dt, 1; strided(w) {
			f.inner = w.Strides.Dim(-1)
			if f.decode, err = quant.DecoderOf(dt); err != nil {
				return err
			}
			dt = dtype.F32
		}
		f.floats, _ = dense.KernelOf(dt, level)
		f.vectorRows = f.floats.Vectorized()
		f.vectorPanel = f.vectorRows
	}
	size := w.DType.Size()
	f.size = w.Shape.Dim(-1) / w.DType.BlockSize() * size
	f.n, f.row, f.batch = w.Shape.Dim(-2), w.Strides.Dim(-2)*size, 0
	if w.Shape.Rank() == 3 {
		f.batch = w.Strides.Dim(0) * size
	}
	f.bytes = bytesOf(w)
	f.scale, f.biasFirst, f.bias = 1, a.BiasFirst, nil
	if bias > 0 {
		f.scale = a.Scales[i]
		if p := bias + op.Place(i); a.Has(p) {
			b := a.At(p)
			f.bias, f.stride = bytesOf(b), b.Strides.Dim(0)
		}
	}
	return nil
}

// load returns the memory from row first of batch b on, and the bytes from row to row. It copies n
// rows whose elements are strided into memory. The result is valid if s.err is nil.
func (f *factor) load(b, first, n int, memory []byte, s *scratch) (w []byte, stride int) {
	w = f.bytes[b*f.batch+first*f.row:]
	if f.decode == nil {
		return w, f.row
	}
	kk := f.size / f.dt.Size()
	for i := range n {
		s.gather(floats(memory)[i*kk:][:kk], w[i*f.row:], f.inner, f.dt, f.decode)
	}
	return memory, 4 * kk
}

// steps makes the values y, which are products of the rows from first on, those of the term.
// Each step is rounded as the operation that it stands for.
func (f *factor) steps(y []float32, first int, l *vector.Loops) {
	if f.bias != nil && f.biasFirst {
		f.addBias(y, first)
	}
	if f.scale != 1 {
		l.Scale(y, y, f.scale)
	}
	if f.bias != nil && !f.biasFirst {
		f.addBias(y, first)
	}
}

func (f *factor) addBias(y []float32, first int) {
	for i := range y {
		y[i] += math.Float32frombits(binary.LittleEndian.Uint32(f.bias[4*(first+i)*f.stride:]))
	}
}

func (k *quickProduct) prepare(a *op.Args, s *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	last := x.Shape.Rank() - 1
	k.xr.init(x, last)
	k.or.init(out, last)
	k.x, k.out, k.kk, k.batches = floatsOf(x), floatsOf(out), x.Shape.Dim(last), 1
	if w := &a.In[1].Shape; w.Rank() == 3 {
		k.batches = w.Dim(0)
	}
	k.m = k.xr.n / k.batches
	k.division = divide(k.op, a, k.m)
	k.copies, k.loops = int(copiesOf(k.op, a)), loopsOf(a, s)
	q := &k.quantizing
	q.k, q.n = k, 0
	k.n, k.units = 0, 0
	first, end := matrices(k.op)
	var bias op.Place
	switch k.op {
	case op.Project:
		bias = 4
	case op.GatedProject:
		bias = 3
		if k.activation = op.SwiGLU; a.Act == op.GELU {
			k.activation = op.GeGLU
		}
	}
	column := 0
	for p := first; p <= end; p++ {
		if !a.Has(p) {
			continue
		}
		f := &k.factors[k.n]
		if err := f.init(a, int(p-1), bias, q, s.e.level); err != nil {
			return err
		}
		f.column = column
		column += f.n
		if f.units = (f.n + k.division.rows - 1) / k.division.rows; k.op != op.GatedProject || k.n == 0 {
			k.units += f.units
		}
		k.n++
	}
	if !k.one {
		// A unit without assembly ends before the next look at the context is due.
		k.block = min(k.block, max(leastBlock, s.e.every*unitSpeed(k)/(k.division.rows*k.kk)))
		if k.units*k.batches < 4*s.e.lanes {
			k.block = min(k.block, max(stretchRows, (k.m+s.e.lanes-1)/s.e.lanes))
		}
	}
	k.blocks = 1
	if !k.one {
		k.blocks = (k.m + k.block - 1) / k.block
	}
	q.bytes = k.xr.n * simd.ActSize(k.kk)
	q.act = s.e.shared
	if k.op == op.Project && a.Has(7) {
		r := &a.In[7]
		k.rr.init(r, r.Shape.Rank()-1)
		k.residual = floatsOf(r)
	}
	return nil
}

func (k *quickProduct) release() {
	k.x, k.out, k.residual = nil, nil, nil
	for i := range k.factors {
		f := &k.factors[i]
		f.bytes, f.bias, f.decode = nil, nil, nil
	}
	k.quantizing.act = nil
}

// rowGroup is the number of rows of a matrix in a unit for one row of x.
const rowGroup = 8

// The number of multiply-adds of quick products that take the time of one of the other kernels, which
// are in plain Go. These are low estimates.
const (
	goSpeed    = 1
	rowsSpeed  = 6
	panelSpeed = 24
)

// unitSpeed returns the speed of the units of k.
func unitSpeed(k *quickProduct) int {
	speed := panelSpeed
	if k.one {
		speed = rowsSpeed
	}
	for i := range k.factors[:k.n] {
		if f := &k.factors[i]; k.one && !f.vectorRows || !k.one && !f.vectorPanel {
			return goSpeed
		}
	}
	return speed
}

// cost counts the factors of op.GatedProject in one unit.
func (k *quickProduct) cost() (units, cost int) {
	per := k.division.rows * k.kk
	if k.op == op.GatedProject {
		per *= 2
	}
	rows := min(k.m, k.block)
	cost = unitCost + per*rows/unitSpeed(k) + k.division.rows*rows/4
	if !k.one {
		cost += per / 8 // the preparation of the panel
	}
	if k.op == op.GatedProject {
		cost += k.division.rows * rows * expCost
	}
	return k.batches * k.units * k.blocks, cost
}

// before is the phase before the products.
func (k *quickProduct) before() phase {
	if k.quantizing.n == 0 {
		return nil
	}
	return &k.quantizing
}

func (q *quantizing) cost() (units, cost int) {
	return q.k.xr.n * q.n, unitCost + q.k.kk
}

// run quantizes rows of x to the arrangement in which simd expects them: the rows of a block lie
// together, stretch by stretch.
func (q *quantizing) run(lo, hi int, s *scratch) {
	k := q.k
	for u := lo; u < hi && s.spend(k.kk); u++ {
		i, form := u/q.n, u%q.n
		at, stride := q.at(form, i)
		q.forms[form].QuantizeRow(q.act[at:], stride, k.x[k.xr.at(i):][:k.kk])
	}
}

// at returns the place of row i of x in an arrangement, and the bytes from stretch to stretch.
func (q *quantizing) at(form, i int) (at, stride int) {
	k := q.k
	b, row := i/k.m, i%k.m
	first := row / k.block * k.block
	n := min(k.block, k.m-first) // rows of the block
	return form*q.bytes + (b*k.m+first)*simd.ActSize(k.kk) + (row-first)*simd.ActBytes, n * simd.ActBytes
}

// find returns the factor and the first row of unit u of a batch.
func (k *quickProduct) find(u int) (f *factor, row int) {
	i := 0
	for u >= k.factors[i].units {
		u -= k.factors[i].units
		i++
	}
	return &k.factors[i], u * k.division.rows
}

func (k *quickProduct) run(lo, hi int, s *scratch) {
	if k.one {
		k.runRows(lo, hi, s)
		return
	}
	// Units with the same rows of x follow each other, so that these stay in the second cache.
	for u := lo; u < hi && s.err == nil; u++ {
		f, row := k.find(u % k.units)
		part := u / k.units
		k.panel(f, part/k.blocks, row, part%k.blocks*k.block, s)
	}
}

// callBytes is the number of bytes of weights that a call multiplies, unless a row has more. It takes
// a few microseconds from memory.
const callBytes = 24 << 10

// runRows computes units for one row of x, which is row b of all for batch b.
func (k *quickProduct) runRows(lo, hi int, s *scratch) {
	for u := lo; u < hi; {
		b := u / k.units
		f, row := k.find(u % k.units)
		n := min((hi-u)*k.division.rows, f.n-row, bufferLen, max(1, callBytes/f.size/k.division.rows)*k.division.rows)
		if k.copies > 0 {
			n = min(n, simd.PanelRows)
		}
		u += (n + k.division.rows - 1) / k.division.rows
		y := s.floats[:n]
		if !k.rows(y, f, b, row, s) {
			return
		}
		if k.op == op.GatedProject {
			up := s.second[:n]
			if !k.rows(up, &k.factors[1], b, row, s) {
				return
			}
			pointwise[k.activation].fast(k.loops, y, up, y, nil)
		}
		k.finish(y, f, row, b)
	}
}

// rows sets y to the products of rows of the factor, from row first of batch b on, with the row of x. It
// returns false if the context is done.
func (k *quickProduct) rows(y []float32, f *factor, b, first int, s *scratch) bool {
	w, stride := f.load(b, first, len(y), s.workspace, s)
	most, speed := max(1, callBytes/f.size), unitSpeed(k)
	for at := 0; at < len(y); at += most {
		y, w := y[at:min(at+most, len(y))], w[at*stride:]
		if !s.spend(len(y) * k.kk / speed) {
			return false
		}
		if f.ints != nil {
			at, _ := k.quantizing.at(f.form, b)
			f.ints.Row(y, w, stride, k.kk, k.quantizing.act[at:])
		} else {
			f.floats.Row(y, w, stride, k.row(b))
		}
	}
	f.steps(y, first, k.loops)
	return true
}

// finish writes the columns of the factor from first on, of row i.
func (k *quickProduct) finish(y []float32, f *factor, first, i int) {
	column := f.column + first
	out := k.out[k.or.at(i)+column:][:len(y)]
	if k.residual == nil {
		copy(out, y)
		return
	}
	k.loops.Add(out, y, k.residual[k.rr.at(i)+column:][:len(y)])
}

// row returns row i of x.
func (k *quickProduct) row(i int) []float32 { return k.x[k.xr.at(i):][:k.kk] }

// panel multiplies a panel of the factor from row on by the rows of x of a batch from first on.
func (k *quickProduct) panel(f *factor, b, row, first int, s *scratch) {
	m := min(k.block, k.m-first)
	n := min(k.division.rows, f.n-row)
	size := 4 * simd.PanelRows * m
	memory := s.workspace[k.copies:]
	y, memory := floats(memory[:size]), memory[size:]
	if k.op == op.GatedProject {
		up, memory := floats(memory[:size]), memory[size:]
		if !k.multiply(y, f, b, row, n, first, m, memory, s) ||
			!k.multiply(up, &k.factors[1], b, row, n, first, m, memory, s) ||
			!s.spend(costOf(k.loops, expCost)*len(y)) {
			return
		}
		pointwise[k.activation].fast(k.loops, y, up, y, nil)
	} else if !k.multiply(y, f, b, row, n, first, m, memory, s) {
		return
	}
	if !s.spend(m * n / 4) {
		return
	}
	for i := range m {
		y, at := y[i*simd.PanelRows:][:n], b*k.m+first+i
		if k.residual == nil && n == simd.PanelRows {
			*(*[simd.PanelRows]float32)(k.out[k.or.at(at)+f.column+row:]) = *(*[simd.PanelRows]float32)(y)
			continue
		}
		k.finish(y, f, row, at)
	}
}

// multiply sets y [m][PanelRows] to the products of n rows of the factor with m rows of x, and does
// the steps that follow. The other columns of y mean nothing. It returns false if the context is done.
func (k *quickProduct) multiply(y []float32, f *factor, b, row, n, first, m int, memory []byte, s *scratch) bool {
	if !s.spend(n * k.kk * m / unitSpeed(k)) {
		return false
	}
	w, stride := f.load(b, row, n, s.workspace, s)
	at := b*k.m + first
	if f.ints != nil {
		act, _ := k.quantizing.at(f.form, at)
		f.ints.Panel(y, w, stride, n, k.kk, k.quantizing.act[act:], m, memory)
	} else {
		clear(y)
		// Rows of x that are not one stride apart are multiplied in several calls.
		for i := 0; i < m; {
			count, xStride := k.xr.run(at + i)
			count = min(count, m-i)
			f.floats.Multiply(y[i*simd.PanelRows:], simd.PanelRows, w, stride, n, k.x[k.xr.at(at+i):], xStride, count, k.kk, memory)
			i += count
		}
	}
	if f.bias != nil || f.scale != 1 {
		for i := range m {
			f.steps(y[i*simd.PanelRows:][:n], row, k.loops)
		}
	}
	return true
}
