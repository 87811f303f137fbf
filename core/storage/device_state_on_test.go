//go:build cuda || metal || accel

package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/leak"
)

// For every access in every state of the two valid bits, the test checks the transfers and
// the valid bits afterwards.
func TestTransitions(t *testing.T) {
	const size = 16
	type bits struct{ host, device bool }
	states := []struct {
		name  string
		bits  bits
		value byte // of the newest bytes
		make  func(t *testing.T, b *Buffer, m *fakeMemory, q *fakeQueue)
	}{
		{"neither", bits{}, 0, func(*testing.T, *Buffer, *fakeMemory, *fakeQueue) {}},
		{"host", bits{host: true}, 'h', func(t *testing.T, b *Buffer, _ *fakeMemory, _ *fakeQueue) {
			copy(mustHost(t, b, Overwrite), bytes.Repeat([]byte{'h'}, size))
		}},
		{"device", bits{device: true}, 'd', func(t *testing.T, b *Buffer, _ *fakeMemory, q *fakeQueue) {
			device(t, b, q, Overwrite, fill('d'))
			q.finish()
		}},
		{"both", bits{true, true}, 'h', func(t *testing.T, b *Buffer, m *fakeMemory, q *fakeQueue) {
			copy(mustHost(t, b, Overwrite), bytes.Repeat([]byte{'h'}, size))
			device(t, b, q, Read, nil)
			m.finish()
			q.finish()
		}},
	}
	accesses := []struct {
		name   string
		a      Access
		device bool
	}{
		{"host read", Read, false}, {"host overwrite", Overwrite, false}, {"host update", Update, false},
		{"device read", Read, true}, {"device overwrite", Overwrite, true}, {"device update", Update, true},
	}
	for _, s := range states {
		for _, acc := range accesses {
			t.Run(s.name+"/"+acc.name, func(t *testing.T) {
				leak.Check(t)
				b, m, q := NewLazy(size), newMemory(size), newQueue("compute")
				defer b.Release()
				b.Attach(m, nil, &Retired{})
				s.make(t, b, m, q)
				before, gen := m.transfers(), b.Generation()

				want, after := before, s.bits
				newest := bytes.Repeat([]byte{s.value}, size)
				stale := acc.a != Overwrite && s.bits != bits{} // the copy has to be made valid
				if acc.device {
					if stale && !s.bits.device {
						want[0]++
						after.device = true
					}
					effect := func(m *fakeMemory) {}
					switch acc.a {
					case Overwrite:
						effect = fill('D')
						newest, after = bytes.Repeat([]byte{'D'}, size), bits{device: true}
					case Update:
						effect = func(m *fakeMemory) { m.poke(3, []byte{'U'}) }
						newest[3], after = 'U', bits{device: true}
					}
					device(t, b, q, acc.a, func(m *fakeMemory) {
						m.up.finish() // the operation follows the upload
						effect(m)
					})
					q.finish()
				} else {
					if stale && !s.bits.host {
						want[1]++
						after.host = true
					}
					done := make(chan []byte)
					go func() { done <- mustHost(t, b, acc.a) }()
					if want[1] > before[1] {
						m.down.awaitWaits(1)
						m.down.finish()
					}
					p := <-done
					switch acc.a {
					case Overwrite:
						copy(p, bytes.Repeat([]byte{'H'}, size))
						newest, after = bytes.Repeat([]byte{'H'}, size), bits{host: true}
					case Update:
						p[3] = 'U'
						newest[3], after = 'U', bits{host: true}
					default:
						if s.value != 0 && !bytes.Equal(p, newest) {
							t.Errorf("the host reads %q, want %q", p, newest)
						}
					}
				}
				if got := m.transfers(); got != want {
					t.Errorf("%v uploads and downloads, want %v", got, want)
				}
				if got := (bits{b.device.hostValid, b.device.devValid}); got != after {
					t.Errorf("valid %+v, want %+v", got, after)
				}
				if b.NewestOnDevice() != (after.device && !after.host) {
					t.Errorf("NewestOnDevice = %v", b.NewestOnDevice())
				}
				if bumped := b.Generation() != gen; bumped != (acc.a != Read) {
					t.Errorf("generation moved: %v", bumped)
				}
				if s.value == 0 && acc.a != Overwrite {
					return // no bytes were ever written, so there is nothing to compare
				}
				got := make([]byte, size)
				if err := b.ReadAt(background, got, 0); err != nil || !bytes.Equal(got, newest) {
					t.Errorf("newest bytes %q, %v; want %q", got, err, newest)
				}
			})
		}
	}
}

func TestNoHostMemoryBeforeFirstHostRead(t *testing.T) {
	leak.Check(t)
	allocs := offheap.Stats().Allocs
	b, m, q, _ := lazyOnDevice(t, 4096, 'd')
	defer b.Release()
	device(t, b, q, Read, nil)
	device(t, b, q, Update, nil)
	q.finish()
	if err := b.ReadAt(background, make([]byte, 8), 100); err != nil {
		t.Fatal(err)
	}
	if b.DropDevice() {
		t.Fatal("dropped the only copy")
	}
	if n := offheap.Stats().Allocs - allocs; b.HasHost() || n != 0 {
		t.Fatalf("host memory (%d allocations) before a host access", n)
	}
	if !wouldWait(t, b, Read) || !b.HasHost() {
		t.Error("the first host read starts no download")
	}
	m.finish()
	if p := mustHost(t, b, Read); p[0] != 'd' {
		t.Errorf("read %q", p[0])
	}
	if n := offheap.Stats().Allocs - allocs; n != 1 {
		t.Errorf("%d allocations, want 1", n)
	}
}

// Eight concurrent readers of one pending result share one download.
func TestReadersShareOneDownload(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 64, 'a')
	defer b.Release()
	device(t, b, q, Overwrite, fill('b'))
	const readers = 8
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			p, err := b.Host(background, Read)
			if err != nil || p[0] != 'b' || p[63] != 'b' {
				t.Errorf("read %q, %v", p, err)
			}
		})
	}
	q.awaitWaits(readers)
	q.finish()
	m.down.awaitWaits(readers)
	m.down.finish()
	wg.Wait()
	if m.downloads != 1 {
		t.Errorf("%d downloads, want 1", m.downloads)
	}
}

func TestReadAtChangesNoState(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 64, 'a')
	defer b.Release()
	w, _ := device(t, b, q, Update, func(m *fakeMemory) { m.poke(20, []byte("row")) })
	if err := b.ReadAt(countdown.Cancelled(), make([]byte, 3), 20); !errors.Is(err, context.Canceled) {
		t.Fatalf("ReadAt before the writer has ended: %v", err)
	}
	q.finish()
	gen := b.Generation()
	got := make([]byte, 3)
	if err := b.ReadAt(background, got, 20); err != nil || string(got) != "row" {
		t.Errorf("ReadAt = %q, %v", got, err)
	}
	if want := []span{{20, 3}}; !slices.Equal(m.reads, want) {
		t.Errorf("read %v of the device, want %v", m.reads, want)
	}
	s := &b.device
	if m.downloads != 0 || b.HasHost() || s.hostValid || !s.devValid || b.Generation() != gen || s.writer != w || s.pins != 0 {
		t.Errorf("state changed: %d downloads, host %v, valid %v %v, %d pins", m.downloads, b.HasHost(), s.hostValid, s.devValid, s.pins)
	}
}

