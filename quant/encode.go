package quant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
)

// ErrRange is wrapped by errors about values that a block format cannot hold: a NaN, an
// infinity, a magnitude whose scale overflows binary16, or a magnitude whose product with
// its importance overflows f32.
var ErrRange = errors.New("quant: value out of range")

// ErrImportance is wrapped by errors about an importance vector that is missing although
// [RequiresImportance] is true, has the wrong length, or has values that are negative or
// not finite.
var ErrImportance = errors.New("quant: bad importance vector")

// An encoder describes how one block format is written.
type encoder struct {
	// encode writes one block of the format's size.
	encode func(dst []byte, b block) error
	// limit is the largest magnitude that encode is called with.
	limit float32
	// rowMean says that encode uses the mean square of the row if there is an importance
	// vector. A block's bytes depend on no other value outside the block.
	rowMean bool
}

// block is the input of an encoder for one block.
type block struct {
	x          []float32 // the values, all finite
	importance []float32 // the importance of each value, or nil
	amax, ext  float32   // the largest magnitude in x, and the first value that has it
	rowMean    float32   // mean square of the row; see encoder.rowMean
}

const (
	// f16Limit bounds the values of formats whose scales are binary16. A format holds at
	// most 65504 times the product of its largest codes, which is largest for Q6_K and
	// IQ4_XS, near 2^12. Below f16Limit, squares and sums of squares are finite.
	f16Limit = 0x1p29
	// f32Limit bounds the values of formats with a wider scale. The largest values of f32
	// would be rounded up and decode to infinity.
	f32Limit = 0x1.ffffp127
)

// encoders has an entry for every block format.
var encoders = [dtype.Count]encoder{
	dtype.Q1_0:     {encodeQ1_0, f16Limit, false},
	dtype.Q2_0:     {encodeQ2_0, f16Limit, false},
	dtype.Q2_0_G64: {encodeQ2_0, f16Limit, false},
	dtype.Q4_0:     {encodeQ4_0, f16Limit, true},
	dtype.Q4_1:     {encodeQ4_1, f16Limit, true},
	dtype.Q5_0:     {encodeQ5_0, f16Limit, true},
	dtype.Q5_1:     {encodeQ5_1, f16Limit, true},
	dtype.Q8_0:     {encodeQ8_0, f16Limit, false},
	dtype.Q8_1:     {encodeQ8_1, f16Limit, false},
	dtype.Q2_K:     {encodeQ2_K, f16Limit, false},
	dtype.Q3_K:     {encodeQ3_K, f16Limit, false},
	dtype.Q4_K:     {encodeQ4_K, f16Limit, false},
	dtype.Q5_K:     {encodeQ5_K, f16Limit, false},
	dtype.Q6_K:     {encodeQ6_K, f16Limit, false},
	dtype.Q8_K:     {encodeQ8_K, f32Limit, false},
	dtype.IQ1_S:    {encodeIQ1_S, f16Limit, false},
	dtype.IQ1_M:    {encodeIQ1_M, f16Limit, false},
	dtype.IQ2_XXS:  {encodeIQ2_XXS, f16Limit, false},
	dtype.IQ2_XS:   {encodeIQ2_XS, f16Limit, false},
	dtype.IQ2_S:    {encodeIQ2_S, f16Limit, false},
	dtype.IQ3_XXS:  {encodeIQ3_XXS, f16Limit, false},
	dtype.IQ3_S:    {encodeIQ3_S, f16Limit, false},
	dtype.IQ4_NL:   {encodeIQ4_NL, f16Limit, false},
	dtype.IQ4_XS:   {encodeIQ4_XS, f16Limit, false},
	dtype.TQ1_0:    {encodeTQ1_0, f16Limit, false},
	dtype.TQ2_0:    {encodeTQ2_0, f16Limit, false},
	dtype.MXFP4:    {encodeMXFP4, f32Limit, false},
	dtype.NVFP4:    {encodeNVFP4, f16Limit, false},
}

// RequiresImportance reports whether d can be encoded only with an importance
// vector: true for IQ1_S, IQ2_XXS and IQ2_XS, as in ggml.
func RequiresImportance(d dtype.DType) bool {
	return d == dtype.IQ1_S || d == dtype.IQ2_XXS || d == dtype.IQ2_XS
}

