//go:build cuda || metal || accel

package storage

import (
	"context"
	"sync"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/offheap"
)

// Retired holds the host memory of released buffers until no transfer uses it.
// The zero value is ready. An engine has one per device.
type Retired struct {
	mu   sync.Mutex
	list []retiree
}

type retiree struct {
	block    offheap.Block
	resource accel.Resource // tied to the block; may be nil
	uses     accel.Fences
}

func (e *retiree) free() {
	if e.resource != nil {
		e.resource.Destroy()
	}
	offheap.Free(&e.block)
}

// add takes ownership of the block and of the resource tied to it, and zeroes *block.
// It copies uses.
func (r *Retired) add(block *offheap.Block, resource accel.Resource, uses accel.Fences) {
	r.Sweep()
	r.mu.Lock()
	r.list = append(r.list, retiree{*block, resource, append(accel.Fences(nil), uses...)})
	r.mu.Unlock()
	*block = offheap.Block{}
}

// Sweep frees the memory that no transfer uses any more and returns the number of blocks
// that are left. Memory behind a failed fence stays until the failed queue has ended,
// because the device may still write to it.
func (r *Retired) Sweep() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.list[:0]
	for i := range r.list {
		e := &r.list[i]
		if e.uses.Quiet() {
			e.free()
			continue
		}
		kept = append(kept, *e)
	}
	clear(r.list[len(kept):])
	r.list = kept
	return len(kept)
}

// Drain waits for the transfers and frees everything. The device's owner calls it once
// the device is idle, closed or reset. If ctx ends first, Drain returns ctx's error and
// keeps the rest.
func (r *Retired) Drain(ctx context.Context) error {
	r.mu.Lock()
	list := r.list
	r.list = nil // so that Drain waits without mu, and a concurrent Release does not wait
	r.mu.Unlock()
	for i := range list {
		e := &list[i]
		_ = e.uses.Wait(ctx) // a transfer that failed has also ended
		if err := ctx.Err(); err != nil && !e.uses.Done() {
			r.mu.Lock()
			r.list = append(r.list, list[i:]...)
			r.mu.Unlock()
			return err
		}
		e.free()
	}
	return nil
}