func TestHostWriteWaitsForWriterAndReaders(t *testing.T) {
	for _, a := range []Access{Overwrite, Update} {
		t.Run(fmt.Sprint(a), func(t *testing.T) {
			b, m, q1, _ := lazyOnDevice(t, 16, 'a')
			defer b.Release()
			q2, q3 := newQueue("second"), newQueue("third")
			device(t, b, q1, Overwrite, fill('b'))
			device(t, b, q2, Read, nil)
			device(t, b, q3, Read, nil)
			if !wouldWait(t, b, a) {
				t.Fatal("a host write does not wait for the device")
			}
			q1.finish()
			m.finish()
			if !wouldWait(t, b, a) {
				t.Error("a host write does not wait for the readers")
			}
			q3.finish()
			m.finish()
			if !wouldWait(t, b, a) {
				t.Error("a host write does not wait for every reader")
			}
			q2.finish()
			m.finish()
			if wouldWait(t, b, a) {
				t.Error("a host write waits with the device idle")
			}
		})
	}
}

// A host read waits for the writer and for nothing else. Without the wait it would return
// the old bytes.
func TestHostReadWaitsForWriterOnly(t *testing.T) {
	b, m, q1, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	q2 := newQueue("second")
	device(t, b, q1, Overwrite, fill('b'))
	device(t, b, q2, Read, nil) // stays pending
	if !wouldWait(t, b, Read) {
		t.Fatal("a host read does not wait for the writer")
	}
	if m.downloads != 0 {
		t.Error("a download is enqueued before the writer has ended, and delays the downloads behind it")
	}
	q1.finish()
	if !wouldWait(t, b, Read) || m.downloads != 1 {
		t.Errorf("%d downloads after the writer has ended, want 1", m.downloads)
	}
	m.finish()
	p, err := b.Host(countdown.Cancelled(), Read)
	if err != nil || p[0] != 'b' {
		t.Errorf("read %q, %v with only a reader pending", p, err)
	}
	// A host read of a valid host copy does not wait for a device reader.
	device(t, b, q2, Read, nil)
	if wouldWait(t, b, Read) {
		t.Error("a host read waits for a device reader")
	}
}

func TestDeviceDependencies(t *testing.T) {
	b, m, q1, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	q2, q3 := newQueue("second"), newQueue("third")

	w1, deps := device(t, b, q1, Overwrite, nil)
	if len(deps) != 0 {
		t.Errorf("a write after a completed write depends on %v", deps)
	}
	if _, deps = device(t, b, q1, Read, nil); len(deps) != 0 {
		t.Errorf("a read on the writer's own queue depends on %v", deps)
	}
	r2, deps := device(t, b, q2, Read, nil)
	if !slices.Equal(deps, accel.Fences{w1}) {
		t.Errorf("a read on another queue depends on %v, want the writer", deps)
	}
	if _, deps = device(t, b, q3, Read, nil); !slices.Equal(deps, accel.Fences{w1}) {
		t.Errorf("a read on a third queue depends on %v, want the writer alone", deps)
	}
	r3 := q3.Last()
	w1b, deps := device(t, b, q1, Update, nil)
	slices.SortFunc(deps, func(a, b accel.Work) int { return strings.Compare(a.Timeline().Name(), b.Timeline().Name()) })
	if !slices.Equal(deps, accel.Fences{r2, r3}) {
		t.Errorf("a write depends on %v, want the readers of other queues", deps)
	}
	if _, deps = device(t, b, q2, Overwrite, nil); !slices.Equal(deps, accel.Fences{w1b, r3}) {
		t.Errorf("the next write depends on %v, want the latest writer, and the reader that ends after it if its queue dies", deps)
	}
	q1.finish()
	q2.finish()
	q3.finish()
	if _, deps = device(t, b, q3, Overwrite, nil); len(deps) != 0 {
		t.Errorf("with the device idle, a write depends on %v", deps)
	}
	q3.finish()

	// Transfers are users like operations.
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	download := m.down.Last()
	if _, deps = device(t, b, q1, Overwrite, nil); !slices.Equal(deps, accel.Fences{download}) {
		t.Errorf("a write during a download depends on %v, want the download", deps)
	}
	q1.finish()
	m.finish()
	mustHost(t, b, Overwrite)
	if _, deps = device(t, b, q1, Read, nil); !slices.Equal(deps, accel.Fences{m.up.Last()}) {
		t.Errorf("a read after an upload depends on %v, want the upload", deps)
	}
}

// When a queue dies, its work ends at once, including work that follows other queues. The
// buffer remembers the uses of the other queues until they have ended themselves.
func TestUsesOutliveDeadQueue(t *testing.T) {
	for _, first := range []Access{Read, Overwrite} {
		b, m, _, _ := lazyOnDevice(t, 16, 'a')
		q1, q2, q3 := newQueue("first"), newQueue("second"), newQueue("third")
		w, _ := device(t, b, q1, first, nil)
		if _, deps := device(t, b, q2, Overwrite, nil); !slices.Equal(deps, accel.Fences{w}) {
			t.Errorf("access %d: a write depends on %v, want %v", first, deps, w)
		}
		q2.fail(errBroken)
		q2.End()
		if _, deps := device(t, b, q3, Overwrite, nil); !slices.Contains(deps, w) {
			t.Errorf("access %d: a write after a dead queue's depends on %v, want %v too", first, deps, w)
		}
		q3.fail(errBroken)
		q3.End()
		b.Release()
		if !slices.Contains(m.freeUses, w) {
			t.Errorf("access %d: the bytes are freed under %v, want %v too", first, m.freeUses, w)
		}
		q1.finish()
	}
}

// The first write to attached device bytes follows their earlier uses on another queue.
func TestAttachCarriesEarlierUses(t *testing.T) {
	q1 := newQueue("first")
	var uses accel.Fences
	uses.Add(q1.Issue())
	for _, a := range []Access{Overwrite, Update} {
		q2, b := newQueue("second"), NewLazy(16)
		b.Attach(newMemory(16), uses, &Retired{})
		if _, deps := device(t, b, q2, a, nil); !slices.Equal(deps, uses) {
			t.Errorf("the first write, access %d, depends on %v, want %v", a, deps, uses)
		}
		q2.finish()
		b.Release()
	}
	// An upload is a write, so it follows them too.
	b, m := mustNew(t, 16), newMemory(16)
	defer b.Release()
	b.Attach(m, uses, &Retired{})
	device(t, b, newQueue("third"), Read, nil)
	if !slices.Equal(m.after, uses) {
		t.Errorf("the upload follows %v, want %v", m.after, uses)
	}
}

