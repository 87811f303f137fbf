package offheap_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
)

// onHeap says that this build takes blocks from the Go heap.
var onHeap = invariants.RaceEnabled || !systemMaps

// systemMaps says that this package maps memory on the system under test.
var systemMaps = func() bool {
	switch runtime.GOOS {
	case "darwin", "dragonfly", "freebsd", "linux", "netbsd", "openbsd", "windows":
		return true
	}
	return false
}()

func mustAlloc(t testing.TB, n int) offheap.Block {
	t.Helper()
	b, err := offheap.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func address(b offheap.Block) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b.Bytes()))) }

var sizes = []int{
	1, 2, 63, 64, 65, 127, 128, 129, 1000, 4095, 4096, 4097, 8191, 8192, 8193,
	16383, 16384, 16385, 20000, 65536, 1<<20 - 1, 1 << 20, 1<<20 + 1,
}

func TestAllocContract(t *testing.T) {
	before := offheap.Stats()
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			// Allocate twice, because the second block may be a reused one.
			for range 2 {
				b := mustAlloc(t, n)
				p := b.Bytes()
				if len(p) != n || cap(p) != n {
					t.Errorf("Bytes: len %d cap %d, want %d", len(p), cap(p), n)
				}
				if b.Cap() < n {
					t.Errorf("Cap = %d, want at least %d", b.Cap(), n)
				}
				if a := address(b); a%offheap.Align != 0 {
					t.Errorf("address %#x is not a multiple of %d", a, offheap.Align)
				}
				if n >= offheap.LargeMin {
					if a := address(b); a%uintptr(offheap.PageSize()) != 0 {
						t.Errorf("address %#x is not on a page of %d", a, offheap.PageSize())
					}
					if b.Cap()%offheap.PageSize() != 0 {
						t.Errorf("Cap = %d, not whole pages of %d", b.Cap(), offheap.PageSize())
					}
				}
				for i, c := range p {
					if c != 0 {
						t.Fatalf("byte %d = %#x, want zero", i, c)
					}
				}
				for i := range p {
					p[i] = 0xA5
				}
				offheap.Free(&b)
				if b != (offheap.Block{}) || b.Bytes() != nil || b.Cap() != 0 {
					t.Errorf("after Free: %+v, want the zero Block", b)
				}
				offheap.Free(&b)
			}
		})
	}
	after := offheap.Stats()
	if after.LiveBlocks != before.LiveBlocks || after.LiveBytes != before.LiveBytes {
		t.Errorf("live before %+v, after %+v", before, after)
	}
	if got, want := after.Allocs-before.Allocs, int64(2*len(sizes)); got != want {
		t.Errorf("%d allocations counted, want %d", got, want)
	}
	if got, want := after.Frees-before.Frees, int64(2*len(sizes)); got != want {
		t.Errorf("%d releases counted, want %d", got, want)
	}
}

func TestAllocErrors(t *testing.T) {
	for _, n := range []int{0, -1, math.MinInt} {
		if b, err := offheap.Alloc(n); err == nil || b != (offheap.Block{}) {
			t.Errorf("Alloc(%d) = %+v, %v, want an error and no block", n, b, err)
		}
	}
	before := offheap.Stats()
	tooMuch := []int{math.MaxInt}
	if math.MaxInt > math.MaxInt32 {
		// The size exceeds any 64-bit address space. A 32-bit one could be mapped whole.
		tooMuch = append(tooMuch, math.MaxInt-1<<20, math.MaxInt/2+1)
	}
	for _, n := range tooMuch {
		if b, err := offheap.Alloc(n); !errors.Is(err, offheap.ErrNoMemory) || b != (offheap.Block{}) {
			t.Errorf("Alloc(%d) = %+v, %v, want ErrNoMemory and no block", n, b, err)
		}
	}
	if after := offheap.Stats(); after != before {
		t.Errorf("failed allocations changed the counts: %+v, then %+v", before, after)
	}
}

