package tagged

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/exec"
	"github.com/fucina-go/fucina/tags"
)

// Op names an operation on tensors with named axes.
type Op uint8

// The operations. The comment of each names its operands and attributes.
const (
	// Add, Sub, Mul, SwiGLU and GeGLU combine In[0] and In[1], aligned by name: the result has
	// the axes of the first, then those that only the second has. An axis that one operand
	// lacks, or has with size 1, repeats.
	Add Op = iota + 1
	Sub
	Mul
	SwiGLU
	GeGLU
	// Scale and SoftCap take In[0] and Params.
	Scale
	SoftCap
	// RMSNorm takes In[0] and the weight In[1] {Axis}, and Params.Eps.
	RMSNorm
	// AddRMSNorm takes In[0] and In[1], which have the same axes, and the weight In[2] {Axis},
	// and Params.Eps. The results are the sum and its norm.
	AddRMSNorm
	// Softmax and Argmax take In[0] along Axis.
	Softmax
	Argmax
	// Dot sums the products of In[0] and In[1] along the axes Axes. The result has the
	// axes that both share, then those of In[0] alone, then those of In[1] alone.
	Dot
	// Gather takes the entries of In[0] along Axis that the ids In[1] number. The result has
	// the axes of In[1], then those of In[0] without Axis.
	Gather
	// RoPE rotates pairs of elements of In[0] along Axis2 by the angles in In[1] {Axis
	// PairAxis CosSinAxis}. Axis is that of the positions.
	RoPE
	// Project multiplies In[0] by the matrices In[1] to In[3] {any Axis}, with the biases In[4]
	// to In[6] {any}, and adds In[7]. The result has the axes of In[0] without Axis, then
	// Axis2, along which the columns of all matrices lie. All but the first matrix and In[0]
	// are optional.
	Project
	// GatedProject multiplies In[0] by the gate In[1] and by In[2] {any Axis}, with the biases
	// In[3] and In[4], which are optional. The result has the axes of that of Project.
	GatedProject
	// Attention is causal attention of In[0] {Query Head Dim} over In[1] and In[2]
	// {Key KVHead Dim}. In[3] are the positions {Query}; if absent, they are Start and the
	// following ones. With In[4] {Query} and In[5] {Sequence Slot}, In[1] and In[2] are
	// {Page Key KVHead Dim}. The Axes are those of the constants QueryAxis to SlotAxis. In the
	// result, Axis2 replaces Head and Dim, if it is not "".
	Attention
	// RotateStore rotates the queries In[0] {Query Head Dim} and the keys In[1] {Query KVHead
	// Dim} by the angles In[3] {Query PairAxis CosSinAxis}, and writes the keys and the values
	// In[2] to the places In[4] {Query} of the cache In[7] {Page any}. In[5] and In[6] {Dim}
	// are optional weights of norms. The result is the rotated queries.
	RotateStore
	// RotateStorePacked is RotateStore without In[1] and In[2]. In[0] is {Query Axis}, and has
	// the elements of all queries, then of all keys, then of all values along Axis. The Axes
	// have the numbers of the heads, and the size of a query and of a key.
	RotateStorePacked
	// To copies In[0] to a contiguous tensor of dtype Params.To, Copy to one of the same
	// dtype.
	To
	Copy
	// Contiguous is a view of all of In[0] if that is contiguous, and Copy otherwise.
	Contiguous
	// CopyFrom writes In[1] into In[0], and returns In[0].
	CopyFrom
	// SetRows writes In[0] to the places In[1] of In[2] along Axes, of which there are one or
	// two, and returns In[2]. In[0] has the axes of In[1], and those of In[2] without Axes.
	SetRows

	// Views of In[0], which copy nothing.

	// Ref is In[0] with another reference.
	Ref
	// Narrow takes Count entries of Axis from Start on. If there are Axes, it divides these
	// entries into Axes.
	Narrow
	// Rename changes the name of Axis to Axis2.
	Rename
	// Permute puts the axes in the order of Axes.
	Permute
	// Bitcast reads the elements as those of dtype Params.To, which has the same size.
	Bitcast
	// BroadcastTo repeats In[0] to Axes.
	BroadcastTo
	// Split divides Axis into Axes.
	Split
	// Merge merges Axes, which are neighbours, into Axis.
	Merge

	// OpCount is one past the last operation.
	OpCount
)

// entry describes an operation.
type entry struct {
	name  string
	id    op.ID // the operation that it runs, or 0 for a view
	roles [MaxIn]string
	// optional has a bit for each operand that may be absent although id requires it.
	optional uint8
	// run sets c.out, and c.second if there are two results. If it fails, it leaves no
	// references in them.
	run func(c *Call, q *exec.Queue) error
}

// table has a row for each operation. If a row has no name, or no role for an operand, those
// of id are used.
var table = [OpCount]entry{
	Add:     {id: op.Add, run: pointwise},
	Sub:     {id: op.Sub, run: pointwise},
	Mul:     {id: op.Mul, run: pointwise},
	SwiGLU:  {id: op.SwiGLU, run: pointwise},
	GeGLU:   {id: op.GeGLU, run: pointwise},
	Scale:   {id: op.Scale, run: pointwise},
	SoftCap: {id: op.SoftCap, run: pointwise},

	RMSNorm:    {id: op.RMSNorm, run: rmsNorm},
	AddRMSNorm: {id: op.AddRMSNorm, run: addRMSNorm},
	Softmax:    {id: op.Softmax, run: alongAxis},
	Argmax:     {id: op.Argmax, run: alongAxis},
	Dot:        {id: op.MatMul, name: "dot", roles: [MaxIn]string{"left", "right"}, run: dot},
	Gather:     {id: op.GetRows, name: "gather", run: gather},
	RoPE:       {id: op.RoPE, run: rope},
	Attention:  {id: op.Attention, optional: 1 << positionsAt, run: attention},
	To:         {id: op.Copy, name: "to", run: copied},
	Copy:       {id: op.Copy, run: copied},
	Contiguous: {id: op.Copy, name: "contiguous", run: contiguous},
	CopyFrom:   {id: op.Copy, name: "copy from", roles: [MaxIn]string{"destination", "source"}, run: copyFrom},
	SetRows:    {id: op.SetRows, roles: [MaxIn]string{2: "destination"}, run: setRows},

	Project:      {id: op.Project, run: project},
	GatedProject: {id: op.GatedProject, run: gatedProject},
	RotateStore:  {id: op.RotateStore, roles: [MaxIn]string{cacheAt: "cache"}, run: rotateStore},
	RotateStorePacked: {
		id: op.RotateStore, name: "rotate_store packed", optional: 1<<1 | 1<<2, run: rotateStore,
		roles: [MaxIn]string{0: "input", cacheAt: "cache"},
	},

	Ref:         {name: "ref", run: func(c *Call, _ *exec.Queue) error { c.out = c.in[0].ref(); return nil }},
	Narrow:      {name: "narrow", run: narrow},
	Rename:      {name: "rename", run: rename},
	Permute:     {name: "permute", run: permute},
	Bitcast:     {name: "bitcast", run: bitcast},
	BroadcastTo: {name: "broadcast", run: broadcastTo},
	Split:       {name: "split", run: split},
	Merge:       {name: "merge", run: merge},
}

// String returns the operation's name, such as "rms_norm".
func (o Op) String() string {
	if o == 0 || o >= OpCount {
		return "invalid op"
	}
	if e := &table[o]; e.name != "" {
		return e.name
	}
	return table[o].id.String()
}

// View reports whether the operation's result is a view of its operand.
func (o Op) View() bool { return o >= Ref && o < OpCount }

// Optional reports whether operand i may be absent.
func (o Op) Optional(i int) bool {
	in := table[o].id.Inputs()
	return i < len(in) && in[i].Optional || table[o].optional>>i&1 != 0
}

// MaxIn is the largest number of operands.
const MaxIn = op.MaxIn

// maxAxes is the largest number of axes that a Call holds. It is one more than a tensor can
// have, so that Run notices if there are too many.
const maxAxes = shape.MaxRank + 1

// Call is an operation with its operands and attributes. A Call is large and is meant to be
// reused; Reset begins the next call.
type Call struct {
	Op           Op
	NIn          int
	Params       op.Params
	Axis, Axis2  string
	Start, Count int

	id    op.ID                    // the positional operation
	in    [MaxIn]*Tensor           // nil for an operand that is absent
	taken [MaxIn]Tensor            // the operands that Take added
	views [MaxIn]Tensor            // what replaces operands during Run; see working
	raw   [op.MaxIn]*tensor.Tensor // the list of raws
	axes  [maxAxes]Axis
	nAxes int

	out, second Tensor
	// arranged are the names of the axes of the positional operation's operands by place,
	// after it has failed.
	arranged [op.MaxIn + op.MaxOut]tags.List
}

// Reset makes c a call of o without operands and attributes.
func (c *Call) Reset(o Op) {
	clear(c.in[:c.NIn])
	clear(c.axes[:min(c.nAxes, maxAxes)])
	c.Op, c.NIn, c.nAxes = o, 0, 0
	c.Params = op.Params{}
	c.Axis, c.Axis2, c.Start, c.Count = "", "", 0, 0
}

