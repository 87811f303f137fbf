//go:build amd64 && !noasm

package vector

import "github.com/fucina-go/fucina/internal/isa"

func loopsOf(level isa.Level) *Loops {
	switch {
	case level >= isa.AVX512:
		return &loopsAVX512
	case level >= isa.AVX2:
		return &loopsAVX2
	}
	return &definition
}

var loopsAVX2 = Loops{
	add: addAVX2, sub: subAVX2, mul: mulAVX2, swiglu: swigluAVX2, geglu: gegluAVX2,
	scale: scaleAVX2, softCap: softCapAVX2, weigh: weighAVX2,
	squares: squaresAVX2, exps: expsAVX2, most: mostAVX2, turn: turnAVX2, turnNeoX: turnNeoXAVX2, encodeQ80: encodeQ80AVX2,
	attention: attention{
		scores: scorers{
			{scoresF32x4AVX2, scoresF32x2AVX2, scoresF32x1AVX2},
			{scoresF16x4AVX2, scoresF16x2AVX2, scoresF16x1AVX2},
		},
		accumulate: accumulators{
			{accumulateF32x4AVX2, accumulateF32x2AVX2, accumulateF32x1AVX2},
			{accumulateF16x4AVX2, accumulateF16x2AVX2, accumulateF16x1AVX2},
		},
		weights: weightsAVX2, widen: widenAVX2, widenQ80: widenQ80AVX2,
	},
}

var loopsAVX512 = Loops{
	add: addAVX512, sub: subAVX512, mul: mulAVX512, swiglu: swigluAVX512, geglu: gegluAVX512,
	scale: scaleAVX512, softCap: softCapAVX512, weigh: weighAVX512,
	squares: squaresAVX512, exps: expsAVX512, most: mostAVX512, turn: turnAVX512, turnNeoX: turnNeoXAVX512, encodeQ80: encodeQ80AVX2,
	attention: attention{
		scores: scorers{
			{scoresF32x4AVX512, scoresF32x2AVX512, scoresF32x1AVX512},
			{scoresF16x4AVX512, scoresF16x2AVX512, scoresF16x1AVX512},
		},
		accumulate: accumulators{
			{accumulateF32x4AVX512, accumulateF32x2AVX512, accumulateF32x1AVX512},
			{accumulateF16x4AVX512, accumulateF16x2AVX512, accumulateF16x1AVX512},
		},
		weights: weightsAVX512, widen: widenAVX512, widenQ80: widenQ80AVX512,
	},
}
