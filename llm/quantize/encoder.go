package quantize

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/quant"
)

// taskElements is the approximate number of elements of a task. It is large compared with the
// cost of starting a task. It is also the largest number of elements that a goroutine decodes
// or checks before it checks the context again; encoding checks it more often.
const taskElements = 1 << 15

// tasksPerBand is the number of tasks in a band for each goroutine, so that a goroutine that
// the system slows down can take fewer tasks.
const tasksPerBand = 8

// encoder converts the rows of one tensor after another, or checks rows that do not change.
// Its Read returns the bytes of the result. When a band of rows has been read, it encodes the
// next one.
type encoder struct {
	ctx     context.Context // the context of File or Write, because io.Reader passes none
	threads int

	choice  Choice
	src     []byte
	weights []float32
	decode  quant.Decoder

	cols    int
	rows    int
	matrix  int // the rows of one matrix of a stack
	perTask int // the rows of a task
	next    int // the first row of the next band

	band    []byte
	rest    []byte // the part of the band that has not been read
	err     error  // the error of Read
	scratch [][]float32
}

// start starts a tensor with the data src.
func (e *encoder) start(c Choice, src []byte, weights []float32) error {
	decode, err := quant.DecoderOf(c.Tensor.DType)
	if err != nil && c.Converts() {
		return fmt.Errorf("%w: %s: %w", ErrTensor, quoted(c.Tensor), err)
	}
	shape := c.Tensor.Shape
	e.choice, e.src, e.weights, e.decode = c, src, weights, decode
	e.cols = shape[len(shape)-1]
	e.rows = int(c.Tensor.Elements()) / max(1, e.cols)
	e.matrix = max(1, e.rows)
	if len(shape) > 1 {
		e.matrix = shape[len(shape)-2]
	}
	e.perTask = max(1, taskElements/max(1, e.cols))
	e.next, e.rest = 0, nil
	return nil
}

func (e *encoder) fromBytes(rows int) int { return e.bytesOf(rows, e.choice.Tensor.DType) }

func (e *encoder) toBytes(rows int) int { return e.bytesOf(rows, e.choice.To) }

func (e *encoder) bytesOf(rows int, d dtype.DType) int {
	return rows * (e.cols / d.BlockSize() * d.Size())
}

// Read implements io.Reader.
func (e *encoder) Read(p []byte) (int, error) {
	if e.err = e.ctx.Err(); e.err != nil {
		return 0, e.err
	}
	if len(e.rest) == 0 {
		if e.next == e.rows {
			return 0, io.EOF
		}
		if e.err = e.fill(); e.err != nil {
			return 0, e.err
		}
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// task is a range of rows of one matrix.
type task struct{ first, end int }

// fill encodes the next band.
func (e *encoder) fill() error {
	first := e.next
	var tasks []task
	for len(tasks) < e.threads*tasksPerBand && e.next < e.rows {
		// Each expert has its own weights, so a task has rows of one expert only.
		end := min(e.next+e.perTask, (e.next/e.matrix+1)*e.matrix)
		tasks = append(tasks, task{e.next, end})
		e.next = end
	}
	size := e.toBytes(e.next - first)
	if cap(e.band) < size {
		e.band = make([]byte, size)
	}
	e.band = e.band[:size]
	workers := min(e.threads, len(tasks))
	for len(e.scratch) < workers {
		e.scratch = append(e.scratch, nil)
	}
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		errs = make([]error, len(tasks))
	)
	for w := range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(tasks) {
					return
				}
				errs[i] = offheap.Guard(func() error { return e.encode(&e.scratch[w], tasks[i], first) })
				if errs[i] != nil {
					next.Store(int64(len(tasks))) // ends the other goroutines
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	e.rest = e.band
	return nil
}

// encode converts the rows of t into the band, whose first row is first. The matrices of a
// stack have consecutive row numbers.
func (e *encoder) encode(scratch *[]float32, t task, first int) error {
	var values []float32
	if e.decode != nil {
		n := (t.end - t.first) * e.cols
		if cap(*scratch) < n {
			*scratch = make([]float32, n)
		}
		values = (*scratch)[:n]
	}
	src := e.src[e.fromBytes(t.first):e.fromBytes(t.end)]
	dst := e.band[e.toBytes(t.first-first):e.toBytes(t.end-first)]
	if !e.choice.Converts() {
		copy(dst, src)
		return e.check(values, dst, t.first)
	}
	if err := e.decodeRows(values, src); err != nil {
		return err
	}
	var weights []float32
	if e.weights != nil {
		// With a fourth dimension, the weights of the experts repeat.
		i := t.first / e.matrix * e.cols % len(e.weights)
		weights = e.weights[i : i+e.cols]
	}
	err := e.encodeRows(dst, values, weights)
	if errors.Is(err, quant.ErrRange) {
		row, col := e.locate(dst, values, weights)
		if col < 0 {
			err = fmt.Errorf("row %d: %w: its values times their importance overflow", t.first+row, quant.ErrRange)
		} else {
			err = e.outOfRange(t.first+row, col, values[row*e.cols+col])
		}
	}
	if cut := e.ctx.Err(); cut != nil {
		return cut // it may be the cause of err, and the result of locate may be wrong
	}
	if err != nil {
		return fmt.Errorf("%w: %s as %s: %w", ErrTensor, quoted(e.choice.Tensor), e.choice.To, err)
	}
	return nil
}

// check returns an error if b has values that are not finite. b has the rows from row first on
// of a tensor that does not change. Integers are always finite. values is scratch memory for
// the elements of b, if the format can be decoded.
func (e *encoder) check(values []float32, b []byte, first int) error {
	bad, value := -1, 0.0
	switch {
	case e.choice.To == dtype.F64:
		for i := 0; i < len(b)/8 && bad < 0; i++ {
			if i%taskElements == 0 && e.ctx.Err() != nil {
				return e.ctx.Err()
			}
			if v := math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:])); math.IsInf(v, 0) || math.IsNaN(v) {
				bad, value = i, v
			}
		}
	case e.decode != nil:
		if err := e.decodeRows(values, b); err != nil {
			return err
		}
		bad = slices.IndexFunc(values, func(v float32) bool { return !(math.Abs(float64(v)) <= math.MaxFloat32) })
		if bad >= 0 {
			value = float64(values[bad])
		}
	}
	if bad < 0 {
		return nil
	}
	err := e.outOfRange(first+bad/e.cols, bad%e.cols, value)
	return fmt.Errorf("%w: %s, which remains %s: %w", ErrTensor, quoted(e.choice.Tensor), e.choice.To, err)
}

