//go:build arm64 && !noasm

package simd

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// vectorise sets the functions of the level.
func (k *Kernel) vectorise(level isa.Level) {
	if level < isa.NEON {
		return
	}
	k.act = quantizer{quantizeSuperNEON, quantizeSmallNEON}
	k.form = &signed[k.d]
	k.rows = rowsNEON[k.d]
	k.pack = packers4[k.d]
	k.tiles = tilesNEON.of(k.form)
	k.callRows = 64
	if level < isa.DotProd {
		return
	}
	k.rows = rowsDot[k.d]
	k.tiles = tilesDot.of(k.form)
	k.callRows = callRows
	if level < isa.I8MM {
		return
	}
	k.form = &wide[k.d]
	k.pack = packers8[k.d]
	k.tiles = tilesI8MM.of(k.form)
}

// The forms of panels whose codes have their signs.
var signed, wide = signedForms(false), signedForms(true)

func signedForms(wide bool) [dtype.Count]form {
	list := forms
	for d := range list {
		list[d].bias = 0
		list[d].wide = wide
	}
	return list
}

// tileSet has the tiles of a level.
type tileSet struct{ group16, mins16, group32, mins32, small, term, two []tile }

// of returns the tiles of formats of the form.
func (s *tileSet) of(f *form) []tile {
	switch {
	case f.group == 16 && f.mins:
		return s.mins16
	case f.group == 16:
		return s.group16
	case f.group == 32 && f.mins:
		return s.mins32
	case f.group == 32:
		return s.group32
	case f.mins:
		return s.term
	case f.two:
		return s.two
	}
	return s.small
}

var tilesNEON = tileSet{
	group16: []tile{{2, tile16NEONx2}, {1, tile16NEONx1}},
	mins16:  []tile{{2, tileMins16NEONx2}, {1, tileMins16NEONx1}},
	group32: []tile{{2, tile32NEONx2}, {1, tile32NEONx1}},
	mins32:  []tile{{2, tileMins32NEONx2}, {1, tileMins32NEONx1}},
	small:   []tile{{2, tileSmallNEONx2}, {1, tileSmallNEONx1}},
	term:    []tile{{2, tileTermNEONx2}, {1, tileTermNEONx1}},
	two:     []tile{{2, tileTwoNEONx2}, {1, tileTwoNEONx1}},
}

var tilesDot = tileSet{
	group16: []tile{{6, tile16Dotx6}, {4, tile16Dotx4}, {2, tile16Dotx2}, {1, tile16Dotx1}},
	mins16:  []tile{{6, tileMins16Dotx6}, {4, tileMins16Dotx4}, {2, tileMins16Dotx2}, {1, tileMins16Dotx1}},
	group32: []tile{{6, tile32Dotx6}, {4, tile32Dotx4}, {2, tile32Dotx2}, {1, tile32Dotx1}},
	mins32:  []tile{{6, tileMins32Dotx6}, {4, tileMins32Dotx4}, {2, tileMins32Dotx2}, {1, tileMins32Dotx1}},
	small:   []tile{{6, tileSmallDotx6}, {4, tileSmallDotx4}, {2, tileSmallDotx2}, {1, tileSmallDotx1}},
	term:    []tile{{6, tileTermDotx6}, {4, tileTermDotx4}, {2, tileTermDotx2}, {1, tileTermDotx1}},
	two:     []tile{{4, tileTwoDotx4}, {2, tileTwoDotx2}, {1, tileTwoDotx1}},
}

var tilesI8MM = tileSet{
	group16: []tile{{6, tile16I8MMx6}, {4, tile16I8MMx4}, {2, tile16I8MMx2}, {1, tile16I8MMx1}},
	mins16:  []tile{{6, tileMins16I8MMx6}, {4, tileMins16I8MMx4}, {2, tileMins16I8MMx2}, {1, tileMins16I8MMx1}},
	group32: []tile{{6, tile32I8MMx6}, {4, tile32I8MMx4}, {2, tile32I8MMx2}, {1, tile32I8MMx1}},
	mins32:  []tile{{6, tileMins32I8MMx6}, {4, tileMins32I8MMx4}, {2, tileMins32I8MMx2}, {1, tileMins32I8MMx1}},
	small:   []tile{{6, tileSmallI8MMx6}, {4, tileSmallI8MMx4}, {2, tileSmallI8MMx2}, {1, tileSmallI8MMx1}},
	term:    []tile{{6, tileTermI8MMx6}, {4, tileTermI8MMx4}, {2, tileTermI8MMx2}, {1, tileTermI8MMx1}},
	two:     []tile{{4, tileTwoI8MMx4}, {2, tileTwoI8MMx2}, {1, tileTwoI8MMx1}},
}

