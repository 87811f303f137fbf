//go:build cuda || metal || accel

package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/leak"
)

var errRow = errors.New("row 7 of 2")

// reporting is a queue whose operations may report a wrong operand when they have ended.
type reporting struct{ *fakeQueue }

func newReporting(name string) *reporting {
	q := &reporting{newQueue(name)}
	q.AddStatus(make([]atomic.Uint64, 8))
	return q
}

// watched issues a point with a status word. If bad, the point reports an error.
func (q *reporting) watched(t testing.TB, bad bool) accel.Work {
	t.Helper()
	word := q.TakeStatus()
	if word == nil {
		t.Fatal("no status word")
	}
	w := q.enqueue(func() {
		if bad {
			word.Store(1)
		}
	})
	q.Watch(w, word, func(uint64, accel.Watched) error { return errRow }, accel.Watched{})
	return w
}

// gather runs an operation on q that reads src, replaces dst and has a status word. If
// bad, the operation reports an error.
func (q *reporting) gather(t testing.TB, dst, src *Buffer, bad bool) accel.Work {
	t.Helper()
	var needs Needs
	for b, a := range map[*Buffer]Access{src: Read, dst: Overwrite} {
		if _, err := b.BeginDevice(bg, q.Timeline, a, &needs); err != nil {
			t.Fatal(err)
		}
	}
	w := q.watched(t, bad)
	needs.Data.Add(w)
	src.EndDevice(Read, w, true, needs.Data)
	dst.EndDevice(Overwrite, w, true, needs.Data)
	return w
}

// derive runs an operation on q that reads src and replaces dst.
func derive(t testing.TB, q *fakeQueue, dst, src *Buffer) (accel.Work, Needs) {
	t.Helper()
	var needs Needs
	for _, x := range []struct {
		b *Buffer
		a Access
	}{{src, Read}, {dst, Overwrite}} {
		if _, err := x.b.BeginDevice(bg, q.Timeline, x.a, &needs); err != nil {
			t.Fatal(err)
		}
	}
	w := q.enqueue(func() {})
	src.EndDevice(Read, w, true, needs.Data)
	dst.EndDevice(Overwrite, w, true, needs.Data)
	return w, needs
}

// onDevice returns n buffers whose newest bytes are in device memory. They are released
// when the test ends.
func onDevice(t testing.TB, n int) []*Buffer {
	t.Helper()
	list := make([]*Buffer, n)
	for i := range list {
		b, m, _, r := lazyOnDevice(t, 16, 'a')
		list[i] = b
		t.Cleanup(func() {
			b.Release()
			m.finish()
			if err := r.Drain(background); err != nil {
				t.Error(err)
			}
		})
	}
	return list
}

// fakeOf returns the device memory of b.
func fakeOf(b *Buffer) *fakeMemory { return b.DeviceMemory().(*fakeMemory) }

func sources(works ...accel.Work) accel.Sources {
	var s accel.Sources
	for _, w := range works {
		s.Add(w)
	}
	return s
}

