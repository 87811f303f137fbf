//go:build accel

package device

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/tensor"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/harness"
)

// paged has the operands of two tokens of different sequences over a cache of four pages with two
// tokens of one head of four elements. Sequence 0 has the pages 0 and 1, and sequence 1 page 2.
// Page 3 belongs to nobody.
type paged struct {
	positions, sequences, tables, places []int32
}

func goodTables() paged {
	return paged{positions: []int32{2, 1}, sequences: []int32{0, 1}, tables: []int32{0, 1, 2, -1}, places: []int32{2, 5}}
}

// pagedRun is a context with a cache whose elements are known.
type pagedRun struct {
	c       *fucina.Context
	there   bool // whether only the device has the indices
	content []float32
	cache   fucina.Tensor // {page row}
	q       fucina.Tensor // {seq head d}
	angles  fucina.Tensor // {seq pair cos_sin}
}

func newPagedRun(c *fucina.Context, there bool) *pagedRun {
	r := &pagedRun{c: c, there: there, content: make([]float32, 4*16)}
	for i := range r.content {
		r.content[i] = float32(i%7) - 3
	}
	r.cache = r.floats(r.content, fucina.Ax("page", 4), fucina.Ax("row", 16))
	r.q = r.floats([]float32{1, 2, 3, 4, 5, 6, 7, 8}, fucina.Ax("seq", 2), fucina.Ax("head", 1), fucina.Ax("d", 4))
	r.angles = r.floats([]float32{1, 0, 1, 0, 1, 0, 1, 0}, fucina.Ax("seq", 2), fucina.Ax(fucina.PairAxis, 2), fucina.Ax(fucina.CosSinAxis, 2))
	return r
}

// floats returns a tensor whose newest bytes are on the device, if there is one.
func (r *pagedRun) floats(p []float32, axes ...fucina.Axis) fucina.Tensor {
	return fucina.FromSlice(r.c, p, axes...).Scale(1)
}

func (r *pagedRun) indices(p []int32, axes ...fucina.Axis) fucina.Tensor {
	if !r.there {
		return fucina.FromSlice(r.c, p, axes...)
	}
	f := make([]float32, len(p))
	for i, v := range p {
		f[i] = float32(v)
	}
	return r.floats(f, axes...).To(dtype.I32)
}

func (r *pagedRun) half(start int) fucina.Tensor {
	return r.cache.Narrow("row", start, 8).Split("row", fucina.Ax("key", 2), fucina.Ax("kv_head", 1), fucina.Ax("d", 4))
}

func (r *pagedRun) attention(x paged) fucina.Tensor {
	return fucina.Attention(r.q, r.half(0), r.half(8), fucina.AttentionOptions{
		Scale:     1,
		Positions: r.indices(x.positions, fucina.Ax("seq", 2)),
		Sequences: r.indices(x.sequences, fucina.Ax("seq", 2)),
		Tables:    r.indices(x.tables, fucina.Ax("sequence", 2), fucina.Ax("slot", 2)),
	})
}

func (r *pagedRun) store(x paged) fucina.Tensor {
	kv := r.q.Rename("head", "kv_head")
	return fucina.RotateStore(r.q, kv, kv, r.angles, r.indices(x.places, fucina.Ax("seq", 2)), r.cache, fucina.RotateStoreOptions{Mode: fucina.RoPENeoX})
}

// outOfBounds returns the part of the text of err that says which index is wrong.
func outOfBounds(err error) (string, error) {
	if !errors.Is(err, tensor.ErrIndexOutOfBounds) || errors.Is(err, fucina.ErrDeviceFailed) {
		return "", fmt.Errorf("%w, want %w", err, tensor.ErrIndexOutOfBounds)
	}
	return err.Error()[strings.Index(err.Error(), tensor.ErrIndexOutOfBounds.Error()):], nil
}

// A position, a sequence, a page or a place that does not exist is the same error on the CPU and
// on a device, whether the host knows the number or only the device. Nothing else fails: rows of
// the cache that no index names keep their values, and the context computes right values
// afterwards.
func TestWrongTables(t *testing.T) {
	for _, c := range []struct {
		name  string
		store bool // a wrong operand of RotateStore, not of Attention
		spoil func(x *paged)
	}{
		{"negative position", false, func(x *paged) { x.positions[1] = -1 }},
		{"position behind the tables", false, func(x *paged) { x.positions[0] = 4 }},
		{"negative sequence", false, func(x *paged) { x.sequences[0] = -1 }},
		{"sequence that is not there", false, func(x *paged) { x.sequences[1] = 2 }},
		{"page that is not there", false, func(x *paged) { x.tables[1] = 4 }},
		{"no page where one is needed", false, func(x *paged) { x.tables[2] = -1 }},
		{"page of another number", false, func(x *paged) { x.tables[0] = 1 << 20 }},
		{"negative place", true, func(x *paged) { x.places[0] = -1 }},
		{"place behind the cache", true, func(x *paged) { x.places[1] = 8 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want string
			var good []float32
			for _, where := range []string{"cpu", "device", "only the device knows"} {
				var r *rig
				if where == "cpu" {
					eng, err := fucina.Open(fucina.WithProvider("cpu"), fucina.WithThreads(1))
					if err != nil {
						t.Fatal(err)
					}
					harness.CloseLater(t, eng)
					r = &rig{eng: eng}
				} else {
					r = openRig(t, discrete.Options{Ring: deepRing})
				}
				ctx, other := r.context(t), r.context(t)
				p := newPagedRun(ctx, where == "only the device knows")
				if where == "cpu" {
					good = numbers(t, "attention", p.attention(goodTables()))
				}
				x := goodTables()
				c.spoil(&x)
				innocent := newPagedRun(other, p.there)
				var bad fucina.Tensor
				if c.store {
					bad = p.store(x)
				} else {
					bad = p.attention(x)
				}
				_, err := fucina.Data[float32](bad)
				if c.store && err == nil {
					err = fucina.CopyOut(p.cache, make([]float32, 64)) // only the contents of the cache are wrong
				}
				said, err := outOfBounds(err)
				if err != nil {
					t.Fatalf("%s: %v", where, err)
				}
				if where == "cpu" {
					want = said
				} else if said != want {
					t.Errorf("%s: %q, the cpu says %q", where, said, want)
				}
				if !c.store || !p.there { // else the contents of the cache are lost
					got, first, last := numbers(t, "the cache", p.cache), 64, 64
					if c.store {
						first, last = 16, 48 // the pages of the places that exist
					}
					if !slices.Equal(got[:first], p.content[:first]) || !slices.Equal(got[last:], p.content[last:]) {
						t.Errorf("%s: the cache has changed: %v, was %v", where, got, p.content)
					}
				}
				for _, run := range []*pagedRun{innocent, newPagedRun(ctx, p.there)} {
					if got := numbers(t, "attention afterwards", run.attention(goodTables())); !slices.Equal(got, good) {
						t.Errorf("%s: attention afterwards is %v, want %v", where, got, good)
					}
					if got := numbers(t, "queries afterwards", run.store(goodTables())); !slices.Equal(got, []float32{1, 2, 3, 4, 5, 6, 7, 8}) {
						t.Errorf("%s: the queries afterwards are %v", where, got)
					}
				}
				if err := ctx.Sync(); err != nil {
					t.Errorf("%s: %v", where, err)
				}
				if s := r.eng.Stats(); where != "cpu" && s.Fallbacks != 0 {
					t.Errorf("%s: %d fallbacks: %s", where, s.Fallbacks, s.LastFallback)
				}
			}
		})
	}
}
