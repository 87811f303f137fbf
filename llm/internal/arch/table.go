package arch

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/fucina-go/fucina"
)

// table holds families by the value of general.architecture of their files. It is safe for
// concurrent use.
type table struct {
	mu       sync.RWMutex
	families map[string]Family
}

// known is the table that Read uses. The entries below follow llama.cpp's loader, because
// files are made for it.
var known = table{families: map[string]Family{
	"llama": {
		RoPE: fucina.RoPEInterleaved, Factors: FixedFactors, Output: Optional,
		QKVBias: Optional, AttnBias: Optional, FFNBias: Optional,
	},
	"qwen2": {RoPE: fucina.RoPENeoX, Output: Optional, QKVBias: Required, OutputBias: Optional},
	"qwen3": {RoPE: fucina.RoPENeoX, Output: Optional, QKVBias: Optional, QKNorm: true},
	"phi3":  {RoPE: fucina.RoPENeoX, Factors: LongFactors, Output: Optional, QKVBias: Optional, FusedGate: true},
	// The norms of the gemma families multiply by 1 + w. The converter adds the 1, so the
	// weights in a file are those of an ordinary norm.
	"gemma2": {
		RoPE: fucina.RoPENeoX, PostNorms: true, GeGLU: true,
		ScaleEmbedding: true, WideLayers: 46, // 27B
		Windows:          Windows{Pattern: 2, Length: 4096},
		AttentionSoftCap: SoftCap{Read: true, Default: 50},
		FinalSoftCap:     SoftCap{Read: true, Default: 30},
	},
	"gemma3": {
		RoPE: fucina.RoPENeoX, Output: Optional, QKNorm: true, PostNorms: true, GeGLU: true,
		ScaleEmbedding: true, WideLayers: 62, // 27B
		Windows:      Windows{Pattern: 6, FreqBase: 10000},
		FinalSoftCap: SoftCap{Read: true},
	},
}}

// Register adds f to the families that Read supports, for files whose general.architecture is
// name. It may be called at any time, from any goroutine. It fails with ErrInvalidFamily if
// name is empty or already registered, or if f does not describe a network.
func Register(name string, f Family) error { return known.add(name, f) }

// Architectures returns the values of general.architecture that Read supports, sorted.
func Architectures() []string { return known.names() }

func (t *table) names() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.families))
}

func (t *table) lookup(name string) (Family, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	f, ok := t.families[name]
	return f, ok
}

func (t *table) add(name string, f Family) error {
	if name == "" {
		return fmt.Errorf("%w: no name", ErrInvalidFamily)
	}
	if err := f.check(); err != nil {
		return fmt.Errorf("%w %.80q: %w", ErrInvalidFamily, name, err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.families[name]; ok {
		return fmt.Errorf("%w %.80q: the name is already registered", ErrInvalidFamily, name)
	}
	t.families[name] = f
	return nil
}