// An operation on a new buffer follows the earlier uses of its device bytes. If the provider
// accepts it, it is the latest writer, and its sources are those of the buffer. Otherwise the
// bytes go back under their earlier uses.
func TestNewBuffer(t *testing.T) {
	q, other := newQueue("compute"), newQueue("other")
	var uses accel.Fences
	uses.Add(q.Issue())
	uses.Add(other.Issue())
	for _, submitted := range []bool{false, true} {
		b, m := NewLazy(16), newMemory(16)
		gen := b.Generation()
		var needs Needs
		b.BeginNew(q.Timeline, m, uses, &Retired{}, &needs)
		if want := uses[1:]; !slices.Equal(needs.Order, want) || len(needs.Data) != 0 {
			t.Errorf("the operation needs %v, want the order %v", needs, want)
		}
		frees := uses
		if submitted {
			w := q.Issue()
			var data accel.Sources
			data.Add(w)
			b.EndNew(w, data)
			if !b.NewestOnDevice() || b.Generation() == gen || !slices.Equal(b.device.sources, data) {
				t.Errorf("newest on the device: %t; generation %d; sources %v", b.NewestOnDevice(), b.Generation(), b.device.sources)
			}
			if _, order := device(t, b, other, Read, nil); !slices.Equal(order, accel.Fences{w}) {
				t.Errorf("a reader follows %v, want %v", order, w)
			}
			frees = slices.Clone(b.device.readers) // of the other queue
			frees.Add(w)
		}
		b.Release()
		if m.frees != 1 || !slices.Equal(m.freeUses, frees) {
			t.Errorf("submitted %t: freed %d times under %v, want %v", submitted, m.frees, m.freeUses, frees)
		}
	}
}

func TestAttachTwice(t *testing.T) {
	b, first, second := NewLazy(16), newMemory(16), newMemory(16)
	if !b.Attach(first, nil, &Retired{}) || b.Attach(second, nil, &Retired{}) {
		t.Fatal("want the first Attach to take the memory and the second to refuse it")
	}
	if b.DeviceMemory() != accel.Memory(first) {
		t.Error("the buffer's memory is not the first one")
	}
	b.Release()
	if first.frees != 1 || second.frees != 0 {
		t.Errorf("the memories were freed %d and %d times, want 1 and 0", first.frees, second.frees)
	}
}

func TestDeviceAccessRefused(t *testing.T) {
	q := newQueue("compute")
	var needs Needs
	b := mustNew(t, 16)
	defer b.Release()
	if _, err := b.BeginDevice(bg, q.Timeline, Read, &needs); !errors.Is(err, ErrNoDeviceMemory) {
		t.Errorf("without device memory: %v", err)
	}
	ro := Borrow(make([]byte, 16), BorrowOptions{ReadOnly: true})
	defer ro.Release()
	m := newMemory(16)
	ro.Attach(m, nil, &Retired{})
	for _, a := range []Access{Overwrite, Update} {
		if _, err := ro.BeginDevice(bg, q.Timeline, a, &needs); !errors.Is(err, ErrReadOnly) {
			t.Errorf("device write to read-only bytes: %v", err)
		}
	}
	if len(needs.Order) != 0 || m.uploads != 0 || ro.device.pins != 0 {
		t.Errorf("a refused access left %v, %d uploads, %d pins", needs.Order, m.uploads, ro.device.pins)
	}
	device(t, ro, q, Read, nil)
	if m.uploads != 1 {
		t.Error("read-only bytes were not uploaded")
	}
}

func TestNotSubmittedChangesNothing(t *testing.T) {
	b, _, q, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	gen, writer := b.Generation(), b.device.writer
	for _, a := range []Access{Read, Overwrite, Update} {
		var needs Needs
		if _, err := b.BeginDevice(bg, q.Timeline, a, &needs); err != nil {
			t.Fatal(err)
		}
		b.EndDevice(a, accel.Work{}, false, nil)
	}
	s := &b.device
	if b.Generation() != gen || s.writer != writer || len(s.readers) != 0 || s.pins != 0 || !s.devValid {
		t.Errorf("generation %d, writer %v, readers %v, %d pins", b.Generation(), s.writer, s.readers, s.pins)
	}
}

func TestDeviceMutationCountsAndDropsShadow(t *testing.T) {
	b, _, q, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	destroyed := 0
	b.SetShadow(&accel.HostShadow{Generation: b.Generation(), Destroy: func(any) {
		destroyed++
		b.NewestOnDevice() // a hook may look at the buffer
	}})
	gen := b.Generation()
	device(t, b, q, Read, nil)
	if b.Generation() != gen || b.Shadow() == nil {
		t.Error("a device read is a mutation")
	}
	device(t, b, q, Update, nil)
	if b.Generation() != gen+1 || b.Shadow() != nil || destroyed != 1 {
		t.Errorf("after a device write: generation %d, shadow destroyed %d times", b.Generation(), destroyed)
	}
	device(t, b, q, Overwrite, nil)
	if b.Generation() != gen+2 {
		t.Errorf("generation %d, want %d", b.Generation(), gen+2)
	}
}

func TestFailedWriter(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	device(t, b, q, Overwrite, nil)
	if !wouldWait(t, b, Read) { // a download is enqueued
		t.Fatal("no wait")
	}
	q.fail(errBroken)
	m.finish() // the transfer itself ends well, but its bytes are undefined
	check := func(when string) {
		t.Helper()
		for range 2 {
			if _, err := b.Host(background, Read); !errors.Is(err, errBroken) {
				t.Errorf("%s: host read: %v", when, err)
			}
			if _, err := b.Host(background, Update); !errors.Is(err, errBroken) {
				t.Errorf("%s: host update: %v", when, err)
			}
			if err := b.ReadAt(background, make([]byte, 1), 0); !errors.Is(err, errBroken) {
				t.Errorf("%s: ranged read: %v", when, err)
			}
			for _, a := range []Access{Read, Update} {
				var needs Needs
				if _, err := b.BeginDevice(bg, q.Timeline, a, &needs); !errors.Is(err, errBroken) {
					t.Errorf("%s: device access %d: %v", when, a, err)
				}
			}
		}
	}
	check("after the failure")
	if b.device.pins != 0 || b.DropDevice() {
		t.Errorf("%d pins, or the only copy was dropped", b.device.pins)
	}
	// After an overwrite that ends well, the buffer can be read again.
	device(t, b, q, Overwrite, fill('n'))
	q.finish()
	done := make(chan struct{})
	waits := m.down.waits.Load()
	go func() { m.down.awaitWaits(waits + 1); m.down.finish(); close(done) }()
	if p := mustHost(t, b, Read); p[0] != 'n' {
		t.Errorf("read %q after a good overwrite", p)
	}
	<-done
}

