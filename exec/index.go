package exec

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
)

// indexPlaces are the places of each operation's inputs of indices.
var indexPlaces = func() (places [op.Count][]op.Place) {
	for id := op.ID(1); id < op.Count; id++ {
		for i, r := range id.Inputs() {
			if r.Index {
				places[id] = append(places[id], op.Place(i))
			}
		}
	}
	return places
}()

// checkIndices checks the indices that the contract cannot check, except those of sparse
// operands, which the kernel checks. Where only the device has the indices, checkIndices
// leaves the check to the device, and to checkRest if the CPU runs the operation.
func (c *Queue) checkIndices(id op.ID) error {
	for _, p := range indexPlaces[id] {
		if !c.args.Has(p) || id.Inputs()[p].Sparse {
			continue
		}
		buf, o := c.bufs[p], &c.args.In[p]
		good := goodIndices{buf, buf.Generation(), o.Offset, o.Shape, o.DType, id.Limit(&c.args, p)}
		if slices.Contains(c.good[:], good) {
			continue
		}
		if buf.NewestOnDevice() {
			c.unchecked |= 1 << p
			continue
		}
		mem, err := buf.Host(c.ctx, storage.Read)
		if err != nil {
			return err
		}
		if err := checkIndex(id, &c.args, p, mem); err != nil {
			return err
		}
		if !buf.Borrowed() { // the lender may change the bytes
			c.good[c.nextGood] = good
			c.nextGood = (c.nextGood + 1) % len(c.good)
		}
	}
	return nil
}

// goodIndices are indices that a check has found to be in range. All layers of a model use the same
// ones. A write to the buffer changes its generation. The queue keeps the buffer reachable, so that
// no other buffer gets its address; it has no reference to the memory.
type goodIndices struct {
	buf        *storage.Buffer
	generation uint64
	offset     int
	shape      shape.Shape
	dtype      dtype.DType
	limit      int
}

// checkRest checks the indices that only the device had. They are in host memory now.
func (c *Queue) checkRest(id op.ID) error {
	for _, p := range indexPlaces[id] {
		if c.unchecked>>p&1 == 0 {
			continue
		}
		if err := checkIndex(id, &c.args, p, c.args.In[p].Mem.Host); err != nil {
			return err
		}
	}
	return nil
}

// checkIndex returns an error for an index of the operand at p that is out of range. mem is
// the memory of the operand, which is contiguous.
func checkIndex(id op.ID, a *op.Args, p op.Place, mem []byte) error {
	o, limit := &a.In[p], int64(id.Limit(a, p))
	lo, hi := extent(o)
	mem = mem[lo:hi]
	size := o.DType.Size()
	for i := 0; i < len(mem); i += size {
		var v int64
		switch o.DType {
		case dtype.I32:
			v = int64(int32(binary.NativeEndian.Uint32(mem[i:])))
		case dtype.I64:
			v = int64(binary.NativeEndian.Uint64(mem[i:]))
		case dtype.U16:
			v = int64(binary.NativeEndian.Uint16(mem[i:]))
		}
		if v < 0 || v >= limit {
			return indexError(id, p, i/size, v, limit)
		}
	}
	return nil
}

// indexError is the error for the value v, at position at of the indices at p, that is not
// below limit.
func indexError(id op.ID, p op.Place, at int, v, limit int64) error {
	if id == op.GetRows {
		return fmt.Errorf("%w: id %d at position %d, the table has %d rows", tensor.ErrIndexOutOfBounds, v, at, limit)
	}
	return fmt.Errorf("%w: %d at position %d of the %s, want 0 to %d", tensor.ErrIndexOutOfBounds, v, at, id.Role(p), limit-1)
}

// watched returns what explain needs of an operation: the operation, the one that errors
// name, and the limits of the operands of indices.
func watched(k *call, a *op.Args) (w accel.Watched) {
	w[0] = int64(k.id)<<8 | int64(k.as)
	for i, p := range indexPlaces[k.id] {
		if a.Has(p) {
			w[1+i] = int64(k.id.Limit(a, p))
		}
	}
	return w
}

// explain returns the error of an operation that reported status, which is not 0. It appears at
// a later read, where no caller knows the operation, so it names GetRows as its users do.
func explain(status uint64, w accel.Watched) error {
	as, err := op.ID(w[0]&0xff), reported(status, w)
	if as == op.GetRows {
		return fmt.Errorf("gather: %w", err)
	}
	return &OpError{as, err}
}

// reported is explain without the name of the operation.
func reported(status uint64, w accel.Watched) error {
	id := op.ID(w[0] >> 8)
	p, at, v := op.Reported(status)
	for i, known := range indexPlaces[id] {
		if p == known {
			return indexError(id, p, at, v, w[1+i])
		}
	}
	return fmt.Errorf("%w: %d at position %d of input %d", tensor.ErrIndexOutOfBounds, v, at, p)
}
