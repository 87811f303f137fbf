package cpu

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/quant"
	"github.com/x448/float16"
)

// getRows is OpGetRows.
type getRows struct {
	n, d     int // rows of the table and their elements
	dt, idt  dtype.DType
	stride   int // of table rows, in storage elements
	inner    int // stride of a row's elements
	rowBytes int // of a contiguous row
	idStride int
	tokens   int
	or       rows
	decode   quant.Decoder
	table    []byte
	ids      []byte
	out      []float32
	status   *atomic.Uint64
}

func (k *getRows) prepare(a *op.Args, _ int) error {
	if err := wantInputs(a, 2); err != nil {
		return err
	}
	table, ids, out := &a.In[0], &a.In[1], &a.Out[0]
	var err error
	if k.decode, err = quant.DecoderOf(table.DType); err != nil {
		return unsupported("table: %v", err)
	}
	if err := check("table", table); err != nil {
		return err
	}
	switch ids.DType {
	case dtype.I32, dtype.I64, dtype.U16:
	default:
		return unsupported("ids are %v, want i32, i64 or u16", ids.DType)
	}
	if err := check("ids", ids); err != nil {
		return err
	}
	if err := checkRows("out", out); err != nil {
		return err
	}
	if table.Shape.Rank() != 2 || ids.Shape.Rank() != 1 {
		return mismatch("table %v and ids %v, want [rows elements] and [tokens]", table.Shape, ids.Shape)
	}
	k.n, k.d, k.tokens = table.Shape.Dim(0), table.Shape.Dim(1), ids.Shape.Dim(0)
	if out.Shape.Rank() != 2 || out.Shape.Dim(0) != k.tokens || out.Shape.Dim(1) != k.d {
		return mismatch("out %v, want [%d %d]", out.Shape, k.tokens, k.d)
	}
	k.dt, k.idt = table.DType, ids.DType
	k.stride, k.inner, k.idStride = table.Strides.Dim(0), table.Strides.Dim(1), ids.Strides.Dim(0)
	if innerContiguous(table) {
		k.inner = 1
	} else if k.dt.IsBlockQuantized() {
		return checkInner("table", table)
	}
	k.rowBytes = k.d / k.dt.BlockSize() * k.dt.Size()
	k.or.init(out, 1)
	return checkOut(out)
}

func (k *getRows) bind(a *op.Args, s *scratch) (err error) {
	if k.table, err = bind("table", &a.In[0]); err != nil {
		return err
	}
	if k.ids, err = bind("ids", &a.In[1]); err != nil {
		return err
	}
	if k.out, err = bindFloats("out", &a.Out[0]); err != nil {
		return err
	}
	if k.status = a.Status; k.status != nil {
		return nil // run clamps and reports
	}
	p := s.pieces(k.tokens, decodeCost)
	for p.next() {
		for t := p.lo; t < p.hi; t++ {
			if id := k.id(t); id < 0 || id >= int64(k.n) {
				return fmt.Errorf("ids[%d] is %d, want a row from 0 to %d of the table's %d rows", t, id, k.n-1, k.n)
			}
		}
	}
	return s.err
}

func (k *getRows) id(t int) int64 {
	i := t * k.idStride
	switch k.idt {
	case dtype.I32:
		return int64(int32(binary.LittleEndian.Uint32(k.ids[4*i:])))
	case dtype.I64:
		return int64(binary.LittleEndian.Uint64(k.ids[8*i:]))
	}
	return int64(binary.LittleEndian.Uint16(k.ids[2*i:]))
}

// row is the row of the table that token t names, or the nearest, which is reported.
func (k *getRows) row(t int) int {
	id := k.id(t)
	if id < 0 || id >= int64(k.n) {
		op.Report(k.status, t, id)
		return int(min(max(id, 0), int64(k.n-1)))
	}
	return int(id)
}

func (k *getRows) release() { k.table, k.ids, k.out, k.decode, k.status = nil, nil, nil, nil, nil }

func (k *getRows) work() (units, cost int) {
	cost = decodeCost
	if k.inner != 1 {
		cost = gatherCost
	}
	return k.tokens, unitCost + cost*k.d
}

func (k *getRows) run(lo, hi int, s *scratch) {
	for t := lo; t < hi && s.err == nil; t++ {
		row := k.table[k.row(t)*k.stride*k.dt.Size():]
		out := k.out[k.or.at(t):][:k.d]
		if k.inner == 1 {
			s.decode(out, row[:k.rowBytes], k.dt, k.decode)
			continue
		}
		s.gather(out, row, k.inner, k.dt, k.decode)
	}
}

// gather reads len(dst) scalar elements that lie stride apart.
func gather(dst []float32, d dtype.DType, decode quant.Decoder, src []byte, stride int) {
	switch d {
	case dtype.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i*stride:]))
		}
	case dtype.F16:
		for i := range dst {
			dst[i] = dtype.F16ToFloat32(float16.Float16(binary.LittleEndian.Uint16(src[2*i*stride:])))
		}
	case dtype.BF16:
		for i := range dst {
			dst[i] = dtype.BFloat16(binary.LittleEndian.Uint16(src[2*i*stride:])).Float32()
		}
	default:
		size := d.Size()
		for i := range dst {
			decode(dst[i:i+1], src[size*i*stride:][:size])
		}
	}
}
