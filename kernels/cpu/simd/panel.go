package simd

import (
	"encoding/binary"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/quant"
)

// PanelRows is the number of rows of a panel.
const PanelRows = 32

// A panel is 256 elements of 32 rows, arranged for tiles: products with several rows of activations.
// It begins with the codes, plus what makes them unsigned where a form says so, in the order of the
// activations: [64][32 rows][4], or [32][32 rows][8] if the form is wide. Then follow, for
// super-blocks,
//
//	[8 or 16][32]int32   the scales of the groups of 32 or of 16, in the order of the activations
//	[4 or 8][32][2]int16 the minima, or what the codes have too much times the scales, of groups in
//	                     ascending order
//	[32]float32          d
//	[32]float32          dmin
//
// and for small blocks
//
//	[8][32]float32 d, or that of the first half
//	[8][32]float32 the term m, or the scale of the second half
const (
	panelCodes  = 64 * 4 * PanelRows
	panelScales = panelCodes // both forms go on here

	// PanelBytes is the size of the largest panel.
	PanelBytes = panelCodes + 16*128 + 8*128 + 2*128
)

// form says how the tiles of a format compute.
type form struct {
	group int  // elements of a scale in a super-block: 16 or 32; 0 for small blocks
	bias  int  // what the codes of the panel have too much
	wide  bool // the steps of the panel have 8 elements, not 4
	mins  bool
	two   bool // small blocks with two scales
	order *Order
}

// forms has a row for each format.
var forms = [dtype.Count]form{
	dtype.Q2_K:    {group: 16, mins: true, order: &Quarters},
	dtype.Q3_K:    {group: 16, bias: 4, order: &Quarters},
	dtype.Q4_K:    {group: 32, mins: true, order: &Halves},
	dtype.Q5_K:    {group: 32, mins: true, order: &Halves},
	dtype.Q6_K:    {group: 16, bias: 32, order: &Ascending},
	dtype.Q8_K:    {group: 32, bias: 128, order: &Ascending},
	dtype.IQ1_S:   {group: 32, bias: 16, order: &Ascending},
	dtype.IQ1_M:   {group: 16, bias: 16, order: &Ascending},
	dtype.IQ2_XXS: {group: 32, bias: 64, order: &Ascending},
	dtype.IQ2_XS:  {group: 16, bias: 64, order: &Ascending},
	dtype.IQ2_S:   {group: 16, bias: 64, order: &Ascending},
	dtype.IQ3_XXS: {group: 32, bias: 64, order: &Ascending},
	dtype.IQ3_S:   {group: 32, bias: 64, order: &Ascending},
	dtype.IQ4_XS:  {group: 32, bias: 128, order: &Ascending},
	dtype.TQ1_0:   {group: 32, bias: 1, order: &Ascending},
	dtype.TQ2_0:   {group: 32, bias: 1, order: &Quarters},

	dtype.Q1_0:     {bias: 1, order: &Ascending},
	dtype.Q2_0:     {bias: 1, order: &Ascending},
	dtype.Q2_0_G64: {bias: 1, order: &Ascending},
	dtype.Q4_0:     {bias: 8, order: &Ascending},
	dtype.Q4_1:     {mins: true, order: &Ascending},
	dtype.Q5_0:     {bias: 16, order: &Ascending},
	dtype.Q5_1:     {mins: true, order: &Ascending},
	dtype.Q8_0:     {bias: 128, order: &Ascending},
	dtype.Q8_1:     {bias: 128, order: &Ascending},
	dtype.IQ4_NL:   {bias: 128, order: &Ascending},
	dtype.MXFP4:    {bias: 16, order: &Ascending},
	dtype.NVFP4:    {bias: 16, two: true, order: &Ascending},
}

// pack sets the panel to 256 elements of up to 32 rows, which begin at w and are rowBytes apart. n
// is the number of elements of a row that are left, if there are fewer. The others are 0.
func (f *form) pack(panel []byte, d dtype.DType, w []byte, rowBytes, rows, n int) {
	clear(panel[:PanelBytes])
	t := pool.Get().(*integers)
	defer pool.Put(t)
	for r := range rows {
		src := w[r*rowBytes:]
		if f.group > 0 {
			t.super.Set(d, src[:d.Size()], &t.scratch)
			f.packSuper(panel, &t.super, r)
			continue
		}
		for b, s := range t.setSmalls(d, src[:min(256, n)/d.BlockSize()*d.Size()]) {
			f.packCodes(panel, s.Codes[:], 32*b, r)
			second := s.M
			if f.two {
				second = s.D[1]
			}
			binary.LittleEndian.PutUint32(panel[panelScales+128*b+4*r:], math.Float32bits(s.D[0]))
			binary.LittleEndian.PutUint32(panel[panelScales+8*128+128*b+4*r:], math.Float32bits(second))
		}
	}
}

// packCodes writes the codes, which begin at element first of the stretch, of row r.
func (f *form) packCodes(panel []byte, codes []int8, first, r int) {
	step := 4
	if f.wide {
		step = 8
	}
	for i, c := range codes {
		at := first + i
		at = 32*int(f.order[at/32]) + at%32
		panel[(at/step*PanelRows+r)*step+at%step] = byte(int(c) + f.bias)
	}
}

func (f *form) packSuper(panel []byte, s *quant.Super, r int) {
	f.packCodes(panel, s.Codes[:], 0, r)
	n := 256 / f.group
	pairs := panelScales + 128*n
	for g := range n {
		g16 := g * f.group / 16
		at := int(f.order[g16/2])
		if f.group == 16 {
			at = 2*at + g16%2
		}
		binary.LittleEndian.PutUint32(panel[panelScales+128*at+4*r:], uint32(int32(s.Scales[g16])))
		pair := int(s.Scales[g16]) * f.bias
		if f.mins {
			pair = int(s.Mins[g16])
		}
		binary.LittleEndian.PutUint16(panel[pairs+128*(g/2)+4*r+2*(g%2):], uint16(int16(pair)))
	}
	ds := pairs + 128*(n/2)
	binary.LittleEndian.PutUint32(panel[ds+4*r:], math.Float32bits(s.D))
	binary.LittleEndian.PutUint32(panel[ds+128+4*r:], math.Float32bits(s.DMin))
}
