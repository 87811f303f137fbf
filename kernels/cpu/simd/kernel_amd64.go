//go:build amd64 && !noasm

package simd

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// vectorise sets the functions of the level.
func (k *Kernel) vectorise(level isa.Level) {
	if level >= isa.AVX2 {
		k.rows = rowsAVX2[k.d]
		k.pack = packersAVX2[k.d]
		k.tiles = tilesAVX2[k.d]
		k.act = quantizer{quantizeSuperAVX2, quantizeSmallAVX2}
	}
	if level >= isa.AVXVNNI {
		k.tiles = tilesAVXVNNI[k.d]
	}
	if level == isa.AVXVNNI && rowsAVXVNNI[k.d] != nil {
		k.rows = rowsAVXVNNI[k.d]
	}
	if level < isa.AVX512 {
		return
	}
	k.act = quantizer{quantizeSuper512, quantizeSmall512}
	k.pack = packers512[k.d]
	if rows512[k.d] != nil {
		k.rows = rows512[k.d]
	}
	if level >= isa.AVX512VBMI && rowsVBMI[k.d] != nil {
		k.rows = rowsVBMI[k.d]
	}
	k.tiles = tiles512[k.d]
}

var rows512 = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsVNNI, dtype.Q5_K: q5kRowsVNNI, dtype.Q6_K: q6kRowsVNNI,
	dtype.Q2_K: q2kRowsVNNI, dtype.Q3_K: q3kRowsVNNI, dtype.TQ2_0: tq20RowsVNNI, dtype.IQ4_XS: iq4xsRowsVNNI,
	dtype.Q4_0: q40RowsVNNI, dtype.Q4_1: q41RowsVNNI, dtype.Q5_0: q50RowsVNNI, dtype.Q5_1: q51RowsVNNI,
	dtype.Q8_0: q80RowsVNNI, dtype.IQ4_NL: iq4nlRowsVNNI, dtype.MXFP4: mxfp4RowsVNNI,
	dtype.IQ2_XXS: iq2xxsRowsVNNI, dtype.IQ3_XXS: iq3xxsRowsVNNI, dtype.IQ2_XS: iq2xsRowsVNNI, dtype.IQ2_S: iq2sRowsVNNI, dtype.IQ3_S: iq3sRowsVNNI,
	dtype.IQ1_S: iq1sRowsVNNI, dtype.IQ1_M: iq1mRowsVNNI, dtype.TQ1_0: tq10RowsVNNI, dtype.Q8_K: q8kRowsVNNI, dtype.Q2_0: q20RowsVNNI,
	dtype.Q2_0_G64: q20g64RowsVNNI, dtype.NVFP4: nvfp4RowsVNNI, dtype.Q1_0: q10RowsVNNI, dtype.Q8_1: q81RowsVNNI,
}

var rowsVBMI = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsVBMI, dtype.Q5_K: q5kRowsVBMI, dtype.Q6_K: q6kRowsVBMI, dtype.IQ4_XS: iq4xsRowsVBMI,
	dtype.Q2_K: q2kRowsVBMI, dtype.Q3_K: q3kRowsVBMI, dtype.TQ2_0: tq20RowsVBMI,
	dtype.Q4_0: q40RowsVBMI, dtype.Q4_1: q41RowsVBMI, dtype.Q5_0: q50RowsVBMI, dtype.Q5_1: q51RowsVBMI,
	dtype.IQ4_NL: iq4nlRowsVBMI, dtype.MXFP4: mxfp4RowsVBMI,
}

