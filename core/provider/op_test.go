package provider

import (
	"math"
	"sync/atomic"
	"testing"
)

// The report with the lowest index stays, whatever came first.
func TestReport(t *testing.T) {
	type report struct {
		index int
		value int64
	}
	for _, tt := range []struct {
		reports []report
		want    report
	}{
		{[]report{{0, -1}}, report{0, -1}},
		{[]report{{7, 5}, {3, 9}, {5, -2}}, report{3, 9}},
		{[]report{{3, 9}, {7, 5}}, report{3, 9}},
		{[]report{{math.MaxInt32, 0}}, report{math.MaxInt32, 0}},
		{[]report{{1, math.MaxInt64}}, report{1, math.MaxInt32}},
		{[]report{{1, math.MinInt64}}, report{1, math.MinInt32}},
	} {
		var status atomic.Uint64
		for _, r := range tt.reports {
			Report(&status, r.index, r.value)
		}
		if status.Load() == 0 {
			t.Errorf("%v leave no report", tt.reports)
		}
		if index, value := Reported(status.Load()); (report{index, value}) != tt.want {
			t.Errorf("%v leave {%d %d}, want %v", tt.reports, index, value, tt.want)
		}
	}
}
