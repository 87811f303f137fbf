package kv_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/kv/page"
	"github.com/fucina-go/fucina/tests/harness/engine"
)

// small is a cache for 3 blocks, the second of which has a window. A page has 32 rows of 2 heads of
// 2 elements for keys, and as many rows of 2 heads of 1 element for values.
var small = kv.Shape{Format: dtype.F32, Pages: 3, Windows: []int{0, 8, 0}, Heads: 2, KeyLength: 2, ValueLength: 1}

// open returns a cache of the shape s, and a context with an open frame. It closes them at the end
// of the test.
func open(t *testing.T, s kv.Shape) (*kv.Cache, *fucina.Context) {
	t.Helper()
	eng := engine.Open(t)
	cache, err := kv.New(eng, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cache.Release)
	c, err := eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	f := c.Frame()
	t.Cleanup(func() {
		f.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return cache, c
}

// fill writes numbers to every page of the cache. Element i of block b has the number
// 10000*b + i.
func fill(t *testing.T, cache *kv.Cache, c *fucina.Context, s kv.Shape) {
	t.Helper()
	width := page.Rows * s.Heads * (s.KeyLength + s.ValueLength)
	for b := range s.Windows {
		values := make([]float32, s.Pages*width)
		for i := range values {
			values[i] = float32(10000*b + i)
		}
		pages := cache.Block(b).Pages.On(c)
		if err := pages.CopyFrom(fucina.FromSlice(c, values, fucina.Ax("page", s.Pages), fucina.Ax("c", width))).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// checkRow checks the elements of one row of a head.
func checkRow(t *testing.T, c *fucina.Context, half fucina.Tensor, number, key, head int, want ...float32) {
	t.Helper()
	one := half.On(c).Narrow("page", number, 1).Narrow("key", key, 1).Narrow("kv_head", head, 1)
	if got, err := fucina.Data[float32](one); err != nil || !slices.Equal(got, want) {
		t.Errorf("page %d, key %d, head %d: %v, %v, want %v", number, key, head, got, err, want)
	}
}

// A page has its rows of keys, then its rows of values, and the views see them there.
func TestViews(t *testing.T) {
	cache, c := open(t, small)
	fill(t, cache, c, small)
	const width, values = 32 * 2 * 3, 32 * 2 * 2 // elements of a page, and of its keys
	for b := range small.Windows {
		base := float32(10000 * b)
		block := cache.Block(b)
		checkRow(t, c, block.Keys, 0, 0, 0, base, base+1)
		checkRow(t, c, block.Keys, 0, 0, 1, base+2, base+3)
		checkRow(t, c, block.Keys, 2, 31, 1, base+2*width+values-2, base+2*width+values-1)
		checkRow(t, c, block.Values, 0, 0, 0, base+values)
		checkRow(t, c, block.Values, 1, 3, 1, base+width+values+7)
		checkRow(t, c, block.Values, 2, 31, 1, base+3*width-1)
	}
	if err := cache.Check(c); err != nil {
		t.Error(err)
	}
}

// The blocks with one window are a group, and the first group has no window, even if no block is in
// it.
func TestGroups(t *testing.T) {
	for _, tc := range []struct {
		windows, groups, of []int
	}{
		{[]int{0, 0}, []int{0}, []int{0, 0}},
		{[]int{0, 8, 0}, []int{0, 8}, []int{0, 1, 0}},
		{[]int{8, 8, 0}, []int{0, 8}, []int{1, 1, 0}},
		{[]int{8, 16}, []int{0, 8, 16}, []int{1, 2}},
	} {
		s := small
		s.Windows = tc.windows
		cache, _ := open(t, s)
		if got := cache.Groups(); !slices.Equal(got, tc.groups) {
			t.Errorf("windows %v: groups %v, want %v", tc.windows, got, tc.groups)
		}
		for i, want := range tc.of {
			if got := cache.Block(i).Group; got != want {
				t.Errorf("windows %v: block %d is in group %d, want %d", tc.windows, i, got, want)
			}
		}
	}
}

// CopyPage copies a page of the blocks of one group, and changes no other page.
func TestCopyPage(t *testing.T) {
	cache, c := open(t, small)
	fill(t, cache, c, small)
	if err := cache.CopyPage(c, 0, 2, 1); err != nil {
		t.Fatal(err)
	}
	const width = 32 * 2 * 3
	for b := range small.Windows {
		base := float32(10000 * b)
		from := float32(2)
		if cache.Block(b).Group != 0 {
			from = 1
		}
		checkRow(t, c, cache.Block(b).Keys, 1, 0, 0, base+from*width, base+from*width+1)
		checkRow(t, c, cache.Block(b).Values, 1, 31, 1, base+(from+1)*width-1)
		checkRow(t, c, cache.Block(b).Keys, 0, 0, 0, base, base+1)
		checkRow(t, c, cache.Block(b).Keys, 2, 0, 0, base+2*width, base+2*width+1)
	}
	if err := cache.CopyPage(c, 0, 3, 1); err == nil {
		t.Error("a page that does not exist was copied")
	}
	_ = c.Err() // the failure of that copy
}

// Discard leaves the other pages and the blocks of other groups unchanged.
func TestDiscard(t *testing.T) {
	cache, c := open(t, small)
	fill(t, cache, c, small)
	if err := cache.Discard(0, 1, 1); err != nil {
		t.Fatal(err)
	}
	const width = 32 * 2 * 3
	checkRow(t, c, cache.Block(0).Values, 0, 31, 1, width-1)
	checkRow(t, c, cache.Block(0).Keys, 2, 0, 0, 2*width, 2*width+1)
	checkRow(t, c, cache.Block(1).Keys, 1, 0, 0, 10000+width, 10000+width+1)
	// 22 pages are the least number with 16 KiB.
	if n := cache.LeastRun(); n != 22 {
		t.Errorf("a run of %d pages of %d bytes is worth a call, want 22", n, 4*width)
	}
}

// RowBytes counts the keys and the values of all heads in all blocks.
func TestRowBytes(t *testing.T) {
	for _, tc := range []struct {
		format dtype.DType
		want   int64
	}{{dtype.F32, 3 * 2 * 96 * 4}, {dtype.F16, 3 * 2 * 96 * 2}, {dtype.Q8_0, 3 * 2 * 3 * 34}} {
		s := kv.Shape{Format: tc.format, Windows: []int{0, 8, 0}, Heads: 2, KeyLength: 64, ValueLength: 32}
		if got := s.RowBytes(); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.format, got, tc.want)
		}
	}
}

// New fails for a shape that no cache can have, and leaks nothing.
func TestNewRefuses(t *testing.T) {
	eng := engine.Open(t)
	good := kv.Shape{Format: dtype.F32, Pages: 1, Windows: []int{0, 0}, Heads: 1, KeyLength: 32, ValueLength: 32}
	for _, tc := range []struct {
		edit func(s *kv.Shape)
		says string
	}{
		{func(s *kv.Shape) { s.Format = dtype.BF16 }, "KV cache of bf16, want "},
		{func(s *kv.Shape) { s.Format = dtype.Invalid }, "KV cache of "},
		{func(s *kv.Shape) { s.Format, s.KeyLength = dtype.Q8_0, 31 }, "heads of 31 and 32 elements, want multiples of 32"},
		{func(s *kv.Shape) { s.Format, s.ValueLength = dtype.Q8_0, 33 }, "heads of 32 and 33 elements, want multiples of 32"},
		{func(s *kv.Shape) { s.Pages = math.MaxInt }, "KV cache: "},
	} {
		s := good
		tc.edit(&s)
		cache, err := kv.New(eng, s)
		if err == nil {
			cache.Release()
		}
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: error %v, want one that says %q", s, err, tc.says)
		}
		if n := eng.Stats().Handles; n != 0 {
			t.Errorf("%+v: %d tensors left", s, n)
		}
	}
}
