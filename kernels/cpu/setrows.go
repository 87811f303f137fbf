package cpu

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
)

// setRows is the kernel of op.SetRows.
type setRows struct {
	places placeList
	d      int
	dt     dtype.DType // of the destination
	xr, or rows
	x, out []byte
}

func (k *setRows) prepare(a *op.Args, s *scratch) error {
	x, out := &a.In[0], &a.Out[0]
	k.d, k.dt = x.Shape.Dim(1), out.DType
	k.xr.init(x, 1)
	k.or.init(out, out.Shape.Rank()-1)
	k.x, k.out = bytesOf(x), bytesOf(out)
	return k.places.prepare(op.SetRows, a, 1, s)
}

func (k *setRows) release() { *k = setRows{} }

func (k *setRows) cost() (units, cost int) { return k.xr.n, unitCost + storeCost(k.dt)*k.d }

func (k *setRows) run(lo, hi int, s *scratch) {
	for t := lo; t < hi && s.err == nil; t++ {
		if row, ok := k.places.at(t, s); ok {
			s.store(k.out[k.or.at(row)*k.dt.Size():], k.dt, k.x[4*k.xr.at(t):][:4*k.d])
		}
	}
}

// placeList has the numbers of the rows to which an operation writes the rows of its tokens.
type placeList struct {
	indices
	op     op.ID
	status *atomic.Uint64
}

// prepare sets the list to the input p. If there is no status, it refuses a place that is
// out of range.
func (k *placeList) prepare(id op.ID, a *op.Args, p op.Place, s *scratch) error {
	k.init(id, a, p)
	k.op, k.status = id, a.Status
	if k.status != nil {
		return nil // at reports
	}
	pieces := s.pieces(a.In[p].Shape.Dim(0), 1)
	for pieces.next() {
		for t := pieces.lo; t < pieces.hi; t++ {
			if row, ok := k.read(t); !ok {
				return k.refuse(t, row)
			}
		}
	}
	return s.err
}

// read returns the row of token t, and whether the destination has it.
func (k *placeList) read(t int) (row int, ok bool) {
	row = int(int32(binary.LittleEndian.Uint32(k.mem[4*t:])))
	return row, row >= 0 && row < k.limit
}

// refuse returns the error of a place that is out of range.
func (k *placeList) refuse(t, row int) error {
	return fmt.Errorf("%s[%d] is %d, want a row from 0 to %d", k.op.Role(k.place), t, row, k.limit-1)
}

// at returns the row of token t. It returns false if the token's row must not be written,
// because the place is out of range, and reports the place in the status. Without a status,
// the place has changed since prepare checked it, because another goroutine writes to the
// places; at then sets s.err.
func (k *placeList) at(t int, s *scratch) (row int, ok bool) {
	if row, ok = k.read(t); ok {
		return row, true
	}
	if k.status == nil {
		s.err = k.refuse(t, row)
	} else {
		op.Report(k.status, k.place, t, int64(row))
	}
	return 0, false
}
