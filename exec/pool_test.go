package exec

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tests/leak"
)

func acquire(t *testing.T, p *pool, n int) *storage.Buffer {
	t.Helper()
	b, err := p.Acquire(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func address(t *testing.T, b *storage.Buffer) *byte {
	t.Helper()
	p, err := b.Host(context.Background(), storage.Read)
	if err != nil {
		t.Fatal(err)
	}
	return &p[0]
}

// Sizes are powers of two up to 1024 f32 elements and multiples of 1024 elements above.
func TestRoundSize(t *testing.T) {
	for _, tt := range [][2]int{
		{1, 64}, {64, 64}, {65, 128}, {128, 128}, {400, 512}, {480, 512}, {4095, 4096}, {4096, 4096},
		{4097, 8192}, {8000, 8192}, {8192, 8192}, {8193, 12288}, {1 << 30, 1 << 30}, {1<<30 + 1, 1<<30 + 4096},
		{math.MaxInt, math.MaxInt}, {math.MaxInt - 4096, math.MaxInt - 4095},
	} {
		if got := roundSize(tt[0]); got != tt[1] {
			t.Errorf("%d bytes rounded to %d, want %d", tt[0], got, tt[1])
		}
	}
}

// Requests of 100 and 120 elements share a buffer, requests of 100 and 2000 do not. The
// last released buffer is reused first.
func TestPoolReuse(t *testing.T) {
	p := newPool(poolCap)
	a, b := acquire(t, p, 400), acquire(t, p, 400)
	pa, pb := address(t, a), address(t, b)
	a.Release()
	b.Release()
	other := acquire(t, p, 8000)
	first, second := acquire(t, p, 480), acquire(t, p, 400)
	if address(t, first) != pb || address(t, second) != pa {
		t.Error("want the last released first")
	}
	if po := address(t, other); po == pa || po == pb {
		t.Error("sizes of different classes share a buffer")
	}
	if !first.Unique() || first.Size() != 512 {
		t.Errorf("recycled buffer of %d bytes, unique %v", first.Size(), first.Unique())
	}
	for _, x := range []*storage.Buffer{other, first, second} {
		x.Release()
	}
	if s := p.Stats(); s.Outstanding != 0 || s.Cached != 512+512+8192 {
		t.Errorf("%+v", s)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if s := p.Stats(); s.Cached != 0 {
		t.Errorf("after Close: %+v", s)
	}
}

// The pool keeps at most the cap of idle memory, for all sizes together.
func TestPoolCap(t *testing.T) {
	before := leak.Now()
	p := newPool(8192)
	var bufs []*storage.Buffer
	for _, n := range []int{4096, 1024, 4096, 512} {
		bufs = append(bufs, acquire(t, p, n))
	}
	// The third replaces the second, and the fourth replaces one of 4096 bytes, because
	// the last requests of those sizes are older.
	for i, cached := range []int64{4096, 5120, 8192, 4608} {
		bufs[i].Release()
		if s := p.Stats(); s.Cached != cached {
			t.Errorf("%d bytes cached after release %d, want %d", s.Cached, i, cached)
		}
	}
	acquire(t, p, 4000).Release()
	if s := p.Stats(); s.Cached != 4608 || s.Outstanding != 0 {
		t.Errorf("%+v", s)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := before.Left(); err != nil {
		t.Error(err)
	}
}

// A full pool frees the sizes whose last request is the oldest, so that it keeps the sizes
// in use.
func TestPoolGivesUpOldSizes(t *testing.T) {
	before := leak.Now()
	p := newPool(1 << 20)
	fill := func(size int) {
		var bufs []*storage.Buffer
		for range 1 << 20 / size {
			bufs = append(bufs, acquire(t, p, size))
		}
		for _, b := range bufs {
			b.Release()
		}
	}
	fill(64 << 10)
	first := acquire(t, p, 128<<10)
	first.Release()
	for range 100 {
		b := acquire(t, p, 128<<10)
		if b != first {
			t.Fatal("a buffer of the size in use was not kept")
		}
		b.Release()
	}
	if s := p.Stats(); s.Cached != 1<<20 {
		t.Errorf("%d bytes cached, want all but what the new size took", s.Cached)
	}
	fill(128 << 10)
	if n := len(p.host); n != 1 {
		t.Errorf("%d sizes are known, want the one in use", n)
	}

	// A buffer of a freed size that is released late has the oldest request of all.
	late := acquire(t, p, 32<<10)
	p.mu.Lock()
	delete(p.host, 32<<10)
	p.mu.Unlock()
	late.Release()
	if s := p.Stats(); s.Cached != 1<<20 {
		t.Errorf("%d bytes cached after a late buffer", s.Cached)
	}
	// A buffer larger than the cap displaces nothing.
	acquire(t, p, 2<<20).Release()
	if s := p.Stats(); s.Cached != 1<<20 || s.Outstanding != 0 {
		t.Errorf("after a buffer beyond the cap: %+v", s)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if err := before.Left(); err != nil {
		t.Error(err)
	}
}

// Buffers for device results have no host memory, before and after their reuse.
func TestPoolLazy(t *testing.T) {
	p := newPool(poolCap)
	a := p.AcquireLazy(100)
	if a.HasHost() {
		t.Error("host memory before anyone asked")
	}
	address(t, a)
	a.Release()
	b := p.AcquireLazy(128)
	if b != a || b.HasHost() {
		t.Errorf("reused %v, host memory %v", b == a, b.HasHost())
	}
	host := acquire(t, p, 100)
	if host == b || !host.HasHost() {
		t.Error("the two kinds of buffer mix")
	}
	b.Release()
	host.Release()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Close reports outstanding buffers. A buffer that is released later is destroyed.
func TestPoolOutstanding(t *testing.T) {
	before := leak.Now()
	p := newPool(poolCap)
	a, b := acquire(t, p, 100), p.AcquireLazy(100)
	address(t, b)
	if err := p.Close(); err == nil || !strings.Contains(err.Error(), "2 buffers") {
		t.Errorf("close with two buffers outstanding: %v", err)
	}
	a.Release()
	b.Release()
	if s := p.Stats(); s.Outstanding != 0 || s.Cached != 0 {
		t.Errorf("%+v", s)
	}
	if err := before.Left(); err != nil {
		t.Error(err)
	}
}

// A failed request does not count as outstanding.
func TestPoolExhausted(t *testing.T) {
	p := newPool(poolCap)
	for _, n := range []int{math.MaxInt - 1<<20, math.MaxInt} {
		if _, err := p.Acquire(n); !errors.Is(err, offheap.ErrNoMemory) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
