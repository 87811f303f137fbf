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
	areas [op.MaxIn + 2]*area // for the inputs, the output and the workspace
}

const (
	outArea  = op.MaxIn
	workArea = op.MaxIn + 1
)

// prepare calls Plan and places the operands in the provider's memory. If Plan declines the
// operation, the error is a declineError. The caller frees the result.
func (b *bench) prepare(q provider.Queue, id op.ID, a *op.Args) (*placed, error) {
	if r := op.Check(id, a); !r.OK() {
		return nil, fmt.Errorf("the suite's arguments do not fit: %s", r.Text(id))
	}
	c := &placed{b: b, q: q, id: id, host: a, args: *a}
	for i := range a.NIn {
		c.args.In[i].Mem = op.Mem{}
	}
	c.args.Out[0].Mem = op.Mem{}
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
		put(i, a.In[i].Mem.Host, &c.args.In[i].Mem)
	}
	put(outArea, a.Out[0].Mem.Host, &c.args.Out[0].Mem)
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

// output returns the memory of the output after the operation. It returns an error if a byte
// outside the output's elements has changed.
func (c *placed) output() ([]byte, error) {
	for i, ar := range c.areas[:c.host.NIn] {
		after, err := ar.read(c.q)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(after, ar.before) {
			return nil, fmt.Errorf("the %s has changed", c.id.Role(op.Place(i)))
		}
	}
	ar := c.areas[outArea]
	after, err := ar.read(c.q)
	if err != nil {
		return nil, err
	}
	n := len(after) - guard
	if !bytes.Equal(after[:guard], ar.before[:guard]) || !bytes.Equal(after[n:], ar.before[n:]) {
		return nil, errors.New("memory outside the output is written")
	}
	after = after[guard:n]
	rest := c.host.Out[0]
	rest.Mem = op.Mem{Host: bytes.Clone(after), Len: len(after)}
	before := ar.before[guard:n]
	reference.Erase(&rest, before)
	if !bytes.Equal(rest.Mem.Host, before) {
		return nil, errors.New("memory between the elements of the output is written")
	}
	return after, nil
}

// untouched returns an error if the output's memory has changed.
func (c *placed) untouched() error {
	after, err := c.areas[outArea].read(c.q)
	if err == nil && !bytes.Equal(after, c.areas[outArea].before) {
		err = errors.New("the output is written")
	}
	return err
}

// run runs the operation once and returns its output's memory.
func (b *bench) run(id op.ID, a *op.Args) ([]byte, error) {
	c, err := b.prepare(b.q, id, a)
	if err != nil {
		return nil, err
	}
	defer c.free()
	if err := c.submit(); err != nil {
		return nil, err
	}
	return c.output()
}

// values returns the values of an operation's output, given its memory.
func values(a *op.Args, mem []byte) []float64 {
	out := a.Out[0]
	out.Mem = op.Mem{Host: mem, Len: len(mem)}
	return reference.Read(&out)
}

// check runs the operation and compares the output with the reference and, unless once is
// set, with the output of a second run. It adds the output to digest.
func (b *bench) check(id op.ID, a *op.Args, tolerance float64, digest hash.Hash, once bool) error {
	mem, err := b.run(id, a)
	if err != nil {
		return err
	}
	digest.Write(mem)
	if err := reference.Compare(values(a, mem), reference.Result(id, a), tolerance); err != nil || once {
		return err
	}
	again, err := b.run(id, a)
	if err == nil && !bytes.Equal(mem, again) {
		err = errors.New("a second run has other bits")
	}
	return err
}

// tolerance returns the largest allowed squared error of an operation's result, relative to
// the sum of squares. If strict is set, it is the much smaller tolerance of the reference
// kernels, with which other providers are compared.
func tolerance(id op.ID, a *op.Args, strict bool) float64 {
	loose, tight := 1e-7, 1e-14
	switch id {
	case op.Copy, op.GetRows, op.Argmax:
		return 0
	case op.Softmax:
		loose, tight = 1e-6, 1e-13
	case op.RMSNorm, op.RoPE:
		loose, tight = 1e-7, 1e-13
	case op.MatMul:
		// With weights narrower than f32, a provider may also round the activations.
		loose, tight = 5e-4, 1e-8
		if a.In[1].DType == dtype.F32 {
			loose = 1e-6
		}
	case op.Attention:
		loose, tight = 5e-4, 1e-9
	default:
		if reference.Pointwise[id].Exact {
			tight = 0
		}
	}
	if strict {
		return tight
	}
	return loose
}
