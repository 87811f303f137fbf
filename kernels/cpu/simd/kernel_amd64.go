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
	switch f := k.form; {
	case f.group == 16 && f.mins:
		k.tile = [4]tile{tileMins16x6, tileMins16x4, tileMins16x2, tileMins16x1}
	case f.group == 16:
		k.tile = [4]tile{tileBias16x6, tileBias16x4, tileBias16x2, tileBias16x1}
	case f.group == 32 && f.mins:
		k.tile = [4]tile{tileMins32x6, tileMins32x4, tileMins32x2, tileMins32x1}
	case f.group == 32:
		k.tile = [4]tile{tileBias32x6, tileBias32x4, tileBias32x2, tileBias32x1}
	case f.mins:
		k.tile = [4]tile{tileSmallTermx6, tileSmallTermx4, tileSmallTermx2, tileSmallTermx1}
	case f.two:
	case f.bias == 1:
		k.tile = [4]tile{tileSmall1x6, tileSmall1x4, tileSmall1x2, tileSmall1x1}
	case f.bias == 8:
		k.tile = [4]tile{tileSmall8x6, tileSmall8x4, tileSmall8x2, tileSmall8x1}
	case f.bias == 16:
		k.tile = [4]tile{tileSmall16x6, tileSmall16x4, tileSmall16x2, tileSmall16x1}
	case f.bias == 128:
		k.tile = [4]tile{tileSmall128x6, tileSmall128x4, tileSmall128x2, tileSmall128x1}
	}
}

var rowsAVX2 = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsAVX2, dtype.Q5_K: q5kRowsAVX2, dtype.Q6_K: q6kRowsAVX2,
}

var rows512 = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsVNNI, dtype.Q5_K: q5kRowsVNNI, dtype.Q6_K: q6kRowsVNNI,
	dtype.Q2_K: q2kRowsVNNI, dtype.Q3_K: q3kRowsVNNI, dtype.TQ2_0: tq20RowsVNNI,
	dtype.Q4_0: q40RowsVNNI, dtype.Q4_1: q41RowsVNNI, dtype.Q5_0: q50RowsVNNI, dtype.Q5_1: q51RowsVNNI,
	dtype.Q8_0: q80RowsVNNI, dtype.IQ4_NL: iq4nlRowsVNNI, dtype.MXFP4: mxfp4RowsVNNI,
}

var rowsVBMI = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsVBMI, dtype.Q5_K: q5kRowsVBMI, dtype.Q6_K: q6kRowsVBMI, dtype.IQ4_XS: iq4xsRowsVBMI,
}

var packers512 = [dtype.Count]packer{
	dtype.Q2_K: q2kUnpack, dtype.Q3_K: q3kUnpack, dtype.Q4_K: q4kUnpack, dtype.Q5_K: q5kUnpack, dtype.Q6_K: q6kUnpack,
	dtype.TQ2_0: tq20Unpack, dtype.IQ4_XS: iq4xsUnpack,
	dtype.Q4_0: q40Unpack, dtype.Q4_1: q41Unpack, dtype.Q5_0: q50Unpack, dtype.Q5_1: q51Unpack,
	dtype.Q8_0: q80Unpack, dtype.IQ4_NL: iq4nlUnpack, dtype.MXFP4: mxfp4Unpack,
}