// An operation's results come from the writers, on other queues, of the buffers that it
// reads, and from their sources. Writers on the operation's own queue are left out, because
// that queue fails as a whole. The earlier contents of an overwritten buffer are not a
// source.
func TestNeedsData(t *testing.T) {
	q1, q2, q3 := newQueue("first"), newQueue("second"), newQueue("third")
	list := onDevice(t, 4)
	a, b, c, d := list[0], list[1], list[2], list[3]
	w1, _ := device(t, a, q1, Overwrite, nil)
	w2, needs := derive(t, q2, b, a)
	if want := sources(w1); !slices.Equal(needs.Data, want) {
		t.Errorf("a value of another queue: %v, want %v", needs.Data, want)
	}
	_, needs = derive(t, q2, c, b)
	if want := sources(w1); !slices.Equal(needs.Data, want) {
		t.Errorf("a value of the same queue brings %v, want the sources of that value, %v", needs.Data, want)
	}
	_, needs = derive(t, q3, d, b)
	if want := sources(w2, w1); !slices.Equal(needs.Data, want) {
		t.Errorf("a value of the second queue brings %v, want %v", needs.Data, want)
	}
	if got := a.device.sources; len(got) != 0 {
		t.Errorf("being read gives a buffer the sources %v", got)
	}
	for _, acc := range []Access{Read, Update} {
		var needs Needs
		if _, err := d.BeginDevice(bg, q1.Timeline, acc, &needs); err != nil {
			t.Fatal(err)
		}
		d.EndDevice(acc, accel.Work{}, false, nil)
		if want := sources(q3.Last(), w2, w1); !slices.Equal(needs.Data, want) {
			t.Errorf("access %d: %v, want %v", acc, needs.Data, want)
		}
	}
	needs.Reset()
	if _, err := d.BeginDevice(bg, q1.Timeline, Overwrite, &needs); err != nil {
		t.Fatal(err)
	}
	if len(needs.Data) != 0 {
		t.Errorf("the overwritten contents are the source %v", needs.Data)
	}
	if !slices.Contains(needs.Order, q3.Last()) {
		t.Errorf("an overwrite is not ordered after the writer: %v", needs.Order)
	}
	w := q1.enqueue(func() {})
	d.EndDevice(Overwrite, w, true, needs.Data)
	if got := d.device.sources; len(got) != 0 {
		t.Errorf("an overwritten buffer comes from %v", got)
	}
	for _, q := range []*fakeQueue{q1, q2, q3} {
		q.finish()
	}
}

// EndDevice copies the set of sources, so that the caller can change its set afterwards.
func TestSourcesAreCopied(t *testing.T) {
	q, writer := newQueue("reader"), newQueue("writer")
	b := onDevice(t, 1)[0]
	data := sources(writer.enqueue(func() {}))
	if _, err := b.BeginDevice(bg, q.Timeline, Overwrite, &Needs{}); err != nil {
		t.Fatal(err)
	}
	b.EndDevice(Overwrite, q.enqueue(func() {}), true, data)
	q.finish()
	data[0] = sources(newQueue("another").Issue())[0]
	writer.finish()
	if err := b.ReadAt(countdown.Cancelled(), make([]byte, 1), 0); err != nil {
		t.Errorf("the buffer waits for what its caller put into a set: %v", err)
	}
}

// An error that an operation reports fails every value that was computed from its result,
// also through further operations and queues, and no other value.
func TestReportedErrorIsOfItsValues(t *testing.T) {
	for _, through := range []string{"itself", "an operation", "another queue", "an update"} {
		t.Run(through, func(t *testing.T) {
			q, other := newReporting("gathers"), newQueue("other")
			list := onDevice(t, 4)
			table, out, b, innocent := list[0], list[1], list[2], list[3]
			q.gather(t, innocent, table, false)
			q.gather(t, out, table, true)
			switch through {
			case "itself":
				b = out
			case "an operation":
				derive(t, q.fakeQueue, b, out)
			case "another queue":
				derive(t, other, b, out)
			case "an update":
				var needs Needs
				for x, a := range map[*Buffer]Access{out: Read, b: Update} {
					if _, err := x.BeginDevice(bg, other.Timeline, a, &needs); err != nil {
						t.Fatal(err)
					}
				}
				w := other.enqueue(func() {})
				out.EndDevice(Read, w, true, needs.Data)
				b.EndDevice(Update, w, true, needs.Data)
			}
			q.finish()
			other.finish()
			for range 2 {
				if _, err := b.Host(background, Read); !errors.Is(err, errRow) {
					t.Errorf("host read: %v", err)
				}
				if _, err := b.Host(background, Update); !errors.Is(err, errRow) {
					t.Errorf("host update: %v", err)
				}
				if err := b.ReadAt(background, make([]byte, 1), 0); !errors.Is(err, errRow) {
					t.Errorf("ranged read: %v", err)
				}
				for _, tl := range []*accel.Timeline{q.Timeline, other.Timeline} {
					for _, a := range []Access{Read, Update} {
						if _, err := b.BeginDevice(bg, tl, a, &Needs{}); !errors.Is(err, errRow) {
							t.Errorf("device access %d on %s: %v", a, tl.Name(), err)
						}
					}
				}
			}
			if b.device.pins != 0 {
				t.Errorf("%d pins are left", b.device.pins)
			}
			for _, x := range []*Buffer{innocent, table} {
				if err := x.ReadAt(background, make([]byte, 1), 0); err != nil {
					t.Errorf("a value that does not come from the operation: %v", err)
				}
			}
			// After an overwrite that ends well, the buffer can be read again.
			device(t, b, other, Overwrite, fill('n'))
			other.finish()
			if err := b.ReadAt(background, make([]byte, 1), 0); err != nil {
				t.Errorf("after a device overwrite: %v", err)
			}
		})
	}
}

