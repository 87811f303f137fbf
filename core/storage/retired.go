//go:build cuda || metal || accel

package storage

import (
	"context"
	"sync"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/offheap"
)

// Retired holds host memory whose buffer is gone while a transfer still uses it.
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

// add takes the block, leaving it zero, and the resource tied to it. The fences
// are copied.
func (r *Retired) add(block *offheap.Block, resource accel.Resource, uses accel.Fences) {
	r.Sweep()
	r.mu.Lock()
	r.list = append(r.list, retiree{*block, resource, append(accel.Fences(nil), uses...)})
	r.mu.Unlock()
	*block = offheap.Block{}
}

// Sweep frees what no transfer uses any more and returns how much is left. Memory
// behind a failed fence stays until the failed queue has ended: the device may still
// write to it.
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

// Drain waits for the transfers and frees everything. It is for the device's
// owner, once the device is idle, closed or reset.
func (r *Retired) Drain(ctx context.Context) error {
	r.mu.Lock()
	list := r.list
	r.list = nil // a Release meanwhile must not wait for this one
	r.mu.Unlock()
	for i := range list {
		e := &list[i]
		_ = e.uses.Wait(ctx) // a failed transfer has ended too
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
