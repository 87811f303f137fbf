package simd

import (
	"sync/atomic"
	"unsafe"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
	"github.com/fucina-go/fucina/quant"
)

// Kernel multiplies rows of weights in one format by rows of activations of 8 bits. It is
// immutable. All kernels of a format have the same bits.
type Kernel struct {
	d     dtype.DType
	form  *form
	rows  rows   // nil means the definition
	pack  packer // nil means form.pack
	tiles []tile // by their sizes, from the largest one to 1; none means the definition
	act   quantizer

	callRows int // the greatest number of rows of activations that a call of a tile takes
}

type (
	// rows multiplies rows of weights by one row of activations.
	rows func(out *float32, w *byte, rowBytes, rows, blocks int, act *byte)
	// packer makes a panel of 32 rows.
	packer func(panel, w *byte, rowBytes int)
	// tile multiplies a panel by size rows of activations at a time, and adds the products.
	tile struct {
		size int
		add  func(c *float32, panel, act *byte, tiles int)
	}
	// quantizer quantizes stretches of 256 activations.
	quantizer struct {
		super func(dst *byte, stride int, x *float32, stretches int, order *byte)
		small func(dst *byte, stride int, x *float32, stretches int)
	}
)

// callRows is the greatest number of rows of activations that a call of a tile takes, if a level has
// no other. It limits the time of a call, about 30 us for the slowest tile.
const callRows = 192

// KernelOf returns the kernel of the format d for the level, and whether there is one. The level is
// supported. Once the kernel exists, it does not allocate.
func KernelOf(d dtype.DType, level isa.Level) (*Kernel, bool) {
	if !Has(d) {
		return nil, false
	}
	memo := &kernels[level][d]
	k := memo.Load()
	if k == nil {
		k = &Kernel{d: d, form: &forms[d], callRows: callRows}
		k.vectorise(level)
		memo.Store(k)
	}
	return k, true
}

// kernels are those that KernelOf has made.
var kernels [isa.Count][dtype.Count]atomic.Pointer[Kernel]

// Has reports whether the format has kernels.
func Has(d dtype.DType) bool { return d.Valid() && forms[d].order != nil }

// SharesActivations reports whether both kernels multiply the same activations of 8 bits.
func (k *Kernel) SharesActivations(o *Kernel) bool {
	return (k.form.group > 0) == (o.form.group > 0) && *k.form.order == *o.form.order
}

// Vectorized reports whether Row and Panel use assembly.
func (k *Kernel) Vectorized() (row, panel bool) { return k.rows != nil, len(k.tiles) > 0 }

// ActSize returns the number of bytes of a row of k activations.
func ActSize(k int) int { return (k + 255) / 256 * ActBytes }

// Quantize makes the activations x [m][n] those of 8 bits, stretch by stretch: dst is
// [stretches][m][ActBytes]. n is a multiple of the format's block size, and of 32.
func (k *Kernel) Quantize(dst []byte, x []float32, m, n int) {
	for i := range m {
		k.QuantizeRow(dst[i*ActBytes:], m*ActBytes, x[i*n:][:n])
	}
}

// QuantizeRow makes the activations x those of 8 bits, in stretches that are stride bytes apart.
func (k *Kernel) QuantizeRow(dst []byte, stride int, x []float32) {
	super := k.form.group > 0
	if whole := len(x) / 256; whole > 0 && (super && k.act.super != nil || !super && k.act.small != nil) {
		_ = dst[(whole-1)*stride:][:ActBytes]
		if super {
			k.act.super(&dst[0], stride, &x[0], whole, &k.form.order[0])
		} else {
			k.act.small(&dst[0], stride, &x[0], whole)
		}
		x = x[256*whole:]
		if len(x) == 0 {
			return
		}
		dst = dst[whole*stride:]
	}
	for at := 0; len(x) > 0; at += stride {
		n := min(256, len(x))
		if super {
			QuantizeSuper(dst[at:], x[:n], k.form.order)
		} else {
			QuantizeSmall(dst[at:], x[:n])
		}
		x = x[n:]
	}
}

