package arch

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
)

// The known families pass the checks of registered families.
func TestKnownFamilies(t *testing.T) {
	var own table
	own.families = map[string]Family{}
	for _, name := range Architectures() {
		f, ok := known.lookup(name)
		if !ok {
			t.Fatalf("%s is listed, but not there", name)
		}
		if err := own.add(name, f); err != nil {
			t.Error(err)
		}
	}
}

// If a family is invalid, the error names the wrong field, and the table does not change.
func TestAddRefuses(t *testing.T) {
	good := Family{
		Output: Optional, QKVBias: Required, Factors: LongFactors, WideLayers: 10,
		Windows:          Windows{Pattern: 2, Length: 3, FreqBase: 4},
		AttentionSoftCap: SoftCap{Read: true, Default: 5}, FinalSoftCap: SoftCap{Read: true},
	}
	own := table{families: map[string]Family{"taken": {}}}
	for _, tc := range []struct {
		name string
		edit func(*Family)
		says string
	}{
		{"", func(*Family) {}, "no name"},
		{"taken", func(*Family) {}, `"taken": the name is already registered`},
		{"x", func(f *Family) { f.RoPE = fucina.RoPENeoX + 1 }, "RoPE is 2"},
		{"x", func(f *Family) { f.Factors = LongFactors + 1 }, "Factors is 3"},
		{"x", func(f *Family) { f.Output = Required + 1 }, "Output is 3"},
		{"x", func(f *Family) { f.QKVBias = Required + 1 }, "QKVBias is 3"},
		{"x", func(f *Family) { f.AttnBias = Required + 1 }, "AttnBias is 3"},
		{"x", func(f *Family) { f.FFNBias = Required + 1 }, "FFNBias is 3"},
		{"x", func(f *Family) { f.OutputBias = Required + 1 }, "OutputBias is 3"},
		{"x", func(f *Family) { f.WideLayers = -1 }, "WideLayers is -1"},
		{"x", func(f *Family) { f.WideLayers = math.MaxInt }, "WideLayers is"},
		{"x", func(f *Family) { f.Windows.Pattern = -1 }, "Windows.Pattern is -1"},
		{"x", func(f *Family) { f.Windows.Pattern = math.MaxInt }, "Windows.Pattern is"},
		{"x", func(f *Family) { f.Windows.Length = -1 }, "Windows.Length is -1"},
		{"x", func(f *Family) { f.Windows.Length = math.MaxInt }, "Windows.Length is"},
		{"x", func(f *Family) { f.Windows.FreqBase = math.NaN() }, "Windows.FreqBase is NaN"},
		{"x", func(f *Family) { f.Windows.FreqBase = -1 }, "Windows.FreqBase is -1"},
		{"x", func(f *Family) { f.Windows = Windows{Length: 3} }, "Windows.Length is 3"},
		{"x", func(f *Family) { f.Windows = Windows{FreqBase: 3} }, "Windows.FreqBase is 3"},
		{"x", func(f *Family) { f.AttentionSoftCap.Default = -1 }, "AttentionSoftCap.Default is -1"},
		{"x", func(f *Family) { f.AttentionSoftCap.Read = false }, "AttentionSoftCap.Default is 5"},
		{"x", func(f *Family) { f.FinalSoftCap.Default = math.Inf(1) }, "FinalSoftCap.Default is +Inf"},
		{"x", func(f *Family) { f.FinalSoftCap.Default = 1e-60 }, "FinalSoftCap.Default is 1e-60"},
	} {
		f := good
		tc.edit(&f)
		if err := own.add(tc.name, f); !errors.Is(err, ErrInvalidFamily) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: error %v, want ErrInvalidFamily that says %q", tc.name, err, tc.says)
		}
	}
	if names := own.names(); !slices.Equal(names, []string{"taken"}) {
		t.Errorf("families %v", names)
	}
	if err := own.add("x", good); err != nil {
		t.Error(err)
	}
	if f, ok := own.lookup("x"); !ok || f != good {
		t.Errorf("family %+v, %v", f, ok)
	}
}

// Goroutines add families while others read the table. Of two families with one name, one is
// accepted.
func TestAddConcurrently(t *testing.T) {
	own := table{families: map[string]Family{}}
	const n = 20
	var wg sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for range 4 {
		wg.Go(func() {
			for i := range n {
				name := fmt.Sprint("family ", i)
				err := own.add(name, Family{WideLayers: i})
				if err == nil {
					mu.Lock()
					taken++
					mu.Unlock()
				} else if !errors.Is(err, ErrInvalidFamily) {
					t.Error(err)
				}
				if f, ok := own.lookup(name); !ok || f.WideLayers != i {
					t.Errorf("%s: %+v, %v", name, f, ok)
				}
				if !slices.IsSorted(own.names()) {
					t.Error("names are not sorted")
				}
			}
		})
	}
	wg.Wait()
	if names := own.names(); taken != n || len(names) != n {
		t.Errorf("%d taken, %d there, want %d", taken, len(names), n)
	}
}