// A host read that waits for a writer returns the writer's failure.
func TestWriterFailsUnderWaitingReader(t *testing.T) {
	b, _, q, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	device(t, b, q, Overwrite, nil)
	errs := make(chan error)
	go func() {
		_, err := b.Host(background, Read)
		errs <- err
	}()
	q.awaitWaits(1)
	q.fail(errBroken)
	if err := <-errs; !errors.Is(err, errBroken) {
		t.Errorf("the reader got %v, want the writer's failure", err)
	}
}

func TestHostOverwriteAfterFailedWriter(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 16, 'a')
	w, _ := device(t, b, q, Overwrite, nil)
	q.fail(errBroken)
	copy(mustHost(t, b, Overwrite), "whole again!!!!!")
	if p := mustHost(t, b, Read); string(p) != "whole again!!!!!" {
		t.Errorf("read %q", p)
	}
	// The failed operation may still be touching the device bytes.
	b.Release()
	if !slices.Contains(m.freeUses, w) {
		t.Errorf("device bytes given back after %v, without the failed operation", m.freeUses)
	}
}

// After a writer failed, the device may still be writing. Bytes that the host writes
// afterwards are uploaded to other device bytes.
func TestHostWriteAfterFailedWriterDropsDevice(t *testing.T) {
	for _, ended := range []bool{false, true} {
		b, m, q, _ := lazyOnDevice(t, 16, 'a')
		failed, _ := device(t, b, q, Overwrite, nil)
		q.fail(errBroken)
		if ended {
			q.End()
		}
		mustHost(t, b, Overwrite)
		if kept := b.DeviceMemory() != nil; kept != ended {
			t.Errorf("queue ended %v: device bytes kept %v", ended, kept)
		}
		b.Release()
		if m.frees != 1 || !ended && !slices.Contains(m.freeUses, failed) {
			t.Errorf("queue ended %v: freed %d times under %v, want once under the failed work", ended, m.frees, m.freeUses)
		}
	}
}

func TestFailedUploadLeavesHostCopy(t *testing.T) {
	b, m, q := mustNew(t, 16), newMemory(16), newQueue("compute")
	copy(mustHost(t, b, Overwrite), "sixteen bytes...")
	b.Attach(m, nil, &Retired{})
	device(t, b, q, Read, nil)
	failed, reader := m.up.Last(), q.Last()
	m.up.fail(errBroken)
	q.fail(errBroken)
	if p, err := b.Host(background, Read); err != nil || string(p) != "sixteen bytes..." {
		t.Errorf("host read after a failed upload: %q, %v", p, err)
	}
	// The next device access uploads again.
	device(t, b, q, Read, nil)
	if m.uploads != 2 {
		t.Errorf("%d uploads, want 2", m.uploads)
	}
	if slices.Contains(m.after, failed) || slices.Contains(m.after, reader) {
		t.Errorf("the new upload follows what has failed: %v", m.after)
	}
	m.finish()
	q.finish()
	if got := m.peek(0, 16); string(got) != "sixteen bytes..." {
		t.Errorf("the device has %q", got)
	}
	if p, err := b.Host(background, Update); err != nil || string(p) != "sixteen bytes..." {
		t.Errorf("host update: %q, %v", p, err)
	}
	b.Release()
	if !slices.Equal(m.freeUses, accel.Fences{failed, reader}) {
		t.Errorf("device bytes given back after %v, want what failed on them", m.freeUses)
	}
}

func TestRefusedUpload(t *testing.T) {
	b, m, q := mustNew(t, 16), newMemory(16), newQueue("compute")
	defer b.Release()
	b.Attach(m, nil, &Retired{})
	m.upErr = errBroken
	var needs Needs
	if _, err := b.BeginDevice(bg, q.Timeline, Update, &needs); !errors.Is(err, errBroken) {
		t.Fatalf("BeginDevice: %v", err)
	}
	if b.device.pins != 0 || b.device.devValid {
		t.Errorf("%d pins, device valid %v after a refused upload", b.device.pins, b.device.devValid)
	}
	mustHost(t, b, Update)
	m.upErr = nil
	device(t, b, q, Update, nil)
}

func TestFailedDownloadIsTriedAgain(t *testing.T) {
	leak.Check(t)
	b, m, _, r := lazyOnDevice(t, 16, 'a')
	m.dnErr = errBroken
	if _, err := b.Host(background, Read); !errors.Is(err, errBroken) {
		t.Fatalf("refused download: %v", err)
	}
	m.dnErr = nil
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	m.down.fail(errBroken)
	if _, err := b.Host(countdown.Cancelled(), Read); !errors.Is(err, errBroken) {
		t.Errorf("failed download: %v", err)
	}
	if !wouldWait(t, b, Read) { // a fresh one
		t.Fatal("the failed download was not tried again")
	}
	m.down.finish()
	if p := mustHost(t, b, Read); p[0] != 'a' || m.downloads != 2 {
		t.Errorf("read %q after %d downloads, want 2", p, m.downloads)
	}
	b.Release()
	if n := r.Sweep(); n != 0 {
		t.Errorf("%d blocks retired, though a later point of the queue has completed", n)
	}
}

func TestCancelledHostReadThenAnother(t *testing.T) {
	b, m, _, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	ctx, cancel := context.WithCancel(background)
	errs := make(chan error)
	go func() {
		_, err := b.Host(ctx, Read)
		errs <- err
	}()
	m.down.awaitWaits(1)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled read: %v", err)
	}
	m.down.finish()
	if p := mustHost(t, b, Read); p[0] != 'a' {
		t.Errorf("read %q", p)
	}
	if m.downloads != 1 {
		t.Errorf("%d downloads, want 1: the second read takes up the first's", m.downloads)
	}
}

// spins bounds the yields of a test that watches another goroutine. After as many yields
// the test takes the goroutine's progress for an endless loop.
const spins = 1 << 22

// A download of stale bytes must not write to the host bytes after the download that
// replaces it.
func TestStaleDownloadDoesNotLand(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	old := m.down
	m.down = newQueue("another download queue")
	device(t, b, q, Overwrite, fill('b'))
	q.finish()
	if !wouldWait(t, b, Read) || m.downloads != 1 {
		t.Errorf("%d downloads into the bytes that the first still fills", m.downloads)
	}
	if !wouldWait(t, b, Overwrite) {
		t.Error("a host write does not wait for a download into its bytes")
	}
	old.finish()
	began := make(chan error, 1)
	go func() {
		_, err := b.Host(countdown.Cancelled(), Read)
		began <- err
	}()
	for i := 0; len(began) == 0; i++ {
		if i == spins {
			t.Fatal("a reader goes round over the download of older contents")
		}
		runtime.Gosched()
	}
	if err := <-began; !errors.Is(err, context.Canceled) || m.downloads != 2 {
		t.Errorf("%d downloads, want 2; a cancelled read: %v", m.downloads, err)
	}
	m.down.finish()
	if p := mustHost(t, b, Read); p[0] != 'b' {
		t.Errorf("read %q, want the newest", p)
	}
}

