package quant

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

// The integers and scales of a block give its elements, as the decoder does, but for the roundings
// of the decoder.
func TestIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for d := dtype.DType(1); d < dtype.Count; d++ {
		if !d.Valid() || !d.IsBlockQuantized() || decoders[d] == nil {
			continue
		}
		if HasSuper(d) == HasSmall(d) {
			t.Errorf("%s: a super-block is %t, and small blocks are %t", d, HasSuper(d), HasSmall(d))
			continue
		}
		n := d.BlockSize()
		b, y := make([]byte, d.Size()), make([]float32, n)
		for range 200 {
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			decoders[d](y, b)
			if largest(y) > 1e30 { // a scale that is not finite
				continue
			}
			before := string(b)
			var x [256]float64
			if HasSuper(d) {
				var s Super
				s.Set(d, b, new(Scratch))
				for i := range n {
					x[i] = float64(s.D)*float64(s.Scales[i/16])*float64(s.Codes[i]) - float64(s.DMin)*float64(s.Mins[i/16])
				}
			} else {
				var s [4]Small
				SetSmall(s[:n/32], d, b, new(Scratch))
				for i := range n {
					p := &s[i/32]
					x[i] = float64(p.D[i%32/16])*float64(p.Codes[i%32]) + float64(p.M)
				}
			}
			if string(b) != before {
				t.Fatalf("%s: the block changed", d)
			}
			most := float64(largest(y))
			for i, v := range y {
				if math.Abs(x[i]-float64(v)) > 1e-6*most {
					t.Fatalf("%s: element %d is %v, the decoder has %v", d, i, x[i], v)
				}
			}
		}
	}
}

// largest returns the largest magnitude, or +Inf if an element is not finite.
func largest(y []float32) (most float32) {
	for _, v := range y {
		if v != v {
			return float32(math.Inf(1))
		}
		most = max(most, float32(math.Abs(float64(v))))
	}
	return most
}