// Drop releases the operands that Take added, and makes c a call of no operation.
func (c *Call) Drop() {
	for i := range c.NIn {
		if t := &c.taken[i]; c.in[i] == t {
			t.Release()
			t.Names = tags.List{}
		}
	}
	c.Reset(0)
}

// Lend adds the operand t, whose reference the caller keeps. The caller does not change or
// release t before the last call of Run, In or Explain. The call does not change t.
func (c *Call) Lend(t *Tensor) {
	c.in[c.NIn] = t
	c.NIn++
}

// Next returns where the caller may put a tensor for Take.
func (c *Call) Next() *Tensor { return &c.taken[c.NIn] }

// Take adds the operand that the caller has put at Next, and takes its reference.
func (c *Call) Take() { c.Lend(c.Next()) }

// Skip says that the next operand, which is optional, is absent.
func (c *Call) Skip() { c.Lend(nil) }

// Has reports whether operand i is present.
func (c *Call) Has(i int) bool { return i < c.NIn && c.in[i] != nil }

// In returns operand i, which is nil if it is absent.
func (c *Call) In(i int) *Tensor { return c.in[i] }

// Out and Second return the results of a call that has run. Second is the zero Tensor if the
// operation has one result. The caller takes the references, and the next Run overwrites the
// tensors.
func (c *Call) Out() *Tensor    { return &c.out }
func (c *Call) Second() *Tensor { return &c.second }

// SetAxes sets the attribute Axes.
func (c *Call) SetAxes(axes []Axis) {
	c.nAxes = len(axes)
	for i := range min(c.nAxes, maxAxes) {
		c.axes[i] = axes[i]
	}
}

// SetNames is SetAxes for axes whose sizes do not matter.
func (c *Call) SetNames(names []string) {
	c.nAxes = len(names)
	for i := range min(c.nAxes, maxAxes) {
		c.axes[i] = Axis{Name: names[i]}
	}
}

// AddName adds to the attribute Axes an axis whose size does not matter.
func (c *Call) AddName(name string) {
	if c.nAxes < maxAxes {
		c.axes[c.nAxes] = Axis{Name: name}
	}
	c.nAxes++
}

// Axes returns the attribute Axes. If there were more than maxAxes, the call has the first ones.
func (c *Call) Axes() []Axis { return c.axes[:min(c.nAxes, maxAxes)] }

// Run runs the call on the queue. Its results are Out and Second.
func (c *Call) Run(q *exec.Queue) error {
	e := &table[c.Op]
	c.id = e.id
	c.out.Raw, c.second.Raw = tensor.Tensor{}, tensor.Tensor{}
	if err := e.run(c, q); err != nil {
		return c.Explain(err)
	}
	return nil
}

// Error is the failure of an operation. Its text names the operation, its operands and what
// was expected.
type Error struct {
	text string
	kind error
}

func (e *Error) Error() string { return e.text }
func (e *Error) Unwrap() error { return e.kind }

// reason is why an operation failed, without the operation and its operands.
type reason struct {
	text string
	kind error
}

func (r *reason) Error() string { return r.text }
func (r *reason) Unwrap() error { return r.kind }

// because returns the reason for a failure.
func because(kind error, format string, args ...any) error {
	return &reason{fmt.Sprintf(format, args...), kind}
}

func noAxis(name string) error { return because(tags.ErrTag, "no axis %q", name) }

// twoSizes is the reason for an axis that has the sizes d and e in two operands.
func twoSizes(name string, d, e int) error {
	return because(shape.ErrShapeMismatch, "axis %q is %d and %d", name, d, e)
}

// Explain returns an Error for err, the reason of a failure. Its text names the operation and
// its operands before the reason.
func (c *Call) Explain(err error) error {
	text := err.Error()
	var refused *exec.RefusalError
	if errors.As(err, &refused) {
		text = refused.Text(namer{c})
		if refused.Why == op.WrongFormat && strings.HasSuffix(text, "f32") {
			text += "; convert with To"
		}
	} else if failed, ok := err.(*exec.OpError); ok && failed.Op == c.id {
		text = failed.Err.Error()
	}
	var b strings.Builder
	b.WriteString(c.Op.String())
	switch {
	case c.Op == Merge:
		fmt.Fprintf(&b, " into %q", c.Axis)
	case c.Op == Rename:
		fmt.Fprintf(&b, " %q to %q", c.Axis, c.Axis2)
	case c.Op == Dot:
		for i, a := range c.Axes() {
			sep := ", "
			if i == 0 {
				sep = " over "
			}
			fmt.Fprintf(&b, "%s%q", sep, a.Name)
		}
	case c.Axis != "":
		fmt.Fprintf(&b, " over %q", c.Axis)
	}
	if c.NIn == 1 {
		fmt.Fprintf(&b, " of %s %s: %s", c.in[0].Raw.DType(), c.in[0].Describe(), text)
		return &Error{b.String(), err}
	}
	sep := ": "
	for i := range c.NIn {
		if c.Has(i) {
			fmt.Fprintf(&b, "%s%s %s", sep, c.Role(i), c.in[i].Describe())
			sep = ", "
		}
	}
	b.WriteString(": ")
	b.WriteString(text)
	return &Error{b.String(), err}
}

