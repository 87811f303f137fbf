package op

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
)

// Report keeps the report with the lowest place, and of these the one with the lowest index, in
// any order of reports.
func TestReport(t *testing.T) {
	type report struct {
		place Place
		index int
		value int64
	}
	const last = 1<<29 - 1 // the largest index of a report
	for _, tt := range []struct {
		reports []report
		want    report
	}{
		{[]report{{1, 0, -1}}, report{1, 0, -1}},
		{[]report{{1, 7, 5}, {1, 3, 9}, {1, 5, -2}}, report{1, 3, 9}},
		{[]report{{1, 3, 9}, {1, 7, 5}}, report{1, 3, 9}},
		{[]report{{5, 0, 1}, {3, 9, -4}, {4, 2, 7}}, report{3, 9, -4}},
		{[]report{{3, 9, -4}, {5, 0, 1}}, report{3, 9, -4}},
		{[]report{{0, last, 0}, {1, 0, 0}}, report{0, last, 0}},
		{[]report{{4, last, 0}}, report{4, last, 0}},
		{[]report{{4, last + 1, 0}}, report{4, last, 0}},
		{[]report{{4, math.MaxInt, 6}, {5, 0, 0}}, report{4, last, 6}},
		{[]report{{4, math.MaxInt, 6}, {4, last - 1, 2}}, report{4, last - 1, 2}},
		{[]report{{MaxIn - 1, 1, math.MaxInt64}}, report{MaxIn - 1, 1, math.MaxInt32}},
		{[]report{{1, 1, math.MinInt64}}, report{1, 1, math.MinInt32}},
	} {
		var status atomic.Uint64
		for _, r := range tt.reports {
			Report(&status, r.place, r.index, r.value)
		}
		if status.Load() == 0 {
			t.Errorf("%v leave no report", tt.reports)
		}
		if p, index, value := Reported(status.Load()); (report{p, index, value}) != tt.want {
			t.Errorf("%v leave {%d %d %d}, want %v", tt.reports, p, index, value, tt.want)
		}
	}
}

// Concurrent reports leave the lowest place and index together with its value.
func TestConcurrentReports(t *testing.T) {
	for range 50 {
		var status atomic.Uint64
		var wg sync.WaitGroup
		for lane := range 4 {
			wg.Go(func() {
				for i := 99; i >= 0; i-- {
					index := 4*i + lane + 3
					Report(&status, Place(6-i%4), index, int64(-index))
				}
			})
		}
		wg.Wait()
		// The place is 3 where i is 3, 7, 11 and so on.
		if p, index, value := Reported(status.Load()); p != 3 || index != 15 || value != -15 {
			t.Fatalf("the reports leave {%d %d %d}, want {3 15 -15}", p, index, value)
		}
	}
}

// An operand is present if it is not the zero Operand and not beyond the last input. At finds
// inputs and outputs.
func TestPlaces(t *testing.T) {
	a := Args{NIn: 3, NOut: 2}
	a.In[0], a.In[2], a.In[3] = of(dtype.F32, 1), of(dtype.F16, 1), of(dtype.I32, 1)
	a.Out[1] = of(dtype.F64, 1)
	for p, want := range []bool{true, false, true, false, false, false, false, false, false, false} {
		if got := a.Has(Place(p)); got != want {
			t.Errorf("Has(%d) is %t", p, got)
		}
	}
	for p, want := range map[Place]dtype.DType{0: dtype.F32, 1: dtype.Invalid, 2: dtype.F16, FirstOut: dtype.Invalid, FirstOut + 1: dtype.F64} {
		if got := a.At(p); got.DType != want || got.IsZero() != (want == dtype.Invalid) {
			t.Errorf("At(%d) is of %v, and zero %t", p, got.DType, got.IsZero())
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
