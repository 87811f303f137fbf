package op

import (
	"errors"
	"math"
	"math/bits"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
)

// ErrParam reports a parameter of an operation that is out of its range.
var ErrParam = errors.New("invalid parameter")

// Layout says which strides a role accepts.
type Layout uint8

const (
	// Free accepts any strides.
	Free Layout = iota
	// Rows accepts strides with which the elements or blocks of each row, which lies along
	// the last axis, are contiguous.
	Rows
	// Contiguous accepts row-major strides without gaps.
	Contiguous
)

var layoutTexts = [...]string{
	Free:       "of any layout",
	Rows:       "not contiguous along its last axis",
	Contiguous: "not contiguous",
}

// Role describes the operands that an operation accepts in one place.
type Role struct {
	Name    string
	Formats Formats
	Rank    int // 0 means any
	Layout  Layout
	// Optional says that the operand may be absent.
	Optional bool
	// Into says of an output that the operation writes a part of a tensor that exists. Infer
	// checks such an output instead of setting it.
	Into bool
	// Index says that the elements are indices, which are at least 0 and below ID.Limit.
	Index bool
	// Sparse says that the elements that the operation does not need may have any value.
	Sparse bool
}

// contract is the description of an operation without its kernels.
type contract struct {
	name string
	in   []Role
	out  []Role
	// infer checks the parameters, and the inputs against each other, and returns the shapes
	// of the outputs. The formats and ranks of the inputs were checked before. If the role of
	// an output accepts several dtypes, the caller has set the output's dtype. The result depends
	// on nothing but the parameters and the dtypes, shapes and strides of the operands.
	infer func(a *Args) (shapes, Refusal)
	// layout, if set, returns the layout that the operation accepts of an operand. It is for
	// operations where that depends on the other operands.
	layout func(a *Args, p Place) Layout
	// dtypes are the dtypes of the outputs. It is Invalid for an output whose role accepts
	// several.
	dtypes [MaxOut]dtype.DType
	// cost returns the cost of the operation; see Cost. If cost is nil, the cost is the number
	// of elements of the first output.
	cost func(a *Args) int64
	// limit returns one past the largest index that the operand at p may have. It is for
	// operations with an operand whose role says Index.
	limit func(a *Args, p Place) int
	// required is the number of inputs up to the last that is not optional.
	required int
}

// shapes are the shapes of an operation's outputs.
type shapes [MaxOut]shape.Shape

// only returns the shape of a single output, and no refusal.
func only(s shape.Shape) (shapes, Refusal) { return shapes{s}, Refusal{} }

var (
	floats = FormatsOf(dtype.F32)
	all    = FormatsThat(dtype.DType.Valid)
	// decodable are the formats of the table that rows are gathered from.
	decodable = FormatsThat(dtype.DType.SupportsToFloat)
	// weights are the formats of the weight of a product.
	weights = FormatsOf(dtype.F32, dtype.F16, dtype.BF16) | FormatsThat(dtype.DType.SupportsQuantizedMatMulRHS)
	// caches are the formats of the keys and values of attention.
	caches = FormatsOf(dtype.F32, dtype.F16, dtype.Q8_0)
	// ids are the formats of the row numbers of a table.
	ids = FormatsOf(dtype.I32, dtype.I64, dtype.U16)
	// rowNumbers is the format of positions, sequences, pages and places.
	rowNumbers = FormatsOf(dtype.I32)
)

func f32(name string, rank int, l Layout) Role {
	return Role{Name: name, Formats: floats, Rank: rank, Layout: l}
}

// index is the role of an operand of indices.
func index(name string, f Formats, rank int) Role {
	return Role{Name: name, Formats: f, Rank: rank, Layout: Contiguous, Index: true}
}

// optional returns the role r of an operand that may be absent.
func optional(r Role) Role {
	r.Optional = true
	return r
}

