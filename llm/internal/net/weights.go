package net

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
)

// loader loads the weights of a network from a file and keeps the first error. After an error
// its methods do nothing.
type loader struct {
	eng      *fucina.Engine
	f        *gguf.File
	family   *arch.Family
	tokens   int // the number of tokens in the vocabulary
	n        *Network
	p        *arch.Params    // the dimensions of n
	views    *fucina.Context // for views of weights; nil until the first view
	used     map[string]bool // the names of the tensors that the network uses
	progress func(done, total int64)
	done     int64 // bytes
	total    int64 // bytes
	err      error
}

func (l *loader) fail(err error) {
	if l.err == nil {
		l.err = err
	}
}

func (l *loader) failIf(err error) {
	if err != nil {
		l.fail(err)
	}
}

// wants reports whether to load the tensor. An optional tensor is loaded if the file has it.
func (l *loader) wants(has arch.Presence, name string) bool {
	if has == arch.Optional {
		_, ok := l.f.Tensor(name)
		return ok && l.err == nil
	}
	return has == arch.Required && l.err == nil
}

// inChunks makes the sums of p's products fall into chunks in exact mode. A model that is split
// over several devices sums these products in parts, and has the same bits.
func (l *loader) inChunks(p projection) projection {
	if l.err == nil && l.eng.Exact() {
		p.chunks = op.ChunksOf(p.weight.Dim(p.weight.Axes()[1].Name), p.weight.DType())
	}
	return p
}

// took records that the network uses t.
func (l *loader) took(t gguf.TensorInfo) {
	l.used[t.Name] = true
	l.done += t.Size
	if l.progress != nil {
		l.progress(l.done, l.total)
	}
}

// take loads a weight with the given axes.
func (l *loader) take(name string, axes ...fucina.Axis) fucina.Tensor {
	if l.err != nil {
		return fucina.Tensor{}
	}
	t, ok := l.f.Tensor(name)
	if !ok {
		l.fail(fmt.Errorf("%w: no tensor %q", arch.ErrInvalidModel, name))
		return fucina.Tensor{}
	}
	fits := len(t.Shape) == len(axes)
	for i := range axes {
		fits = fits && t.Shape[i] == axes[i].Size
	}
	if !fits {
		want := make([]int, len(axes))
		for i := range axes {
			want[i] = axes[i].Size
		}
		l.fail(fmt.Errorf("%w: tensor %q has shape %v, the metadata wants %v", arch.ErrInvalidModel, name, t.Shape, want))
		return fucina.Tensor{}
	}
	buf, err := l.f.Buffer(t)
	if err != nil {
		l.fail(err)
		return fucina.Tensor{}
	}
	w, err := l.eng.Weight(buf, t.DType, axes...)
	if err != nil {
		buf.Release()
		l.fail(fmt.Errorf("tensor %q: %w", name, err))
		return fucina.Tensor{}
	}
	l.n.weights = append(l.n.weights, w)
	l.took(t)
	return w
}

// matrix loads the weight of a product.
func (l *loader) matrix(name string, axes ...fucina.Axis) fucina.Tensor {
	if t, ok := l.f.Tensor(name); ok && l.err == nil {
		if weights := op.MatMul.Inputs()[1].Formats; !weights.Has(t.DType) {
			l.fail(fmt.Errorf("%w: %s is %s, want %s", arch.ErrUnsupportedModel, name, t.DType, weights))
		}
	}
	return l.take(name, axes...)
}

// vector loads a weight that must be f32.
func (l *loader) vector(name string, axis fucina.Axis) fucina.Tensor {
	if t, ok := l.f.Tensor(name); ok && l.err == nil && t.DType != dtype.F32 {
		l.fail(fmt.Errorf("%w: %s is %s, want f32", arch.ErrUnsupportedModel, name, t.DType))
	}
	return l.take(name, axis)
}

// bias loads the vector name.bias {out}, if the network has it.
func (l *loader) bias(name string, has arch.Presence, out fucina.Axis) fucina.Tensor {
	if !l.wants(has, name+".bias") {
		return fucina.Tensor{}
	}
	return l.vector(name+".bias", out)
}