// EncodeRow encodes src as len(src) elements of d into dst, which must have exactly their
// size. len(src) must be a multiple of d.BlockSize(). EncodeRow is [EncodeRows] for one row
// without an importance vector.
func EncodeRow(dst []byte, d dtype.DType, src []float32) error {
	return EncodeRows(dst, d, src, len(src), nil)
}

// EncodeRows encodes src, consecutive rows of rowLen values, as elements of d into dst,
// which must have exactly their size. rowLen must be a multiple of d.BlockSize(). dst needs
// no alignment and must not overlap src.
//
// importance is nil or has a weight for each of the rowLen columns, which says how much an
// error in that column matters. Weights are finite and not negative. They guide the search
// for the scales of Q4_0, Q4_1, Q5_0, Q5_1, the K-quants other than Q8_K, and the IQ
// formats. The other formats ignore them. Only the ratios of the weights matter. The
// weights should be near one, because the search sums products of the weights and the
// squares of the values in f32. An overflow there degrades the fit, as in ggml. If a row
// gets no finite scale, the error wraps [ErrRange].
//
// d is f32, f16 or bf16, which round as in package dtype, or a block format. The bytes are
// those of ggml 0.23 (ggml_quantize_chunk, and quantize_row_*_ref for Q8_1 and Q8_K), even
// if blocks are all zero, constant or tiny. Q2_0 is encoded like Q2_0_G64, because ggml
// only has groups of 64. For other formats the error wraps [dtype.ErrUnsupported].
//
// A block cannot hold both an infinity and a number. If a value is not finite, or is too
// large for the format's scale, the error wraps [ErrRange], where ggml writes an infinite
// or NaN scale or loses the block. NVFP4 saturates at 2688, as in ggml, and MXFP4 at 1.5
// times 2^127. After an error dst holds part of the result.
//
// EncodeRows may be called concurrently. The tables that the IQ formats search are built
// once, on first use. Otherwise only errors allocate.
func EncodeRows(dst []byte, d dtype.DType, src []float32, rowLen int, importance []float32) error {
	return EncodeRowsContext(context.Background(), dst, d, src, rowLen, importance)
}

// EncodeRowsContext is [EncodeRows] with a context. It polls ctx before it begins and at
// least every 1024 elements, also within a row, and returns ctx's error if ctx is done. The
// slowest format takes a few milliseconds for 1024 elements.
func EncodeRowsContext(ctx context.Context, dst []byte, d dtype.DType, src []float32, rowLen int, importance []float32) error {
	l := looker{ctx: ctx}
	switch {
	case d == dtype.F32 || d == dtype.F16 || d == dtype.BF16:
	case d.IsBlockQuantized():
	default:
		return fmt.Errorf("%w: %v has no encoder", dtype.ErrUnsupported, d)
	}
	if err := checkRow(d, len(src), len(dst)); err != nil {
		return err
	}
	if err := checkRows(d, len(src), rowLen); err != nil {
		return err
	}
	if importance != nil || RequiresImportance(d) {
		if err := checkImportance(&l, d, importance, rowLen); err != nil {
			return err
		}
	}
	if !d.IsBlockQuantized() {
		return encodeFloats(&l, dst, d, src)
	}
	rowBytes := rowLen / d.BlockSize() * d.Size()
	for r := 0; len(src) > 0; r++ {
		if first, err := encodeRow(&l, dst[:rowBytes], d, src[:rowLen], importance); err != nil {
			if first < 0 {
				return err
			}
			return fmt.Errorf("%w, in row %d, elements %d to %d of %v", err, r, first, first+d.BlockSize()-1, d)
		}
		src, dst = src[rowLen:], dst[rowBytes:]
	}
	return nil
}

// lookEvery is the number of elements that are encoded between two polls of a context.
const lookEvery = 1024

// looker polls a context every lookEvery elements.
type looker struct {
	ctx  context.Context
	left int // elements until the next poll
}

// look counts n elements that the caller is about to encode. If it polls the context and
// the context is done, it returns the context's error.
func (l *looker) look(n int) error {
	if l.left -= n; l.left >= 0 {
		return nil
	}
	l.left = lookEvery - n
	return l.ctx.Err()
}

// checkRows compares n elements with the length of a row.
func checkRows(d dtype.DType, n, rowLen int) error {
	if n == 0 && rowLen == 0 {
		return nil
	}
	if rowLen <= 0 || n%rowLen != 0 || rowLen%d.BlockSize() != 0 {
		return fmt.Errorf("%w: %d elements of %v in rows of %d, want whole rows of whole blocks of %d",
			ErrLength, n, d, rowLen, d.BlockSize())
	}
	return nil
}

