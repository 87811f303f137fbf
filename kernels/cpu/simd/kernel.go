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
	pack  packer // nil means pack
	tiles []tile // by their sizes, from the largest one to 1; none means the definition
	act   quantizer
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

// callRows is the greatest number of rows of activations that a call of a tile takes. It limits the
// time of a call, about 50 us for the slowest tile.
const callRows = 384

// KernelOf returns the kernel of the format d for the level, and whether there is one. The level is
// supported. Once the kernel exists, it does not allocate.
func KernelOf(d dtype.DType, level isa.Level) (*Kernel, bool) {
	if !Has(d) {
		return nil, false
	}
	memo := &kernels[level][d]
	k := memo.Load()
	if k == nil {
		k = &Kernel{d: d, form: &forms[d]}
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

// Scratch is the memory of a lane for Panel, besides 128 bytes for each row of activations. It is
// aligned to 64 bytes.
type Scratch struct {
	panel []byte
	sums  []float32
}

// ScratchBytes returns the number of bytes that NewScratch needs for m rows of activations.
func ScratchBytes(m int) int { return PanelBytes + 64 + 4*PanelRows*m }

// NewScratch divides memory, which has ScratchBytes(m) bytes and is aligned to 4.
func NewScratch(memory []byte, m int) Scratch {
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(memory))) & 63)
	memory = memory[skip:]
	sums := memory[PanelBytes:]
	return Scratch{memory[:PanelBytes], unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(sums))), PanelRows*m)}
}

// Panel multiplies up to PanelRows rows of weights, n elements each and rowBytes apart, by the m rows
// of activations of Quantize. The product of activations i and row r is sums[i*PanelRows+r], in the
// result, which is valid until the next use of s. Tiles are worth their preparation for about 4 rows
// of activations or more.
func (k *Kernel) Panel(s Scratch, w []byte, rowBytes, rows, n int, act []byte, m int) (sums []float32) {
	sums = s.sums[:PanelRows*m]
	clear(sums)
	size := n / k.d.BlockSize() * k.d.Size()
	_ = w[(rows-1)*rowBytes:][:size]
	_ = act[:m*ActSize(n)]
	if len(k.tiles) == 0 {
		for r := range rows {
			k.addRow(sums[r:], w[r*rowBytes:][:size], act, m)
		}
		return sums
	}
	step := 256 / k.d.BlockSize() * k.d.Size()
	for b := 0; 256*b < n; b++ {
		if left := n - 256*b; k.pack != nil && rows == PanelRows && left >= 256 {
			k.pack(&s.panel[0], &w[b*step], rowBytes)
		} else {
			pack(s.panel, k.d, w[b*step:], rowBytes, rows, left)
		}
		a, c := act[b*m*ActBytes:], sums
		for i := 0; len(c) > 0; {
			t := k.tiles[i]
			count := min(len(c)/PanelRows, callRows) / t.size
			if count == 0 {
				i++
				continue
			}
			t.add(&c[0], &s.panel[0], &a[0], count)
			c = c[count*t.size*PanelRows:]
			a = a[min(len(a), count*t.size*ActBytes):]
		}
	}
	return sums
}

// addRow adds the products of a row of weights and the m rows of activations of Quantize to every
// element of sums at a multiple of PanelRows. It takes the integers out of the row once.
func (k *Kernel) addRow(sums []float32, w, act []byte, m int) {
	step := 256 / k.d.BlockSize() * k.d.Size()
	for len(w) > 0 {
		n := min(step, len(w))
		var super quant.Super
		var list [8]quant.Small
		var blocks []quant.Small
		if k.form.group > 0 {
			super.Set(k.d, w[:n])
		} else {
			blocks = setSmalls(&list, k.d, w[:n])
		}
		for i := range m {
			if sum := &sums[i*PanelRows]; k.form.group > 0 {
				*sum = addSuper(*sum, k.d, &super, act, k.form.order)
			} else {
				*sum += partSmall(k.d, blocks, act)
			}
			act = act[ActBytes:]
		}
		w = w[n:]
	}
}