var packersAVX2 = [dtype.Count]packer{
	dtype.Q2_K: q2kUnpackAVX2, dtype.Q3_K: q3kUnpackAVX2, dtype.Q4_K: q4kUnpackAVX2, dtype.Q5_K: q5kUnpackAVX2, dtype.Q6_K: q6kUnpackAVX2,
	dtype.TQ2_0: tq20UnpackAVX2, dtype.IQ4_XS: iq4xsUnpackAVX2,
	dtype.Q4_0: q40UnpackAVX2, dtype.Q4_1: q41UnpackAVX2, dtype.Q5_0: q50UnpackAVX2, dtype.Q5_1: q51UnpackAVX2,
	dtype.Q8_0: q80UnpackAVX2, dtype.IQ4_NL: iq4nlUnpackAVX2, dtype.MXFP4: mxfp4UnpackAVX2, dtype.NVFP4: nvfp4UnpackAVX2,
	dtype.IQ2_XXS: iq2xxsUnpackAVX2, dtype.IQ3_XXS: iq3xxsUnpackAVX2, dtype.IQ2_XS: iq2xsUnpackAVX2, dtype.IQ2_S: iq2sUnpackAVX2, dtype.IQ3_S: iq3sUnpackAVX2,
	dtype.IQ1_S: iq1sUnpackAVX2, dtype.IQ1_M: iq1mUnpackAVX2, dtype.TQ1_0: tq10UnpackAVX2, dtype.Q8_K: q8kUnpackAVX2, dtype.Q2_0: q20UnpackAVX2,
	dtype.Q2_0_G64: q20g64UnpackAVX2, dtype.Q1_0: q10UnpackAVX2, dtype.Q8_1: q81UnpackAVX2,
}

var packers512 = [dtype.Count]packer{
	dtype.Q2_K: q2kUnpack, dtype.Q3_K: q3kUnpack, dtype.Q4_K: q4kUnpack, dtype.Q5_K: q5kUnpack, dtype.Q6_K: q6kUnpack,
	dtype.TQ2_0: tq20Unpack, dtype.IQ4_XS: iq4xsUnpack,
	dtype.Q4_0: q40Unpack, dtype.Q4_1: q41Unpack, dtype.Q5_0: q50Unpack, dtype.Q5_1: q51Unpack,
	dtype.Q8_0: q80Unpack, dtype.IQ4_NL: iq4nlUnpack, dtype.MXFP4: mxfp4Unpack, dtype.NVFP4: nvfp4Unpack,
	dtype.IQ2_XXS: iq2xxsUnpack, dtype.IQ3_XXS: iq3xxsUnpack, dtype.IQ2_XS: iq2xsUnpack, dtype.IQ2_S: iq2sUnpack, dtype.IQ3_S: iq3sUnpack,
	dtype.IQ1_S: iq1sUnpack, dtype.IQ1_M: iq1mUnpack, dtype.TQ1_0: tq10Unpack, dtype.Q8_K: q8kUnpack, dtype.Q2_0: q20Unpack,
	dtype.Q2_0_G64: q20g64Unpack, dtype.Q1_0: q10Unpack, dtype.Q8_1: q81Unpack,
}