// A host overwrite removes the sources of the old contents.
func TestHostOverwriteEndsSources(t *testing.T) {
	q := newReporting("gathers")
	list := onDevice(t, 2)
	table, out := list[0], list[1]
	q.gather(t, out, table, true)
	q.finish()
	copy(mustHost(t, out, Overwrite), "whole again.....")
	if p := mustHost(t, out, Read); string(p) != "whole again....." {
		t.Errorf("read %q", p)
	}
	var needs Needs
	if _, err := out.BeginDevice(bg, q.Timeline, Read, &needs); err != nil {
		t.Fatalf("a device read of the new bytes: %v", err)
	}
	out.EndDevice(Read, accel.Work{}, false, nil)
	if want := sources(fakeOf(out).up.Last()); !slices.Equal(needs.Data, want) {
		t.Errorf("the new bytes come from %v, want their upload", needs.Data)
	}
}

// A reader on another queue may be known to have ended before the operation that wrote its
// operand. A host access to the reader's result also waits for the report of that
// operation.
func TestHostWaitsForLateReports(t *testing.T) {
	for _, bad := range []bool{false, true} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			q, reader := newReporting("gathers"), newQueue("reader")
			list := onDevice(t, 3)
			table, out, b := list[0], list[1], list[2]
			q.gather(t, out, table, bad)
			w, _ := derive(t, reader, b, out)
			reader.finish()
			if !w.Done() {
				t.Fatal("the reader has not ended")
			}
			if err := b.ReadAt(countdown.Cancelled(), make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
				t.Errorf("a ranged read does not wait for the report: %v", err)
			}
			if !wouldWait(t, b, Read) || !wouldWait(t, b, Update) || fakeOf(b).downloads != 0 {
				t.Error("a host access does not wait for the report")
			}
			q.finish()
			err := b.ReadAt(background, make([]byte, 1), 0)
			if bad != errors.Is(err, errRow) || !bad && err != nil {
				t.Errorf("after the report: %v", err)
			}
			if !bad && len(b.device.sources) != 0 {
				t.Errorf("a clean report is kept: %v", b.device.sources)
			}
		})
	}
}

// A host read drops the sources of a value, so that a buffer's set does not grow with its
// operations.
func TestFetchForgetsSources(t *testing.T) {
	q := newReporting("gathers")
	list := onDevice(t, 2)
	table, out := list[0], list[1]
	q.gather(t, out, table, false)
	if len(out.device.sources) != 1 {
		t.Fatalf("%d sources, want the operation", len(out.device.sources))
	}
	q.finish()
	if !wouldWait(t, out, Read) {
		t.Fatal("no download")
	}
	fakeOf(out).finish()
	mustHost(t, out, Read)
	if got := out.device.sources; len(got) != 0 {
		t.Errorf("after a host read: sources %v", got)
	}
	if !out.DropDevice() {
		t.Error("not dropped")
	}
}

// If a queue fails, the values of other queues that come from it fail too, even if the work
// of those queues has ended well.
func TestFailedSource(t *testing.T) {
	q, reader := newQueue("fails"), newQueue("reader")
	list := onDevice(t, 3)
	a, b, innocent := list[0], list[1], list[2]
	device(t, a, q, Overwrite, nil)
	derive(t, reader, b, a)
	w, _ := device(t, innocent, q, Read, nil)
	reader.finish()
	q.fail(errBroken)
	if w.Err() == nil {
		t.Fatal("the reader of the other buffer has not failed")
	}
	if _, err := b.Host(background, Read); !errors.Is(err, errBroken) {
		t.Errorf("host read: %v", err)
	}
	if _, err := b.BeginDevice(bg, reader.Timeline, Read, &Needs{}); !errors.Is(err, errBroken) {
		t.Errorf("device read: %v", err)
	}
	// A failed reader is not a source of the buffer that it read, nor of a later write to it.
	device(t, innocent, reader, Update, nil)
	reader.finish()
	if err := innocent.ReadAt(background, make([]byte, 1), 0); err != nil {
		t.Errorf("a buffer that the failed queue read: %v", err)
	}
}

