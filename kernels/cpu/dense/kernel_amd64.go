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
		k.tiles = tiles{w: 8, most: 3, x: [3]tile{tile512x1, tile512x2, tile512x3}}
	case level >= isa.AVX2:
		k.rows, k.conv = rows2[k.d], converters2[k.d]
		k.tiles = tiles{w: 3, most: 2, x: [3]tile{tile2x1, tile2x2}}
	}
}

var (
	rows512 = [dtype.Count]rows{dtype.F32: rows512F32, dtype.F16: rows512F16, dtype.BF16: rows512BF16}
	rows2   = [dtype.Count]rows{dtype.F32: rows2F32, dtype.F16: rows2F16, dtype.BF16: rows2BF16}

	converters512 = [dtype.Count]converter{
		dtype.F16: {widen512F16, narrow512F16}, dtype.BF16: {widen512BF16, narrow512BF16},
	}
	converters2 = [dtype.Count]converter{dtype.F16: {widen2F16, narrow2F16}, dtype.BF16: {widen2BF16, narrow2BF16}}
)
