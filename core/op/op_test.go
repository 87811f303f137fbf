package op

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
)

// Report keeps the report with the lowest index, in any order of reports.
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

// Concurrent reports leave the lowest index together with its value.
func TestConcurrentReports(t *testing.T) {
	for range 50 {
		var status atomic.Uint64
		var wg sync.WaitGroup
		for lane := range 4 {
			wg.Go(func() {
				for i := 99; i >= 0; i-- {
					index := 4*i + lane + 3
					Report(&status, index, int64(-index))
				}
			})
		}
		wg.Wait()
		if index, value := Reported(status.Load()); index != 3 || value != -3 {
			t.Fatalf("the reports leave {%d %d}, want {3 -3}", index, value)
		}
	}
}

// Mem.Slice returns a part of the memory, on the host or on a device, that ends inside it.
func TestMemSlice(t *testing.T) {
	if !(Mem{}).IsZero() || (Mem{Host: []byte{}}).IsZero() || (Mem{ID: 1}).IsZero() {
		t.Error("only memory with neither a host nor a device is zero")
	}
	host := make([]byte, 10)
	device := Mem{ID: 7, Off: 100, Len: 10}
	for _, tt := range []struct{ off, n int }{{0, 10}, {3, 4}, {10, 0}} {
		h := Mem{Host: host, Len: 10}.Slice(tt.off, tt.n)
		if len(h.Host) != tt.n || cap(h.Host) != tt.n || h.Len != tt.n || h.Off != tt.off || tt.n > 0 && &h.Host[0] != &host[tt.off] {
			t.Errorf("host [%d, +%d) is %d bytes of %d at %d", tt.off, tt.n, len(h.Host), cap(h.Host), h.Off)
		}
		if d := device.Slice(tt.off, tt.n); d.ID != 7 || d.Off != 100+tt.off || d.Len != tt.n || d.Host != nil {
			t.Errorf("device [%d, +%d) is %+v", tt.off, tt.n, d)
		}
	}
	for _, tt := range []struct{ off, n int }{{-1, 1}, {0, -1}, {0, 11}, {10, 1}, {11, 0}, {math.MaxInt, 1}, {1, math.MaxInt}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("[%d, +%d) of 10 bytes", tt.off, tt.n)
				}
			}()
			device.Slice(tt.off, tt.n)
		}()
	}
}