// hookedMemory calls a hook while a transfer is being enqueued.
type hookedMemory struct {
	*fakeMemory
	onUpload, onDownload, onRead func()
}

func call(f func()) {
	if f != nil {
		f()
	}
}

func (m *hookedMemory) Upload(ctx context.Context, off int, src []byte, after accel.Fences) (accel.Work, error) {
	call(m.onUpload)
	return m.fakeMemory.Upload(ctx, off, src, after)
}

func (m *hookedMemory) Download(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	call(m.onDownload)
	return m.fakeMemory.Download(ctx, dst, off, after)
}

func (m *hookedMemory) Read(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	call(m.onRead)
	return m.fakeMemory.Read(ctx, dst, off, after)
}

// During a ranged read another reader may make the host copy valid. An evictor that runs
// then must not give back the device bytes before the ranged read has ended.
func TestRangedReadKeepsDeviceBytes(t *testing.T) {
	m := &hookedMemory{fakeMemory: newMemory(16)}
	b, q := NewLazy(16), newQueue("compute")
	defer b.Release()
	b.Attach(m, nil, &Retired{})
	if _, err := b.BeginDevice(bg, q.Timeline, Overwrite, &Needs{}); err != nil {
		t.Fatal(err)
	}
	b.EndDevice(Overwrite, q.enqueue(func() { fill('r')(m.fakeMemory) }), true, nil)
	q.finish()
	m.onRead = func() {
		if !wouldWait(t, b, Read) {
			t.Error("no download")
		}
		m.finish()
		mustHost(t, b, Read)
		if b.DropDevice() {
			t.Error("the device bytes were given back under a read")
		}
	}
	got := make([]byte, 2)
	if err := b.ReadAt(background, got, 5); err != nil || string(got) != "rr" {
		t.Errorf("read %q, %v", got, err)
	}
	if !b.DropDevice() {
		t.Error("the device bytes are kept after the read")
	}
}

// Operations that are prepared at the same time do not follow one another, even if one of
// them writes. The next write, and the return of the device bytes, follow all of them,
// whichever ends first.
func TestUsersBegunTogether(t *testing.T) {
	begin := func(b *Buffer, q *fakeQueue, a Access) func() accel.Work {
		if _, err := b.BeginDevice(bg, q.Timeline, a, &Needs{}); err != nil {
			t.Fatal(err)
		}
		return func() accel.Work {
			w := q.enqueue(func() {})
			b.EndDevice(a, w, true, nil)
			return w
		}
	}
	for _, c := range []struct {
		name string
		run  func(b *Buffer, m *hookedMemory, first, second *fakeQueue) []accel.Work
	}{
		{"a reader and a writer", func(b *Buffer, _ *hookedMemory, first, second *fakeQueue) []accel.Work {
			read, write := begin(b, first, Read), begin(b, second, Update)
			return []accel.Work{read(), write()}
		}},
		{"a reader and an upload", func(b *Buffer, m *hookedMemory, first, second *fakeQueue) []accel.Work {
			read := begin(b, first, Read)
			mustHost(t, b, Update)
			var w accel.Work
			m.onUpload = func() { w = read() }
			other := begin(b, second, Read)
			return []accel.Work{w, m.up.Last(), other()}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &hookedMemory{fakeMemory: newMemory(16)}
			b := mustNew(t, 16)
			mustHost(t, b, Overwrite)
			b.Attach(m, nil, &Retired{})
			first, second := newQueue("first"), newQueue("second")
			begin(b, second, Read)()
			m.finish()
			second.finish()

			users := c.run(b, m, first, second)
			var needs Needs
			if _, err := b.BeginDevice(bg, newQueue("third").Timeline, Update, &needs); err != nil {
				t.Fatal(err)
			}
			b.EndDevice(Update, accel.Work{}, false, nil)
			b.Release()
			for _, w := range users {
				if !slices.Contains(needs.Order, w) {
					t.Errorf("the next write does not follow %s %d", w.Timeline().Name(), w.Seq())
				}
				if !slices.Contains(m.freeUses, w) {
					t.Errorf("the device bytes are given back without the fence %s %d", w.Timeline().Name(), w.Seq())
				}
			}
			m.finish()
			first.finish()
			second.finish()
		})
	}
}