// A download that ends after a device write has filled the host bytes with stale contents.
// A reader that waited for the download must not take them for the newest.
func TestWriteDuringDownload(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 16, 'a')
	defer b.Release()
	done := make(chan byte, 1)
	go func() {
		p, err := b.Host(background, Read)
		if err != nil {
			t.Error(err)
			p = make([]byte, 1)
		}
		done <- p[0]
	}()
	m.down.awaitWaits(1)
	device(t, b, q, Overwrite, fill('b'))
	q.finish()
	m.down.finish()
	for i := 0; m.down.waits.Load() < 2; i++ { // until it waits for a second download, or has read
		if i == spins {
			t.Fatal("the reader goes round over a download of older contents")
		}
		select {
		case v := <-done:
			t.Fatalf("the read gave %q of a download that began before the write", v)
		default:
			runtime.Gosched()
		}
	}
	m.down.finish()
	if v := <-done; v != 'b' {
		t.Errorf("read %q, want what was written meanwhile", v)
	}
}

// A weight that many short-lived queues read does not remember all of them.
func TestReadersStaySmall(t *testing.T) {
	b, _, _, _ := lazyOnDevice(t, 16, 'w')
	defer b.Release()
	for i := range 1000 {
		q := newQueue("context")
		device(t, b, q, Read, nil)
		if i%3 == 0 {
			q.fail(errBroken)
			q.End()
		} else {
			q.finish()
		}
	}
	if s := &b.device; cap(s.readers) > 8 || cap(s.failed) > 8 {
		t.Errorf("%d readers and %d failed uses are remembered, want a few", cap(s.readers), cap(s.failed))
	}
}

// Release does not wait for pooled or device memory, even if every fence is pending. The
// download still fills host memory that no longer belongs to a buffer.
func TestReleaseWithEveryFenceOpen(t *testing.T) {
	leak.Check(t)
	b, m, q, r := lazyOnDevice(t, 4096, 'a')
	q2 := newQueue("second")
	device(t, b, q, Overwrite, fill('b'))
	reader, _ := device(t, b, q2, Read, nil)
	q.finish()
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	download := m.down.Last()
	waits := []int64{q.waits.Load(), q2.waits.Load(), m.down.waits.Load()}

	b.Release()

	if got := []int64{q.waits.Load(), q2.waits.Load(), m.down.waits.Load()}; !slices.Equal(got, waits) {
		t.Errorf("Release waited: %v waits, %v before", got, waits)
	}
	if m.frees != 1 {
		t.Fatalf("device bytes freed %d times, want 1", m.frees)
	}
	for _, w := range []accel.Work{reader, download} {
		if !slices.Contains(m.freeUses, w) {
			t.Errorf("device bytes given back without the fence %s %d", w.Timeline().Name(), w.Seq())
		}
	}
	live := offheap.Stats().LiveBlocks
	if n := r.Sweep(); n != 1 {
		t.Fatalf("%d blocks retired, want the host bytes that the download fills", n)
	}
	q2.finish()
	m.down.finish() // writes to host memory that must still be allocated
	if n := r.Sweep(); n != 0 || offheap.Stats().LiveBlocks != live-1 {
		t.Errorf("%d blocks retired after the transfer, %d freed", n, live-offheap.Stats().LiveBlocks)
	}
}

// Memory behind a failed fence stays allocated until the failed queue has ended or the
// device's owner calls Drain.
func TestRetiredBehindFailedFence(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run("failure "+when+" release", func(t *testing.T) {
			leak.Check(t)
			b, m, _, r := lazyOnDevice(t, 64, 'a')
			if !wouldWait(t, b, Read) {
				t.Fatal("no download")
			}
			if when == "before" {
				m.down.fail(errBroken)
				b.Release()
			} else {
				b.Release()
				m.down.fail(errBroken)
			}
			if n := r.Sweep(); n != 1 {
				t.Errorf("%d blocks retired, want the one behind the failed fence", n)
			}
			if when == "before" {
				m.down.End()
				if n := r.Sweep(); n != 0 {
					t.Errorf("%d blocks retired after the end of the failed queue", n)
				}
			}
			if err := r.Drain(background); err != nil {
				t.Error(err)
			}
			if n := r.Sweep(); n != 0 {
				t.Errorf("%d blocks left by Drain", n)
			}
		})
	}
}

func TestDrainWaitsAndHonoursContext(t *testing.T) {
	leak.Check(t)
	var r Retired
	var queues []*fakeQueue
	for range 3 {
		b, m := NewLazy(64), newMemory(64)
		b.Attach(m, nil, &r)
		q := newQueue("compute")
		device(t, b, q, Overwrite, nil)
		q.finish()
		if !wouldWait(t, b, Read) {
			t.Fatal("no download")
		}
		b.Release()
		queues = append(queues, m.down)
	}
	queues[0].finish()
	if err := r.Drain(countdown.Cancelled()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled Drain: %v", err)
	}
	if n := r.Sweep(); n != 2 {
		t.Fatalf("%d blocks left, want 2", n)
	}
	done := make(chan error)
	waits := queues[1].waits.Load()
	go func() { done <- r.Drain(background) }()
	queues[1].awaitWaits(waits + 1)
	// A release during Drain does not wait for it.
	b, m := NewLazy(64), newMemory(64)
	b.Attach(m, nil, &r)
	device(t, b, newQueue("compute"), Overwrite, nil)
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	b.Release()
	m.down.finish()
	queues[1].finish()
	queues[2].finish()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := r.Sweep(); n != 0 {
		t.Errorf("%d blocks left", n)
	}
}

// Only bytes that the caller lent make the last Release wait.
func TestReleaseOfLentBytesWaits(t *testing.T) {
	var returned atomic.Bool
	bytes := make([]byte, 16)
	b := Borrow(bytes, BorrowOptions{OnRelease: func() { returned.Store(true) }})
	m, q, r := newMemory(16), newQueue("compute"), &Retired{}
	b.Attach(m, nil, r)
	device(t, b, q, Overwrite, fill('b'))
	q.finish()
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	waits := m.down.waits.Load()
	done := make(chan struct{})
	go func() { b.Release(); close(done) }()
	m.down.awaitWaits(waits + 1)
	if b.DropDevice() { // returns at once while the Release waits
		t.Error("there is nothing to drop")
	}
	select {
	case <-done:
		t.Fatal("Release returned while a download fills the caller's bytes")
	default:
	}
	if returned.Load() {
		t.Error("the loan ended while a download fills the bytes")
	}
	m.down.finish()
	<-done
	if !returned.Load() || r.Sweep() != 0 || bytes[0] != 'b' {
		t.Errorf("returned %v, bytes %q", returned.Load(), bytes)
	}
}