// output is the role of an f32 output.
var output = []Role{f32("output", 0, Rows)}

// pointwise is the contract of an operation on f32 operands of one shape.
func pointwise(name string, roles ...string) contract {
	c := contract{name: name, infer: inferPointwise, out: []Role{f32("output", 0, Free)}}
	for _, r := range roles {
		c.in = append(c.in, f32(r, 0, Free))
	}
	return c
}

var contracts = [Count]contract{
	Copy: {
		name: "copy", in: []Role{{Name: "source", Formats: all}}, out: []Role{{Name: "destination", Formats: all}},
		infer: inferCopy, layout: copyLayout,
	},
	GetRows: {
		name: "get_rows", in: []Role{{Name: "table", Formats: decodable, Rank: 2, Layout: Rows}, index("ids", ids, 1)}, out: output,
		infer: func(a *Args) (shapes, Refusal) {
			s := a.In[0].Shape
			s.Set(0, a.In[1].Shape.Dim(0))
			return only(s)
		},
		limit: func(a *Args, _ Place) int { return a.In[0].Shape.Dim(0) },
	},
	Add:    pointwise("add", "left", "right"),
	Sub:    pointwise("sub", "left", "right"),
	Mul:    pointwise("mul", "left", "right"),
	SwiGLU: pointwise("swiglu", "input", "gate"),
	GeGLU:  pointwise("geglu", "input", "gate"),
	Scale:  pointwise("scale", "input"),
	SoftCap: func() contract {
		c := pointwise("soft_cap", "input")
		c.infer = func(a *Args) (shapes, Refusal) {
			if r := positive(SoftCapParam, a.SoftCap); !r.OK() {
				return shapes{}, r
			}
			return inferSame(a)
		}
		return c
	}(),
	RMSNorm: {
		name: "rms_norm", in: []Role{f32("input", 0, Rows), f32("weight", 1, Free)}, out: output,
		infer: func(a *Args) (shapes, Refusal) {
			if r := goodEps(a); !r.OK() {
				return shapes{}, r
			}
			if r := sameSize(a, 1, 0, 0, -1); !r.OK() {
				return shapes{}, r
			}
			return inferSame(a)
		},
	},
	RoPE: {
		name: "rope", in: []Role{f32("input", 3, Rows), f32("table", 3, Contiguous)}, out: output,
		infer: inferRoPE,
	},
	MatMul: {
		name: "matmul", in: []Role{f32("input", 0, Rows), {Name: "weight", Formats: weights}}, out: output,
		infer: inferMatMul,
		layout: func(a *Args, p Place) Layout {
			if p == 1 {
				return weightLayout(a, p)
			}
			return Rows
		},
		cost: func(a *Args) int64 { return multiplyAdds(a, 1, a.In[0].Shape.Dim(-1)) },
	},
	Attention: {
		name: "attention",
		in: []Role{
			f32("query", 3, Rows),
			{Name: "key", Formats: caches, Layout: Rows}, {Name: "value", Formats: caches, Layout: Rows},
			index("positions", rowNumbers, 1), optional(index("sequences", rowNumbers, 1)),
			{Name: "table", Formats: rowNumbers, Rank: 2, Layout: Contiguous, Optional: true, Index: true, Sparse: true},
		},
		out:   output,
		infer: inferAttention,
		cost:  func(a *Args) int64 { return multiplyAdds(a, 2, attentionKeys(a)) },
		limit: func(a *Args, p Place) int {
			switch p {
			case 3:
				return attentionKeys(a)
			case 4:
				return a.In[5].Shape.Dim(0)
			}
			return a.In[1].Shape.Dim(0)
		},
	},
	Softmax: {name: "softmax", in: []Role{f32("input", 0, Rows)}, out: output, infer: inferSame},
	Argmax: {
		name: "argmax", in: []Role{f32("input", 0, Rows)}, out: []Role{{Name: "output", Formats: FormatsOf(dtype.I32)}},
		infer: func(a *Args) (shapes, Refusal) {
			s := a.In[0].Shape
			if n := s.Dim(-1); n > math.MaxInt32 {
				return shapes{}, Refusal{Why: TooLarge, Axis: int8(s.Rank() - 1), Other: NoPlace, Got: n, Want: math.MaxInt32}
			}
			return only(s.Without(s.Rank() - 1))
		},
	},
	SetRows: {
		name: "set_rows", in: []Role{f32("input", 2, Rows), index("places", rowNumbers, 1)},
		out: []Role{{Name: "destination", Formats: caches, Layout: Rows, Into: true}}, infer: inferSetRows,
		cost: func(a *Args) int64 { return elements(&a.In[0].Shape) },
		limit: func(a *Args, _ Place) int {
			s := a.Out[0].Shape
			return int(min(elements(&s)/int64(s.Dim(-1)), math.MaxInt))
		},
	},
	AddRMSNorm: {
		name: "add_rms_norm", in: []Role{f32("left", 0, Rows), f32("right", 0, Rows), f32("weight", 1, Free)},
		out: []Role{f32("sum", 0, Rows), f32("output", 0, Rows)}, infer: inferAddRMSNorm,
	},
	Project: {
		name: "project",
		in: []Role{
			f32("input", 0, Rows),
			{Name: "weight", Formats: weights, Rank: 2},
			{Name: "second weight", Formats: weights, Rank: 2, Optional: true},
			{Name: "third weight", Formats: weights, Rank: 2, Optional: true},
			optional(f32("bias", 1, Free)), optional(f32("second bias", 1, Free)), optional(f32("third bias", 1, Free)),
			optional(f32("residual", 0, Rows)),
		},
		out: output, infer: inferProject,
		layout: func(a *Args, p Place) Layout {
			switch {
			case p >= 1 && p <= 3:
				return weightLayout(a, p)
			case p >= 4 && p <= 6:
				return Free
			}
			return Rows
		},
		cost: func(a *Args) int64 { return multiplyAdds(a, 1, a.In[0].Shape.Dim(-1)) },
	},
	GatedProject: {
		name: "gated_project",
		in: []Role{
			f32("input", 0, Rows), {Name: "gate", Formats: weights, Rank: 2}, {Name: "weight", Formats: weights, Rank: 2},
			optional(f32("bias of the gate", 1, Free)), optional(f32("bias", 1, Free)),
		},
		out: output, infer: inferGatedProject,
		layout: func(a *Args, p Place) Layout {
			switch p {
			case 1, 2:
				return weightLayout(a, p)
			case 3, 4:
				return Free
			}
			return Rows
		},
		cost: func(a *Args) int64 { return multiplyAdds(a, 2, a.In[0].Shape.Dim(-1)) },
	},
	RotateStore: {
		name: "rotate_store",
		in: []Role{
			f32("query", 3, Rows), f32("key", 3, Rows), f32("value", 3, Rows), f32("table", 3, Contiguous),
			index("places", rowNumbers, 1),
			optional(f32("weight of the query", 1, Free)), optional(f32("weight of the key", 1, Free)),
		},
		out:   []Role{f32("output", 3, Rows), {Name: "cache", Formats: caches, Rank: 2, Layout: Rows, Into: true}},
		infer: inferRotateStore,
		cost: func(a *Args) int64 {
			return elements(&a.In[0].Shape) + elements(&a.In[1].Shape) + elements(&a.In[2].Shape)
		},
		limit: func(a *Args, _ Place) int {
			rows := a.PageRows()
			if n := a.Out[1].Shape.Dim(0); n <= math.MaxInt/rows {
				return n * rows
			}
			return math.MaxInt
		},
	},
}