// A host write bumps the generation before an upload of its bytes can begin. If the
// generation changed during the upload, the upload would count as stale, and its operation
// would run on an invalid device copy without following the upload.
func TestHostWriteCountsBeforeUpload(t *testing.T) {
	b := mustNew(t, 16)
	defer b.Release()
	b.Attach(newMemory(16), nil, &Retired{})
	before := b.Generation()
	if err := b.device.host(bg, b, Update); err != nil {
		t.Fatal(err)
	}
	if b.Generation() != before+1 {
		t.Error("the state of the host copy changed before the write was counted")
	}
}

// A panic in a Memory method reaches the caller unchanged, and leaves the buffer in the
// same state as an error.
func TestPanicInTransfer(t *testing.T) {
	boom := func() { panic("boom") }
	for _, c := range []struct {
		name string
		run  func(b *Buffer)
	}{
		{"upload", func(b *Buffer) {
			mustHost(t, b, Update)
			_, _ = b.BeginDevice(bg, newQueue("other").Timeline, Read, &Needs{})
		}},
		{"download", func(b *Buffer) { _, _ = b.Host(bg, Read) }},
		{"ranged read", func(b *Buffer) { _ = b.ReadAt(bg, make([]byte, 1), 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &hookedMemory{fakeMemory: newMemory(16)}
			b, q := mustNew(t, 16), newQueue("compute")
			defer b.Release()
			b.Attach(m, nil, &Retired{})
			device(t, b, q, Overwrite, nil)
			q.finish()
			if c.name == "upload" {
				wouldWait(t, b, Read)
				m.finish()
			}
			m.onUpload, m.onDownload, m.onRead = boom, boom, boom
			if msg := panicOf(func() { c.run(b) }); msg != "boom" {
				t.Fatalf("panic %q, want boom", msg)
			}
			if s := &b.device; s.pins != 0 || s.transferring || !s.transferLock.TryLock() {
				t.Fatalf("%d pins, transferring %v, or transferLock is still locked", s.pins, s.transferring)
			}
			b.device.transferLock.Unlock()
			m.onUpload, m.onDownload, m.onRead = nil, nil, nil
			wouldWait(t, b, Read)
			m.finish()
			mustHost(t, b, Read)
		})
	}
}

// While a transfer is being enqueued, the device bytes are not given back, no other
// transfer is enqueued, and neither copy is written to. Every waiter returns when its
// context ends.
func TestTransferBeingBegun(t *testing.T) {
	for _, kind := range []string{"upload", "download"} {
		t.Run(kind, func(t *testing.T) {
			m := &hookedMemory{fakeMemory: newMemory(16)}
			b, q := mustNew(t, 16), newQueue("compute")
			defer b.Release()
			copy(mustHost(t, b, Overwrite), "sixteen bytes...")
			b.Attach(m, nil, &Retired{})
			if kind == "download" {
				if _, err := b.BeginDevice(bg, q.Timeline, Overwrite, &Needs{}); err != nil {
					t.Fatal(err)
				}
				b.EndDevice(Overwrite, q.enqueue(func() { fill('d')(m.fakeMemory) }), true, nil)
				q.finish()
			}
			calls := 0
			hook := func() {
				if calls++; calls > 1 {
					t.Error("a second transfer was begun")
					return
				}
				if b.DropDevice() {
					t.Error("the device bytes were given back")
				}
				for _, a := range []Access{Read, Update, Overwrite} {
					if _, err := b.BeginDevice(countdown.Cancelled(), q.Timeline, a, &Needs{}); !errors.Is(err, context.Canceled) {
						t.Errorf("device access %d: %v", a, err)
					}
				}
				for _, a := range []Access{Update, Overwrite} {
					if _, err := b.Host(countdown.Cancelled(), a); !errors.Is(err, context.Canceled) {
						t.Errorf("host access %d: %v", a, err)
					}
				}
				_, err := b.Host(countdown.Cancelled(), Read)
				if want := kind == "download"; errors.Is(err, context.Canceled) != want {
					t.Errorf("host read: %v", err)
				}
			}
			m.onUpload, m.onDownload = hook, hook
			if kind == "upload" {
				device := func() error {
					_, err := b.BeginDevice(bg, q.Timeline, Read, &Needs{})
					return err
				}
				if err := device(); err != nil {
					t.Fatal(err)
				}
				b.EndDevice(Read, accel.Work{}, false, nil)
				m.finish()
			} else {
				if !wouldWait(t, b, Read) {
					t.Fatal("no download")
				}
				m.finish()
				if p := mustHost(t, b, Read); string(p) != "dddddddddddddddd" {
					t.Errorf("read %q", p)
				}
			}
			if calls != 1 || b.device.pins != 0 || b.device.transferring {
				t.Errorf("%d transfers, %d pins, transferring %v", calls, b.device.pins, b.device.transferring)
			}
			if !b.device.transferLock.TryLock() {
				t.Fatal("the transfer still holds its lock")
			}
			b.device.transferLock.Unlock()
			mustHost(t, b, Update)
		})
	}
}

// partMemory fails each transfer after a part of it was enqueued, as when a wait for room
// is cancelled.
type partMemory struct{ *fakeMemory }

func (m *partMemory) Upload(context.Context, int, []byte, accel.Fences) (accel.Work, error) {
	return m.up.enqueue(func() {}), errBroken
}

func (m *partMemory) Download(context.Context, []byte, int, accel.Work) (accel.Work, error) {
	return m.down.enqueue(func() {}), errBroken
}

func (m *partMemory) Read(context.Context, []byte, int, accel.Work) (accel.Work, error) {
	return m.down.enqueue(func() {}), errBroken
}

// The enqueued part of a failed transfer still uses the device bytes and the host bytes.
func TestPartOfTransferKeepsBytes(t *testing.T) {
	for _, tt := range []struct {
		name     string
		onDevice bool // the newest bytes
		transfer func(b *Buffer) error
		queue    func(m *partMemory) *fakeQueue
		retired  int
	}{
		{"upload", false, func(b *Buffer) error {
			_, err := b.BeginDevice(bg, newQueue("compute").Timeline, Read, &Needs{})
			return err
		}, func(m *partMemory) *fakeQueue { return m.up }, 0},
		{"download", true, func(b *Buffer) error {
			_, err := b.Host(background, Read)
			return err
		}, func(m *partMemory) *fakeQueue { return m.down }, 1},
		{"ranged read", true, func(b *Buffer) error {
			return b.ReadAt(background, make([]byte, 4), 0)
		}, func(m *partMemory) *fakeQueue { return m.down }, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leak.Check(t)
			b, m, q, r := mustNew(t, 16), &partMemory{newMemory(16)}, newQueue("compute"), &Retired{}
			b.Attach(m, nil, r)
			if tt.onDevice {
				if _, err := b.BeginDevice(bg, q.Timeline, Overwrite, &Needs{}); err != nil {
					t.Fatal(err)
				}
				b.EndDevice(Overwrite, q.enqueue(func() {}), true, nil)
				q.finish()
			}
			if err := tt.transfer(b); !errors.Is(err, errBroken) {
				t.Fatalf("transfer: %v", err)
			}
			part := tt.queue(m).Last()
			if part.IsZero() || part.Done() {
				t.Fatal("no part is under way")
			}
			if !wouldWait(t, b, Overwrite) {
				t.Error("a host write does not wait for it")
			}
			b.Release()
			if !slices.Contains(m.freeUses, part) {
				t.Errorf("the device bytes were given back after %v, without the part under way", m.freeUses)
			}
			if n := r.Sweep(); n != tt.retired {
				t.Errorf("%d host blocks are kept, want %d", n, tt.retired)
			}
			m.finish()
			r.Sweep()
		})
	}
}

