package quant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
)

// ErrRange is wrapped by errors about values that a block format cannot hold: a NaN,
// an infinity, or a magnitude whose scale overflows binary16.
var ErrRange = errors.New("quant: value out of range")

// EncodeRow encodes src as len(src) elements of d into dst, which must be exactly
// that long; len(src) is a multiple of d.BlockSize(). dst needs no alignment and must
// not overlap src. The result is bit-exact with ggml's reference encoders.
//
// The formats are f32, f16 and bf16, which round as package dtype says, and q8_0 and
// q4_0, which refuse values that are not finite or too large for their scale: a block
// cannot hold an infinity beside a number. Others give an error that wraps
// [dtype.ErrUnsupported]. After an error that wraps [ErrRange] the blocks before the
// offending one are written.
func EncodeRow(dst []byte, d dtype.DType, src []float32) error {
	switch d {
	case dtype.F32, dtype.F16, dtype.BF16, dtype.Q8_0, dtype.Q4_0:
	default:
		return fmt.Errorf("encode: %w: there is no encoder for %v", dtype.ErrUnsupported, d)
	}
	if err := checkRow(d, len(src), len(dst)); err != nil {
		return fmt.Errorf("encode: %w", err)
	}
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
	case dtype.Q8_0:
		return encodeBlocks(dst, d, src, encodeQ8_0)
	case dtype.Q4_0:
		return encodeBlocks(dst, d, src, encodeQ4_0)
	}
	return nil
}

// encodeBlocks applies encode to each block, and adds the place to its error.
func encodeBlocks(dst []byte, d dtype.DType, src []float32, encode func([]byte, []float32) error) error {
	n, size := d.BlockSize(), d.Size()
	for i := range len(src) / n {
		if err := encode(dst[i*size:(i+1)*size], src[i*n:(i+1)*n]); err != nil {
			return fmt.Errorf("encode: %w in elements %d to %d of a %v row", err, i*n, (i+1)*n-1, d)
		}
	}
	return nil
}

// extreme returns the first element of the largest magnitude.
func extreme(x []float32) (float32, error) {
	var ext, mag float32
	for _, v := range x {
		a := math.Float32frombits(math.Float32bits(v) &^ (1 << 31))
		if !(a <= math.MaxFloat32) {
			return 0, fmt.Errorf("%w: %v", ErrRange, v)
		}
		if a > mag {
			ext, mag = v, a
		}
	}
	return ext, nil
}

// putScale stores d as binary16 and returns 1/d. Where that is no number, d being
// zero or nearly so, it returns 0: every code of the block is then that of zero.
func putScale(dst []byte, d float32) (inverse float32, err error) {
	h := dtype.F16FromFloat32(d)
	if h&0x7fff == 0x7c00 {
		return 0, fmt.Errorf("%w: scale %v overflows f16", ErrRange, d)
	}
	binary.LittleEndian.PutUint16(dst, uint16(h))
	inverse = 1 / d
	if math.IsInf(float64(inverse), 0) {
		return 0, nil
	}
	return inverse, nil
}

// encodeQ8_0 scales the largest magnitude to 127 and rounds halves away from zero.
func encodeQ8_0(dst []byte, x []float32) error {
	ext, err := extreme(x)
	if err != nil {
		return err
	}
	inverse, err := putScale(dst, float32(math.Abs(float64(ext)))/127)
	if err != nil {
		return err
	}
	for j, v := range x {
		dst[2+j] = uint8(int8(math.Round(float64(v * inverse))))
	}
	return nil
}

// encodeQ4_0 maps the value of largest magnitude, with its sign, to code 0 (which
// stands for -8), and the others to the nearest code; its own negative would be 16
// and becomes 15.
func encodeQ4_0(dst []byte, x []float32) error {
	ext, err := extreme(x)
	if err != nil {
		return err
	}
	inverse, err := putScale(dst, ext/-8)
	if err != nil {
		return err
	}
	code := func(v float32) byte { return byte(min(float32(v*inverse)+8.5, 15)) }
	for j := range 16 {
		dst[2+j] = code(x[j]) | code(x[j+16])<<4
	}
	return nil
}
