package quantize_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/countdown"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// At any check of the context, File ends with the context's error if it is done, and leaves no
// file.
func TestFileCancelledAnywhere(t *testing.T) {
	dir := t.TempDir()
	path, out := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "out.gguf")
	image := tinyllama.GGUF(tinyllama.Options{Embedding: 256, FeedForward: 512})
	if err := os.WriteFile(path, image, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, typ := range []quantize.FileType{quantize.Q4_0, quantize.F16, quantize.F32} {
		for _, threads := range []int{1, 2} {
			opt := quantize.Options{Type: typ, Pure: true, Threads: threads}
			total := countdown.After(math.MaxInt)
			if _, err := quantize.File(total, path, out, opt); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(out); err != nil {
				t.Fatal(err)
			}
			n := total.Looks()
			for _, looks := range []int{0, 1, 2, 3, 5, 8, n / 4, n / 2, 3 * n / 4, n - 2, n - 1} {
				if _, err := quantize.File(countdown.After(looks), path, out, opt); !errors.Is(err, context.Canceled) || errors.Is(err, quantize.ErrTensor) {
					t.Fatalf("%v on %d threads, done after %d of %d looks: %v, want %v", typ, threads, looks, n, err, context.Canceled)
				}
				onlyFile(t, dir, "model.gguf", image)
			}
		}
	}
}

// Decoding, encoding, checking and copying check the context within a row too.
func TestLongRowLooks(t *testing.T) {
	const cols = 1 << 18
	dir := t.TempDir()
	path, out := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "out.gguf")
	if err := os.WriteFile(path, oneMatrix("blk.0.attn_q.weight", dtype.F32, []int{2, cols}, matrix(2, cols, nil)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		typ  quantize.FileType
		each int // the elements between two checks
	}{{quantize.Q4_0, 1024}, {quantize.Q6_K, 1024}, {quantize.F16, 1024}, {quantize.F32, 1 << 15}} {
		ctx := countdown.After(math.MaxInt)
		if _, err := quantize.File(ctx, path, out, quantize.Options{Type: c.typ, Pure: true, Threads: 1}); err != nil {
			t.Fatal(err)
		}
		if looks := int(ctx.Looks()); looks < 2*cols/c.each {
			t.Errorf("%v: %d looks at two rows of %d, want one every %d", c.typ, looks, cols, c.each)
		}
	}
}

// BenchmarkCancelQuantize reports how long File continues after its context is done, for one
// large tensor in a slow format.
func BenchmarkCancelQuantize(b *testing.B) {
	const rows, cols = 1 << 8, 1 << 14
	dir := b.TempDir()
	path, out := filepath.Join(dir, "model.gguf"), filepath.Join(dir, "out.gguf")
	if err := os.WriteFile(path, oneMatrix("blk.0.attn_q.weight", dtype.F32, []int{rows, cols}, matrix(rows, cols, nil)), 0o644); err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var worst, sum time.Duration
	for b.Loop() {
		ctx, cancel := context.WithCancel(context.Background())
		var at time.Time
		time.AfterFunc(time.Duration(rng.IntN(int(200*time.Millisecond))), func() {
			at = time.Now()
			cancel()
		})
		if _, err := quantize.File(ctx, path, out, quantize.Options{Type: quantize.IQ3_S, Pure: true}); !errors.Is(err, context.Canceled) {
			b.Fatalf("%v, want %v", err, context.Canceled)
		}
		late := time.Since(at)
		worst, sum = max(worst, late), sum+late
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
	b.ReportMetric(float64(sum.Microseconds())/1000/float64(b.N), "mean-ms")
}