// Row sets out to the products of len(out) rows of weights, n elements each and rowBytes apart, with
// one row of activations, whose stretches follow each other.
func (k *Kernel) Row(out []float32, w []byte, rowBytes, n int, act []byte) {
	blocks := n / k.d.BlockSize()
	size := blocks * k.d.Size()
	if len(out) == 0 {
		return
	}
	_ = w[(len(out)-1)*rowBytes:][:size]
	_ = act[:ActSize(n)]
	if k.rows != nil {
		k.rows(&out[0], &w[0], rowBytes, len(out), blocks, &act[0])
		return
	}
	for i := range out {
		out[i] = k.dot(w[i*rowBytes:][:size], act, ActBytes)
	}
}

// dot is the product of a row of weights and a row of activations.
func (k *Kernel) dot(w, act []byte, stride int) float32 {
	if k.form.group > 0 {
		return DotSuper(k.d, w, act, stride, k.form.order)
	}
	return DotSmall(k.d, w, act, stride)
}

// ScratchBytes is the number of bytes of scratch that Panel needs: a panel, and rows that are not as
// many or as long as those of a panel, extended by zeros.
const ScratchBytes = 64 + PanelBytes + PanelRows*padBytes

// padBytes is the largest size of 256 elements.
const padBytes = 292

// Panel multiplies up to PanelRows rows of weights, n elements each and rowBytes apart, by the m rows
// of activations of Quantize, and sets sums [m][PanelRows] to the products. It is worth the
// preparation of the panel from 2 rows of activations on. scratch has at least ScratchBytes.
func (k *Kernel) Panel(sums []float32, w []byte, rowBytes, rows, n int, act []byte, m int, scratch []byte) {
	sums = sums[:PanelRows*m]
	clear(sums)
	size := n / k.d.BlockSize() * k.d.Size()
	_ = w[(rows-1)*rowBytes:][:size]
	_ = act[:m*ActSize(n)]
	if len(k.tiles) == 0 {
		for r := range rows {
			k.addRow(sums[r:], w[r*rowBytes:][:size], act, m)
		}
		return
	}
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(scratch))) & 63)
	panel, pad := scratch[skip:][:PanelBytes], scratch[skip+PanelBytes:][:PanelRows*padBytes]
	step := 256 / k.d.BlockSize() * k.d.Size()
	for b := 0; 256*b < n; b++ {
		switch left := n - 256*b; {
		case k.pack == nil:
			k.form.pack(panel, k.d, w[b*step:], rowBytes, rows, left)
		case rows == PanelRows && left >= 256:
			k.pack(&panel[0], &w[b*step], rowBytes)
		default:
			clear(pad)
			for r := range rows {
				copy(pad[r*step:][:step], w[r*rowBytes:][b*step:size])
			}
			k.pack(&panel[0], &pad[0], step)
		}
		k.multiply(sums, panel, act[b*m*ActBytes:])
	}
}

// multiply adds the products of a panel and a stretch of the rows of activations to the sums.
func (k *Kernel) multiply(sums []float32, panel, act []byte) {
	for i := 0; len(sums) > 0; {
		t := k.tiles[i]
		count := min(len(sums)/PanelRows, k.callRows) / t.size
		if count == 0 {
			i++
			continue
		}
		t.add(&sums[0], &panel[0], &act[0], count)
		sums = sums[count*t.size*PanelRows:]
		act = act[min(len(act), count*t.size*ActBytes):]
	}
}

// addRow adds the products of a row of weights and the m rows of activations of Quantize to every
// element of sums at a multiple of PanelRows. It takes the integers out of the row once.
func (k *Kernel) addRow(sums []float32, w, act []byte, m int) {
	step := 256 / k.d.BlockSize() * k.d.Size()
	t := pool.Get().(*integers)
	defer pool.Put(t)
	for len(w) > 0 {
		n := min(step, len(w))
		var blocks []quant.Small
		if k.form.group > 0 {
			t.super.Set(k.d, w[:n], &t.scratch)
		} else {
			blocks = t.setSmalls(k.d, w[:n])
		}
		for i := range m {
			if sum := &sums[i*PanelRows]; k.form.group > 0 {
				*sum = addSuper(*sum, k.d, &t.super, act, k.form.order)
			} else {
				*sum += partSmall(k.d, blocks, act)
			}
			act = act[ActBytes:]
		}
		w = w[n:]
	}
}
