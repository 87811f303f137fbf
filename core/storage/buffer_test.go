package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/tests/leak"
)

var background = context.Background()

func mustNew(t testing.TB, size int) *Buffer {
	t.Helper()
	b, err := New(size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustHost(t testing.TB, b *Buffer, a Access) []byte {
	t.Helper()
	p, err := b.Host(background, a)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// panicOf returns what f panicked with, or "".
func panicOf(f func()) (msg string) {
	defer func() {
		if v := recover(); v != nil {
			msg = fmt.Sprint(v)
		}
	}()
	f()
	return ""
}

// For each kind of buffer, the test checks the owner of the bytes and the effect of the
// last Release.
func TestOwnership(t *testing.T) {
	tests := []struct {
		name               string
		make               func(lentBytes []byte, hook func()) *Buffer
		borrowed, readOnly bool
		hook               bool
	}{
		{"owned", func([]byte, func()) *Buffer { b, _ := New(64); return b }, false, false, false},
		{"lazy", func([]byte, func()) *Buffer { return NewLazy(64) }, false, false, false},
		{"borrowed", func(p []byte, _ func()) *Buffer { return Borrow(p, BorrowOptions{}) }, true, false, false},
		{"borrowed with hook", func(p []byte, f func()) *Buffer { return Borrow(p, BorrowOptions{OnRelease: f}) }, true, false, true},
		{"borrowed read-only", func(p []byte, f func()) *Buffer {
			return Borrow(p, BorrowOptions{ReadOnly: true, OnRelease: f})
		}, true, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			leak.Check(t)
			lentBytes := make([]byte, 64)
			lentBytes[5] = 55
			hooks := 0
			b := tt.make(lentBytes, func() { hooks++ })
			if b.Size() != 64 || !b.Unique() || b.Borrowed() != tt.borrowed || b.ReadOnly() != tt.readOnly {
				t.Fatalf("size %d, unique %v, borrowed %v, read-only %v", b.Size(), b.Unique(), b.Borrowed(), b.ReadOnly())
			}
			p := mustHost(t, b, Read)
			if len(p) != 64 {
				t.Fatalf("%d host bytes, want 64", len(p))
			}
			if same := &p[0] == &lentBytes[0]; same != tt.borrowed {
				t.Errorf("host bytes are the caller's: %v, want %v", same, tt.borrowed)
			}
			for _, a := range []Access{Overwrite, Update} {
				w, err := b.Host(background, a)
				if tt.readOnly {
					if !errors.Is(err, ErrReadOnly) || w != nil {
						t.Errorf("write access %d: %v, want ErrReadOnly", a, err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				w[7] = 77
				if p[7] != 77 {
					t.Error("a write is not visible through the earlier slice")
				}
			}
			b.Retain()
			if b.Unique() {
				t.Error("unique with two references")
			}
			b.Release()
			if hooks != 0 {
				t.Error("the hook ran with a reference left")
			}
			b.Release()
			if want := map[bool]int{true: 1}[tt.hook]; hooks != want {
				t.Errorf("the hook ran %d times, want %d", hooks, want)
			}
			if lentBytes[5] != 55 {
				t.Error("the end of the loan changed the caller's bytes")
			}
		})
	}
}

func TestNewRefusesNothing(t *testing.T) {
	for _, size := range []int{0, -1} {
		if b, err := New(size); err == nil {
			t.Errorf("New(%d) = %v", size, b)
		}
	}
}

// OnRelease runs once when several goroutines race for the last Release.
func TestReleaseHookOnceUnderRace(t *testing.T) {
	for range 50 {
		var hooks atomic.Int32
		b := Borrow(make([]byte, 8), BorrowOptions{OnRelease: func() { hooks.Add(1) }})
		var wg sync.WaitGroup
		for range 8 {
			b.Retain()
			wg.Go(func() {
				for range 20 {
					b.Retain()
					b.Release()
				}
				b.Release()
			})
		}
		b.Release()
		wg.Wait()
		if n := hooks.Load(); n != 1 {
			t.Fatalf("the hook ran %d times, want 1", n)
		}
	}
}

// A second release, and a use after the last release, panic with the buffer's origin.
func TestUseAfterReleasePanicsWithOrigin(t *testing.T) {
	uses := map[string]func(b *Buffer){
		"release":  func(b *Buffer) { b.Release() },
		"retain":   func(b *Buffer) { b.Retain() },
		"host":     func(b *Buffer) { _, _ = b.Host(background, Read) },
		"read":     func(b *Buffer) { _ = b.ReadAt(background, make([]byte, 1), 0) },
		"over-end": func(b *Buffer) { _, _ = b.Host(background, Overwrite) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			for origin, b := range map[string]*Buffer{
				"owned buffer of 48 bytes":    mustNew(t, 48),
				"device buffer of 32 bytes":   NewLazy(32),
				"borrowed buffer of 16 bytes": Borrow(make([]byte, 16), BorrowOptions{}),
			} {
				b.Release()
				msg := panicOf(func() { use(b) })
				if !strings.HasPrefix(msg, "storage: ") || !strings.Contains(msg, "released "+origin) {
					t.Errorf("panic %q, want the origin %q", msg, origin)
				}
			}
		})
	}
}

func TestGenerationCountsMutations(t *testing.T) {
	b := mustNew(t, 16)
	defer b.Release()
	want := b.Generation()
	for i, step := range []struct {
		name  string
		do    func()
		bumps uint64
	}{
		{"read", func() { mustHost(t, b, Read) }, 0},
		{"ranged read", func() { _ = b.ReadAt(background, make([]byte, 4), 0) }, 0},
		{"overwrite", func() { mustHost(t, b, Overwrite) }, 1},
		{"update", func() { mustHost(t, b, Update) }, 1},
		{"retain and release", func() { b.Retain(); b.Release() }, 0},
	} {
		step.do()
		want += step.bumps
		if got := b.Generation(); got != want {
			t.Errorf("step %d, %s: generation %d, want %d", i, step.name, got, want)
		}
	}
	ro := Borrow(make([]byte, 4), BorrowOptions{ReadOnly: true})
	defer ro.Release()
	if _, err := ro.Host(background, Update); err == nil || ro.Generation() != 0 {
		t.Errorf("a refused write moved the generation to %d (%v)", ro.Generation(), err)
	}
}

func TestReadAt(t *testing.T) {
	b := Borrow([]byte("0123456789"), BorrowOptions{})
	defer b.Release()
	got := make([]byte, 4)
	if err := b.ReadAt(background, got, 3); err != nil || string(got) != "3456" {
		t.Errorf("ReadAt = %q, %v", got, err)
	}
	if err := b.ReadAt(background, nil, 10); err != nil {
		t.Errorf("empty range at the end: %v", err)
	}
	const maxInt = int(^uint(0) >> 1)
	for _, r := range []struct{ n, off int }{{4, 7}, {1, 10}, {0, 11}, {1, -1}, {1, maxInt}, {11, 0}} {
		if err := b.ReadAt(background, make([]byte, r.n), r.off); !errors.Is(err, ErrRange) {
			t.Errorf("%d bytes at %d: %v, want ErrRange", r.n, r.off, err)
		}
	}
}

func TestShadow(t *testing.T) {
	destroyed := map[string]int{}
	shadow := func(b *Buffer, name string) *accel.HostShadow {
		return &accel.HostShadow{Generation: b.Generation(), Data: name, Destroy: func(d any) { destroyed[d.(string)]++ }}
	}
	b := mustNew(t, 16)
	if b.Shadow() != nil {
		t.Fatal("a fresh buffer has a shadow")
	}
	first := shadow(b, "first")
	b.SetShadow(first)
	if b.Shadow() != first {
		t.Fatal("the shadow is not there")
	}
	mustHost(t, b, Read)
	if b.Shadow() != first || destroyed["first"] != 0 {
		t.Error("a read dropped the shadow")
	}
	b.SetShadow(shadow(b, "second"))
	if destroyed["first"] != 1 {
		t.Error("the replaced shadow was not destroyed")
	}
	mustHost(t, b, Update)
	if b.Shadow() != nil || destroyed["second"] != 1 {
		t.Errorf("after a mutation: shadow %v, destroyed %v", b.Shadow(), destroyed)
	}
	// This shadow was derived while the buffer changed, so it is stale from the start.
	stale := shadow(b, "stale")
	mustHost(t, b, Overwrite)
	b.SetShadow(stale)
	if b.Shadow() != nil {
		t.Error("a shadow of an earlier generation is taken for current")
	}
	b.SetShadow(nil)
	b.SetShadow(&accel.HostShadow{Generation: b.Generation()}) // no Destroy
	b.SetShadow(shadow(b, "last"))
	b.Release()
	for _, name := range []string{"first", "second", "stale", "last"} {
		if destroyed[name] != 1 {
			t.Errorf("%s destroyed %d times, want 1", name, destroyed[name])
		}
	}
}

// keeper is a pool of one buffer.
type keeper struct {
	kept  *Buffer
	count int
}

func (k *keeper) Reclaim(b *Buffer) { k.kept, k.count = b, k.count+1 }

func TestReclaimer(t *testing.T) {
	leak.Check(t)
	var k keeper
	b := mustNew(t, 64)
	b.SetReclaimer(&k)
	p := mustHost(t, b, Overwrite)
	b.SetShadow(&accel.HostShadow{Generation: b.Generation()})
	b.Retain()
	b.Release()
	if k.count != 0 {
		t.Fatal("reclaimed with a reference left")
	}
	b.Release()
	if k.count != 1 || k.kept != b {
		t.Fatalf("reclaimed %d times", k.count)
	}
	if msg := panicOf(func() { b.Retain() }); !strings.Contains(msg, "released owned buffer") {
		t.Errorf("retain of a reclaimed buffer: %q", msg)
	}
	b.refs.Store(0) // undo the refused Retain
	b.Revive()
	if !b.Unique() || b.Shadow() != nil {
		t.Error("the revived buffer is not fresh")
	}
	if q := mustHost(t, b, Read); &q[0] != &p[0] {
		t.Error("the revived buffer has other host memory")
	}
	if msg := panicOf(b.Revive); !strings.Contains(msg, "revival of a live") {
		t.Errorf("second revival: %q", msg)
	}
	if msg := panicOf(b.Destroy); !strings.Contains(msg, "destruction of a live") {
		t.Errorf("destruction of a live buffer: %q", msg)
	}
	b.Release()
	if k.count != 2 {
		t.Fatalf("reclaimed %d times, want 2", k.count)
	}
	b.Destroy()
	if b.HasHost() {
		t.Error("host memory left")
	}
}

// OnRelease of a reclaimed buffer runs in Destroy, not in the last Release.
func TestReclaimedLoanEndsWithDestroy(t *testing.T) {
	var k keeper
	hooks := 0
	b := Borrow(make([]byte, 8), BorrowOptions{OnRelease: func() { hooks++ }})
	b.SetReclaimer(&k)
	b.Release()
	if hooks != 0 {
		t.Error("OnRelease ran while the buffer may be revived")
	}
	b.Destroy()
	if hooks != 1 {
		t.Errorf("the hook ran %d times, want 1", hooks)
	}
}

// Only Release frees a buffer. A finalizer of an older buffer that ran late would free a
// newer buffer at the same address.
func TestSameMemoryOtherBuffer(t *testing.T) {
	leak.Check(t)
	a := mustNew(t, 64)
	a.Release()
	b := mustNew(t, 64) // usually at a's address
	p := mustHost(t, b, Overwrite)
	p[0] = 9
	if msg := panicOf(a.Release); msg == "" {
		t.Error("the old buffer was released twice")
	}
	if mustHost(t, b, Read)[0] != 9 {
		t.Error("the old buffer's end changed the new one")
	}
	b.Release()
}

// Concurrent first readers of a lazy buffer get the same memory.
func TestLazyHostMemoryOnce(t *testing.T) {
	leak.Check(t)
	for range 200 {
		b := NewLazy(64 << 10)
		if b.HasHost() {
			t.Fatal("host memory before the first access")
		}
		var first [8]*byte
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range first {
			wg.Go(func() {
				<-start
				p, err := b.Host(background, Read)
				if err != nil {
					t.Error(err)
					return
				}
				first[i] = unsafe.SliceData(p)
			})
		}
		close(start)
		wg.Wait()
		for _, p := range first {
			if p != first[0] {
				t.Fatal("two readers got different memory")
			}
		}
		b.Release()
	}
}

func TestElements(t *testing.T) {
	b := mustNew(t, 64)
	defer b.Release()
	p := mustHost(t, b, Overwrite)
	f, err := Elements[float64](p)
	if err != nil || len(f) != 8 {
		t.Fatalf("%d float64 of 64 bytes, %v", len(f), err)
	}
	f[1] = 1
	if p[15] != 0x3f {
		t.Error("the elements are a copy")
	}
	if _, err := Elements[float64](p[:63]); !errors.Is(err, ErrRange) {
		t.Errorf("63 bytes as float64: %v", err)
	}
	if _, err := Elements[float64](p[4:60]); !errors.Is(err, ErrRange) {
		t.Errorf("56 bytes at 4 as float64: %v", err)
	}
	if u, err := Elements[uint16](p[2:62]); err != nil || len(u) != 30 {
		t.Errorf("60 bytes at 2 as uint16: %d, %v", len(u), err)
	}
	if _, err := Elements[[3]byte](p[1:61]); err != nil {
		t.Errorf("60 bytes at 1 as [3]byte: %v", err)
	}
	if e, err := Elements[float32](nil); err != nil || len(e) != 0 {
		t.Errorf("no bytes: %v, %v", e, err)
	}
}

func TestHostDoesNotAllocate(t *testing.T) {
	b := mustNew(t, 64)
	defer b.Release()
	if n := testing.AllocsPerRun(100, func() {
		b.Retain()
		p, err := b.Host(background, Update)
		if err != nil {
			t.Error(err)
		}
		if _, err := Elements[float32](p); err != nil {
			t.Error(err)
		}
		b.Release()
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

// The last Release of a buffer over a mapped file unmaps the file.
func ExampleBorrow() {
	mapping := []byte("weights")
	b := Borrow(mapping, BorrowOptions{
		ReadOnly:  true,
		OnRelease: func() { fmt.Println("unmapped") },
	})
	view := b
	view.Retain()
	b.Release()

	p, err := view.Host(context.Background(), Read)
	fmt.Printf("%s %v\n", p, err)
	_, err = view.Host(context.Background(), Update)
	fmt.Println(errors.Is(err, ErrReadOnly))
	view.Release()
	// Output:
	// weights <nil>
	// true
	// unmapped
}

func BenchmarkRetainRelease(b *testing.B) {
	buf := mustNew(b, 64)
	defer buf.Release()
	for b.Loop() {
		buf.Retain()
		buf.Release()
	}
}

func BenchmarkRetainReleaseParallel(b *testing.B) {
	buf := mustNew(b, 64)
	defer buf.Release()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			buf.Retain()
			buf.Release()
		}
	})
}

func BenchmarkHostRead(b *testing.B) {
	buf := mustNew(b, 64)
	defer buf.Release()
	for b.Loop() {
		if _, err := buf.Host(background, Read); err != nil {
			b.Fatal(err)
		}
	}
}
