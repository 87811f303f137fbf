//go:build invariants

package fucina_test

import "testing"

// Guards problem 11: elements that a program still reads after their tensor was
// released. Under the tag invariants it reads poison, not the values that were there.
func TestReleasedElementsArePoisoned(t *testing.T) {
	c, end := open(t)
	x := numbered(t, c, "d:3")
	kept := values[float32](t, x)
	view := check{t}.of(x.Rename(c, "d", "e"))
	drop(t, x)
	if kept[0] != 1 {
		t.Error("the view's elements were poisoned")
	}
	drop(t, view)
	for i, v := range kept {
		if v == float32(i+1) || v > -1e16 {
			t.Errorf("element %d of released memory is %v", i, v)
		}
	}
	end()
}