// The buffer may be released right after an upload was enqueued.
func TestSourceReleasedDuringUpload(t *testing.T) {
	leak.Check(t)
	b, m, q, r := mustNew(t, 16), newMemory(16), newQueue("compute"), &Retired{}
	copy(mustHost(t, b, Overwrite), "sixteen bytes...")
	b.Attach(m, nil, r)
	var seen []byte
	device(t, b, q, Read, func(m *fakeMemory) { seen = m.peek(0, 16) })
	upload := m.up.Last()
	b.Release()
	if m.up.waits.Load() != 0 || r.Sweep() != 0 {
		t.Error("Release waited, or kept the source of an upload")
	}
	if !slices.Contains(m.freeUses, upload) {
		t.Error("the device bytes were given back without the upload's fence")
	}
	m.finish()
	q.finish()
	if string(seen) != "sixteen bytes..." {
		t.Errorf("the operation saw %q", seen)
	}
}

// freeMemory runs a function when it is given back.
type freeMemory struct {
	*fakeMemory
	free func()
}

func (m *freeMemory) Free(uses accel.Fences) {
	m.free()
	m.fakeMemory.Free(uses)
}

// The last release of a stable buffer locks the buffer, because an evictor may be looking at it.
// The last release of another buffer takes no lock.
func TestReleaseLocksStableBuffers(t *testing.T) {
	for _, stable := range []bool{false, true} {
		b := NewLazy(16)
		if stable {
			b.MarkStable()
		}
		b.Attach(&freeMemory{newMemory(16), func() {
			free := b.device.mu.TryLock()
			if free {
				b.device.mu.Unlock()
			}
			if free == stable {
				t.Errorf("stable %t: the lock is free: %t", stable, free)
			}
		}}, nil, &Retired{})
		b.Release()
		if !b.device.mu.TryLock() {
			t.Errorf("stable %t: the buffer is locked after its release", stable)
		}
	}
}

// A release between BeginDevice and EndDevice panics.
func TestReleaseInsideOperationPanics(t *testing.T) {
	b, _, q, _ := lazyOnDevice(t, 16, 'a')
	var needs Needs
	if _, err := b.BeginDevice(bg, q.Timeline, Read, &needs); err != nil {
		t.Fatal(err)
	}
	if msg := panicOf(b.Release); !strings.Contains(msg, "during a device operation of device buffer of 16 bytes") {
		t.Errorf("panic %q", msg)
	}
}

// A view and its base release the same device bytes once.
func TestDeviceBytesFreedOnce(t *testing.T) {
	b, m, _, _ := lazyOnDevice(t, 16, 'a')
	b.Retain() // a view
	b.Release()
	if m.frees != 0 {
		t.Fatal("freed with a reference left")
	}
	b.Release()
	if msg := panicOf(b.Release); msg == "" {
		t.Error("a third release of two references")
	}
	if m.frees != 1 {
		t.Errorf("freed %d times, want 1", m.frees)
	}
}

func TestDropDevice(t *testing.T) {
	b, m, q := mustNew(t, 16), newMemory(16), newQueue("compute")
	copy(mustHost(t, b, Overwrite), "sixteen bytes...")
	if b.DropDevice() {
		t.Error("dropped without device memory")
	}
	b.Attach(m, nil, &Retired{})
	var needs Needs
	if _, err := b.BeginDevice(bg, q.Timeline, Read, &needs); err != nil {
		t.Fatal(err)
	}
	if b.DropDevice() {
		t.Error("dropped while an operation is being prepared")
	}
	w := q.Issue()
	b.EndDevice(Read, w, true, nil)
	gen := b.Generation()
	if !b.DropDevice() || b.DeviceMemory() != nil {
		t.Fatal("not dropped, though the host copy is valid")
	}
	if m.frees != 1 || !slices.Contains(m.freeUses, w) || q.waits.Load() != 0 {
		t.Errorf("freed %d times after %v, %d waits", m.frees, m.freeUses, q.waits.Load())
	}
	if p := mustHost(t, b, Read); string(p) != "sixteen bytes..." || b.Generation() != gen {
		t.Errorf("after the drop: %q, generation %d", p, b.Generation())
	}

	// Device bytes can be attached again, and then hold the only copy.
	again := newMemory(16)
	if !b.Attach(again, nil, &Retired{}) {
		t.Fatal("not attached again")
	}
	device(t, b, q, Update, func(m *fakeMemory) { m.up.finish(); m.poke(0, []byte("S")) })
	q.finish()
	if again.uploads != 1 {
		t.Errorf("%d uploads to the new memory, want 1", again.uploads)
	}
	if b.DropDevice() {
		t.Error("dropped the only copy")
	}
	if !wouldWait(t, b, Read) || b.DropDevice() {
		t.Error("dropped under a download")
	}
	again.finish()
	if p := mustHost(t, b, Read); string(p) != "Sixteen bytes..." || !b.DropDevice() {
		t.Errorf("read %q, or not dropped", p)
	}
	b.Release()
	if again.frees != 1 {
		t.Errorf("freed %d times, want 1", again.frees)
	}
}

// slowMemory is memory whose reads wait for a signal.
type slowMemory struct {
	*fakeMemory
	entered, leave chan struct{}
}

func (m *slowMemory) Read(ctx context.Context, dst []byte, off int, after accel.Work) (accel.Work, error) {
	m.entered <- struct{}{}
	<-m.leave
	return m.fakeMemory.Read(ctx, dst, off, after)
}

// The device bytes are not given back during a ranged read, even if another read has made
// the host copy valid meanwhile.
func TestDropDeviceDuringReadAt(t *testing.T) {
	b, q := NewLazy(16), newQueue("compute")
	m := &slowMemory{newMemory(16), make(chan struct{}), make(chan struct{})}
	b.Attach(m, nil, &Retired{})
	var needs Needs
	if _, err := b.BeginDevice(bg, q.Timeline, Overwrite, &needs); err != nil {
		t.Fatal(err)
	}
	b.EndDevice(Overwrite, q.enqueue(func() { fill('d')(m.fakeMemory) }), true, nil)
	q.finish()
	got := make([]byte, 4)
	read := make(chan error)
	go func() { read <- b.ReadAt(bg, got, 8) }()
	<-m.entered
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	m.finish()
	mustHost(t, b, Read)
	if b.CanDropDevice() || b.DropDevice() {
		t.Error("dropped under a read")
	}
	close(m.leave)
	if err := <-read; err != nil || string(got) != "dddd" {
		t.Errorf("read %q, %v", got, err)
	}
	if !b.CanDropDevice() || !b.DropDevice() || b.CanDropDevice() || m.frees != 1 {
		t.Errorf("not dropped after the read, or not once: freed %d times", m.frees)
	}
	b.Release()
}

// tied is provider state that checks the order of its end.
type tied struct {
	t         *testing.T
	blocks    int64 // live off-heap blocks that it must find
	destroyed int
}

func (r *tied) Destroy() {
	r.destroyed++
	if n := offheap.Stats().LiveBlocks; n != r.blocks {
		r.t.Errorf("%d blocks live at Destroy, want %d: the bytes go after it", n, r.blocks)
	}
}