// promptMemory completes a download before Download returns.
type promptMemory struct{ *fakeMemory }

func (m *promptMemory) Download(_ context.Context, dst []byte, off int, _ accel.Work) (accel.Work, error) {
	m.downloads++
	copy(dst, m.peek(off, len(dst)))
	return accel.Work{}, nil
}

// A download that completes before Download returns validates the host copy; no second
// download follows.
func TestDownloadThatEndsAtOnce(t *testing.T) {
	b, m, q := NewLazy(16), &promptMemory{newMemory(16)}, newQueue("compute")
	defer b.Release()
	b.Attach(m, nil, &Retired{})
	if _, err := b.BeginDevice(bg, q.Timeline, Overwrite, &Needs{}); err != nil {
		t.Fatal(err)
	}
	b.EndDevice(Overwrite, q.enqueue(func() { fill('p')(m.fakeMemory) }), true, nil)
	q.finish()
	for range 2 {
		if p := mustHost(t, b, Read); p[0] != 'p' || m.downloads != 1 {
			t.Errorf("read %q after %d downloads, want 1", p, m.downloads)
		}
	}
	if !b.DropDevice() {
		t.Error("not dropped")
	}
}

// Two operations that need an upload at the same time share it.
func TestOperationsShareOneUpload(t *testing.T) {
	m := &hookedMemory{fakeMemory: newMemory(16)}
	b, first, second := mustNew(t, 16), newQueue("first"), newQueue("second")
	defer b.Release()
	b.Attach(m, nil, &Retired{})
	errs := make(chan error)
	m.onUpload = func() {
		m.onUpload = nil
		begun := make(chan struct{})
		go func() {
			close(begun)
			_, err := b.BeginDevice(bg, second.Timeline, Read, &Needs{})
			errs <- err
		}()
		<-begun
	}
	if _, err := b.BeginDevice(bg, first.Timeline, Read, &Needs{}); err != nil {
		t.Fatal(err)
	}
	if err := <-errs; err != nil {
		t.Fatal(err)
	}
	if m.uploads != 1 || b.device.pins != 2 {
		t.Errorf("%d uploads and %d pins, want 1 and 2", m.uploads, b.device.pins)
	}
	for range 2 {
		b.EndDevice(Read, accel.Work{}, false, nil)
	}
}

