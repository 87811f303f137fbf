package quantize_test

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
)

// The memory that encoding a tensor allocates depends on the number of threads and not on the
// size of the tensor.
func TestMemory(t *testing.T) {
	const (
		cols = 1 << 10
		// A goroutine decodes a task of 2^15 elements to f32, and a band has 8 tasks of f32
		// for it: 2^17 + 2^20 bytes, the 9/8 MiB of Options.Threads.
		perThread = 1<<17 + 8<<17
		// Headers, the plan and goroutines take about 15 KiB of this limit. It is far below
		// the 2 MiB of the smaller tensor, so a copy of the tensor would exceed it.
		rest = 128 << 10
	)
	allocated := func(rows, threads int) int {
		f := parse(t, oneMatrix("a.weight", dtype.F16, []int{rows, cols}, make([]byte, 2*rows*cols)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		w := gguf.NewWriter(io.Discard)
		if err := quantize.Write(t.Context(), w, f, quantize.Options{Type: quantize.F32, Threads: threads}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return int(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(1, 1) // builds the tables that are built once
	for _, threads := range []int{1, 3} {
		for _, rows := range []int{1 << 10, 1 << 12} { // a band has 256 rows for each thread
			if got, limit := allocated(rows, threads), perThread*threads+rest; got > limit {
				t.Errorf("%d rows on %d threads: %d bytes allocated, want at most %d", rows, threads, got, limit)
			}
		}
	}
}

// meeting is a context whose check waits until two goroutines that encode have checked it. The
// two checks before come from the goroutine that writes, before a tensor and before its rows.
type meeting struct {
	context.Context
	looks atomic.Int32
	both  chan struct{}
	alone atomic.Bool
}

func (m *meeting) Err() error {
	switch m.looks.Add(1) {
	case 3:
		select {
		case <-m.both:
		case <-time.After(30 * time.Second):
			m.alone.Store(true)
		}
	case 4:
		close(m.both)
	}
	return m.Context.Err()
}

// Two goroutines encode rows at the same time: each waits until the other has begun.
func TestParallel(t *testing.T) {
	m := &meeting{Context: t.Context(), both: make(chan struct{})}
	f := parse(t, oneMatrix("a.weight", dtype.F32, []int{256, 256}, matrix(256, 256, nil)))
	w := gguf.NewWriter(io.Discard)
	if err := quantize.Write(m, w, f, quantize.Options{Type: quantize.Q8_0, Pure: true, Threads: 2}); err != nil {
		t.Fatal(err)
	}
	if m.alone.Load() {
		t.Error("a goroutine waited for another in vain")
	}
}