func init() {
	for id := range contracts {
		c := &contracts[id]
		for i, r := range c.out {
			c.dtypes[i] = r.Formats.single()
		}
		for i, r := range c.in {
			if !r.Optional {
				c.required = i + 1
			}
		}
	}
}

var unknown = contract{name: "invalid op"}

func contractOf(id ID) *contract {
	if !id.Valid() {
		return &unknown
	}
	return &contracts[id]
}

// formats returns the set of dtypes that an operand may have.
func (c *contract) formats(p Place) Formats {
	switch {
	case p >= FirstOut && int(p-FirstOut) < len(c.out):
		return c.out[p-FirstOut].Formats
	case p >= 0 && int(p) < len(c.in):
		return c.in[p].Formats
	}
	return 0
}

// Valid reports whether id names an operation.
func (id ID) Valid() bool { return id > 0 && id < Count }

// Inputs returns the roles of the operation's inputs. The caller must not change them.
func (id ID) Inputs() []Role { return contractOf(id).in }

// Outputs returns the roles of the operation's outputs. The caller must not change them.
func (id ID) Outputs() []Role { return contractOf(id).out }

// Infer checks an operation's inputs and parameters, and sets the number of outputs and
// their dtypes, shapes and contiguous strides. It does not check the strides of the inputs,
// nor any memory; see [ID.Layout] and [Operand.Fits]. The caller sets the dtype of the
// output of Copy, and an output that the operation writes into. If Infer refuses, the outputs
// that it sets are undefined.
func Infer(id ID, a *Args) Refusal {
	if r := checkOperands(id, a); !r.OK() {
		return r
	}
	c := &contracts[id]
	want, r := c.infer(a)
	if !r.OK() {
		r.Op = id
		return r
	}
	a.NOut = len(c.out)
	for i := range a.NOut {
		o := &a.Out[i]
		if c.out[i].Into {
			if r := checkOut(id, a, i, &want[i]); !r.OK() {
				r.Op = id
				return r
			}
			continue
		}
		if d := c.dtypes[i]; d != dtype.Invalid {
			o.DType = d
		}
		o.Shape, o.Offset = want[i], 0
		if _, err := o.Shape.Bytes(o.DType); err != nil {
			r := sizes(o, FirstOut+Place(i))
			r.Op = id
			return r
		}
		if o.DType.IsScalar() {
			o.Strides = o.Shape.Contiguous()
			continue
		}
		st := o.Shape
		st.Set(st.Rank()-1, st.Dim(-1)/o.DType.BlockSize())
		o.Strides = st.Contiguous()
	}
	return Refusal{}
}

