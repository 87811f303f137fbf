package exec

import (
	"context"
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/shape"
	"github.com/fucina-go/fucina/core/storage"
	"github.com/fucina-go/fucina/core/tensor"
)

// RoPE describes rotary position angles and their stretching to longer contexts. The
// zero values of the scaling fields mean no scaling.
type RoPE struct {
	Dims     int     // rotated elements per head, even
	FreqBase float64 // 10000 in the original paper
	// FreqScale is 1/factor of linear scaling (position interpolation), and of the
	// interpolated part of YaRN; 0 means 1.
	FreqScale float64
	// FreqFactors divide the frequency of each pair, as in llama 3 files. The slice is
	// nil or has Dims/2 elements.
	FreqFactors []float32

	// The parameters of YaRN (Peng et al. 2023, arXiv 2309.00071).
	ExtFactor       float64 // share of extrapolation in the mix with interpolation; 0 is no YaRN
	AttnFactor      float64 // factor on the attention magnitude; 0 means 1
	BetaFast        float64 // number of rotations at which the ramp begins
	BetaSlow        float64 // number of rotations at which the ramp ends
	OriginalContext int     // context length that the model was trained with
}

// RoPETable returns the host tensor [n, r.Dims/2, 2] of (cos, sin) for positions 0 to
// n-1, f32, with stable contents. Angles are computed in float64: a device's own
// sine would be wrong at long positions. It fails if an angle or an element is not finite.
func RoPETable(r RoPE, n int) (tensor.Tensor, error) {
	a, err := NewAngles(r, n)
	if err != nil {
		return tensor.Tensor{}, err
	}
	t, err := newTable(n, len(a.freq))
	if err != nil {
		return tensor.Tensor{}, err
	}
	// The table is written in place. It may be large, and a failed allocation of a Go
	// slice would end the process.
	values, err := tensor.Data[float32](context.Background(), &t, storage.Overwrite)
	if err != nil {
		t.Release()
		return tensor.Tensor{}, err
	}
	for pos := range n {
		a.put(values[pos*r.Dims:][:r.Dims], pos)
	}
	t.Buffer().MarkStable()
	return t, nil
}

// Angles computes rows of a table of rotary position angles. It is immutable, so goroutines
// may share it. nil and the zero Angles have no positions.
type Angles struct {
	freq      []float64 // the angle of each pair at position 1
	attn      float64   // the factor on the cosines and sines
	positions int
}

