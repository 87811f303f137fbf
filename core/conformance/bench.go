package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/conformance/reference"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/offheap"
)

// patience is the time after which a wait fails, because the provider seems to hang.
const patience = time.Minute

// maxWorkspace is the largest workspace that Plan may ask for in the cases of the suite, whose
// operands are small.
const maxWorkspace = 1 << 30

// guard is the number of bytes before and after each operand that must not be written. It
// is a multiple of the alignment of an operand's memory.
const guard = 256

// declineError says that the provider declined an operation of the case.
type declineError struct {
	id     op.ID
	reason string
}

func (e declineError) Error() string { return fmt.Sprintf("%s declined: %s", e.id, e.reason) }

// bench is a provider with a queue and the means to place operands in its memory.
type bench struct {
	provider.Provider
	dev    provider.Device // nil if the provider computes in host memory
	q      provider.Queue
	exact  bool          // op.Args.Exact of the operations
	status offheap.Block // of words
	words  []atomic.Uint64
}

// newBench opens a provider and a queue.
func newBench(open Open) (*bench, error) {
	p, err := open()
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errors.New("open returns neither a provider nor an error")
	}
	b := &bench{Provider: p}
	info := p.Info()
	b.dev, _ = p.(provider.Device)
	if info.Name == "" || info.HostMemory == (b.dev != nil) {
		return nil, errors.Join(fmt.Errorf("provider %q with host memory %t, and a Device %t", info.Name, info.HostMemory, b.dev != nil), p.Close())
	}
	if b.q, err = b.NewQueue(provider.Compute); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	// As in the runtime, a device writes to status words outside the Go heap.
	if b.status, err = offheap.Alloc(8); err == nil {
		b.words, err = storage.Elements[atomic.Uint64](b.status.Bytes())
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// errPanic is the sentinel of a panic.
var errPanic = errors.New("panic")

// guarded returns f's error, or a panic of f as an error with the stack.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", errPanic, v, debug.Stack())
		}
	}()
	return f()
}

// NewQueue is the provider's NewQueue, with an error for a queue without a timeline.
func (b *bench) NewQueue(kind provider.QueueKind) (provider.Queue, error) {
	q, err := b.Provider.NewQueue(kind)
	if err == nil && (q == nil || q.Timeline() == nil) {
		return nil, errors.New("NewQueue returns neither an error nor a queue with a timeline")
	}
	return q, err
}

// Submit is the provider's Submit, with an error if it changes the arguments.
func (b *bench) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	given := *a
	w, err := b.Provider.Submit(ctx, q, id, &given)
	if altered(&given, a) {
		err = errors.Join(err, errors.New("the provider's Submit changes its arguments"))
	}
	return w, err
}

// altered reports whether a call has changed its arguments. Arguments with a NaN, which
// differ from themselves, count as unchanged.
func altered(after, before *op.Args) bool {
	return !reflect.DeepEqual(after, before) && reflect.DeepEqual(*before, *before)
}

// close closes the queue and the provider, and returns an error if they still hold memory.
func (b *bench) close() error {
	var err error
	if !b.q.Timeline().Ended() {
		err = b.CloseQueue(b.q)
	}
	err = errors.Join(err, b.Provider.Close())
	if err == nil { // after an error, a device may still write to the words
		offheap.Free(&b.status)
	}
	if st := b.Stats(); err == nil && (st.LiveQueues != 0 || st.LiveBlocks != 0 || st.LiveBytes != 0) {
		err = fmt.Errorf("after Close, %d queues and %d blocks of %d bytes are live", st.LiveQueues, st.LiveBlocks, st.LiveBytes)
	}
	return err
}

// wait waits for a work.
func wait(w accel.Work) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.Wait(ctx)
}

// area is memory of the provider with guards around the operand's range.
type area struct {
	b      *bench
	whole  op.Mem
	before []byte // the contents that place wrote
}

// place copies p, with guards around it, into memory of the provider. The queue q transfers
// it.
func (b *bench) place(q provider.Queue, p []byte) (*area, error) {
	ar := &area{b: b, before: reference.Aligned(len(p) + 2*guard)}
	copy(ar.before[guard:], p)
	if b.dev == nil {
		host := reference.Aligned(len(ar.before))
		copy(host, ar.before)
		ar.whole = op.Mem{Host: host, Len: len(host)}
		return ar, nil
	}
	var err error
	if ar.whole, err = b.dev.Alloc(len(ar.before)); err != nil {
		return nil, err
	}
	if n := len(ar.before); ar.whole.Len != n || ar.whole.ID == 0 {
		return nil, fmt.Errorf("the device's Alloc of %d bytes returns %d bytes of allocation %d", n, ar.whole.Len, ar.whole.ID)
	}
	w, err := b.dev.Upload(context.Background(), q, ar.whole, ar.before)
	if err == nil {
		err = wait(w)
	}
	if err != nil {
		ar.free()
		return nil, err
	}
	return ar, nil
}

// mem returns the operand's range.
func (ar *area) mem() op.Mem { return ar.whole.Slice(guard, ar.whole.Len-2*guard) }

// read returns the contents of the memory, including the guards, after the work of the queue
// so far.
func (ar *area) read(q provider.Queue) ([]byte, error) {
	if ar.b.dev == nil {
		return bytes.Clone(ar.whole.Host), nil
	}
	p := reference.Aligned(ar.whole.Len)
	w, err := ar.b.dev.Download(context.Background(), q, p, ar.whole)
	if err == nil {
		err = wait(w)
	}
	return p, err
}

// free gives the memory back.
func (ar *area) free() {
	if ar != nil && ar.b.dev != nil {
		ar.b.dev.Free(ar.whole)
	}
}

// placed is an operation whose operands are in memory of the provider.
type placed struct {
	b     *bench
	q     provider.Queue
	id    op.ID
	host  *op.Args // the original arguments, in host memory
	args  op.Args
	areas [op.MaxIn + op.MaxOut + 1]*area // for the inputs, the outputs and the workspace
}

const (
	outArea  = op.MaxIn // of the first output
	workArea = op.MaxIn + op.MaxOut
)

// memories are the memories of an operation's outputs, nil where there is none.
type memories [op.MaxOut][]byte

// equal reports whether two memories have the same bits.
func (m *memories) equal(o *memories) bool { return bytes.Equal(m[0], o[0]) && bytes.Equal(m[1], o[1]) }

// prepare calls Plan and places the operands in the provider's memory. If Plan declines the
// operation, the error is a declineError. The caller frees the result.
//
// prepare sets a.Exact to the mode of the bench.
func (b *bench) prepare(q provider.Queue, id op.ID, a *op.Args) (*placed, error) {
	if a.Exact != b.exact { // arguments that several goroutines use have the mode already
		a.Exact = b.exact
	}
	if r := op.Check(id, a); !r.OK() {
		return nil, fmt.Errorf("the suite's arguments do not fit: %s", r.Text(id))
	}
	c := &placed{b: b, q: q, id: id, host: a, args: *a}
	for i := range a.NIn {
		c.args.In[i].Mem = op.Mem{}
	}
	for i := range a.NOut {
		c.args.Out[i].Mem = op.Mem{}
	}
	given := c.args
	plan := b.Plan(id, &given)
	if altered(&given, &c.args) {
		return nil, errors.New("the provider's Plan changes its arguments")
	}
	if plan.Supported && (plan.Workspace < 0 || plan.Workspace > maxWorkspace) {
		return nil, fmt.Errorf("the provider's Plan asks for a workspace of %d bytes, want 0 to %d", plan.Workspace, maxWorkspace)
	}
	var err error
	put := func(i int, p []byte, m *op.Mem) {
		if err == nil {
			if c.areas[i], err = b.place(q, p); err == nil {
				*m = c.areas[i].mem()
			}
		}
	}
	for i := range a.NIn {
		if !a.In[i].IsZero() {
			put(i, a.In[i].Mem.Host, &c.args.In[i].Mem)
		}
	}
	for i := range a.NOut {
		put(outArea+i, a.Out[i].Mem.Host, &c.args.Out[i].Mem)
	}
	if plan.Supported && plan.Workspace > 0 {
		put(workArea, bytes.Repeat([]byte{0xff}, plan.Workspace), &c.args.Workspace)
	}
	if err == nil && !plan.Supported {
		err = c.declined(plan.Reason)
	}
	if err != nil {
		c.free()
		return nil, err
	}
	return c, nil
}

// declined returns a declineError with the reason if Submit refuses the operation, as it
// must after Plan has declined it.
func (c *placed) declined(reason string) error {
	if err := c.submit(); !errors.Is(err, provider.ErrUnsupported) {
		return fmt.Errorf("the provider's Plan declines the operation: %q; Submit returns error %w, want %w", reason, notNil(err), provider.ErrUnsupported)
	}
	return declineError{c.id, reason}
}

func (c *placed) free() {
	for _, ar := range c.areas {
		ar.free()
	}
}

// submit submits the operation and waits for it.
func (c *placed) submit() error {
	w, err := c.b.Submit(context.Background(), c.q, c.id, &c.args)
	if err != nil {
		return err
	}
	return wait(w)
}

// outputs returns the memories of the outputs after the operation. It returns an error if a
// byte has changed that is not of an element that the operation writes.
func (c *placed) outputs() (memories, error) {
	for i, ar := range c.areas[:c.host.NIn] {
		if ar == nil {
			continue // an absent operand
		}
		after, err := ar.read(c.q)
		if err != nil {
			return memories{}, err
		}
		if !bytes.Equal(after, ar.before) {
			return memories{}, fmt.Errorf("the %s has changed", c.id.Role(op.Place(i)))
		}
	}
	var out memories
	for i := range c.host.NOut {
		var err error
		if out[i], err = c.output(i); err != nil {
			return memories{}, err
		}
	}
	return out, nil
}

// output is outputs for the output i.
func (c *placed) output(i int) ([]byte, error) {
	ar, role := c.areas[outArea+i], c.id.Role(op.FirstOut+op.Place(i))
	after, err := ar.read(c.q)
	if err != nil {
		return nil, err
	}
	n := len(after) - guard
	if !bytes.Equal(after[:guard], ar.before[:guard]) || !bytes.Equal(after[n:], ar.before[n:]) {
		return nil, fmt.Errorf("memory outside the %s is written", role)
	}
	after = after[guard:n]
	rest := bytes.Clone(after)
	before := ar.before[guard:n]
	reference.EraseWritten(c.id, c.host, i, rest, before)
	if bytes.Equal(rest, before) {
		return after, nil
	}
	if c.id.Outputs()[i].Into {
		return nil, fmt.Errorf("memory of the %s is written that the operation keeps", role)
	}
	return nil, fmt.Errorf("memory between the elements of the %s is written", role)
}

// untouched returns an error if the memory of an output has changed.
func (c *placed) untouched() error {
	for i := range c.host.NOut {
		ar := c.areas[outArea+i]
		after, err := ar.read(c.q)
		if err != nil {
			return err
		}
		if !bytes.Equal(after, ar.before) {
			return fmt.Errorf("the %s is written", c.id.Role(op.FirstOut+op.Place(i)))
		}
	}
	return nil
}

// run runs the operation once and returns its outputs' memories.
func (b *bench) run(id op.ID, a *op.Args) (memories, error) {
	c, err := b.prepare(b.q, id, a)
	if err != nil {
		return memories{}, err
	}
	defer c.free()
	if err := c.submit(); err != nil {
		return memories{}, err
	}
	return c.outputs()
}

// compare compares the memories of an operation's outputs with the reference. strict is that of
// tolerance.
func compare(id op.ID, a *op.Args, mem *memories, strict bool) error {
	want := reference.Results(id, a)
	for i := range a.NOut {
		out := a.Out[i]
		out.Mem = op.Mem{Host: mem[i], Len: len(mem[i])}
		got := reference.Read(&out)
		if rounds(id, a) {
			return rounded(id, a, got, want[i], strict)
		}
		if err := reference.Compare(got, want[i], tolerance(id, a, i, strict)); err != nil {
			if a.NOut > 1 {
				err = fmt.Errorf("the %s: %w", id.Role(op.FirstOut+op.Place(i)), err)
			}
			return err
		}
	}
	return nil
}