// tilesAVX2 depends on how large the codes of a format can be.
var tilesAVX2 = [dtype.Count][]tile{
	dtype.Q2_K:    {{3, tileMins16D4x3AVX2}, {2, tileMins16D4x2AVX2}, {1, tileMins16D4x1AVX2}},
	dtype.Q3_K:    {{3, tileBias16D4x3AVX2}, {2, tileBias16D4x2AVX2}, {1, tileBias16D4x1AVX2}},
	dtype.Q4_K:    {{3, tileMins32D8x3AVX2}, {2, tileMins32D8x2AVX2}, {1, tileMins32D8x1AVX2}},
	dtype.Q5_K:    {{3, tileMins32D4x3AVX2}, {2, tileMins32D4x2AVX2}, {1, tileMins32D4x1AVX2}},
	dtype.Q6_K:    {{3, tileBias16D2x3AVX2}, {2, tileBias16D2x2AVX2}, {1, tileBias16D2x1AVX2}},
	dtype.Q8_K:    {{3, tileBias32Sx3AVX2}, {2, tileBias32Sx2AVX2}, {1, tileBias32Sx1AVX2}},
	dtype.IQ1_S:   {{3, tileBias32D4x3AVX2}, {2, tileBias32D4x2AVX2}, {1, tileBias32D4x1AVX2}},
	dtype.IQ1_M:   {{3, tileBias16D4x3AVX2}, {2, tileBias16D4x2AVX2}, {1, tileBias16D4x1AVX2}},
	dtype.IQ2_XXS: {{3, tileBias32D1x3AVX2}, {2, tileBias32D1x2AVX2}, {1, tileBias32D1x1AVX2}},
	dtype.IQ2_XS:  {{3, tileBias16D1x3AVX2}, {2, tileBias16D1x2AVX2}, {1, tileBias16D1x1AVX2}},
	dtype.IQ2_S:   {{3, tileBias16D1x3AVX2}, {2, tileBias16D1x2AVX2}, {1, tileBias16D1x1AVX2}},
	dtype.IQ3_XXS: {{3, tileBias32D1x3AVX2}, {2, tileBias32D1x2AVX2}, {1, tileBias32D1x1AVX2}},
	dtype.IQ3_S:   {{3, tileBias32D1x3AVX2}, {2, tileBias32D1x2AVX2}, {1, tileBias32D1x1AVX2}},
	dtype.IQ4_XS:  {{3, tileBias32Sx3AVX2}, {2, tileBias32Sx2AVX2}, {1, tileBias32Sx1AVX2}},
	dtype.TQ1_0:   {{3, tileBias32D4x3AVX2}, {2, tileBias32D4x2AVX2}, {1, tileBias32D4x1AVX2}},
	dtype.TQ2_0:   {{3, tileBias32D4x3AVX2}, {2, tileBias32D4x2AVX2}, {1, tileBias32D4x1AVX2}},

	dtype.Q1_0:     {{3, tileSmall1D8x3AVX2}, {2, tileSmall1D8x2AVX2}, {1, tileSmall1D8x1AVX2}},
	dtype.Q2_0:     {{3, tileSmall1D8x3AVX2}, {2, tileSmall1D8x2AVX2}, {1, tileSmall1D8x1AVX2}},
	dtype.Q2_0_G64: {{3, tileSmall1D8x3AVX2}, {2, tileSmall1D8x2AVX2}, {1, tileSmall1D8x1AVX2}},
	dtype.Q4_0:     {{3, tileSmall8D8x3AVX2}, {2, tileSmall8D8x2AVX2}, {1, tileSmall8D8x1AVX2}},
	dtype.Q4_1:     {{3, tileSmallTermD4x3AVX2}, {2, tileSmallTermD4x2AVX2}, {1, tileSmallTermD4x1AVX2}},
	dtype.Q5_0:     {{3, tileSmall16D4x3AVX2}, {2, tileSmall16D4x2AVX2}, {1, tileSmall16D4x1AVX2}},
	dtype.Q5_1:     {{3, tileSmallTermD4x3AVX2}, {2, tileSmallTermD4x2AVX2}, {1, tileSmallTermD4x1AVX2}},
	dtype.Q8_0:     {{3, tileSmall128Sx3AVX2}, {2, tileSmall128Sx2AVX2}, {1, tileSmall128Sx1AVX2}},
	dtype.Q8_1:     {{3, tileSmall128Sx3AVX2}, {2, tileSmall128Sx2AVX2}, {1, tileSmall128Sx1AVX2}},
	dtype.IQ4_NL:   {{3, tileSmall128Sx3AVX2}, {2, tileSmall128Sx2AVX2}, {1, tileSmall128Sx1AVX2}},
	dtype.MXFP4:    {{3, tileSmall16D4x3AVX2}, {2, tileSmall16D4x2AVX2}, {1, tileSmall16D4x1AVX2}},
	dtype.NVFP4:    {{3, tileSmallTwoSx3AVX2}, {2, tileSmallTwoSx2AVX2}, {1, tileSmallTwoSx1AVX2}},
}