// NewAngles returns the angles of r for the positions 0 to positions-1. It fails if a field of
// r is out of its range, or if an angle or an element is not finite.
func NewAngles(r RoPE, positions int) (*Angles, error) {
	if r.FreqScale == 0 {
		r.FreqScale = 1
	}
	if r.AttnFactor == 0 {
		r.AttnFactor = 1
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	if positions < 1 {
		return nil, fmt.Errorf("%w: %d positions, want at least 1", tensor.ErrInvalidShape, positions)
	}
	freq, attn, err := r.frequencies(positions)
	if err != nil {
		return nil, err
	}
	return &Angles{freq, attn, positions}, nil
}

// Put writes the cosines and sines of the positions to dst: RoPE.Dims elements for each
// position, which are those of a row of the table that RoPETable returns, (cos, sin) for each
// pair. It allocates nothing.
//
// If dst has another length, Put fails with tensor.ErrInvalidDataLength. If a position is out
// of the range of NewAngles, it fails with tensor.ErrIndexOutOfBounds. In both cases it writes
// nothing.
func (a *Angles) Put(dst []float32, positions []int32) error {
	var none Angles
	if a == nil {
		a = &none
	}
	dims := 2 * len(a.freq)
	if len(dst) != dims*len(positions) {
		return fmt.Errorf("%w: %d elements for the angles of %d positions, want %d for each", tensor.ErrInvalidDataLength, len(dst), len(positions), dims)
	}
	for i, pos := range positions {
		if pos < 0 || int(pos) >= a.positions {
			return fmt.Errorf("%w: position %d at index %d, want 0 to %d", tensor.ErrIndexOutOfBounds, pos, i, a.positions-1)
		}
	}
	for i, pos := range positions {
		a.put(dst[i*dims:][:dims], int(pos))
	}
	return nil
}

// put writes the row of pos.
func (a *Angles) put(row []float32, pos int) {
	for i, f := range a.freq {
		sin, cos := math.Sincos(float64(pos) * f)
		row[2*i], row[2*i+1] = float32(cos*a.attn), float32(sin*a.attn)
	}
}

// maxDims is the largest number of rotated elements, which bounds a slice on the Go heap.
const maxDims = 1 << 24

// check returns an error if a field is out of its range. FreqScale and AttnFactor are set.
func (r *RoPE) check() error {
	switch {
	case r.Dims < 2 || r.Dims%2 != 0:
		return fmt.Errorf("%d rotated elements, want an even number of at least 2", r.Dims)
	case r.Dims > maxDims:
		return fmt.Errorf("%d rotated elements, want at most %d", r.Dims, maxDims)
	case !(r.FreqBase > 0) || math.IsInf(r.FreqBase, 1):
		return fmt.Errorf("frequency base %v, want a finite positive number", r.FreqBase)
	case r.FreqFactors != nil && len(r.FreqFactors) != r.Dims/2:
		return fmt.Errorf("%d frequency factors, want %d", len(r.FreqFactors), r.Dims/2)
	case !(r.FreqScale > 0) || !(r.AttnFactor > 0):
		return fmt.Errorf("frequency scale %v and attention factor %v, want positive numbers", r.FreqScale, r.AttnFactor)
	case r.ExtFactor != 0 && (r.OriginalContext < 1 || !(r.BetaFast > 0) || !(r.BetaSlow > 0)):
		return fmt.Errorf("yarn with original context %d, beta %v and %v, want positive numbers", r.OriginalContext, r.BetaFast, r.BetaSlow)
	}
	return nil
}

// frequencies returns the angle of each pair at position 1, and the factor on the cosines
// and sines. It fails if an angle of n positions, or the factor as f32, is not finite.
func (r *RoPE) frequencies(n int) (freq []float64, attn float64, err error) {
	attn = r.AttnFactor
	low, high := 0.0, 0.0
	if r.ExtFactor != 0 {
		low = max(0, math.Floor(r.correction(r.BetaFast)))
		high = min(float64(r.Dims-1), math.Ceil(r.correction(r.BetaSlow)))
		attn *= 1 + 0.1*max(0, math.Log(1/r.FreqScale)) // only longer contexts need it
	}
	if attn > math.MaxFloat32 {
		return nil, 0, fmt.Errorf("attention factor %v, want a number within float32", attn)
	}
	freq = make([]float64, r.Dims/2)
	for i := range freq {
		f := math.Pow(r.FreqBase, -2*float64(i)/float64(r.Dims))
		if r.FreqFactors != nil {
			f /= float64(r.FreqFactors[i])
		}
		scaled := r.FreqScale * f
		if r.ExtFactor != 0 {
			y := (float64(i) - low) / max(0.001, high-low)
			mix := (1 - min(1, max(0, y))) * r.ExtFactor
			scaled = scaled*(1-mix) + f*mix
		}
		if freq[i] = scaled; !(math.Abs(scaled)*float64(n) <= math.MaxFloat64) {
			return nil, 0, fmt.Errorf("pair %d rotates by %v for each position, want a number that stays finite over %d positions", i, scaled, n)
		}
	}
	return freq, attn, nil
}

// newTable returns an unwritten f32 tensor [n, pairs, 2].
func newTable(n, pairs int) (tensor.Tensor, error) {
	s, err := shape.Of(n, pairs, 2)
	if err != nil {
		return tensor.Tensor{}, err
	}
	size, err := s.Bytes(dtype.F32)
	if err != nil {
		return tensor.Tensor{}, err
	}
	buf, err := storage.New(size)
	if err != nil {
		return tensor.Tensor{}, err
	}
	t, err := tensor.FromBuffer(buf, dtype.F32, s)
	if err != nil {
		buf.Release()
		return tensor.Tensor{}, err
	}
	return t, nil
}

// correction is the pair whose wavelength makes the given number of rotations over
// the original context.
func (r *RoPE) correction(rotations float64) float64 {
	return float64(r.Dims) * math.Log(float64(r.OriginalContext)/(rotations*2*math.Pi)) / (2 * math.Log(r.FreqBase))
}