func checkImportance(l *looker, d dtype.DType, importance []float32, rowLen int) error {
	if importance == nil {
		if rowLen == 0 {
			return nil
		}
		return fmt.Errorf("%w: %v needs one", ErrImportance, d)
	}
	if len(importance) != rowLen {
		return fmt.Errorf("%w: %d weights for rows of %d", ErrImportance, len(importance), rowLen)
	}
	for i, v := range importance {
		if i%lookEvery == 0 {
			if err := l.look(lookEvery); err != nil {
				return err
			}
		}
		if !(v >= 0 && v <= math.MaxFloat32) {
			return fmt.Errorf("%w: weight %d is %v", ErrImportance, i, v)
		}
	}
	return nil
}

func encodeFloats(l *looker, dst []byte, d dtype.DType, src []float32) error {
	size := d.Size()
	for len(src) > 0 {
		n := min(lookEvery, len(src))
		if err := l.look(n); err != nil {
			return err
		}
		putFloats(dst, d, src[:n])
		dst, src = dst[n*size:], src[n:]
	}
	return nil
}

func putFloats(dst []byte, d dtype.DType, src []float32) {
	le := binary.LittleEndian
	switch d {
	case dtype.F32:
		for i, f := range src {
			le.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case dtype.F16:
		for i, f := range src {
			le.PutUint16(dst[2*i:], uint16(dtype.F16FromFloat32(f)))
		}
	case dtype.BF16:
		for i, f := range src {
			le.PutUint16(dst[2*i:], uint16(dtype.BF16FromFloat32(f)))
		}
	}
}

// encodeRow encodes one row. After an error, first is the first element of the block that
// failed, or -1 if the error is that of l's context.
func encodeRow(l *looker, dst []byte, d dtype.DType, src, importance []float32) (first int, err error) {
	e, n, size := &encoders[d], d.BlockSize(), d.Size()
	mean := float32(0)
	if e.rowMean && importance != nil {
		for i := 0; i < len(src); i += n {
			if err := l.look(n); err != nil {
				return -1, err
			}
			x := src[i : i+n]
			// The values are checked first, because a value that is not finite would make
			// the mean so, and an earlier block would fail.
			if amax := maxAbs(x); !(amax <= e.limit) {
				return i, magnitudeError(amax)
			}
			mean = addSquares(mean, x)
		}
		mean /= float32(len(src))
	}
	for done := 0; done < len(src); {
		m := min(lookEvery, len(src)-done)
		if err := l.look(m); err != nil {
			return -1, err
		}
		weights := importance
		if importance != nil {
			weights = importance[done:][:m]
		}
		if first, err := encodeBlocks(dst[done/n*size:][:m/n*size], d, src[done:][:m], weights, mean); err != nil {
			return done + first, err
		}
		done += m
	}
	return 0, nil
}

// encodeBlocks encodes blocks of a row whose mean square is rowMean. After an error, first
// is the first element of the block that failed.
func encodeBlocks(dst []byte, d dtype.DType, src, importance []float32, rowMean float32) (first int, err error) {
	e, n, size := &encoders[d], d.BlockSize(), d.Size()
	b := block{rowMean: rowMean}
	left := src
	if importance == nil {
		// encodeVector stops at a block that cannot be encoded. Its error is made below.
		blocks := encodeVector(dst, d, src)
		left, dst = src[blocks*n:], dst[blocks*size:]
	}
	for ; len(left) >= n && len(dst) >= size; left, dst = left[n:], dst[size:] {
		b.x = left[:n]
		if importance != nil {
			b.importance, importance = importance[:n], importance[n:]
		}
		b.amax, b.ext = extreme(b.x)
		if !(b.amax <= e.limit) {
			return len(src) - len(left), magnitudeError(b.amax)
		}
		if err := e.encode(dst[:size], b); err != nil {
			var scale scaleError
			if errors.As(err, &scale) && scale-scale != 0 && b.importance != nil {
				// Without importance, values below the limit always have a finite scale.
				err = fmt.Errorf("%w: scale %v, importance of up to %v times values of up to %v overflows f32",
					ErrRange, float32(scale), slices.Max(b.importance), b.amax)
			}
			return len(src) - len(left), err
		}
	}
	return 0, nil
}

func magnitudeError(v float32) error {
	return fmt.Errorf("%w: magnitude %v", ErrRange, v)
}

const magnitudeBits = 1<<31 - 1

// bits4 returns a view of the encodings of the first 4 elements of x. The compiler loads
// them as integers, whereas with [math.Float32bits] it moves a float between register
// files.
func bits4(x []float32) *[4]uint32 { return (*[4]uint32)(unsafe.Pointer((*[4]float32)(x))) }

// maxAbs returns the largest magnitude in x, whose length is a multiple of 4. A NaN is
// larger than infinity. Magnitudes have the same order as their encodings.
func maxAbs(x []float32) float32 {
	var m0, m1 uint32
	for ; len(x) >= 4; x = x[4:] {
		b := bits4(x)
		m0, m1 = max(m0, b[0]&magnitudeBits), max(m1, b[1]&magnitudeBits)
		m0, m1 = max(m0, b[2]&magnitudeBits), max(m1, b[3]&magnitudeBits)
	}
	return math.Float32frombits(max(m0, m1))
}

// extreme returns the largest magnitude in x, as maxAbs does, and the first element that
// has it. If all elements are zero, ext is the positive zero. The length of x is a multiple
// of 8. In the order of signed integers, the encoding of the largest positive value is the
// last; in that of unsigned integers, the encoding of the largest negative value.
func extreme(x []float32) (amax, ext float32) {
	var p0, p1 int32
	var n0, n1 uint32
	for y := x; len(y) >= 8; y = y[8:] {
		b := bits4(y)
		p0, n0, p1, n1 = max(p0, int32(b[0])), max(n0, b[0]), max(p1, int32(b[1])), max(n1, b[1])
		p0, n0, p1, n1 = max(p0, int32(b[2])), max(n0, b[2]), max(p1, int32(b[3])), max(n1, b[3])
		b = bits4(y[4:])
		p0, n0, p1, n1 = max(p0, int32(b[0])), max(n0, b[0]), max(p1, int32(b[1])), max(n1, b[1])
		p0, n0, p1, n1 = max(p0, int32(b[2])), max(n0, b[2]), max(p1, int32(b[3])), max(n1, b[3])
	}
	pos, neg := uint32(max(p0, p1)), max(n0, n1)
	if neg <= magnitudeBits {
		neg = 0 // a positive value
	}
	neg &= magnitudeBits
	if pos != neg {
		// The condition is unpredictable, so the code below compiles without a branch.
		sign := uint32(0)
		if neg > pos {
			sign = 1 << 31
		}
		m := max(pos, neg)
		return math.Float32frombits(m), math.Float32frombits(m | sign)
	}
	amax = math.Float32frombits(pos)
	if amax != 0 {
		for _, v := range x {
			if magnitude(v) == amax {
				return amax, v
			}
		}
	}
	return amax, 0
}

// putHalf stores a scale or a minimum as binary16.
func putHalf(dst []byte, v float32) error {
	h := uint16(dtype.F16FromFloat32(v))
	if h&0x7c00 == 0x7c00 {
		return scaleError(v)
	}
	binary.LittleEndian.PutUint16(dst, h)
	return nil
}

// A scaleError is a scale or a minimum that binary16 cannot hold. It wraps ErrRange.
type scaleError float32

func (e scaleError) Error() string {
	return fmt.Sprintf("%v: scale %v does not fit f16", ErrRange, float32(e))
}

func (e scaleError) Unwrap() error { return ErrRange }

// inverse returns 1/d, or 0 if d is zero or so small that 1/d is infinite.
func inverse(d float32) float32 {
	inv := 1 / d
	if inv-inv != 0 {
		return 0
	}
	return inv
}

// magnitude returns |v| without a branch.
func magnitude(v float32) float32 {
	return math.Float32frombits(math.Float32bits(v) & magnitudeBits)
}

// sqrt returns the f32 square root of v. Rounding the f64 square root gives the same bits.
func sqrt(v float32) float32 { return float32(math.Sqrt(float64(v))) }

// sumSquares returns the sum of the squares of x, added in order.
func sumSquares(x []float32) float32 { return addSquares(0, x) }

// addSquares adds the squares of x to sum, in order.
func addSquares(sum float32, x []float32) float32 {
	for _, v := range x {
		sum += float32(v * v)
	}
	return sum
}