func TestResource(t *testing.T) {
	var k keeper
	b := mustNew(t, 64)
	b.SetReclaimer(&k)
	live := offheap.Stats().LiveBlocks
	first, second := &tied{t: t, blocks: live}, &tied{t: t, blocks: live}
	b.SetResource(first)
	b.SetResource(second)
	if first.destroyed != 1 || b.Resource() != accel.Resource(second) {
		t.Error("the replaced resource was not destroyed")
	}
	b.Release()
	b.Revive()
	if second.destroyed != 0 || b.Resource() != accel.Resource(second) {
		t.Error("the resource did not survive reuse by a pool")
	}
	b.Release()
	b.Destroy()
	if second.destroyed != 1 {
		t.Errorf("destroyed %d times, want 1", second.destroyed)
	}
}

// When a pool keeps the header and drops the memory, the resource is destroyed, because
// the next memory of that buffer is another allocation.
func TestResourceEndsWithDroppedMemory(t *testing.T) {
	leak.Check(t)
	var k keeper
	b := mustNew(t, 64)
	b.SetReclaimer(&k)
	res := &tied{t: t, blocks: offheap.Stats().LiveBlocks}
	b.SetResource(res)
	b.Release()
	b.DropHost()
	if res.destroyed != 1 || b.Resource() != nil {
		t.Errorf("destroyed %d times with its memory, want 1", res.destroyed)
	}
	b.Destroy()
	if res.destroyed != 1 {
		t.Errorf("destroyed %d times in the end, want 1", res.destroyed)
	}
}

// A resource stays while a transfer uses its memory, even if the buffer was revived with
// other memory.
func TestResourceRetiresWithItsMemory(t *testing.T) {
	leak.Check(t)
	var k keeper
	b, m, q, r := lazyOnDevice(t, 64, 'a')
	b.SetReclaimer(&k)
	if !wouldWait(t, b, Read) {
		t.Fatal("no download")
	}
	res := &tied{t: t, blocks: offheap.Stats().LiveBlocks}
	b.SetResource(res)
	b.Release()
	if b.HasHost() || b.Resource() != nil {
		t.Error("the reclaimed buffer still has memory that a download fills")
	}
	b.Revive()
	if wouldWait(t, b, Overwrite) || !b.HasHost() {
		t.Error("the revived buffer has no memory of its own")
	}
	if res.destroyed != 0 {
		t.Error("unregistered under a download")
	}
	res.blocks++ // the revived buffer's
	m.finish()
	q.finish()
	if n := r.Sweep(); n != 0 || res.destroyed != 1 {
		t.Errorf("%d blocks retired, resource destroyed %d times", n, res.destroyed)
	}
	b.Release()
	b.Destroy()
}

func TestCold(t *testing.T) {
	n := 0
	b := Borrow(make([]byte, 8), BorrowOptions{Cold: func() { n++ }})
	b.Cold()
	b.Release()
	plain := mustNew(t, 8)
	plain.Cold()
	plain.Release()
	silent := Borrow(make([]byte, 8), BorrowOptions{})
	silent.Cold()
	silent.Release()
	if n != 1 {
		t.Errorf("Cold ran %d times, want 1", n)
	}
}

