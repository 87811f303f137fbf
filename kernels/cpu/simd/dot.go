package simd

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/fma32"
	"github.com/fucina-go/fucina/quant"
)

// integers are up to 256 elements of a row.
type integers struct {
	super   quant.Super
	smalls  [8]quant.Small
	scratch quant.Scratch
}

// pool has integers for the functions that need some, which would be on the heap.
var pool = sync.Pool{New: func() any { return new(integers) }}

// DotSuper returns the product of a row w of a format with super-blocks and a row of activations,
// whose stretches have one scale and are stride bytes apart.
func DotSuper(d dtype.DType, w, act []byte, stride int, order *Order) (sum float32) {
	t := pool.Get().(*integers)
	defer pool.Put(t)
	for i := 0; len(w) > 0; i++ {
		t.super.Set(d, w[:d.Size()], &t.scratch)
		w = w[d.Size():]
		sum = addSuper(sum, d, &t.super, act[i*stride:], order)
	}
	return sum
}

// addSuper adds the product of a super-block and a stretch of activations to the sum.
func addSuper(sum float32, d dtype.DType, s *quant.Super, act []byte, order *Order) float32 {
	act = act[:ActBytes]
	var dot, mins int32
	for g := range 16 {
		var part, codes int32
		w := s.Codes[16*g:][:16]
		for j, c := range act[32*int(order[g/2])+g%2*16:][:16] {
			part += int32(w[j]) * int32(int8(c))
			codes += int32(int8(c))
		}
		dot += int32(s.Scales[g]) * part
		mins += int32(s.Mins[g]) * codes
	}
	t := s.D * float32(dot)
	if hasMins(d) {
		t = fma32.FMA(-s.DMin, float32(mins), t)
	}
	return fma32.FMA(f32(act[actScale:]), t, sum)
}

// hasMins reports whether the blocks of a format with super-blocks have minima.
func hasMins(d dtype.DType) bool { return d == dtype.Q2_K || d == dtype.Q4_K || d == dtype.Q5_K }

// DotSmall returns the product of a row w of a format with small blocks and a row of activations,
// whose stretches have one scale for 32 activations and are stride bytes apart.
func DotSmall(d dtype.DType, w, act []byte, stride int) (sum float32) {
	step := 256 / d.BlockSize() * d.Size()
	t := pool.Get().(*integers)
	defer pool.Put(t)
	for i := 0; len(w) > 0; i++ {
		n := min(step, len(w))
		sum += partSmall(d, t.setSmalls(d, w[:n]), act[i*stride:])
		w = w[n:]
	}
	return sum
}

// setSmalls returns the blocks of 32 of a row of up to 256 elements.
func (t *integers) setSmalls(d dtype.DType, w []byte) []quant.Small {
	n, size := 0, d.BlockSize()/32
	for ; len(w) > 0; w = w[d.Size():] {
		quant.SetSmall(t.smalls[n:][:size], d, w[:d.Size()], &t.scratch)
		n += size
	}
	return t.smalls[:n]
}

// partSmall returns the product of up to eight blocks and a stretch of activations.
func partSmall(d dtype.DType, blocks []quant.Small, act []byte) (part float32) {
	act = act[:ActBytes]
	for i := range blocks {
		part += small(d, &blocks[i], act[32*i:][:32], f32(act[actScales+4*i:]))
	}
	return part
}

// small returns the product of a block and activations with the scale dAct. The conversions keep
// the compiler from fusing the product with the sum that follows.
func small(d dtype.DType, s *quant.Small, act []byte, dAct float32) float32 {
	var dot [2]int32
	var codes int32
	for i, c := range act {
		dot[i/16] += int32(s.Codes[i]) * int32(int8(c))
		codes += int32(int8(c))
	}
	switch d {
	case dtype.Q4_1, dtype.Q5_1:
		return float32(dAct * fma32.FMA(s.M, float32(codes), float32(s.D[0]*float32(dot[0]+dot[1]))))
	case dtype.NVFP4:
		return float32(dAct * fma32.FMA(s.D[1], float32(dot[1]), float32(s.D[0]*float32(dot[0]))))
	}
	return float32(float32(s.D[0]*dAct) * float32(dot[0]+dot[1]))
}

func f32(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }
