package offheap_test

import (
	"os"
	"runtime"
	"testing"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tests/leak"
)

// Discard touches only the given bytes, of whichever length and place, and the memory can be
// written again.
func TestDiscardKeepsItsSurroundings(t *testing.T) {
	page := os.Getpagesize()
	for _, size := range []int{1, 100, 8 << 10, offheap.LargeMin, 5*offheap.PageSize() + 77} {
		b, err := offheap.Alloc(size)
		if err != nil {
			t.Fatal(err)
		}
		p := b.Bytes()
		for _, part := range [][2]int{{0, size}, {0, 0}, {size, 0}, {size / 2, size / 3}, {0, min(page, size)}, {1, size - 1}, {max(0, size-page-3), min(size, page+1)}} {
			lo, hi := part[0], part[0]+part[1]
			for i := range p {
				p[i] = byte(i*7>>3) | 1
			}
			offheap.Discard(p[lo:hi])
			for i, c := range p {
				if want := byte(i*7>>3) | 1; (i < lo || i >= hi) && c != want {
					t.Fatalf("%d bytes, discarded %d to %d: byte %d is %d, want %d", size, lo, hi, i, c, want)
				}
			}
		}
		for i := range p {
			p[i] = 3
		}
		offheap.Free(&b)
	}
}

// A discard of memory that was never written does not make it resident, also in builds with
// checks: a cache of a quarter of the machine's memory discards all of it.
func TestDiscardOfUntouchedMemory(t *testing.T) {
	const mib = 1 << 20
	b, err := offheap.Alloc(512 * mib)
	if err != nil {
		t.Fatal(err)
	}
	defer offheap.Free(&b)
	before, ok := leak.Resident()
	if !ok {
		t.Skip("the system does not say how much memory is resident")
	}
	offheap.Discard(b.Bytes())
	if after, _ := leak.Resident(); after-before > 64*mib {
		t.Errorf("%d MiB more are resident after a discard of %d that were never written", (after-before)/mib, 512)
	}
}

// The memory of a block is resident where it was written, and no longer where it was
// discarded.
func TestDiscardFreesPages(t *testing.T) {
	resident := func() int64 {
		n, ok := leak.Resident()
		if !ok {
			t.Skip("the system does not say how much memory is resident")
		}
		return n
	}
	if invariants.RaceEnabled {
		t.Skip("blocks are on the Go heap")
	}
	const mib = 1 << 20
	b, err := offheap.Alloc(512 * mib)
	if err != nil {
		t.Fatal(err)
	}
	defer offheap.Free(&b)
	runtime.GC()
	before := resident()
	p := b.Bytes()
	for i := 0; i < 64*mib; i += 512 {
		p[i] = 1
	}
	if n := resident() - before; n < 48*mib || n > 80*mib {
		t.Errorf("%d MiB are resident after a write of 64 MiB of 512", n/mib)
	}
	offheap.Discard(p[1 : 64*mib])
	if n := resident() - before; n > 16*mib {
		t.Errorf("%d MiB are resident after the 64 MiB were discarded", n/mib)
	}
}
