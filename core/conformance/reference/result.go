package reference

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/quant"
)

// Pointwise has a row for each operation that computes an element of its output from the
// elements of its inputs at the same place.
var Pointwise = [op.Count]struct {
	// F returns an element, given one of each input. y is x if there is one input.
	F func(x, y float64, p *op.Params) float64
	// Exact says that arithmetic in f32 rounds once, so that its results are those of F
	// rounded to f32.
	Exact bool
}{
	op.Add:    {func(x, y float64, _ *op.Params) float64 { return x + y }, true},
	op.Sub:    {func(x, y float64, _ *op.Params) float64 { return x - y }, true},
	op.Mul:    {func(x, y float64, _ *op.Params) float64 { return x * y }, true},
	op.SwiGLU: {func(x, y float64, _ *op.Params) float64 { return x * y / (1 + math.Exp(-y)) }, false},
	op.GeGLU: {func(x, y float64, _ *op.Params) float64 {
		return x * y / 2 * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(y+0.044715*y*y*y)))
	}, false},
	op.Scale: {func(x, _ float64, p *op.Params) float64 { return float64(p.Scale) * x }, true},
	op.SoftCap: {func(x, _ float64, p *op.Params) float64 {
		return float64(p.SoftCap) * math.Tanh(x/float64(p.SoftCap))
	}, false},
}

// outputs are the values of an operation's outputs.
type outputs [op.MaxOut][]float64

// one returns the function of an operation with one output.
func one(f func(a *op.Args) []float64) func(a *op.Args) outputs {
	return func(a *op.Args) outputs { return outputs{f(a)} }
}

// results has the function of each other operation that returns the values of its outputs.
var results = [op.Count]func(a *op.Args) outputs{
	op.Copy:         one(func(a *op.Args) []float64 { return converted(&a.In[0], a.Out[0].DType) }),
	op.GetRows:      one(gathered),
	op.RMSNorm:      one(rmsNorm),
	op.RoPE:         one(rope),
	op.MatMul:       one(matMul),
	op.Attention:    one(attention),
	op.Softmax:      one(softmax),
	op.Argmax:       one(argmax),
	op.SetRows:      one(setRows),
	op.AddRMSNorm:   addRMSNorm,
	op.Project:      one(project),
	op.GatedProject: one(gatedProject),
	op.RotateStore:  rotateStore,
}

// Results returns the values of the operation's outputs in logical order. op.Check must have
// accepted the arguments. The inputs, and outputs that the operation writes into, must lie in
// host memory, which Results does not change. Elements of such an output that the operation
// does not write have their values of before. An index out of range is clamped, and the row of
// a place out of range is skipped. Results panics for an unknown operation.
func Results(id op.ID, a *op.Args) [op.MaxOut][]float64 {
	switch {
	case id.Valid() && Pointwise[id].F != nil:
		return outputs{pointwise(id, a)}
	case id.Valid() && results[id] != nil:
		return results[id](a)
	}
	panic(fmt.Sprintf("reference: no result of operation %d", id))
}

// Result returns the values of the first output, as Results does.
func Result(id op.ID, a *op.Args) []float64 { return Results(id, a)[0] }

func pointwise(id op.ID, a *op.Args) []float64 {
	row := &Pointwise[id]
	x := Read(&a.In[0])
	y := x
	if a.NIn > 1 {
		y = Read(&a.In[1])
	}
	out := make([]float64, len(x))
	for i := range out {
		out[i] = row.F(x[i], y[i], &a.Params)
		if row.Exact {
			out[i] = float64(float32(out[i]))
		}
	}
	return out
}

// converted returns the values of x in the dtype to. It converts as package dtype does, element
// by element, and encodes as package quant does, block by block.
func converted(x *op.Operand, to dtype.DType) []float64 {
	out := New(to, Plain, x.Shape.Slice()...)
	switch {
	case x.DType.IsScalar() && to.IsScalar():
		rest := out.Mem.Host
		elements(x, func(at int) {
			must(dtype.Convert(rest[:to.Size()], to, x.Mem.Host[at:][:x.DType.Size()], x.DType))
			rest = rest[to.Size():]
		})
		return Read(&out)
	case to == x.DType || to == dtype.F32:
		return Read(x)
	}
	values := Read(x)
	bs, size := to.BlockSize(), to.Size()
	block := make([]float32, bs)
	for i := 0; i < len(values); i += bs {
		for j := range block {
			block[j] = float32(values[i+j])
		}
		dst := out.Mem.Host[i/bs*size:][:size]
		if quant.EncodeRow(dst, to, block) != nil {
			// The format cannot hold the block, and its scale becomes NaN.
			clear(dst)
			binary.LittleEndian.PutUint16(dst, 0x7e00)
		}
	}
	return Read(&out)
}

// gathered clamps row numbers into the table.
func gathered(a *op.Args) []float64 {
	table, rows, d := Read(&a.In[0]), a.In[0].Shape.Dim(0), a.In[0].Shape.Dim(1)
	var out []float64
	for _, id := range integers(&a.In[1]) {
		row := int(min(max(id, 0), int64(rows-1)))
		for _, v := range table[row*d:][:d] {
			out = append(out, float64(float32(v))) // the output is f32
		}
	}
	return out
}

// integers returns the values of a contiguous operand of an integer dtype as int64, because
// float64 does not represent all of them.
func integers(o *op.Operand) []int64 {
	n, err := o.Shape.Elements()
	must(err)
	b := make([]byte, 8*n)
	must(dtype.Convert(b, dtype.I64, o.Mem.Host[o.Offset*o.DType.Size():][:n*o.DType.Size()], o.DType))
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}

