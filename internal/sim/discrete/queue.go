//go:build accel

package discrete

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// The codes of ring entries that are not operations.
const (
	codeUpload = op.Count + iota
	codeDownload
	codeWait
)

func codeName(c op.ID) string {
	switch c {
	case codeUpload:
		return "upload"
	case codeDownload:
		return "download"
	}
	return c.String()
}

// The places of the outputs and the workspace in entry.blocks, after the inputs.
const (
	placeOut       = int(op.FirstOut)
	placeWorkspace = placeOut + op.MaxOut
	places         = placeWorkspace + 1
)

// entry is an element of a queue's ring.
type entry struct {
	code   op.ID
	args   op.Args // for a transfer, only the device range: Out or In[0]
	blocks [places]*block
	host   []byte     // the host range of a transfer
	wait   accel.Work // the work that codeWait waits for
	local  bool       // wait is on a queue of this device, so it always ends
	fault  error      // the failure of the entry when it executes, or nil
}

// maxBatch is the largest number of works in one report.
const maxBatch = 8

// target is the memory that a work writes, to be poisoned if the work fails.
type target struct {
	host []byte // the memory that a download writes
	outs [op.MaxOut]op.Operand
}

// poison poisons the target.
func (t *target) poison() {
	poison(t.host)
	for i := range t.outs {
		if o := &t.outs[i]; o.Mem.Host != nil {
			poisonOperand(o.Mem.Host, o)
		}
	}
}

// queue is the ring and its worker. The ring is a channel, because for the race detector a
// channel orders a send only after the receive that made room for it. So submitters are no
// more synchronised with the worker than with a device. That holds for elements that have a
// size. For others the detector keeps one record for the whole channel, and orders a send
// after every earlier receive.
type queue struct {
	dev  *Device
	kind provider.QueueKind
	tl   *accel.Timeline

	submitting sync.Mutex
	closed     bool // guarded by the device's mutex
	ring       chan entry
	room       chan byte       // has a token for each entry in the ring, or reserved for it
	names      []atomic.Uint32 // code of the work with sequence i at index i modulo the length
	steps      chan uint8
	exited     chan struct{}

	// The fields below belong to the worker.
	exec    Executor
	rng     *rand.Rand
	cur     entry
	pending [maxBatch]target // executed and not reported
	npend   int
	credit  bool // the next execution uses the step that a report used
	dead    bool
}

// Timeline returns the completion record; it outlives the queue.
func (q *queue) Timeline() *accel.Timeline { return q.tl }

// String returns the queue's name.
func (q *queue) String() string { return q.tl.Name() }

// Submit enqueues an operation. It blocks while the ring is full, until ctx is done.
// On a dead queue it returns the failure.
func (d *Device) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	own, err := d.own(q)
	if err != nil {
		return accel.Work{}, err
	}
	if !id.Valid() || a.NIn < 0 || a.NIn > op.MaxIn {
		return accel.Work{}, fmt.Errorf("discrete: submit: %w: operation %d with %d inputs", provider.ErrUnsupported, id, a.NIn)
	}
	plan := d.Plan(id, a)
	if !plan.Supported {
		return accel.Work{}, fmt.Errorf("discrete: submit: %w: %s", provider.ErrUnsupported, plan.Reason)
	}
	if a.Workspace.Len < plan.Workspace {
		return accel.Work{}, fmt.Errorf("discrete: submit with %d bytes of workspace, want %d", a.Workspace.Len, plan.Workspace)
	}
	for i := range a.NIn {
		if p := op.Place(i); a.Has(p) && !a.In[i].Fits() {
			return accel.Work{}, outside(id, p, &a.In[i])
		}
	}
	e := entry{code: id, args: *a}
	e.args.NOut = len(id.Outputs())
	for i := range e.args.NOut {
		if !a.Out[i].Fits() {
			return accel.Work{}, outside(id, op.FirstOut+op.Place(i), &a.Out[i])
		}
	}
	return d.enqueue(ctx, own, &e)
}

// outside returns the error for an operand that does not fit its memory.
func outside(id op.ID, p op.Place, o *op.Operand) error {
	return fmt.Errorf("discrete: submit: the %s, %s %s with strides %s and offset %d, reaches outside its memory of %d bytes",
		id.Role(p), o.DType, o.Shape, o.Strides, o.Offset, o.Mem.Len)
}