// projection loads the matrix name.weight {out in}, the vector name.bias {out} if the network
// has it, and the number name.scale if the file has it. NVFP4 files have this scale in
// addition to the scales of the blocks. They also have name.input_scale, for products with
// activations in NVFP4, which do not exist here.
func (l *loader) projection(name string, bias arch.Presence, out, in fucina.Axis) projection {
	p := projection{weight: l.matrix(name+".weight", out, in), bias: l.bias(name, bias, out), scale: 1}
	if l.wants(arch.Optional, name+".scale") {
		if p.scale = l.number(name + ".scale"); p.scale == 0 {
			l.fail(fmt.Errorf("%w: %s.scale is 0, which makes all products 0", arch.ErrInvalidModel, name))
		}
	}
	if t, ok := l.f.Tensor(name + ".input_scale"); ok && l.err == nil {
		l.took(t)
	}
	return p
}

// norm loads the vector name.weight, the weight of a norm along the axis.
func (l *loader) norm(name string, axis fucina.Axis) norm {
	return norm{l.vector(name+".weight", axis), float64(l.p.NormEpsilon)}
}

// part is a range of rows of a matrix that consists of several projections.
type part struct {
	into *projection
	out  fucina.Axis
}

// fused loads a matrix that has the rows of several projections one after the other, and its
// bias, which has the same order. The parts are views, so a device has one copy of the matrix.
func (l *loader) fused(name string, bias arch.Presence, in fucina.Axis, parts ...part) {
	all := fucina.Ax("fused", 0)
	for _, p := range parts {
		all.Size += p.out.Size
	}
	whole := l.projection(name, bias, all, in)
	start := 0
	for _, p := range parts {
		p.into.weight = l.rows(whole.weight, start, all, p.out)
		if !whole.bias.IsZero() {
			p.into.bias = l.rows(whole.bias, start, all, p.out)
		}
		p.into.scale = whole.scale
		start += p.out.Size
	}
}

// rows returns a view of t in which the axis out replaces the axis whole. It has the entries
// of whole from start on.
func (l *loader) rows(t fucina.Tensor, start int, whole, out fucina.Axis) fucina.Tensor {
	if l.err == nil && l.views == nil {
		c, err := l.eng.NewContext()
		l.views = c
		l.failIf(err)
	}
	if l.err != nil {
		return fucina.Tensor{}
	}
	v := t.On(l.views).Narrow(whole.Name, start, out.Size).Rename(whole.Name, out.Name).Shared()
	if err := v.Err(); err != nil {
		l.fail(err)
		return fucina.Tensor{}
	}
	l.n.weights = append(l.n.weights, v)
	return v
}

// close closes the context of views. The views are Shared and live on.
func (l *loader) close() {
	if l.views != nil {
		l.failIf(l.views.Close())
	}
}

// number reads a tensor that must be one finite number in f32.
func (l *loader) number(name string) float32 {
	t, _ := l.f.Tensor(name)
	if t.DType != dtype.F32 || t.Elements() != 1 {
		l.fail(fmt.Errorf("%w: %s is %s %v, want f32 [1]", arch.ErrInvalidModel, name, t.DType, t.Shape))
		return 1
	}
	v := l.floats(t)[0]
	if !(math.Abs(float64(v)) <= math.MaxFloat32) {
		l.fail(fmt.Errorf("%w: %s is %v, want a finite number", arch.ErrInvalidModel, name, v))
	}
	l.took(t)
	return v
}

// divisors reads a tensor that must have one positive number for each rotated pair.
func (l *loader) divisors(has arch.Presence, name string) []float32 {
	if !l.wants(has, name) {
		return nil
	}
	t, ok := l.f.Tensor(name)
	if !ok {
		l.fail(fmt.Errorf("%w: no tensor %q", arch.ErrInvalidModel, name))
		return nil
	}
	if t.DType != dtype.F32 || len(t.Shape) != 1 || t.Shape[0] != l.p.RoPE.Dims/2 {
		l.fail(fmt.Errorf("%w: %s is %s %v, want f32 [%d]", arch.ErrInvalidModel, name, t.DType, t.Shape, l.p.RoPE.Dims/2))
		return nil
	}
	values := l.floats(t)
	for i, v := range values {
		if !(v > 0) {
			l.fail(fmt.Errorf("%w: %s[%d] is %v, want a positive number", arch.ErrInvalidModel, name, i, v))
			return nil
		}
	}
	l.took(t)
	return values
}

// floats returns the values of an f32 tensor.
func (l *loader) floats(t gguf.TensorInfo) []float32 {
	values := make([]float32, t.Elements())
	err := l.f.View(t, func(data []byte) error {
		_, err := binary.Decode(data, binary.LittleEndian, values)
		return err
	})
	if err != nil {
		l.fail(fmt.Errorf("tensor %q: %w", t.Name, err))
	}
	return values
}
