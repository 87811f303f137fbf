package quant

import "github.com/fucina-go/fucina/core/dtype"

// Grid8 returns the grid of an IQ format whose entries have 8 elements, the first in the lowest
// byte, or nil. The elements of IQ1_S and IQ1_M have a sign. The caller does not change the grid.
func Grid8(d dtype.DType) []uint64 {
	switch d {
	case dtype.IQ1_S, dtype.IQ1_M:
		return iq1sGrid[:]
	case dtype.IQ2_XXS:
		return iq2xxsGrid[:]
	case dtype.IQ2_XS:
		return iq2xsGrid[:]
	case dtype.IQ2_S:
		return iq2sGrid[:]
	}
	return nil
}

// Grid4 is Grid8 for the formats whose entries have 4 elements.
func Grid4(d dtype.DType) []uint32 {
	switch d {
	case dtype.IQ3_XXS:
		return iq3xxsGrid[:]
	case dtype.IQ3_S:
		return iq3sGrid[:]
	}
	return nil
}
