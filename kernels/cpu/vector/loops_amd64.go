//go:build amd64 && !noasm

package vector

import "github.com/fucina-go/fucina/internal/isa"

func loopsOf(level isa.Level) *Loops {
	switch {
	case level >= isa.AVX512:
		return &loops512
	case level >= isa.AVX2:
		return &loopsAVX2
	}
	return &definition
}

var loopsAVX2 = Loops{
	add: addAVX2, sub: subAVX2, mul: mulAVX2, swiglu: swigluAVX2, geglu: gegluAVX2,
	scale: scaleAVX2, softCap: softCapAVX2, weigh: weighAVX2,
	squares: squaresAVX2, exps: expsAVX2, most: mostAVX2,
}

var loops512 = Loops{
	add: add512, sub: sub512, mul: mul512, swiglu: swiglu512, geglu: geglu512,
	scale: scale512, softCap: softCap512, weigh: weigh512,
	squares: squares512, exps: exps512, most: most512,
}
