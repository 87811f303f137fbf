package reference

import (
	"math"
	"testing"
)

// Compare finds what differs, within the tolerance and without one.
func TestCompare(t *testing.T) {
	nan, inf, minus := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	for _, tt := range []struct {
		got, want    []float64
		exact, loose bool // whether they count as equal without a tolerance, and with 1e-4
	}{
		{nil, nil, true, true},
		{[]float64{1}, []float64{1, 2}, false, false},
		{[]float64{1, 2}, []float64{1, 2}, true, true},
		{[]float64{1, 2.01}, []float64{1, 2}, false, true},
		{[]float64{1, 2.03}, []float64{1, 2}, false, false},
		{[]float64{minus}, []float64{0}, false, true},
		{[]float64{minus}, []float64{minus}, true, true},
		{[]float64{nan, inf}, []float64{-nan, inf}, true, true},
		{[]float64{nan, 1}, []float64{inf, 1}, false, false},
		{[]float64{-inf, 1}, []float64{inf, 1}, false, false},
		{[]float64{1, 1e9}, []float64{nan, 1e9}, false, false},
		{[]float64{nan, 1e9}, []float64{1, 1e9}, false, false},
		// An infinity does not widen the tolerance of the other elements.
		{[]float64{inf, 1.02}, []float64{inf, 1}, false, false},
	} {
		if err := Compare(tt.got, tt.want, 0); (err == nil) != tt.exact {
			t.Errorf("%v and %v without a tolerance: %v", tt.got, tt.want, err)
		}
		if err := Compare(tt.got, tt.want, 1e-4); (err == nil) != tt.loose {
			t.Errorf("%v and %v with 1e-4: %v", tt.got, tt.want, err)
		}
	}
}
