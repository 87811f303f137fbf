//go:build invariants

package exec

import (
	"context"
	"testing"

	"github.com/fucina-go/fucina/core/storage"
)

// Pooled memory is poisoned at the last release, so that a later read does not see the old
// values.
func TestReclaimPoisons(t *testing.T) {
	p := newPool(poolCap)
	b := acquire(t, p, 64)
	kept, err := b.Host(context.Background(), storage.Overwrite)
	if err != nil {
		t.Fatal(err)
	}
	clear(kept)
	b.Retain()
	b.Release()
	if kept[0] != 0 {
		t.Error("memory with a reference left was poisoned")
	}
	b.Release()
	for i, v := range kept {
		if v == 0 {
			t.Fatalf("byte %d of reclaimed memory is %d", i, v)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