// Check checks an operation's inputs and parameters as Infer does, and outputs that exist.
// The outputs must have the dtypes and shapes that Infer sets, and no two elements of an
// output may share memory. Every operand must have valid strides, in the layout that its
// role accepts. Check does not check the memory, which a provider does; see [Operand.Fits]. It
// changes nothing, so goroutines may check the same arguments.
func Check(id ID, a *Args) Refusal {
	if r := checkOperands(id, a); !r.OK() {
		return r
	}
	c := &contracts[id]
	want, r := c.infer(a)
	if !r.OK() {
		r.Op = id
		return r
	}
	if a.NOut != len(c.out) {
		return Refusal{Op: id, Why: WrongCount, Place: NoPlace, Got: a.NOut, Want: len(c.out)}
	}
	for i := range a.NOut {
		if r := checkOut(id, a, i, &want[i]); !r.OK() {
			r.Op = id
			return r
		}
	}
	for i := range a.NIn {
		if a.In[i].IsZero() {
			continue
		}
		if _, ok := a.In[i].reach(); !ok {
			return Refusal{Op: id, Why: NoView, Place: Place(i)}
		}
		if l := id.Layout(a, Place(i)); !a.In[i].Has(l) {
			return Refusal{Op: id, Why: WrongLayout, Place: Place(i), Want: int(l)}
		}
	}
	return Refusal{}
}