// Upload enqueues a copy of src. The copy reads src when it executes.
func (d *Device) Upload(ctx context.Context, q provider.Queue, dst op.Mem, src []byte) (accel.Work, error) {
	own, err := d.own(q)
	if err != nil {
		return accel.Work{}, err
	}
	if dst.Len != len(src) {
		return accel.Work{}, fmt.Errorf("discrete: upload of %d bytes to %d", len(src), dst.Len)
	}
	e := entry{code: codeUpload, host: src}
	e.args.NOut, e.args.Out[0].Mem = 1, dst
	return d.enqueue(ctx, own, &e)
}

// Download enqueues a copy to dst. The copy writes dst when it executes.
func (d *Device) Download(ctx context.Context, q provider.Queue, dst []byte, src op.Mem) (accel.Work, error) {
	own, err := d.own(q)
	if err != nil {
		return accel.Work{}, err
	}
	if src.Len != len(dst) {
		return accel.Work{}, fmt.Errorf("discrete: download of %d bytes to %d", src.Len, len(dst))
	}
	e := entry{code: codeDownload, host: dst}
	e.args.NIn, e.args.In[0].Mem = 1, src
	return d.enqueue(ctx, own, &e)
}

// WaitFor makes later work of q follow w, even if w fails.
func (d *Device) WaitFor(ctx context.Context, q provider.Queue, w accel.Work) error {
	own, err := d.own(q)
	if err != nil {
		return err
	}
	if w.IsZero() || w.Timeline() == own.tl {
		return nil
	}
	_, err = d.enqueue(ctx, own, &entry{code: codeWait, wait: w})
	return err
}

// enqueue puts e into the ring and returns its point. For codeWait the point is zero.
func (d *Device) enqueue(ctx context.Context, q *queue, e *entry) (accel.Work, error) {
	alone := q.submitting.TryLock()
	if !alone {
		q.submitting.Lock()
	}
	defer q.submitting.Unlock()
	w := accel.Work{}
	err := q.reserve(ctx)
	if err == nil {
		if w, err = d.admit(q, e, alone); err != nil {
			<-q.room
		}
	}
	if err != nil {
		what := "submit"
		switch e.code {
		case codeWait:
			what = "wait"
		case codeUpload, codeDownload:
			what = codeName(e.code)
		}
		return accel.Work{}, fmt.Errorf("discrete: %s on %s: %w", what, q.tl.Name(), err)
	}
	q.ring <- *e
	if d.opt.Sync {
		_ = w.Wait(context.Background()) // a failure is reported by w
	}
	return w, nil
}