// Blocks never overlap, keep their contents and start zeroed, in any order of allocations
// and releases.
func TestBlocksAreDisjoint(t *testing.T) {
	type held struct {
		b   offheap.Block
		tag byte
	}
	work := func(seed uint64) error {
		rng := rand.New(rand.NewPCG(seed, 1))
		var live []held
		check := func(h held) error {
			for i, c := range h.b.Bytes() {
				if c != h.tag {
					return fmt.Errorf("seed %d: byte %d of a %d-byte block = %#x, want %#x", seed, i, len(h.b.Bytes()), c, h.tag)
				}
			}
			return nil
		}
		for range 400 {
			if len(live) > 40 || len(live) > 0 && rng.IntN(3) == 0 {
				i := rng.IntN(len(live))
				if err := check(live[i]); err != nil {
					return err
				}
				offheap.Free(&live[i].b)
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				continue
			}
			b, err := offheap.Alloc(1 + rng.IntN(1<<rng.IntN(17)))
			if err != nil {
				return err
			}
			if err := check(held{b, 0}); err != nil {
				return err
			}
			h := held{b, byte(1 + rng.IntN(255))}
			for i := range b.Bytes() {
				b.Bytes()[i] = h.tag
			}
			live = append(live, h)
		}
		for i := range live {
			if err := check(live[i]); err != nil {
				return err
			}
			offheap.Free(&live[i].b)
		}
		return nil
	}
	before := offheap.Stats()
	seed := rand.Uint64()
	var wg sync.WaitGroup
	for i := range uint64(4) {
		wg.Go(func() {
			if err := work(seed + i); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	after := offheap.Stats()
	if after.LiveBlocks != before.LiveBlocks || after.LiveBytes != before.LiveBytes {
		t.Errorf("live before %+v, after %+v", before, after)
	}
}

func TestSmallBlocksShareSlabs(t *testing.T) {
	if onHeap || invariants.Enabled {
		t.Skip("small blocks have memory of their own in this build")
	}
	before := offheap.Stats().SlabBytes
	var blocks []offheap.Block
	for range 1000 {
		blocks = append(blocks, mustAlloc(t, 100))
	}
	if got := offheap.Stats().SlabBytes - before; got > 256<<10 {
		t.Errorf("1000 blocks of 100 bytes mapped %d bytes", got)
	}
	last := address(blocks[len(blocks)-1])
	for i := range blocks {
		offheap.Free(&blocks[i])
	}
	mapped := offheap.Stats().SlabBytes
	for i := range blocks {
		blocks[i] = mustAlloc(t, 100)
		if i == 0 && address(blocks[i]) != last {
			t.Errorf("first block after the releases is not the last one released")
		}
	}
	if got := offheap.Stats().SlabBytes; got != mapped {
		t.Errorf("reallocation mapped %d more bytes", got-mapped)
	}
	for i := range blocks {
		offheap.Free(&blocks[i])
	}
}

// All cells of a slab, including the last one, lie inside it.
func TestSlabsHoldTheirCells(t *testing.T) {
	if onHeap || invariants.Enabled {
		t.Skip("small blocks have memory of their own in this build")
	}
	var blocks []offheap.Block
	var live int64
	for _, n := range []int{64, 128, 256, 512, 1024, 2048, 4096, 8192, 16383} {
		for end := live + 1<<20; live < end; {
			b := mustAlloc(t, n)
			b.Bytes()[n-1] = 1
			blocks = append(blocks, b)
			live += int64(b.Cap())
		}
	}
	if got := offheap.Stats().SlabBytes; got < live {
		t.Errorf("%d live bytes in slabs of %d", live, got)
	}
	slices.SortFunc(blocks, func(a, b offheap.Block) int { return cmp.Compare(address(a), address(b)) })
	for i := range blocks[1:] {
		if a, b := blocks[i], blocks[i+1]; address(a)+uintptr(a.Cap()) > address(b) {
			t.Fatalf("blocks of %d bytes at %#x and %d at %#x overlap", a.Cap(), address(a), b.Cap(), address(b))
		}
	}
	for i := range blocks {
		offheap.Free(&blocks[i])
	}
}

func TestSteadyStateAllocatesNothingOnTheGoHeap(t *testing.T) {
	if onHeap || invariants.Enabled {
		t.Skip("this build allocates on the Go heap")
	}
	for _, n := range []int{1, 4096, 16000, 16384, 1 << 20} {
		if got := testing.AllocsPerRun(100, func() {
			b, err := offheap.Alloc(n)
			if err != nil {
				t.Fatal(err)
			}
			offheap.Free(&b)
		}); got != 0 {
			t.Errorf("%d bytes: %v allocations on the Go heap, want 0", n, got)
		}
	}
}

// A block on the Go heap stays reachable as long as its Block is.
func TestBlockKeepsItsMemory(t *testing.T) {
	var blocks []offheap.Block
	for i := range 50 {
		b := mustAlloc(t, 5000+1000*i)
		for j := range b.Bytes() {
			b.Bytes()[j] = byte(i)
		}
		blocks = append(blocks, b)
	}
	for range 3 {
		runtime.GC()
	}
	for i := range blocks {
		for j, c := range blocks[i].Bytes() {
			if c != byte(i) {
				t.Fatalf("block %d: byte %d = %d", i, j, c)
			}
		}
		offheap.Free(&blocks[i])
	}
}

func TestLeaksWithoutInvariants(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the build has invariants")
	}
	b := mustAlloc(t, 10)
	defer offheap.Free(&b)
	if got := offheap.Leaks(); got != nil {
		t.Errorf("Leaks() = %q, want none recorded", got)
	}
}

func needInvariants(t *testing.T) {
	t.Helper()
	if !invariants.Enabled {
		t.Skip("needs -tags invariants")
	}
}

// mustPanic runs f and returns the text of its panic.
func mustPanic(t *testing.T, f func()) (msg string) {
	t.Helper()
	defer func() {
		r := recover()
		if r == nil {
			t.Error("no panic")
		}
		msg = fmt.Sprint(r)
	}()
	f()
	return ""
}

func TestDoubleFreePanics(t *testing.T) {
	needInvariants(t)
	for _, n := range []int{100, 5000, 100000} {
		b := mustAlloc(t, n)
		dup := b
		offheap.Free(&b)
		// A block that may have got the same address must stay valid.
		other := mustAlloc(t, n)
		msg := mustPanic(t, func() { offheap.Free(&dup) })
		if !strings.Contains(msg, "double free") || strings.Count(msg, "TestDoubleFreePanics") != 2 {
			t.Errorf("%d bytes: panic %q, want a double free with both stacks", n, msg)
		}
		other.Bytes()[0] = 1
		offheap.Free(&other)
	}
}

func TestLeaksNameTheAllocation(t *testing.T) {
	needInvariants(t)
	before := len(offheap.Leaks())
	b := mustAlloc(t, 12345)
	leaks := offheap.Leaks()
	if len(leaks) != before+1 {
		t.Fatalf("%d leaks, want %d", len(leaks), before+1)
	}
	last := leaks[len(leaks)-1]
	if !strings.HasPrefix(last, "12345 bytes") || !strings.Contains(last, "TestLeaksNameTheAllocation") {
		t.Errorf("leak %q, want its size and this function", last)
	}
	offheap.Free(&b)
	if got := len(offheap.Leaks()); got != before {
		t.Errorf("%d leaks after Free, want %d", got, before)
	}
}

func TestWritePastEndPanics(t *testing.T) {
	needInvariants(t)
	for _, n := range []int{100, 16001, 20001} {
		b := mustAlloc(t, n)
		past := unsafe.Slice(unsafe.SliceData(b.Bytes()), b.Cap())
		old := past[n]
		past[n] ^= 1
		if msg := mustPanic(t, func() { offheap.Free(&b) }); !strings.Contains(msg, "past its end") {
			t.Errorf("%d bytes: panic %q", n, msg)
		}
		past[n] = old
		offheap.Free(&b)
	}
}

// faults reports whether reading the byte at p raises a memory fault.
func faults(p unsafe.Pointer) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	sink = *(*byte)(p)
	return false
}

var sink byte

// A read past the end of a block faults, so that a kernel that reads past its slice is found.
func TestGuardPages(t *testing.T) {
	needInvariants(t)
	if onHeap {
		t.Skip("the Go heap has no guard pages")
	}
	for _, n := range []int{1, 64, 100, 5000, 16384, 20000, 1 << 20} {
		b := mustAlloc(t, n)
		p := unsafe.Pointer(unsafe.SliceData(b.Bytes()))
		if faults(p) || faults(unsafe.Add(p, b.Cap()-1)) {
			t.Errorf("%d bytes: the block itself faults", n)
		}
		if !faults(unsafe.Add(p, b.Cap())) {
			t.Errorf("%d bytes: no fault after the capacity %d", n, b.Cap())
		}
		if n < offheap.LargeMin && b.Cap()-n >= offheap.Align {
			t.Errorf("%d bytes: capacity %d leaves more than alignment takes", n, b.Cap())
		}
		if n >= offheap.LargeMin && !faults(unsafe.Add(p, -1)) {
			t.Errorf("%d bytes: no fault before the block", n)
		}
		offheap.Free(&b)
		if !faults(p) {
			t.Errorf("%d bytes: no fault after Free", n)
		}
	}
}

// A read of a freed block faults or sees poison, so that a use after the release is found.
func TestUseAfterFreeShows(t *testing.T) {
	needInvariants(t)
	if !onHeap {
		t.Skip("freed memory faults in this build, see TestGuardPages")
	}
	b := mustAlloc(t, 1000)
	p := b.Bytes()
	p[0] = 1
	offheap.Free(&b)
	if p[0] != offheap.PoisonByte || p[999] != offheap.PoisonByte {
		t.Errorf("freed memory holds %#x, %#x, want the poison", p[0], p[999])
	}
}

func BenchmarkAlloc(b *testing.B) {
	for _, n := range []int{64, 4096, 1 << 20} {
		b.Run(fmt.Sprintf("offheap/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				blk := mustAlloc(b, n)
				blk.Bytes()[0] = 1
				offheap.Free(&blk)
			}
		})
		b.Run(fmt.Sprintf("make/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				heapSink = make([]byte, n)
				heapSink[0] = 1
			}
		})
	}
}

var heapSink []byte

func ExampleAlloc() {
	b, err := offheap.Alloc(100_000)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer offheap.Free(&b)
	fmt.Println(len(b.Bytes()), b.Cap()%offheap.PageSize() == 0)
	// Output: 100000 true
}
