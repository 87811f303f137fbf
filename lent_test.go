//go:build invariants && !race

package fucina_test

import (
	"runtime/debug"
	"testing"

	"github.com/fucina-go/fucina"
)

// With the build tag invariants, a use of lent elements after the call faults. Without the
// tag, a write would be lost or would change a later tensor of that size.
func TestLateUseFaults(t *testing.T) {
	faults := func(f func()) (fault bool) {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			_, fault = recover().(interface{ Addr() uintptr })
		}()
		f()
		return false
	}
	on(t, func(t *testing.T, c *fucina.Context) {
		x := numbered(c, "k:3")
		y := x.Add(x)
		for name, lend := range map[string]func(fucina.Tensor, func([]float32) error) error{
			"read": fucina.Read[float32], "update": fucina.Update[float32],
		} {
			for _, z := range []fucina.Tensor{x, y} {
				var kept []float32
				var got float32
				if err := lend(z, func(v []float32) error { kept = v; return nil }); err != nil {
					t.Fatal(err)
				}
				if !faults(func() { got = kept[1] }) {
					t.Errorf("%s: a late read went unnoticed, and gave %v", name, got)
				}
				if !faults(func() { kept[2] = 5 }) {
					t.Errorf("%s: a late write went unnoticed", name)
				}
			}
		}
		want(t, x, "{k:3}", []float32{1, 2, 3})
		want(t, y, "{k:3}", []float32{2, 4, 6})
	})
}