// byRows returns the result of f on each row of d elements of x.
func byRows(x []float64, d int, f func(out, x []float64)) []float64 {
	out := make([]float64, len(x))
	for r := 0; r < len(x); r += d {
		f(out[r:r+d], x[r:r+d])
	}
	return out
}

func rmsNorm(a *op.Args) []float64 { return normed(Read(&a.In[0]), Read(&a.In[1]), a.Eps) }

// normed returns the RMS norm of the rows of x, which are as long as the weight w.
func normed(x, w []float64, eps float32) []float64 {
	return byRows(x, len(w), func(out, x []float64) {
		sum := 0.0
		for _, v := range x {
			sum += v * v
		}
		for i, v := range x {
			out[i] = v * w[i] / math.Sqrt(sum/float64(len(x))+float64(eps))
		}
	})
}

func softmax(a *op.Args) []float64 {
	return byRows(Read(&a.In[0]), a.In[0].Shape.Dim(-1), func(out, x []float64) {
		for i, v := range x {
			out[i] = float64(a.Scale) * v
		}
		weights(out)
	})
}

// weights turns scores into the weights of a softmax. If a score is NaN, or all are -Inf,
// all weights are NaN.
func weights(x []float64) {
	top, sum := math.Inf(-1), 0.0
	for _, v := range x {
		if v > top {
			top = v
		}
	}
	for i, v := range x {
		x[i] = math.Exp(v - top)
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}

func argmax(a *op.Args) []float64 {
	x, d := Read(&a.In[0]), a.In[0].Shape.Dim(-1)
	var out []float64
	for r := 0; r < len(x); r += d {
		row, best := x[r:r+d], 0
		for i, v := range row {
			if top := row[best]; top == top && (v > top || v != v) {
				best = i
			}
		}
		out = append(out, float64(best))
	}
	return out
}

func rope(a *op.Args) []float64 { return rotated(Read(&a.In[0]), &a.In[0].Shape, &a.In[1], a.Mode) }

// rotated rotates the heads of x, whose shape is s, by the angles of the table.
func rotated(x []float64, s *shape.Shape, table *op.Operand, mode op.RoPEMode) []float64 {
	angles := Read(table)
	heads, d, pairs := s.Dim(1), s.Dim(2), table.Shape.Dim(1)
	for h := 0; h < len(x)/d; h++ {
		head := x[h*d:][:d]
		for i := range pairs {
			p, q := 2*i, 2*i+1
			if mode == op.RoPENeoX {
				p, q = i, i+pairs
			}
			at := 2 * (h/heads*pairs + i)
			cos, sin := angles[at], angles[at+1]
			head[p], head[q] = head[p]*cos-head[q]*sin, head[p]*sin+head[q]*cos
		}
	}
	return x
}

func matMul(a *op.Args) []float64 {
	x, w := &a.In[0], &a.In[1]
	m := 0 // rows of x that are multiplied with the same rows of w; 0 means all
	if w.Shape.Rank() == 3 {
		m = x.Shape.Dim(1)
	}
	return product(x, w, m)
}

// product returns the products of the rows of x with rows of w: those of all of w if m is 0,
// and otherwise each m rows of x with those of a matrix of w.
func product(x, w *op.Operand, m int) []float64 {
	xs, ws := Read(x), Read(w)
	n, k := w.Shape.Dim(-2), w.Shape.Dim(-1)
	rows := len(xs) / k
	if m == 0 {
		m = rows
	}
	out := make([]float64, 0, rows*n)
	for r := range rows {
		for c := range n {
			sum, w := 0.0, ws[(r/m*n+c)*k:]
			for i, v := range xs[r*k:][:k] {
				sum += v * w[i]
			}
			out = append(out, sum)
		}
	}
	return out
}

// attention clamps positions, sequences and entries of the table.
func attention(a *op.Args) []float64 {
	q, k, v := Read(&a.In[0]), Read(&a.In[1]), Read(&a.In[2])
	indices := func(p op.Place) []int {
		list := integers(a.At(p))
		out := make([]int, len(list))
		for i, v := range list {
			out[i] = int(min(max(v, 0), int64(op.Attention.Limit(a, p)-1)))
		}
		return out
	}
	positions := indices(3)
	at := func(_, i int) int { return i } // the row of key i of token t
	if a.Has(5) {
		sequences, table, pages, rows := indices(4), indices(5), a.In[5].Shape.Dim(1), a.In[1].Shape.Dim(1)
		at = func(t, i int) int { return table[sequences[t]*pages+i/rows]*rows + i%rows }
	}
	tokens, heads, d := a.In[0].Shape.Dim(0), a.In[0].Shape.Dim(1), a.In[0].Shape.Dim(2)
	kvHeads, dv := a.In[1].Shape.Dim(-2), a.In[2].Shape.Dim(-1)
	out := make([]float64, tokens*heads*dv)
	for t := range tokens {
		lo, hi := 0, positions[t]+1
		if a.Window > 0 {
			lo = max(0, hi-a.Window)
		}
		scores := make([]float64, hi-lo)
		for h := range heads {
			kv := h / (heads / kvHeads)
			for j := range scores {
				sum, key := 0.0, k[(at(t, lo+j)*kvHeads+kv)*d:]
				for i, x := range q[(t*heads+h)*d:][:d] {
					sum += x * key[i]
				}
				scores[j] = float64(a.Scale) * sum
				if c := float64(a.SoftCap); c > 0 {
					scores[j] = c * math.Tanh(scores[j]/c)
				}
			}
			weights(scores)
			row := out[(t*heads+h)*dv:][:dv]
			for j, p := range scores {
				for i, x := range v[(at(t, lo+j)*kvHeads+kv)*dv:][:dv] {
					row[i] += p * x
				}
			}
		}
	}
	return out
}