// checkOut is the part of Check for output i, whose shape must be want.
func checkOut(id ID, a *Args, i int, want *shape.Shape) Refusal {
	p, o := FirstOut+Place(i), &a.Out[i]
	if !contracts[id].out[i].Formats.Has(o.DType) {
		return Refusal{Why: WrongFormat, Place: p, Got: int(o.DType)}
	}
	if r := sameShape(&o.Shape, want, p, NoPlace); !r.OK() {
		return r
	}
	if r := sizes(o, p); !r.OK() {
		return r
	}
	if _, ok := o.reach(); !ok {
		return Refusal{Why: NoView, Place: p}
	}
	if st, err := o.Shape.Storage(o.DType); err != nil || st.Overlaps(&o.Strides) {
		return Refusal{Why: Overlapping, Place: p}
	}
	if l := id.Layout(a, p); !o.Has(l) {
		return Refusal{Why: WrongLayout, Place: p, Want: int(l)}
	}
	return Refusal{}
}

// checkOperands checks the number of the inputs, and by itself each input and each output that
// the operation writes into.
func checkOperands(id ID, a *Args) Refusal {
	if !id.Valid() {
		return Refusal{Op: id, Why: UnknownOp, Place: NoPlace}
	}
	c := &contracts[id]
	if n := min(max(a.NIn, c.required), len(c.in)); a.NIn != n {
		return Refusal{Op: id, Why: WrongCount, Place: NoPlace, Got: a.NIn, Want: n}
	}
	for i := range a.NIn {
		if c.in[i].Optional && a.In[i].IsZero() {
			continue
		}
		if r := checkRole(&c.in[i], &a.In[i], Place(i)); !r.OK() {
			r.Op = id
			return r
		}
	}
	for i := range c.out {
		if !c.out[i].Into {
			continue
		}
		if r := checkRole(&c.out[i], &a.Out[i], FirstOut+Place(i)); !r.OK() {
			r.Op = id
			return r
		}
	}
	return Refusal{}
}

// checkRole refuses the operand at p unless it has a format and a rank of its role, and a shape
// that a tensor can have.
func checkRole(role *Role, o *Operand, p Place) Refusal {
	if !role.Formats.Has(o.DType) {
		return Refusal{Why: WrongFormat, Place: p, Got: int(o.DType)}
	}
	if n := o.Shape.Rank(); n == 0 || role.Rank != 0 && n != role.Rank {
		return Refusal{Why: WrongRank, Place: p, Got: n, Want: max(role.Rank, 1)}
	}
	if _, err := o.Shape.Bytes(o.DType); err != nil {
		return sizes(o, p)
	}
	return Refusal{}
}

// Layout returns the layout that the operation accepts of the operand at p, given the other
// operands.
func (id ID) Layout(a *Args, p Place) Layout {
	c := contractOf(id)
	switch {
	case c.layout != nil:
		return c.layout(a, p)
	case p >= FirstOut:
		return c.out[p-FirstOut].Layout
	}
	return c.in[p].Layout
}

// Limit returns one past the largest index that the operand at p may have. The role of the
// operand says Index, and Infer or Check has accepted the operands.
func (id ID) Limit(a *Args, p Place) int { return contractOf(id).limit(a, p) }

// Cost returns the cost of an operation, from which the runtime decides whether to move its
// operands to a device: the multiply-adds of products and of Attention, the elements that
// SetRows and RotateStore read, and the elements of the output of the others.
func Cost(id ID, a *Args) int64 {
	if c := contractOf(id); c.cost != nil {
		return c.cost(a)
	}
	return elements(&a.Out[0].Shape)
}

// multiplyAdds returns the cost of an operation that computes each element of its output from
// the given number of sums of n products.
func multiplyAdds(a *Args, sums, n int) int64 {
	return times(times(elements(&a.Out[0].Shape), n), sums)
}

