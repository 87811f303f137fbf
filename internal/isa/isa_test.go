package isa

import (
	"slices"
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	have := Supported()
	t.Log(have)
	if have[0] != Generic || !slices.IsSorted(have) {
		t.Fatalf("supported levels %v, want generic first, in order", have)
	}
	for l := Generic; int(l) < len(names); l++ {
		got, err := Choose(l.String())
		switch {
		case slices.Contains(have, l):
			if got != l || err != nil {
				t.Errorf("Choose(%q) = %v, %v", l, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), `instruction set "`+l.String()+`" is not supported by this processor or this build; supported here: generic`):
			t.Errorf("Choose(%q): error %v", l, err)
		}
	}
	if l, err := Choose(""); l != have[len(have)-1] || err != nil {
		t.Errorf(`Choose("") = %v, %v, want the best`, l, err)
	}
	if _, err := Choose("AVX2"); err == nil || !strings.Contains(err.Error(), `"AVX2" is unknown; supported here: generic`) {
		t.Errorf("error %v", err)
	}
}
