//go:build amd64 && !noasm

package dense

import (
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/internal/isa"
)

// vectorise sets the functions of the level.
func (k *Kernel) vectorise(level isa.Level) {
	switch {
	case level >= isa.AVX512:
		k.rows, k.conv = rows512[k.d], converters512[k.d]
		k.tiles = tiles{8, 3, 12, [3]tile{tile512x1, tile512x2, tile512x3}, single512[k.d]}
	case level >= isa.AVX2:
		k.rows, k.conv = rows2[k.d], converters2[k.d]
		k.tiles = tiles{3, 2, 6, [3]tile{tile2x1, tile2x2}, single2[k.d]}
	}
}

var (
	rows512 = [dtype.Count]rows{dtype.F32: rows512F32, dtype.F16: rows512F16, dtype.BF16: rows512BF16}
	rows2   = [dtype.Count]rows{dtype.F32: rows2F32, dtype.F16: rows2F16, dtype.BF16: rows2BF16}

	single512 = [dtype.Count][3]single{
		dtype.F16:  {single512x1F16, single512x2F16, single512x3F16},
		dtype.BF16: {single512x1BF16, single512x2BF16, single512x3BF16},
	}
	single2 = [dtype.Count][3]single{
		dtype.F16:  {single2x1F16, single2x2F16},
		dtype.BF16: {single2x1BF16, single2x2BF16},
	}

	converters512 = [dtype.Count]converter{
		dtype.F16: {widen512F16, narrow512F16}, dtype.BF16: {widen512BF16, narrow512BF16},
	}
	converters2 = [dtype.Count]converter{dtype.F16: {widen2F16, narrow2F16}, dtype.BF16: {widen2BF16, narrow2BF16}}
)
