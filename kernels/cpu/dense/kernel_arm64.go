//go:build arm64 && !noasm

package dense

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// vectorise sets the functions of the level.
func (k *Kernel) vectorise(level isa.Level) {
	if level < isa.NEON {
		return
	}
	k.rows, k.conv, k.whole = rowsNEON[k.d], convertersNEON[k.d], true
	k.tiles = tiles{w: 3, most: 2, x: [3]tile{tileNEONx1, tileNEONx2}}
}

var (
	rowsNEON       = [dtype.Count]rows{dtype.F32: rowsNEONF32, dtype.F16: rowsNEONF16, dtype.BF16: rowsNEONBF16}
	convertersNEON = [dtype.Count]converter{dtype.F16: {widen: widenNEONF16}, dtype.BF16: {widen: widenNEONBF16}}
)