// Operations on values of other queues do not allocate.
func TestSourcesDoNotAllocate(t *testing.T) {
	q, other := newReporting("gathers"), newQueue("other")
	list := onDevice(t, 3)
	table, out, b := list[0], list[1], list[2]
	var needs Needs
	step := func() {
		word := q.TakeStatus()
		w := q.Issue()
		q.Watch(w, word, func(uint64, accel.Watched) error { return errRow }, accel.Watched{})
		needs.Reset()
		for _, x := range [...]struct {
			b *Buffer
			a Access
		}{{table, Read}, {out, Overwrite}} {
			if _, err := x.b.BeginDevice(bg, q.Timeline, x.a, &needs); err != nil {
				t.Error(err)
			}
		}
		needs.Data.Add(w)
		table.EndDevice(Read, w, true, needs.Data)
		out.EndDevice(Overwrite, w, true, needs.Data)
		needs.Reset()
		for _, x := range [...]struct {
			b *Buffer
			a Access
		}{{out, Read}, {b, Overwrite}} {
			if _, err := x.b.BeginDevice(bg, other.Timeline, x.a, &needs); err != nil {
				t.Error(err)
			}
		}
		if len(needs.Data) != 1 || len(needs.Order) == 0 {
			t.Errorf("needs %v", needs)
		}
		v := other.Issue()
		out.EndDevice(Read, v, true, needs.Data)
		b.EndDevice(Overwrite, v, true, needs.Data)
		q.Complete(w.Seq())
		other.Complete(v.Seq())
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
