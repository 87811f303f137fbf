// Package inject wraps a provider or a device so that chosen calls fail, or a function runs
// just before them. It is for tests of the layers above a provider.
//
// A fault concerns the calls of one kind. It may be restricted to one caller, identified by
// a label that [As] puts into the context of the call. NewQueue, Alloc and AllocPinned have
// no context, so their calls have no label.
package inject

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// Call is a kind of call of a provider.
type Call uint8

const (
	NewQueue Call = iota
	Submit
	WaitFor
	Alloc
	AllocPinned
	Upload
	Download

	// Calls is one past the last kind.
	Calls
)

var callNames = [Calls]string{
	NewQueue: "new queue", Submit: "submit", WaitFor: "wait for", Alloc: "alloc", AllocPinned: "alloc pinned",
	Upload: "upload", Download: "download",
}

// String returns the kind's name.
func (c Call) String() string {
	if c >= Calls {
		return "invalid call"
	}
	return callNames[c]
}

// Fault is an error or a function for one call.
type Fault struct {
	Call Call
	// Who restricts the fault to the calls with this label, which must be comparable.
	// Nil means all calls.
	Who any
	// Nth is the number of the call of the fault. The first call after Arm is 1.
	Nth int
	// Do, if set, is called before the call, on its goroutine, with the queue that the
	// call is for, or nil.
	Do func(q provider.Queue)
	// Err, if set, is wrapped by the error that the call returns. The provider does not
	// see the call.
	Err error
}

// Provider is a provider with faults. It is safe for concurrent use to the same extent as
// the wrapped provider.
type Provider struct {
	provider.Provider

	mu     sync.Mutex
	armed  []Fault
	counts map[caller]int
}

type caller struct {
	call Call
	who  any
}

// New returns a wrapper of p, without faults. If p is a device, the wrapper is not a device;
// see [NewDevice].
func New(p provider.Provider) *Provider {
	return &Provider{Provider: p, counts: make(map[caller]int)}
}

type label struct{}

// As returns a context that gives calls the label who.
func As(ctx context.Context, who any) context.Context {
	return context.WithValue(ctx, label{}, who)
}

// Arm arms a fault. It panics if the fault can never happen.
func (p *Provider) Arm(f Fault) {
	if f.Call >= Calls || f.Nth < 1 || f.Do == nil && f.Err == nil {
		panic(fmt.Sprintf("inject: fault at %s %d, want a kind of call, a number from 1 on, and something to do", f.Call, f.Nth))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = append(p.armed, f)
}

// Disarm disarms every fault.
func (p *Provider) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = nil
}

// Forget disarms the faults of the calls with the label who, and drops their counts.
func (p *Provider) Forget(who any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = slices.DeleteFunc(p.armed, func(f Fault) bool { return f.Who == who })
	for c := range Calls {
		delete(p.counts, caller{c, who})
	}
}

// Count returns the number of calls of the kind with the label who. If who is nil, it counts
// all calls.
func (p *Provider) Count(call Call, who any) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[caller{call, who}]
}

// before runs the faults that are due at a call, and returns the error of the call, or nil.
func (p *Provider) before(ctx context.Context, call Call, q provider.Queue) error {
	who := ctx.Value(label{})
	for _, f := range p.due(call, who) {
		if f.Do != nil {
			f.Do(q)
		}
		if f.Err != nil {
			return fmt.Errorf("injected at %s: %w", call, f.Err)
		}
	}
	return nil
}

// due counts a call, and disarms and returns the faults of that call.
func (p *Provider) due(call Call, who any) []Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts[caller{call, nil}]++
	if who != nil {
		p.counts[caller{call, who}]++
	}
	var due []Fault
	kept := p.armed[:0]
	for _, f := range p.armed {
		if f.Call == call && (f.Who == nil || f.Who == who) {
			f.Nth--
		}
		if f.Nth == 0 {
			due = append(due, f)
			continue
		}
		kept = append(kept, f)
	}
	clear(p.armed[len(kept):])
	p.armed = kept
	return due
}

// NewQueue implements provider.Provider.
func (p *Provider) NewQueue(kind provider.QueueKind) (provider.Queue, error) {
	if err := p.before(context.Background(), NewQueue, nil); err != nil {
		return nil, err
	}
	return p.Provider.NewQueue(kind)
}

// Submit implements provider.Provider.
func (p *Provider) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	if err := p.before(ctx, Submit, q); err != nil {
		return accel.Work{}, err
	}
	return p.Provider.Submit(ctx, q, id, a)
}

// WaitFor implements provider.Provider.
func (p *Provider) WaitFor(ctx context.Context, q provider.Queue, w accel.Work) error {
	if err := p.before(ctx, WaitFor, q); err != nil {
		return err
	}
	return p.Provider.WaitFor(ctx, q, w)
}

// Device is a device with faults, including faults of its memory and transfers.
type Device struct {
	*Provider
	dev provider.Device
}

// NewDevice returns a wrapper of d, without faults.
func NewDevice(d provider.Device) *Device { return &Device{New(d), d} }

// Alloc implements provider.Device.
func (d *Device) Alloc(n int) (op.Mem, error) {
	if err := d.before(context.Background(), Alloc, nil); err != nil {
		return op.Mem{}, err
	}
	return d.dev.Alloc(n)
}

// Free implements provider.Device.
func (d *Device) Free(m op.Mem) { d.dev.Free(m) }

// Upload implements provider.Device.
func (d *Device) Upload(ctx context.Context, q provider.Queue, dst op.Mem, src []byte) (accel.Work, error) {
	if err := d.before(ctx, Upload, q); err != nil {
		return accel.Work{}, err
	}
	return d.dev.Upload(ctx, q, dst, src)
}

// Download implements provider.Device.
func (d *Device) Download(ctx context.Context, q provider.Queue, dst []byte, src op.Mem) (accel.Work, error) {
	if err := d.before(ctx, Download, q); err != nil {
		return accel.Work{}, err
	}
	return d.dev.Download(ctx, q, dst, src)
}

// Pinned is a [Device] that wraps a device with pinned memory.
type Pinned struct {
	*Device
	provider.PinnedAllocator
}

// AllocPinned implements provider.PinnedAllocator.
func (p *Pinned) AllocPinned(n int) ([]byte, error) {
	if err := p.before(context.Background(), AllocPinned, nil); err != nil {
		return nil, err
	}
	return p.PinnedAllocator.AllocPinned(n)
}

// ForEngine returns d for use by an engine. The result has pinned memory if the wrapped
// device has it.
func (d *Device) ForEngine() provider.Device {
	if pinned, ok := d.dev.(provider.PinnedAllocator); ok {
		return &Pinned{d, pinned}
	}
	return d
}
