package llm

import (
	"fmt"
	"math"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/internal/arch"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/llm/internal/net"
)

// DefaultCacheBytes returns the most memory that a cache with the default of Options.CacheTokens
// takes, on a provider with the given bytes of memory (provider.Info.TotalBytes). It is 0 if
// memory is 0, which means that the size is not known. A 32-bit process can address only a part
// of a large memory, and counts only that.
func DefaultCacheBytes(memory int64) int64 { return min(memory, math.MaxInt) / 4 }

// DefaultCacheTokens returns the default of Options.CacheTokens for the model in f, which Open
// would open with opt, if a session stores keys and values in format. The provider has the given
// bytes of memory, or 0 if that is not known. Errors are those of Open and NewSession.
func DefaultCacheTokens(f *gguf.File, opt Options, format dtype.DType, memory int64) (int, error) {
	p, _, err := arch.Read(f)
	if err != nil {
		return 0, fmt.Errorf("llm: %w", err)
	}
	length, err := longest(&p, opt.Context)
	if err != nil {
		return 0, fmt.Errorf("llm: %w", err)
	}
	shape := net.CacheShape(&p, format)
	if err := shape.Check(); err != nil {
		return 0, fmt.Errorf("llm: %w", err)
	}
	return defaultCacheTokens(length, memory, shape.RowBytes()), nil
}

// defaultCacheTokens returns the default of Options.CacheTokens for a model whose sessions have
// at most the given length, on a provider with the given bytes of memory, if one token needs
// rowBytes. It is a number that Options.CacheTokens can be.
func defaultCacheTokens(length int, memory, rowBytes int64) int {
	n := min(4*int64(length), arch.MaxLength)
	if memory > 0 {
		n = min(n, DefaultCacheBytes(memory)/rowBytes)
	}
	return int(max(n, page.Rows))
}