// elements returns the number of elements of a tensor.
func elements(s *shape.Shape) int64 {
	n := int64(1)
	for _, d := range s.Slice() {
		n = times(n, d)
	}
	return n
}

// times returns the product of two numbers that are at least 0. It is math.MaxInt64 if the
// product overflows, as it may for views that repeat elements.
func times(n int64, d int) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(d))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// sizes refuses the operand o at p if no tensor can have its shape: if an axis is empty, a
// row is not a whole number of blocks, or the size in bytes overflows an int. The caller has
// checked that o's dtype is valid and that o has an axis.
func sizes(o *Operand, p Place) Refusal {
	last := o.Shape.Rank() - 1
	bytes := o.DType.Size()
	for i, d := range o.Shape.Slice() {
		if d < 1 {
			return Refusal{Why: TooSmall, Place: p, Axis: int8(i), Other: NoPlace, Got: d, Want: 1}
		}
		if bs := o.DType.BlockSize(); i == last && bs > 1 {
			if d%bs != 0 {
				return Refusal{Why: NotMultiple, Place: p, Axis: int8(i), Other: NoPlace, Got: d, Want: bs}
			}
			d /= bs
		}
		var err error
		if bytes, err = shape.Mul(bytes, d); err != nil {
			return Refusal{Why: Overflow, Place: p}
		}
	}
	return Refusal{}
}

// sameShape refuses the operand at p, whose shape is s, unless s is want. want is the shape
// of the operand at other, or of the operation's result if other is NoPlace.
func sameShape(s, want *shape.Shape, p, other Place) Refusal {
	if s.Rank() != want.Rank() {
		return Refusal{Why: WrongRank, Place: p, Got: s.Rank(), Want: want.Rank()}
	}
	for i, d := range s.Slice() {
		if w := want.Dim(i); d != w {
			return Refusal{Why: WrongSize, Place: p, Axis: int8(i), Other: other, OtherAxis: int8(i), Got: d, Want: w}
		}
	}
	return Refusal{}
}

// sameSize refuses input i unless its axis has the size of the axis other of input j. A
// negative axis counts from the end.
func sameSize(a *Args, i, axis, j, other int) Refusal {
	s, o := &a.In[i].Shape, &a.In[j].Shape
	if s.Dim(axis) == o.Dim(other) {
		return Refusal{}
	}
	return Refusal{
		Why: WrongSize, Place: Place(i), Axis: axisOf(s, axis), Other: Place(j), OtherAxis: axisOf(o, other),
		Got: s.Dim(axis), Want: o.Dim(other),
	}
}

// axisOf returns the index of axis i of s. A negative i counts from the end.
func axisOf(s *shape.Shape, i int) int8 {
	if i < 0 {
		i += s.Rank()
	}
	return int8(i)
}

// inferSame returns the shape of the first input.
func inferSame(a *Args) (shapes, Refusal) { return only(a.In[0].Shape) }

// inferPointwise is inferSame for inputs that all have one shape.
func inferPointwise(a *Args) (shapes, Refusal) {
	for i := 1; i < a.NIn; i++ {
		if a.In[i].Shape != a.In[0].Shape {
			return shapes{}, sameShape(&a.In[i].Shape, &a.In[0].Shape, Place(i), 0)
		}
	}
	return inferSame(a)
}

func inferCopy(a *Args) (shapes, Refusal) {
	from, to := a.In[0].DType, a.Out[0].DType
	switch {
	case !to.Valid():
	case from == to, from.IsScalar() && to.IsScalar(),
		to == dtype.F32 && from.SupportsToFloat(), from == dtype.F32 && to == dtype.Q8_0:
		return inferSame(a)
	}
	return shapes{}, Refusal{Why: NoConversion, Got: int(from), Want: int(to)}
}