var tilesAVXVNNI = [dtype.Count][]tile{
	dtype.Q2_K:    {{6, tileMins16Wx6AVXVNNI}, {4, tileMins16Wx4AVXVNNI}, {2, tileMins16Wx2AVXVNNI}, {1, tileMins16Wx1AVXVNNI}},
	dtype.Q3_K:    {{6, tileBias16Wx6AVXVNNI}, {4, tileBias16Wx4AVXVNNI}, {2, tileBias16Wx2AVXVNNI}, {1, tileBias16Wx1AVXVNNI}},
	dtype.Q4_K:    {{6, tileMins32Wx6AVXVNNI}, {4, tileMins32Wx4AVXVNNI}, {2, tileMins32Wx2AVXVNNI}, {1, tileMins32Wx1AVXVNNI}},
	dtype.Q5_K:    {{6, tileMins32x6AVXVNNI}, {4, tileMins32x4AVXVNNI}, {2, tileMins32x2AVXVNNI}, {1, tileMins32x1AVXVNNI}},
	dtype.Q6_K:    {{6, tileBias16x6AVXVNNI}, {4, tileBias16x4AVXVNNI}, {2, tileBias16x2AVXVNNI}, {1, tileBias16x1AVXVNNI}},
	dtype.Q8_K:    {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.IQ1_S:   {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.IQ1_M:   {{6, tileBias16x6AVXVNNI}, {4, tileBias16x4AVXVNNI}, {2, tileBias16x2AVXVNNI}, {1, tileBias16x1AVXVNNI}},
	dtype.IQ2_XXS: {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.IQ2_XS:  {{6, tileBias16x6AVXVNNI}, {4, tileBias16x4AVXVNNI}, {2, tileBias16x2AVXVNNI}, {1, tileBias16x1AVXVNNI}},
	dtype.IQ2_S:   {{6, tileBias16x6AVXVNNI}, {4, tileBias16x4AVXVNNI}, {2, tileBias16x2AVXVNNI}, {1, tileBias16x1AVXVNNI}},
	dtype.IQ3_XXS: {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.IQ3_S:   {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.IQ4_XS:  {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.TQ1_0:   {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},
	dtype.TQ2_0:   {{6, tileBias32x6AVXVNNI}, {4, tileBias32x4AVXVNNI}, {2, tileBias32x2AVXVNNI}, {1, tileBias32x1AVXVNNI}},

	dtype.Q1_0:     {{6, tileSmall1x6AVXVNNI}, {4, tileSmall1x4AVXVNNI}, {2, tileSmall1x2AVXVNNI}, {1, tileSmall1x1AVXVNNI}},
	dtype.Q2_0:     {{6, tileSmall1x6AVXVNNI}, {4, tileSmall1x4AVXVNNI}, {2, tileSmall1x2AVXVNNI}, {1, tileSmall1x1AVXVNNI}},
	dtype.Q2_0_G64: {{6, tileSmall1x6AVXVNNI}, {4, tileSmall1x4AVXVNNI}, {2, tileSmall1x2AVXVNNI}, {1, tileSmall1x1AVXVNNI}},
	dtype.Q4_0:     {{6, tileSmall8x6AVXVNNI}, {4, tileSmall8x4AVXVNNI}, {2, tileSmall8x2AVXVNNI}, {1, tileSmall8x1AVXVNNI}},
	dtype.Q4_1:     {{6, tileSmallTermx6AVXVNNI}, {4, tileSmallTermx4AVXVNNI}, {2, tileSmallTermx2AVXVNNI}, {1, tileSmallTermx1AVXVNNI}},
	dtype.Q5_0:     {{6, tileSmall16x6AVXVNNI}, {4, tileSmall16x4AVXVNNI}, {2, tileSmall16x2AVXVNNI}, {1, tileSmall16x1AVXVNNI}},
	dtype.Q5_1:     {{6, tileSmallTermx6AVXVNNI}, {4, tileSmallTermx4AVXVNNI}, {2, tileSmallTermx2AVXVNNI}, {1, tileSmallTermx1AVXVNNI}},
	dtype.Q8_0:     {{6, tileSmall128x6AVXVNNI}, {4, tileSmall128x4AVXVNNI}, {2, tileSmall128x2AVXVNNI}, {1, tileSmall128x1AVXVNNI}},
	dtype.Q8_1:     {{6, tileSmall128x6AVXVNNI}, {4, tileSmall128x4AVXVNNI}, {2, tileSmall128x2AVXVNNI}, {1, tileSmall128x1AVXVNNI}},
	dtype.IQ4_NL:   {{6, tileSmall128x6AVXVNNI}, {4, tileSmall128x4AVXVNNI}, {2, tileSmall128x2AVXVNNI}, {1, tileSmall128x1AVXVNNI}},
	dtype.MXFP4:    {{6, tileSmall16x6AVXVNNI}, {4, tileSmall16x4AVXVNNI}, {2, tileSmall16x2AVXVNNI}, {1, tileSmall16x1AVXVNNI}},
	dtype.NVFP4:    {{3, tileSmallTwoSx3AVX2}, {2, tileSmallTwoSx2AVX2}, {1, tileSmallTwoSx1AVX2}},
}

var tiles512 = [dtype.Count][]tile{
	dtype.Q2_K:    {{6, tileMins16Wx6}, {4, tileMins16Wx4}, {2, tileMins16Wx2}, {1, tileMins16Wx1}},
	dtype.Q3_K:    {{6, tileBias16Wx6}, {4, tileBias16Wx4}, {2, tileBias16Wx2}, {1, tileBias16Wx1}},
	dtype.Q4_K:    {{6, tileMins32Wx6}, {4, tileMins32Wx4}, {2, tileMins32Wx2}, {1, tileMins32Wx1}},
	dtype.Q5_K:    {{6, tileMins32x6}, {4, tileMins32x4}, {2, tileMins32x2}, {1, tileMins32x1}},
	dtype.Q6_K:    {{6, tileBias16Hx6}, {4, tileBias16Hx4}, {2, tileBias16Hx2}, {1, tileBias16Hx1}},
	dtype.Q8_K:    {{6, tileBias32x6}, {4, tileBias32x4}, {2, tileBias32x2}, {1, tileBias32x1}},
	dtype.IQ1_S:   {{6, tileBias32x6}, {4, tileBias32x4}, {2, tileBias32x2}, {1, tileBias32x1}},
	dtype.IQ1_M:   {{6, tileBias16x6}, {4, tileBias16x4}, {2, tileBias16x2}, {1, tileBias16x1}},
	dtype.IQ2_XXS: {{6, tileBias32x6}, {4, tileBias32x4}, {2, tileBias32x2}, {1, tileBias32x1}},
	dtype.IQ2_XS:  {{6, tileBias16x6}, {4, tileBias16x4}, {2, tileBias16x2}, {1, tileBias16x1}},
	dtype.IQ2_S:   {{6, tileBias16x6}, {4, tileBias16x4}, {2, tileBias16x2}, {1, tileBias16x1}},
	dtype.IQ3_XXS: {{6, tileBias32x6}, {4, tileBias32x4}, {2, tileBias32x2}, {1, tileBias32x1}},
	dtype.IQ3_S:   {{6, tileBias32x6}, {4, tileBias32x4}, {2, tileBias32x2}, {1, tileBias32x1}},
	dtype.IQ4_XS:  {{6, tileBias32x6}, {4, tileBias32x4}, {2, tileBias32x2}, {1, tileBias32x1}},
	dtype.TQ1_0:   {{6, tileBias32Wx6}, {4, tileBias32Wx4}, {2, tileBias32Wx2}, {1, tileBias32Wx1}},
	dtype.TQ2_0:   {{6, tileBias32Wx6}, {4, tileBias32Wx4}, {2, tileBias32Wx2}, {1, tileBias32Wx1}},

	dtype.Q1_0:     {{6, tileSmall1x6}, {4, tileSmall1x4}, {2, tileSmall1x2}, {1, tileSmall1x1}},
	dtype.Q2_0:     {{6, tileSmall1x6}, {4, tileSmall1x4}, {2, tileSmall1x2}, {1, tileSmall1x1}},
	dtype.Q2_0_G64: {{6, tileSmall1x6}, {4, tileSmall1x4}, {2, tileSmall1x2}, {1, tileSmall1x1}},
	dtype.Q4_0:     {{6, tileSmall8x6}, {4, tileSmall8x4}, {2, tileSmall8x2}, {1, tileSmall8x1}},
	dtype.Q4_1:     {{6, tileSmallTermx6}, {4, tileSmallTermx4}, {2, tileSmallTermx2}, {1, tileSmallTermx1}},
	dtype.Q5_0:     {{6, tileSmall16x6}, {4, tileSmall16x4}, {2, tileSmall16x2}, {1, tileSmall16x1}},
	dtype.Q5_1:     {{6, tileSmallTermx6}, {4, tileSmallTermx4}, {2, tileSmallTermx2}, {1, tileSmallTermx1}},
	dtype.Q8_0:     {{6, tileSmall128x6}, {4, tileSmall128x4}, {2, tileSmall128x2}, {1, tileSmall128x1}},
	dtype.Q8_1:     {{6, tileSmall128x6}, {4, tileSmall128x4}, {2, tileSmall128x2}, {1, tileSmall128x1}},
	dtype.IQ4_NL:   {{6, tileSmall128x6}, {4, tileSmall128x4}, {2, tileSmall128x2}, {1, tileSmall128x1}},
	dtype.MXFP4:    {{6, tileSmall16x6}, {4, tileSmall16x4}, {2, tileSmall16x2}, {1, tileSmall16x1}},
	dtype.NVFP4:    {{6, tileSmallTwox6}, {4, tileSmallTwox4}, {2, tileSmallTwox2}, {1, tileSmallTwox1}},
}