// Role returns the name of operand i's role, such as "weight".
func (c *Call) Role(i int) string {
	e := &table[c.Op]
	if e.roles[i] != "" {
		return e.roles[i]
	}
	return e.id.Role(op.Place(i))
}

// role returns the name of the role of input i of the positional operation. The functions of
// the table use it, because Role refers to the table.
func (c *Call) role(i int) string { return c.id.Role(op.Place(i)) }

// namer names the operands and axes of a call in the text of a refusal.
type namer struct{ c *Call }

// Role names an operand's role.
func (n namer) Role(p op.Place) string {
	if p >= 0 && int(p) < n.c.NIn {
		return n.c.Role(int(p))
	}
	return n.c.id.Role(p)
}

// Axis names axis i of an operand of the positional operation. It numbers an axis that has no
// name.
func (n namer) Axis(p op.Place, i int) string {
	if p >= 0 && int(p) < len(n.c.arranged) {
		if names := &n.c.arranged[p]; i < names.Len() {
			return fmt.Sprintf("axis %q", names.At(i))
		}
	}
	return n.c.id.Axis(p, i)
}

// do runs the positional operation on in, and sets the result, which gets the given names. A nil
// operand is absent.
func (c *Call) do(q *exec.Queue, names *tags.List, in ...*Tensor) error {
	err := q.DoTo(c.id, &c.Params, exec.Results{&c.out.Raw}, nil, c.raws(in)...)
	if err != nil {
		c.arrange(nil, in)
		return err
	}
	c.out.Names = *names
	return nil
}

// doInto runs the positional operation on in, and writes its last output to out. If there is
// another output, doInto sets the result to it, without names.
func (c *Call) doInto(q *exec.Queue, out *Tensor, in ...*Tensor) error {
	var r exec.Results
	if len(c.id.Outputs()) > 1 {
		r[0] = &c.out.Raw
	}
	err := q.DoTo(c.id, &c.Params, r, &out.Raw, c.raws(in)...)
	if err != nil {
		c.arrange(out, in)
	}
	return err
}

// doBoth runs the positional operation on in, and sets both results, without names.
func (c *Call) doBoth(q *exec.Queue, in ...*Tensor) error {
	err := q.DoTo(c.id, &c.Params, exec.Results{&c.out.Raw, &c.second.Raw}, nil, c.raws(in)...)
	if err != nil {
		c.arrange(nil, in)
	}
	return err
}

// raws returns the tensors of in without names. The slice is valid until the next call.
func (c *Call) raws(in []*Tensor) []*tensor.Tensor {
	for i, t := range in {
		if c.raw[i] = nil; t != nil {
			c.raw[i] = &t.Raw
		}
	}
	return c.raw[:len(in)]
}

// arrange keeps the names of the axes of the positional operation's operands. out is the last
// output, or nil.
func (c *Call) arrange(out *Tensor, in []*Tensor) {
	clear(c.arranged[:])
	for i, t := range in {
		if t != nil {
			c.arranged[i] = t.Names
		}
	}
	if out != nil {
		c.arranged[int(op.FirstOut)+len(c.id.Outputs())-1] = out.Names
	}
}

// work returns operand i as a working operand. The caller calls done.
func (c *Call) work(i int) working { return working{c.in[i], &c.views[i]} }

// works are the working operands of a call by place.
type works [MaxIn]working

// works sets w to the operands. The caller calls done.
func (c *Call) works(w *works) {
	for i := range c.NIn {
		w[i] = c.work(i)
	}
}

// done is done of each operand.
func (w *works) done() {
	for i := range w {
		w[i].done()
	}
}

// list returns the operands by place, and nil for those that are absent.
func (w *works) list() (list [MaxIn]*Tensor) {
	for i := range w {
		list[i] = w[i].Tensor
	}
	return list
}

// index returns the index of the first operand's axis with the given name.
func (c *Call) index(name string) (int, error) {
	if i := c.in[0].Names.Index(name); i >= 0 {
		return i, nil
	}
	return 0, noAxis(name)
}