// reserve waits for room in the ring. A point is issued only for an entry that has room, so
// that a submission that ctx ends leaves no point without an entry.
func (q *queue) reserve(ctx context.Context) error {
	select {
	case q.room <- 0:
		return nil
	default:
	}
	select {
	case q.room <- 0:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// admit does the host's part of an entry: it counts the event, injects faults, resolves the
// memory and issues the point. The caller is the queue's submitter.
func (d *Device) admit(q *queue, e *entry, alone bool) (accel.Work, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.usable(); err != nil {
		return accel.Work{}, err
	}
	if q.closed {
		return accel.Work{}, provider.ErrClosed
	}
	if !alone {
		d.hazard("two goroutines submit to %s at once", q.tl.Name())
	}
	if e.code == codeWait {
		for _, other := range d.queues {
			e.local = e.local || other.tl == e.wait.Timeline()
		}
		return accel.Work{}, q.tl.Dead()
	}
	if err := d.inject(q, e); err != nil {
		return accel.Work{}, err
	}
	if err := q.tl.Dead(); err != nil {
		return accel.Work{}, err
	}
	if err := d.resolve(q, e); err != nil {
		return accel.Work{}, err
	}
	seq := q.tl.Issued() + 1
	q.names[seq%uint64(len(q.names))].Store(uint32(e.code))
	w := q.tl.Issue()
	for _, b := range e.blocks {
		if b != nil {
			b.use(w)
		}
	}
	switch e.code {
	case codeUpload:
		d.stats.Uploads++
		d.stats.UploadBytes += uint64(len(e.host))
	case codeDownload:
		d.stats.Downloads++
		d.stats.DownloadBytes += uint64(len(e.host))
	default:
		d.stats.Submits[e.code]++
		return w, nil
	}
	if b := d.pinnedAround(e.host); b != nil {
		b.use(w)
	}
	return w, nil
}

// inject counts the event and injects the faults that are due: it returns an error, or sets
// e.fault for the execution. The caller holds mu.
func (d *Device) inject(q *queue, e *entry) error {
	var sync, async FaultKind
	switch e.code {
	case codeUpload:
		d.events.Uploads++
		sync, async = UploadError, UploadAsync
	case codeDownload:
		d.events.Downloads++
		sync, async = DownloadError, DownloadAsync
	default:
		d.events.Submits++
		sync, async = SubmitError, SubmitAsync
	}
	if len(d.faults) == 0 {
		return nil
	}
	if f := d.due(Loss, q); f != nil {
		d.lose(f.failure(accel.ErrDeviceLost))
		return d.lostErr
	}
	if f := d.due(async, q); f != nil {
		e.fault = f.failure(accel.ErrDeviceFailed)
	}
	if f := d.due(sync, q); f != nil {
		return f.failure(accel.ErrDeviceFailed)
	}
	return nil
}

// resolve finds the blocks of e's operands. It refuses host memory. An unknown id is a
// hazard, and fails the entry when it executes. The caller holds mu.
func (d *Device) resolve(q *queue, e *entry) error {
	for i := range e.blocks {
		m := e.mem(i)
		if m == nil || m.IsZero() {
			continue
		}
		if m.Host != nil {
			d.hazard("%s on %s: %s is host memory", codeName(e.code), q.tl.Name(), placeName(i))
			return fmt.Errorf("%s is host memory, want device memory", placeName(i))
		}
		if e.blocks[i] = d.blocks[m.ID]; e.blocks[i] == nil {
			d.hazard("%s on %s: %s uses memory %#x, which was freed or never allocated", codeName(e.code), q.tl.Name(), placeName(i), m.ID)
		}
	}
	return nil
}

// mem returns the memory at a place of e, or nil if e has no operand there.
func (e *entry) mem(place int) *op.Mem {
	switch {
	case place == placeWorkspace:
		return &e.args.Workspace
	case place >= placeOut:
		if i := place - placeOut; i < e.args.NOut {
			return &e.args.Out[i].Mem
		}
	case place < e.args.NIn:
		return &e.args.In[place].Mem
	}
	return nil
}

func placeName(place int) string {
	switch {
	case place == placeOut:
		return "the output"
	case place == placeWorkspace:
		return "the workspace"
	case place > placeOut:
		return fmt.Sprintf("output %d", place-placeOut)
	}
	return fmt.Sprintf("input %d", place)
}

// maxUses is the number of queues that may use a block before b.uses drops ended uses.
const maxUses = 32

// use records w as a user of b. It avoids checking whether other works have ended, because
// the race detector takes such a check for an order. Fences.Add checks its works before the
// set grows, so the set has a large capacity from the start.
func (b *block) use(w accel.Work) {
	if b.uses == nil {
		b.uses = make(accel.Fences, 0, maxUses)
	}
	if len(b.uses) >= maxUses {
		b.uses = slices.DeleteFunc(b.uses, accel.Work.Done)
	}
	b.uses.Add(w)
}

// run is the worker.
func (q *queue) run() {
	defer close(q.exited)
	for q.next() {
		switch {
		case q.dead:
		case q.dev.isLost():
			q.lose()
		case q.cur.code == codeWait:
			q.await()
		case q.cur.code != 0:
			q.runEntry()
		}
		q.cur = entry{} // keeps no host memory reachable
	}
	q.report()
}

// next receives the next entry into q.cur, or none if the device was lost. It reports before
// it waits. It returns false if the queue was closed.
func (q *queue) next() (ok bool) {
	if q.dead {
		q.cur, ok = <-q.ring
		return q.received(ok)
	}
	select {
	case q.cur, ok = <-q.ring:
		return q.received(ok)
	default:
	}
	q.report()
	if q.dead {
		return true
	}
	select {
	case q.cur, ok = <-q.ring:
		return q.received(ok)
	case <-q.dev.lost:
		return true
	}
}

// received frees the room of a received entry, and returns ok.
func (q *queue) received(ok bool) bool {
	if ok {
		<-q.room
	}
	return ok
}

// runEntry executes the current entry and reports it, at once or later.
func (q *queue) runEntry() {
	q.delay()
	stepped := q.pass()
	if q.dev.isLost() {
		q.lose()
		return
	}
	t := &q.pending[q.npend]
	q.npend++
	err := q.prepare(t)
	if err == nil {
		err = q.cur.fault
	}
	if err == nil {
		err = q.execute()
	}
	if err != nil {
		if !stepped {
			q.wait()
		}
		q.fail(err)
		return
	}
	switch {
	case stepped:
		q.complete()
	case q.dev.opt.Chaos == Prompt, q.npend == maxBatch, q.rng.IntN(2) == 0:
		q.report()
	}
}

// prepare resolves the operands of the current entry to bytes, and sets t to the memory that
// the entry writes.
func (q *queue) prepare(t *target) error {
	*t = target{}
	e := &q.cur
	for i, b := range e.blocks {
		m := e.mem(i)
		if m == nil || m.IsZero() {
			continue
		}
		bytes, err := rangeOf(b, m)
		if err != nil {
			err = fmt.Errorf("%w: %s of %s: %w", accel.ErrDeviceFailed, placeName(i), codeName(e.code), err)
			if b != nil { // resolve has recorded an unknown id already
				q.dev.mu.Lock()
				q.dev.hazard("%s: %v", q.tl.Name(), err)
				q.dev.mu.Unlock()
			}
			return err
		}
		*m = op.Mem{Host: bytes, Len: len(bytes)}
	}
	copy(t.outs[:], e.args.Out[:e.args.NOut])
	if e.code == codeDownload {
		t.host = e.host
	}
	return nil
}

func (q *queue) execute() error {
	e := &q.cur
	switch e.code {
	case codeUpload:
		copy(e.args.Out[0].Mem.Host, e.host)
		return nil
	case codeDownload:
		copy(e.host, e.args.In[0].Mem.Host)
		return nil
	}
	poison(e.args.Workspace.Host)
	if err := q.exec.Execute(context.Background(), e.code, &e.args); err != nil {
		return fmt.Errorf("%w: %s: %w", accel.ErrDeviceFailed, e.code, err)
	}
	return nil
}

// await parks until the work that the current entry waits for has ended.
func (q *queue) await() {
	q.report() // because the other queue may be waiting for this one
	if q.dead {
		return
	}
	ctx := q.dev.ctx
	if q.cur.local {
		ctx = context.Background()
	}
	err := q.cur.wait.Wait(ctx)
	switch {
	case q.dev.isLost():
		q.lose()
	case err != nil && !q.cur.wait.Done():
		// The device is being closed, and the work of another device may never end.
		q.wait()
		q.fail(fmt.Errorf("wait for op %d of %s: %w: %w", q.cur.wait.Seq(), q.cur.wait.Timeline().Name(), accel.ErrDeviceFailed, provider.ErrClosed))
	}
}

// delay yields or sleeps as Options.Chaos says.
func (q *queue) delay() {
	switch q.dev.opt.Chaos {
	case Prompt:
		return
	case Sleeps:
		if q.rng.IntN(4) == 0 {
			time.Sleep(time.Duration(q.rng.Int64N(int64(q.dev.opt.MaxDelay) + 1)))
			return
		}
	}
	for range q.rng.IntN(16) {
		runtime.Gosched()
	}
}

// pass waits while the device is held, and reports whether a step ended the wait.
func (q *queue) pass() (stepped bool) {
	g := q.dev.gate.Load()
	if g == nil {
		q.credit = false
		return false
	}
	if q.credit {
		q.credit = false
		return true
	}
	select {
	case <-g.open:
	case <-q.dev.lost:
	case <-q.steps:
		return true
	}
	return false
}

// wait waits like pass, but leaves the step for the next execution.
func (q *queue) wait() { q.credit = q.pass() }

// report reports everything executed so far, after a delay.
func (q *queue) report() {
	if q.npend == 0 || q.dead {
		return
	}
	q.delay()
	q.wait()
	if q.dev.isLost() {
		q.lose()
		return
	}
	q.complete()
}

// complete reports everything executed so far.
func (q *queue) complete() {
	seq := q.tl.Completed() + uint64(q.npend)
	clear(q.pending[:q.npend])
	q.npend = 0
	q.tl.Complete(seq)
}

func (q *queue) lose() {
	q.dev.mu.Lock()
	err := q.dev.lostErr
	q.dev.mu.Unlock()
	q.fail(err)
}

// maxNames bounds the operations that a failure names.
const maxNames = 16

// fail kills the queue: work that was not reported fails. fail poisons the memory that this
// work may have written. Entries in the ring do not execute.
func (q *queue) fail(err error) {
	q.dead = true
	for i := range q.npend {
		q.pending[i].poison()
	}
	clear(q.pending[:])
	q.npend = 0

	first := q.tl.Completed() + 1
	issued := q.tl.Issued()
	var names []string
	for seq := first; seq <= issued && len(names) < maxNames; seq++ {
		names = append(names, codeName(op.ID(q.names[seq%uint64(len(q.names))].Load())))
	}
	if left := issued + 1 - first - uint64(len(names)); left > 0 {
		names = append(names, fmt.Sprintf("%d more", left))
	}
	if len(names) == 0 {
		names = append(names, "wait") // the queue failed while it waited, with no work behind the wait
	}
	q.tl.Fail(first, accel.Forever, &accel.WindowError{
		Queue: q.tl.Name(), First: first, Last: max(first, issued), Ops: strings.Join(names, ", "), Err: err,
	})
}