// Host readers, device readers, an evictor, and Retain and Release run concurrently.
func TestConcurrentReaders(t *testing.T) {
	leak.Check(t)
	b, m, _, r := lazyOnDevice(t, 256, 'x')
	stop := make(chan struct{})
	var driver sync.WaitGroup
	driver.Go(func() {
		for {
			m.finish()
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 6 {
		b.Retain()
		wg.Go(func() {
			defer b.Release()
			own := newQueue("own")
			for range 50 {
				switch i % 3 {
				case 0:
					if p, err := b.Host(background, Read); err != nil || p[255] != 'x' {
						t.Errorf("host read %v", err)
					}
				case 1:
					var needs Needs
					switch _, err := b.BeginDevice(bg, own.Timeline, Read, &needs); {
					case errors.Is(err, ErrNoDeviceMemory): // evicted
						b.Attach(m, nil, r)
					case err != nil:
						t.Error(err)
					default:
						b.EndDevice(Read, own.Issue(), true, nil)
						own.finish()
						b.DropDevice()
					}
				case 2:
					p := make([]byte, 5)
					if err := b.ReadAt(background, p, 250); err != nil || string(p) != "xxxxx" {
						t.Errorf("ranged read %q, %v", p, err)
					}
				}
			}
		})
	}
	wg.Wait()
	b.Release()
	close(stop)
	driver.Wait()
	if err := r.Drain(background); err != nil {
		t.Error(err)
	}
}

func TestDeviceAccessDoesNotAllocate(t *testing.T) {
	b, _, q, _ := lazyOnDevice(t, 64, 'a')
	defer b.Release()
	needs := Needs{Order: make(accel.Fences, 0, 4)}
	if n := testing.AllocsPerRun(100, func() {
		for _, a := range []Access{Read, Update} {
			needs.Reset()
			if _, err := b.BeginDevice(bg, q.Timeline, a, &needs); err != nil {
				t.Error(err)
			}
			b.EndDevice(a, q.Issue(), true, nil)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	q.finish()
}

func BenchmarkDeviceAccess(b *testing.B) {
	buf, _, q, _ := lazyOnDevice(b, 64, 'a')
	defer buf.Release()
	var needs Needs
	for b.Loop() {
		needs.Reset()
		if _, err := buf.BeginDevice(bg, q.Timeline, Update, &needs); err != nil {
			b.Fatal(err)
		}
		buf.EndDevice(Update, q.Issue(), true, nil)
	}
}

// hastyMemory fails every upload before Upload returns.
type hastyMemory struct{ *fakeMemory }

func (m *hastyMemory) Upload(ctx context.Context, off int, src []byte, after accel.Fences) (accel.Work, error) {
	w, err := m.fakeMemory.Upload(ctx, off, src, after)
	m.up.fail(errBroken)
	return w, err
}

// If an upload has failed by the time BeginDevice looks at it, BeginDevice returns the
// failure, so that the operation does not run on bytes that were never uploaded.
func TestUploadThatFailsAtOnce(t *testing.T) {
	for _, a := range []Access{Read, Update} {
		b, err := New(64)
		if err != nil {
			t.Fatal(err)
		}
		m := &hastyMemory{newMemory(64)}
		if !b.Attach(m, nil, &Retired{}) {
			t.Fatal("not attached")
		}
		var needs Needs
		if _, err := b.BeginDevice(bg, newQueue("compute").Timeline, a, &needs); !errors.Is(err, errBroken) {
			t.Errorf("operation on bytes that were not uploaded: needs %v, %v", needs, err)
		}
		if _, err := b.Host(context.Background(), Read); err != nil {
			t.Errorf("the host's bytes: %v", err)
		}
		b.Release()
		if !errors.Is(m.freeUses.Err(), errBroken) {
			t.Error("the memory went back without the failed upload's fence")
		}
	}
}

// refusingMemory refuses its first upload, once the test says so.
type refusingMemory struct {
	*fakeMemory
	begun, refuse chan struct{}
	once          sync.Once
}

func (m *refusingMemory) Upload(ctx context.Context, off int, src []byte, after accel.Fences) (accel.Work, error) {
	refused := false
	m.once.Do(func() {
		close(m.begun)
		<-m.refuse
		refused = true
	})
	if refused {
		return accel.Work{}, errBroken
	}
	return m.fakeMemory.Upload(ctx, off, src, after)
}

// If the upload that several operations wait for is refused, one of the operations
// uploads instead. The operations must not wait for one another forever.
func TestRefusedUploadIsTakenOver(t *testing.T) {
	m := &refusingMemory{fakeMemory: newMemory(64), begun: make(chan struct{}), refuse: make(chan struct{})}
	b := mustNew(t, 64)
	b.Attach(m, nil, &Retired{})
	errs := make(chan error)
	use := func() {
		q := newQueue("compute")
		var needs Needs
		_, err := b.BeginDevice(bg, q.Timeline, Read, &needs)
		if err == nil {
			b.EndDevice(Read, q.Issue(), true, nil)
		}
		errs <- err
	}
	go use()
	<-m.begun
	const others = 8
	for range others {
		go use()
	}
	ctx, cancel := context.WithCancel(bg)
	cancel()
	if _, err := b.BeginDevice(ctx, newQueue("compute").Timeline, Read, new(Needs)); !errors.Is(err, context.Canceled) {
		t.Errorf("an operation whose context is done waits for another's upload: %v", err)
	}
	close(m.refuse)
	refused := 0
	for range 1 + others {
		if err := <-errs; errors.Is(err, errBroken) {
			refused++
		} else if err != nil {
			t.Error(err)
		}
	}
	if refused != 1 || m.uploads != 1 {
		t.Errorf("%d operations were refused and %d uploads made, want one each", refused, m.uploads)
	}
	b.Release()
}

// Two operations that write to a buffer are prepared one after the other, so that the
// second one follows the first. Once the last fence has completed, both have.
func TestWritersArePreparedInTurn(t *testing.T) {
	b, _, q, _ := lazyOnDevice(t, 64, 1)
	other := newQueue("other")
	if _, err := b.BeginDevice(bg, q.Timeline, Update, new(Needs)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.BeginDevice(countdown.Cancelled(), other.Timeline, Update, new(Needs)); !errors.Is(err, context.Canceled) {
		t.Fatalf("a second writer while the first is being prepared: %v, want that it waits", err)
	}
	needs := make(chan *Needs)
	go func() {
		var n Needs
		if _, err := b.BeginDevice(bg, other.Timeline, Update, &n); err != nil {
			t.Error(err)
		}
		needs <- &n
	}()
	first := q.Issue()
	b.EndDevice(Update, first, true, nil)
	if n := <-needs; !slices.Contains(n.Order, first) {
		t.Errorf("the second writer follows %v, without the first, %v", n.Order, first)
	}
	b.EndDevice(Update, other.Issue(), true, nil)
	q.finish()
	other.finish()
	b.Release()
}

// While the host writes, no device operation begins, because an upload would take
// half-written bytes and an operation's result would replace the write. The written bytes
// are uploaded afterwards.
func TestHostWriteKeepsDeviceOut(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 64, 1)
	go func() { m.down.awaitWaits(1); m.down.finish() }()
	p, err := b.BeginHostWrite(bg)
	if err != nil || p[0] != 1 {
		t.Fatal(p, err)
	}
	if _, err := b.BeginHostWrite(bg); err != nil {
		t.Errorf("a second host: %v", err)
	}
	for range 2 {
		for _, a := range []Access{Read, Update, Overwrite} {
			if _, err := b.BeginDevice(bg, q.Timeline, a, new(Needs)); !errors.Is(err, ErrHostWrite) {
				t.Errorf("access %d while the host writes: %v, want ErrHostWrite", a, err)
			}
		}
		gen := b.Generation()
		p[0]++
		b.EndHostWrite()
		if b.Generation() == gen {
			t.Error("the end of a write begins no generation")
		}
	}
	device(t, b, q, Read, nil)
	m.finish()
	q.finish()
	if v := m.peek(0, 1); v[0] != 3 {
		t.Errorf("the device has %d, want 3", v[0])
	}
	b.Release()
}

// BeginHostWrite waits for device operations that are being prepared. An operation that
// writes would replace the host's bytes, and a later upload would not follow an operation
// that reads. A BeginHostWrite that is cancelled does not keep later operations out.
func TestHostWriteWaitsForPreparation(t *testing.T) {
	for _, a := range []Access{Read, Update} {
		b, m, q, _ := lazyOnDevice(t, 64, 1)
		go func() { m.down.awaitWaits(1); m.down.finish() }()
		if _, err := b.Host(bg, Read); err != nil { // so that the host copy is valid at first
			t.Fatal(err)
		}
		if _, err := b.BeginDevice(bg, q.Timeline, a, new(Needs)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.BeginHostWrite(countdown.Cancelled()); !errors.Is(err, context.Canceled) {
			t.Errorf("a host write while an operation with access %d is being prepared: %v", a, err)
		}
		device(t, b, q, Read, nil)
		begun := make(chan error)
		go func() {
			_, err := b.BeginHostWrite(bg)
			begun <- err
		}()
		b.EndDevice(a, q.Issue(), true, nil)
		q.finish()
		if a == Update {
			m.down.awaitWaits(2)
			m.down.finish()
		}
		if err := <-begun; err != nil {
			t.Error(err)
		}
		b.EndHostWrite()
		b.Release()
	}
	ro := Borrow(make([]byte, 8), BorrowOptions{ReadOnly: true})
	if _, err := ro.BeginHostWrite(bg); !errors.Is(err, ErrReadOnly) {
		t.Errorf("a host write to read-only storage: %v", err)
	}
	ro.Release()
}

// A write does not follow a read that is submitted while the write is being prepared. The
// device bytes are given back under the fences of both.
func TestReadDuringPreparationOfWrite(t *testing.T) {
	b, m, q, _ := lazyOnDevice(t, 64, 1)
	other := newQueue("other")
	if _, err := b.BeginDevice(bg, q.Timeline, Update, new(Needs)); err != nil {
		t.Fatal(err)
	}
	read, _ := device(t, b, other, Read, nil)
	write := q.Issue()
	b.EndDevice(Update, write, true, nil)
	if !wouldWait(t, b, Overwrite) {
		t.Error("the host does not wait for the write")
	}
	q.finish()
	if !wouldWait(t, b, Overwrite) {
		t.Error("the host does not wait for the read")
	}
	b.Release()
	if !slices.Contains(m.freeUses, read) {
		t.Errorf("the bytes were freed under %v, without the read, %v", m.freeUses, read)
	}
	other.finish()
}