// copyLayout returns the layout of an operand of Copy. A copy of blocks is a copy of their
// bytes, and an encoder reads and writes whole rows.
func copyLayout(a *Args, p Place) Layout {
	from, to := a.In[0].DType, a.Out[0].DType
	switch {
	case from.IsScalar() && to.IsScalar():
		return Free
	case from == to:
		return Contiguous
	case to == dtype.Q8_0:
		return Rows
	}
	return Free
}

func inferRoPE(a *Args) (shapes, Refusal) {
	if r := goodAngles(a, 1); !r.OK() {
		return shapes{}, r
	}
	return inferSame(a)
}

// goodAngles checks the mode of a rotation and the table of angles at p for the input 0.
func goodAngles(a *Args, p Place) Refusal {
	if a.Mode > RoPENeoX {
		return Refusal{Why: WrongParam, Param: ModeParam, Value: float64(a.Mode)}
	}
	if r := sameSize(a, int(p), 0, 0, 0); !r.OK() {
		return r
	}
	table := &a.In[p].Shape
	if n := table.Dim(2); n != 2 {
		return Refusal{Why: WrongSize, Place: p, Axis: 2, Other: NoPlace, Got: n, Want: 2}
	}
	if n, most := table.Dim(1), a.In[0].Shape.Dim(2)/2; n > most {
		return Refusal{Why: TooLarge, Place: p, Axis: 1, Other: NoPlace, Got: n, Want: most}
	}
	return Refusal{}
}

// goodEps checks the parameter Eps.
func goodEps(a *Args) Refusal {
	if eps := float64(a.Eps); !(eps >= 0) || math.IsInf(eps, 1) {
		return Refusal{Why: WrongParam, Param: EpsParam, Value: eps}
	}
	return Refusal{}
}

// weightLayout returns the layout of the weight of a product at p.
func weightLayout(a *Args, p Place) Layout {
	if a.In[p].DType.IsScalar() {
		return Free
	}
	return Rows
}

func inferMatMul(a *Args) (shapes, Refusal) {
	x, w := &a.In[0].Shape, &a.In[1].Shape
	batched := w.Rank() == 3
	if w.Rank() != 2 && !batched {
		return shapes{}, Refusal{Why: WrongRank, Place: 1, Got: w.Rank(), Want: min(max(2, w.Rank()), 3)} // the nearest
	}
	if batched {
		if x.Rank() != 3 {
			return shapes{}, Refusal{Why: WrongRank, Place: 0, Got: x.Rank(), Want: 3}
		}
		if r := sameSize(a, 1, 0, 0, 0); !r.OK() {
			return shapes{}, r
		}
	}
	if r := first(sameSize(a, 1, -1, 0, -1), goodChunks(a, 1)); !r.OK() {
		return shapes{}, r
	}
	s := *x
	s.Set(s.Rank()-1, w.Dim(-2))
	return only(s)
}

// Param names a parameter of an operation in a refusal.
type Param uint8

const (
	EpsParam Param = iota
	SoftCapParam
	WindowParam
	ModeParam
	ScaleParam
	ActParam
	ChunksParam
)

// params has the name of each parameter, and the values that it may have.
var params = [...]struct{ name, want string }{
	EpsParam:     {"eps", "a finite number of at least 0"},
	SoftCapParam: {"soft cap", "a finite positive number"},
	WindowParam:  {"window", "at least 0"},
	ModeParam:    {"rotation mode", "RoPEInterleaved or RoPENeoX"},
	ScaleParam:   {"scale", "a finite number"},
	ActParam:     {"activation", "SiLU or GELU"},
	ChunksParam:  {"number of chunks", "1, 2, 4 or 8, so that the rows of the weight fall into equal chunks of whole blocks"},
}

// positive refuses the value v of a parameter unless it is positive and finite.
func positive(p Param, v float32) Refusal {
	if x := float64(v); !(x > 0) || math.IsInf(x, 1) {
		return Refusal{Why: WrongParam, Param: p, Value: x}
	}
	return Refusal{}
}
