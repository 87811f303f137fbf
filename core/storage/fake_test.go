//go:build cuda || metal || accel

package storage

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/tests/countdown"
)

var bg = context.Background()

var errBroken = errors.New("broken")

// fakeQueue is a timeline whose operations and transfers take effect in finish.
type fakeQueue struct {
	*accel.Timeline
	waits atomic.Int64 // number of waits that have begun

	mu      sync.Mutex
	pending []func() // effects of the points issued, in order
}

func newQueue(name string) *fakeQueue {
	q := &fakeQueue{}
	q.Timeline = accel.NewTimeline(name, func(uint64) { q.waits.Add(1) })
	return q
}

func (q *fakeQueue) enqueue(effect func()) accel.Work {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = append(q.pending, effect)
	return q.Issue()
}

// finish runs and completes everything issued.
func (q *fakeQueue) finish() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, effect := range q.pending {
		effect()
	}
	q.pending = nil
	q.Complete(q.Issued())
}

// fail drops everything pending and fails it.
func (q *fakeQueue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pending = nil
	q.Fail(q.Completed()+1, q.Issued(), err)
	q.Complete(q.Issued())
}

// awaitWaits returns when n waits have begun.
func (q *fakeQueue) awaitWaits(n int64) {
	for q.waits.Load() < n {
		runtime.Gosched()
	}
}

type span struct{ off, n int }

// fakeMemory is device memory whose transfers end when the test calls finish.
type fakeMemory struct {
	up, down *fakeQueue

	data  sync.Mutex // locked by effects, while their queue is locked
	bytes []byte

	mu           sync.Mutex // locked before a queue's mu
	uploads      int
	downloads    int
	reads        []span
	after        accel.Fences // works that the latest upload follows
	downAfter    accel.Work   // work that the latest download follows
	frees        int
	freeUses     accel.Fences
	upErr, dnErr error // returned by the next transfers, if not nil
}

func newMemory(size int) *fakeMemory {
	return &fakeMemory{up: newQueue("upload"), down: newQueue("download"), bytes: make([]byte, size)}
}

func (m *fakeMemory) Upload(_ context.Context, off int, src []byte, after accel.Fences) (accel.Work, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.upErr != nil {
		return accel.Work{}, m.upErr
	}
	m.uploads++
	m.after = append(accel.Fences(nil), after...)
	staged := append([]byte(nil), src...)
	return m.up.enqueue(func() { m.poke(off, staged) }), nil
}

func (m *fakeMemory) Download(_ context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dnErr != nil {
		return accel.Work{}, m.dnErr
	}
	m.downloads++
	m.downAfter = after
	return m.down.enqueue(func() { copy(dst, m.peek(off, len(dst))) }), nil
}

func (m *fakeMemory) Read(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	if err := after.Wait(ctx); err != nil {
		return accel.Work{}, err
	}
	copy(dst, m.peek(off, len(dst)))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, span{off, len(dst)})
	return accel.Work{}, nil
}

func (m *fakeMemory) Free(uses accel.Fences) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.frees++
	m.freeUses = append(accel.Fences(nil), uses...)
}

func (m *fakeMemory) poke(off int, p []byte) {
	m.data.Lock()
	defer m.data.Unlock()
	copy(m.bytes[off:], p)
}

func (m *fakeMemory) peek(off, n int) []byte {
	m.data.Lock()
	defer m.data.Unlock()
	return append([]byte(nil), m.bytes[off:off+n]...)
}

// finish completes all transfers.
func (m *fakeMemory) finish() { m.up.finish(); m.down.finish() }

// transfers returns the uploads and downloads so far.
func (m *fakeMemory) transfers() [2]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return [2]int{m.uploads, m.downloads}
}

// device runs an operation on b up to its submission. The caller finishes q.
func device(t testing.TB, b *Buffer, q *fakeQueue, a Access, effect func(m *fakeMemory)) (accel.Work, accel.Fences) {
	t.Helper()
	var needs Needs
	mem, err := b.BeginDevice(bg, q.Timeline, a, &needs)
	if err != nil {
		t.Fatal(err)
	}
	w := q.enqueue(func() {
		if effect != nil {
			effect(mem.(*fakeMemory))
		}
	})
	for _, dep := range needs.Order {
		q.Follow(dep)
	}
	b.EndDevice(a, w, true, nil)
	return w, needs.Order
}

// fill returns an effect that sets the whole device memory to v.
func fill(v byte) func(m *fakeMemory) {
	return func(m *fakeMemory) {
		p := make([]byte, len(m.bytes))
		for i := range p {
			p[i] = v
		}
		m.poke(0, p)
	}
}

// wouldWait reports whether Host has to wait for the access.
func wouldWait(t testing.TB, b *Buffer, a Access) bool {
	t.Helper()
	_, err := b.Host(countdown.Cancelled(), a)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return err != nil
}

// lazyOnDevice returns a buffer without host memory whose newest bytes, all v, are
// on the device.
func lazyOnDevice(t testing.TB, size int, v byte) (*Buffer, *fakeMemory, *fakeQueue, *Retired) {
	t.Helper()
	b, m, q, r := NewLazy(size), newMemory(size), newQueue("compute"), &Retired{}
	if !b.Attach(m, nil, r) {
		t.Fatal("not attached")
	}
	device(t, b, q, Overwrite, fill(v))
	q.finish()
	return b, m, q, r
}
