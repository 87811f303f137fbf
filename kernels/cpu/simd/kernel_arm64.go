//go:build arm64 && !noasm

package simd

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// vectorise sets the functions of the level.
func (k *Kernel) vectorise(level isa.Level) {
	switch {
	case level >= isa.DotProd:
		k.rows = rowsDot[k.d]
	case level >= isa.NEON:
		k.rows = rowsNEON[k.d]
	}
}

var rowsNEON = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsNEON, dtype.Q5_K: q5kRowsNEON, dtype.Q6_K: q6kRowsNEON,
	dtype.Q2_K: q2kRowsNEON, dtype.Q3_K: q3kRowsNEON, dtype.TQ2_0: tq20RowsNEON, dtype.IQ4_XS: iq4xsRowsNEON,
	dtype.Q4_0: q40RowsNEON, dtype.Q4_1: q41RowsNEON, dtype.Q5_0: q50RowsNEON, dtype.Q5_1: q51RowsNEON,
	dtype.Q8_0: q80RowsNEON, dtype.IQ4_NL: iq4nlRowsNEON, dtype.MXFP4: mxfp4RowsNEON,
}

var rowsDot = [dtype.Count]rows{
	dtype.Q4_K: q4kRowsDot, dtype.Q5_K: q5kRowsDot, dtype.Q6_K: q6kRowsDot,
	dtype.Q2_K: q2kRowsDot, dtype.Q3_K: q3kRowsDot, dtype.TQ2_0: tq20RowsDot, dtype.IQ4_XS: iq4xsRowsDot,
	dtype.Q4_0: q40RowsDot, dtype.Q4_1: q41RowsDot, dtype.Q5_0: q50RowsDot, dtype.Q5_1: q51RowsDot,
	dtype.Q8_0: q80RowsDot, dtype.IQ4_NL: iq4nlRowsDot, dtype.MXFP4: mxfp4RowsDot,
}
