package quant

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/x448/float16"
)

// ErrLength is wrapped by errors about a row that is not a whole number of blocks, or whose
// encoded and decoded lengths do not match.
var ErrLength = errors.New("quant: length mismatch")

// A Decoder decodes the blocks at the start of src to dst. It is the unchecked core of
// [DecodeRow]: src must hold exactly the blocks that dst has room for. For other lengths, a
// Decoder decodes as many whole blocks as both slices have room for.
type Decoder func(dst []float32, src []byte)

// decoders has an entry for every format with SupportsToFloat.
var decoders = [dtype.Count]Decoder{
	dtype.F16:      decodeF16,
	dtype.BF16:     decodeBF16,
	dtype.F32:      decodeF32,
	dtype.F64:      decodeF64,
	dtype.F8E4M3:   decodeF8E4M3,
	dtype.F8E5M2:   decodeF8E5M2,
	dtype.Q1_0:     decodeQ1_0,
	dtype.Q2_0:     decodeQ2_0,
	dtype.Q2_0_G64: decodeQ2_0_G64,
	dtype.Q4_0:     decodeQ4_0,
	dtype.Q4_1:     decodeQ4_1,
	dtype.Q5_0:     decodeQ5_0,
	dtype.Q5_1:     decodeQ5_1,
	dtype.Q8_0:     decodeQ8_0,
	dtype.Q8_1:     decodeQ8_1,
	dtype.Q2_K:     decodeQ2_K,
	dtype.Q3_K:     decodeQ3_K,
	dtype.Q4_K:     decodeQ4_K,
	dtype.Q5_K:     decodeQ5_K,
	dtype.Q6_K:     decodeQ6_K,
	dtype.Q8_K:     decodeQ8_K,
	dtype.IQ1_S:    decodeIQ1_S,
	dtype.IQ1_M:    decodeIQ1_M,
	dtype.IQ2_XXS:  decodeIQ2_XXS,
	dtype.IQ2_XS:   decodeIQ2_XS,
	dtype.IQ2_S:    decodeIQ2_S,
	dtype.IQ3_XXS:  decodeIQ3_XXS,
	dtype.IQ3_S:    decodeIQ3_S,
	dtype.IQ4_NL:   decodeIQ4_NL,
	dtype.IQ4_XS:   decodeIQ4_XS,
	dtype.TQ1_0:    decodeTQ1_0,
	dtype.TQ2_0:    decodeTQ2_0,
	dtype.MXFP4:    decodeMXFP4,
	dtype.NVFP4:    decodeNVFP4,
}

// DecoderOf returns the decoder of d, for callers that decode many rows and check the
// lengths themselves. For a format that does not convert to f32 (integers, bool) the error
// wraps [dtype.ErrUnsupported].
func DecoderOf(d dtype.DType) (Decoder, error) {
	if d.Valid() && decoders[d] != nil {
		return decoders[d], nil
	}
	return nil, fmt.Errorf("%w: %v does not decode to f32", dtype.ErrUnsupported, d)
}

// DecodeRow decodes len(dst) elements of d from src. len(dst) must be a multiple of
// d.BlockSize(), and len(src) the size of that many blocks. A float scalar is a block of
// one element. dst and src must not overlap. An error wraps [ErrLength] or
// [dtype.ErrUnsupported], and leaves dst unchanged.
func DecodeRow(dst []float32, d dtype.DType, src []byte) error {
	decode, err := DecoderOf(d)
	if err != nil {
		return err
	}
	if err := checkRow(d, len(dst), len(src)); err != nil {
		return err
	}
	decode(dst, src)
	return nil
}

// checkRow compares n elements of d with the bytes of a row.
func checkRow(d dtype.DType, n, bytes int) error {
	if n%d.BlockSize() != 0 {
		return fmt.Errorf("%w: %d elements of %v, want a multiple of its block of %d", ErrLength, n, d, d.BlockSize())
	}
	// The bytes are divided, because multiplying n could overflow.
	if bytes%d.Size() != 0 || bytes/d.Size() != n/d.BlockSize() {
		return fmt.Errorf("%w: %d elements of %v are %d blocks of %d bytes, got %d bytes",
			ErrLength, n, d, n/d.BlockSize(), d.Size(), bytes)
	}
	return nil
}

// half reads the binary16 at the start of b.
func half(b []byte) float32 {
	return dtype.F16ToFloat32(float16.Float16(binary.LittleEndian.Uint16(b)))
}