// outOfRange returns an error that names the position of a value that a format cannot hold.
func (e *encoder) outOfRange(row, col int, value any) error {
	if len(e.choice.Tensor.Shape) == 1 {
		return fmt.Errorf("element %d: %w: %v", col, quant.ErrRange, value)
	}
	return fmt.Errorf("row %d, column %d: %w: %v", row, col, quant.ErrRange, value)
}

// decodeRows decodes src, rows of the tensor's format, into values.
func (e *encoder) decodeRows(values []float32, src []byte) error {
	block, size := e.choice.Tensor.DType.BlockSize(), e.choice.Tensor.DType.Size()
	for len(values) > 0 {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		n := min(taskElements, len(values))
		e.decode(values[:n], src[:n/block*size])
		values, src = values[n:], src[n/block*size:]
	}
	return nil
}

// encodeRows calls quant.EncodeRowsContext. For float formats it also refuses values that are
// not finite.
func (e *encoder) encodeRows(dst []byte, values, weights []float32) error {
	to := e.choice.To
	err := quant.EncodeRowsContext(e.ctx, dst, to, values, e.cols, weights)
	if err != nil || to.IsBlockQuantized() {
		return err
	}
	for len(dst) > 0 {
		if err := e.ctx.Err(); err != nil {
			return err
		}
		n := min(taskElements*to.Size(), len(dst))
		if !finite(dst[:n], to) {
			return quant.ErrRange
		}
		dst = dst[n:]
	}
	return nil
}

// locate returns the position of the value that prevents encoding. In the first row that does
// not encode, it is a value that is not finite, or else the value with the largest magnitude.
// The column is -1 if that row encodes with equal weights. locate overwrites dst. If the
// context is done, the result has no meaning.
func (e *encoder) locate(dst []byte, values, weights []float32) (row, col int) {
	dst = dst[:e.toBytes(1)]
	for (row+1)*e.cols < len(values) && e.encodeRows(dst, values[row*e.cols:][:e.cols], weights) == nil {
		row++
	}
	values = values[row*e.cols:][:e.cols]
	if weights != nil && e.encodeRows(dst, values, slices.Repeat([]float32{1}, e.cols)) == nil {
		return row, -1
	}
	largest := -1.0
	for i, v := range values {
		switch a := math.Abs(float64(v)); {
		case !(a <= math.MaxFloat32):
			return row, i
		case a > largest:
			largest, col = a, i
		}
	}
	return row, col
}

// finite reports whether no value in b is infinite or NaN. d is a float format.
func finite(b []byte, d dtype.DType) bool {
	le := binary.LittleEndian
	switch d {
	case dtype.F32:
		for ; len(b) >= 4; b = b[4:] {
			if le.Uint32(b)&0x7f800000 == 0x7f800000 {
				return false
			}
		}
	default:
		mask := uint16(0x7c00)
		if d == dtype.BF16 {
			mask = 0x7f80
		}
		for ; len(b) >= 2; b = b[2:] {
			if le.Uint16(b)&mask == mask {
				return false
			}
		}
	}
	return true
}