// check runs the operation and compares the outputs with the reference and, unless the run is
// short, with the outputs of a second run. It adds the outputs to digest, and returns them.
func (b *bench) check(id op.ID, a *op.Args, opt Options, digest hash.Hash) (memories, error) {
	mem, err := b.run(id, a)
	if err != nil {
		return mem, err
	}
	for _, m := range mem {
		digest.Write(m)
	}
	if err := compare(id, a, &mem, opt.Reference); err != nil || opt.Short {
		return mem, err
	}
	again, err := b.run(id, a)
	if err == nil && !mem.equal(&again) {
		err = errors.New("a second run has other bits")
	}
	return mem, err
}

// limits are the largest squared errors that are allowed of a result, relative to the sum of
// squares: that of any provider, and the much smaller ones of the CPU's kernels. In exact mode
// these are the reference, with which other providers are compared.
type limits struct {
	loose, fast, tight float64
	blocks             bool // products by a block format; rounded bounds them, unless they are exact
}

// plus returns the limits of a result of two steps.
func (l limits) plus(o limits) limits {
	return limits{l.loose + o.loose, l.fast + o.fast, l.tight + o.tight, l.blocks || o.blocks}
}

// tolerance returns the largest allowed squared error of an operation's output i, relative to
// the sum of squares. If strict is set, it is that of the CPU's kernels.
func tolerance(id op.ID, a *op.Args, i int, strict bool) float64 {
	l := limitsOf(id, a, i)
	switch {
	case !strict:
		return l.loose
	case a.Exact:
		return l.tight
	}
	return l.fast
}

var (
	norms       = limits{loose: 1e-7, fast: 1e-13, tight: 1e-13}
	activations = limits{loose: 1e-7, fast: 1e-13, tight: 1e-14}
	sums        = limits{loose: 1e-7} // and other f32 arithmetic that rounds once
)

// limitsOf returns the limits of an operation's output i. Those of a composite are the sums of
// those of its parts.
func limitsOf(id op.ID, a *op.Args, i int) limits {
	switch id {
	case op.Copy, op.GetRows, op.Argmax, op.SetRows:
		return limits{}
	case op.Softmax:
		return limits{loose: 1e-6, fast: 1e-12, tight: 1e-13}
	case op.RMSNorm, op.RoPE:
		return norms
	case op.MatMul:
		return products(&a.In[1])
	case op.Attention:
		return limits{loose: 5e-4, fast: 1e-9, tight: 1e-9}
	case op.AddRMSNorm:
		if i == 0 {
			return sums
		}
		return norms.plus(sums)
	case op.Project:
		l := products(&a.In[1])
		for p := op.Place(2); p <= 3; p++ {
			if a.Has(p) {
				l.loose = max(l.loose, products(a.At(p)).loose)
			}
		}
		return l.plus(sums).plus(sums).plus(sums)
	case op.GatedProject:
		return products(&a.In[1]).plus(products(&a.In[2])).plus(sums).plus(sums).plus(activations)
	case op.RotateStore:
		l := norms.plus(norms)
		if i == 1 {
			// The reference may round a key to the neighbour of the provider's.
			switch a.Out[1].DType {
			case dtype.F16:
				l = l.plus(limits{loose: 1e-7, fast: 1e-7, tight: 1e-7})
			case dtype.Q8_0:
				l = l.plus(limits{loose: 1e-5, fast: 1e-5, tight: 1e-5})
			}
		}
		return l
	}
	if reference.Pointwise[id].Exact {
		return sums
	}
	return activations
}

// products are the limits of a product by w. With weights narrower than f32, a provider may
// also round the activations.
func products(w *op.Operand) limits {
	l := limits{loose: 5e-4, fast: 1e-8, tight: 1e-8, blocks: w.DType.IsBlockQuantized()}
	if w.DType == dtype.F32 {
		l.loose = 1e-6
	}
	return l
}
