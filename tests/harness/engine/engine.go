// Package engine opens engines for tests of models, where FUCINA_TEST_PROVIDER says. It is
// apart from harness, which tests below the module root use too.
package engine

import (
	"cmp"
	"os"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
)

// Provider is where the tests of models compute: FUCINA_TEST_PROVIDER, or the CPU.
func Provider() string { return cmp.Or(os.Getenv("FUCINA_TEST_PROVIDER"), "cpu") }

// Open returns an engine on Provider. When the test ends it is closed and must have
// nothing left.
func Open(t testing.TB, opts ...fucina.Option) *fucina.Engine {
	t.Helper()
	before := leak.Now()
	eng, err := fucina.Open(append([]fucina.Option{fucina.WithProvider(Provider()), fucina.WithThreads(2)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := eng.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		s := eng.Stats()
		if s.Handles != 0 || s.Pool.Outstanding != 0 || s.Pool.Cached != 0 {
			t.Errorf("after close: %d handles, pool %+v", s.Handles, s.Pool)
		}
		if err := harness.LeftOn(s.Device); err != nil {
			t.Error("after close:", err)
		}
		if err := before.Left(); err != nil {
			t.Error("after close:", err)
		}
	})
	return eng
}