var rowsNEON = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsNEON, dtype.Q5_K: q5kRowsNEON, dtype.Q6_K: q6kRowsNEON, dtype.Q2_K: q2kRowsNEON, dtype.Q3_K: q3kRowsNEON, dtype.Q8_K: q8kRowsNEON,
	dtype.TQ1_0: tq10RowsNEON, dtype.TQ2_0: tq20RowsNEON, dtype.IQ4_XS: iq4xsRowsNEON, dtype.IQ1_S: iq1sRowsNEON, dtype.IQ1_M: iq1mRowsNEON,
	dtype.IQ2_XXS: iq2xxsRowsNEON, dtype.IQ2_XS: iq2xsRowsNEON, dtype.IQ2_S: iq2sRowsNEON, dtype.IQ3_XXS: iq3xxsRowsNEON, dtype.IQ3_S: iq3sRowsNEON,
	dtype.Q4_0: q40RowsNEON, dtype.Q4_1: q41RowsNEON, dtype.Q5_0: q50RowsNEON, dtype.Q5_1: q51RowsNEON, dtype.Q8_0: q80RowsNEON, dtype.Q8_1: q81RowsNEON,
	dtype.IQ4_NL: iq4nlRowsNEON, dtype.MXFP4: mxfp4RowsNEON, dtype.NVFP4: nvfp4RowsNEON, dtype.Q1_0: q10RowsNEON, dtype.Q2_0: q20RowsNEON, dtype.Q2_0_G64: q20g64RowsNEON,
}

var rowsDot = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsDot, dtype.Q5_K: q5kRowsDot, dtype.Q6_K: q6kRowsDot, dtype.Q2_K: q2kRowsDot, dtype.Q3_K: q3kRowsDot, dtype.Q8_K: q8kRowsDot,
	dtype.TQ1_0: tq10RowsDot, dtype.TQ2_0: tq20RowsDot, dtype.IQ4_XS: iq4xsRowsDot, dtype.IQ1_S: iq1sRowsDot, dtype.IQ1_M: iq1mRowsDot,
	dtype.IQ2_XXS: iq2xxsRowsDot, dtype.IQ2_XS: iq2xsRowsDot, dtype.IQ2_S: iq2sRowsDot, dtype.IQ3_XXS: iq3xxsRowsDot, dtype.IQ3_S: iq3sRowsDot,
	dtype.Q4_0: q40RowsDot, dtype.Q4_1: q41RowsDot, dtype.Q5_0: q50RowsDot, dtype.Q5_1: q51RowsDot, dtype.Q8_0: q80RowsDot, dtype.Q8_1: q81RowsDot,
	dtype.IQ4_NL: iq4nlRowsDot, dtype.MXFP4: mxfp4RowsDot, dtype.NVFP4: nvfp4RowsDot, dtype.Q1_0: q10RowsDot, dtype.Q2_0: q20RowsDot, dtype.Q2_0_G64: q20g64RowsDot,
}

var packers4 = [dtype.Count]packer{
	dtype.Q4_K: q4kUnpackStep4, dtype.Q5_K: q5kUnpackStep4, dtype.Q6_K: q6kUnpackStep4, dtype.Q2_K: q2kUnpackStep4, dtype.Q3_K: q3kUnpackStep4, dtype.Q8_K: q8kUnpackStep4,
	dtype.TQ1_0: tq10UnpackStep4, dtype.TQ2_0: tq20UnpackStep4, dtype.IQ4_XS: iq4xsUnpackStep4, dtype.IQ1_S: iq1sUnpackStep4, dtype.IQ1_M: iq1mUnpackStep4,
	dtype.IQ2_XXS: iq2xxsUnpackStep4, dtype.IQ2_XS: iq2xsUnpackStep4, dtype.IQ2_S: iq2sUnpackStep4, dtype.IQ3_XXS: iq3xxsUnpackStep4, dtype.IQ3_S: iq3sUnpackStep4,
	dtype.Q4_0: q40UnpackStep4, dtype.Q4_1: q41UnpackStep4, dtype.Q5_0: q50UnpackStep4, dtype.Q5_1: q51UnpackStep4, dtype.Q8_0: q80UnpackStep4, dtype.Q8_1: q81UnpackStep4,
	dtype.IQ4_NL: iq4nlUnpackStep4, dtype.MXFP4: mxfp4UnpackStep4, dtype.NVFP4: nvfp4UnpackStep4, dtype.Q1_0: q10UnpackStep4, dtype.Q2_0: q20UnpackStep4, dtype.Q2_0_G64: q20g64UnpackStep4,
}

var packers8 = [dtype.Count]packer{
	dtype.Q4_K: q4kUnpackStep8, dtype.Q5_K: q5kUnpackStep8, dtype.Q6_K: q6kUnpackStep8, dtype.Q2_K: q2kUnpackStep8, dtype.Q3_K: q3kUnpackStep8, dtype.Q8_K: q8kUnpackStep8,
	dtype.TQ1_0: tq10UnpackStep8, dtype.TQ2_0: tq20UnpackStep8, dtype.IQ4_XS: iq4xsUnpackStep8, dtype.IQ1_S: iq1sUnpackStep8, dtype.IQ1_M: iq1mUnpackStep8,
	dtype.IQ2_XXS: iq2xxsUnpackStep8, dtype.IQ2_XS: iq2xsUnpackStep8, dtype.IQ2_S: iq2sUnpackStep8, dtype.IQ3_XXS: iq3xxsUnpackStep8, dtype.IQ3_S: iq3sUnpackStep8,
	dtype.Q4_0: q40UnpackStep8, dtype.Q4_1: q41UnpackStep8, dtype.Q5_0: q50UnpackStep8, dtype.Q5_1: q51UnpackStep8, dtype.Q8_0: q80UnpackStep8, dtype.Q8_1: q81UnpackStep8,
	dtype.IQ4_NL: iq4nlUnpackStep8, dtype.MXFP4: mxfp4UnpackStep8, dtype.NVFP4: nvfp4UnpackStep8, dtype.Q1_0: q10UnpackStep8, dtype.Q2_0: q20UnpackStep8, dtype.Q2_0_G64: q20g64UnpackStep8,
}
