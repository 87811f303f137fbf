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

// getRows is the kernel of op.GetRows.
type getRows struct {
	n, d     int         // rows of the table, and elements of a row
	dt, idt  dtype.DType // of the table and of the ids
	stride   int         // between rows of the table, in storage elements
	rowBytes int
	tokens   int
	or       rows
	decode   quant.Decoder
	table    []byte
	ids      []byte
	out      []float32
	status   *atomic.Uint64
}

func (k *getRows) prepare(a *op.Args, s *scratch) (err error) {
	table, ids, out := &a.In[0], &a.In[1], &a.Out[0]
	if k.decode, err = quant.DecoderOf(table.DType); err != nil {
		return err
	}
	k.n, k.d, k.tokens = table.Shape.Dim(0), table.Shape.Dim(1), ids.Shape.Dim(0)
	k.dt, k.idt, k.stride = table.DType, ids.DType, table.Strides.Dim(0)
	k.rowBytes = k.d / k.dt.BlockSize() * k.dt.Size()
	k.or.init(out, 1)
	k.table, k.ids, k.out = bytesOf(table), bytesOf(ids), floatsOf(out)
	if k.status = a.Status; k.status != nil {
		return nil // run clamps and reports
	}
	p := s.pieces(k.tokens, decodeCost)
	for p.next() {
		for t := p.lo; t < p.hi; t++ {
			if id := k.id(t); id < 0 || id >= int64(k.n) {
				return k.refuse(t, id)
			}
		}
	}
	return s.err
}

// refuse returns the error of a row number that is out of range.
func (k *getRows) refuse(t int, id int64) error {
	return fmt.Errorf("ids[%d] is %d, want a row from 0 to %d of the table's %d rows", t, id, k.n-1, k.n)
}

func (k *getRows) id(t int) int64 {
	switch k.idt {
	case dtype.I32:
		return int64(int32(binary.LittleEndian.Uint32(k.ids[4*t:])))
	case dtype.I64:
		return int64(binary.LittleEndian.Uint64(k.ids[8*t:]))
	}
	return int64(binary.LittleEndian.Uint16(k.ids[2*t:]))
}

// row returns the row of the table for token t. It clamps a row number that is out of range
// and reports it in k.status. Without a status, the row number has changed since prepare
// checked it, because another goroutine writes to the ids; row then sets s.err.
func (k *getRows) row(t int, s *scratch) int {
	id := k.id(t)
	if id < 0 || id >= int64(k.n) {
		if k.status == nil {
			s.err = k.refuse(t, id)
		} else {
			op.Report(k.status, 1, t, id)
		}
		return int(min(max(id, 0), int64(k.n-1)))
	}
	return int(id)
}

func (k *getRows) release() { k.table, k.ids, k.out, k.decode, k.status = nil, nil, nil, nil, nil }

func (k *getRows) cost() (units, cost int) { return k.tokens, unitCost + decodeCost*k.d }

func (k *getRows) run(lo, hi int, s *scratch) {
	for t := lo; t < hi && s.err == nil; t++ {
		r := k.row(t, s)
		if s.err != nil {
			return // before decode looks at the context, which sets s.err
		}
		row := k.table[r*k.stride*k.dt.Size():]
		s.decode(k.out[k.or.at(t):][:k.d], row[:k.rowBytes], k.dt, k.decode)
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
