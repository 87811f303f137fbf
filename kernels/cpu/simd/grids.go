//go:build (amd64 || arm64) && !noasm

package simd

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/quant"
)

//lint:file-ignore U1000 only the assembly reads the variables

// The assembly reads the addresses of the grids here.
var (
	gridIQ1    = &quant.Grid8(dtype.IQ1_S)[0]
	gridIQ2XXS = &quant.Grid8(dtype.IQ2_XXS)[0]
	gridIQ2XS  = &quant.Grid8(dtype.IQ2_XS)[0]
	gridIQ2S   = &quant.Grid8(dtype.IQ2_S)[0]
	gridIQ3XXS = &quant.Grid4(dtype.IQ3_XXS)[0]
	gridIQ3S   = &quant.Grid4(dtype.IQ3_S)[0]
)
