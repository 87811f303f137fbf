package kv_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/tests/harness/engine"
)

// open returns a cache for 2 blocks with 1 head, keys of 2 elements and values of 1 element, and
// a context with an open frame. It closes them at the end of the test.
func open(t *testing.T, tokens int) (*kv.Cache, *fucina.Context) {
	t.Helper()
	eng := engine.Open(t)
	cache, err := kv.New(eng, kv.Shape{Format: dtype.F32, Tokens: tokens, Blocks: 2, Heads: 1, KeyLength: 2, ValueLength: 1})
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
		_ = c.Close() // returns the failures that the tests provoke
	})
	return cache, c
}

// heads returns values as {seq kv_head d_head} with one head of the given length.
func heads(c *fucina.Context, length int, values ...float32) fucina.Tensor {
	return fucina.FromSlice(c, values, fucina.Ax("seq", len(values)/length), fucina.Ax("kv_head", 1), fucina.Ax("d_head", length))
}

// checkHeld checks that x has the axes {key kv_head d_head} and the elements want.
func checkHeld(t *testing.T, what string, x fucina.Tensor, want ...float32) {
	t.Helper()
	got, err := fucina.Data[float32](x.Expect("key", "kv_head", "d_head"))
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: %v, %v, want %v", what, got, err, want)
	}
}

// Append writes after the rows that were counted, and overwrites rows that were not counted.
// Each block has its own rows.
func TestAppend(t *testing.T) {
	cache, c := open(t, 3)
	k, v := cache.Block(0).Append(heads(c, 2, 1, 2, 3, 4), heads(c, 1, 5, 6))
	checkHeld(t, "keys", k, 1, 2, 3, 4)
	checkHeld(t, "values", v, 5, 6)
	if cache.Len() != 0 || cache.Cap() != 3 {
		t.Errorf("%d tokens of %d, want 0 of 3 before they are counted", cache.Len(), cache.Cap())
	}
	k, _ = cache.Block(0).Append(heads(c, 2, 7, 8), heads(c, 1, 9))
	checkHeld(t, "keys after a step that was not counted", k, 7, 8)
	cache.Block(1).Append(heads(c, 2, 10, 11), heads(c, 1, 12))
	cache.Advance(1)
	k, v = cache.Block(0).Append(heads(c, 2, 13, 14, 15, 16), heads(c, 1, 17, 18))
	checkHeld(t, "keys of block 0", k, 7, 8, 13, 14, 15, 16)
	checkHeld(t, "values of block 0", v, 9, 17, 18)
	k, v = cache.Block(1).Append(heads(c, 2, 19, 20), heads(c, 1, 21))
	checkHeld(t, "keys of block 1", k, 10, 11, 19, 20)
	checkHeld(t, "values of block 1", v, 12, 21)
	if cache.Len() != 1 || cache.Block(1).Len() != 1 {
		t.Errorf("%d and %d tokens, want 1", cache.Len(), cache.Block(1).Len())
	}
}

// Append of rows that have failed, have another shape or find no room gives failed tensors, and
// leaves the rows that were counted unchanged.
func TestAppendFails(t *testing.T) {
	boom := errors.New("boom")
	for _, tc := range []struct {
		name string
		rows func(c *fucina.Context) (k, v fucina.Tensor)
		is   error
		half string // the halves that fail: "k", "v" or "kv"
	}{
		{"no room", func(c *fucina.Context) (k, v fucina.Tensor) {
			return heads(c, 2, 1, 2, 3, 4, 5, 6), heads(c, 1, 1, 2, 3)
		}, fucina.ErrIndexOutOfBounds, "kv"},
		{"long keys", func(c *fucina.Context) (k, v fucina.Tensor) {
			return heads(c, 3, 1, 2, 3), heads(c, 1, 1)
		}, fucina.ErrShapeMismatch, "k"},
		{"failed keys", func(c *fucina.Context) (k, v fucina.Tensor) {
			return c.Fail(boom), heads(c, 1, 1)
		}, boom, "k"},
		{"failed values", func(c *fucina.Context) (k, v fucina.Tensor) {
			return heads(c, 2, 1, 2), c.Fail(boom)
		}, boom, "v"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cache, c := open(t, 3)
			cache.Block(0).Append(heads(c, 2, 7, 8), heads(c, 1, 9))
			cache.Advance(1)
			k, v := cache.Block(0).Append(tc.rows(c))
			for half, x := range map[string]fucina.Tensor{"k": k, "v": v} {
				if err := x.Err(); strings.Contains(tc.half, half) != errors.Is(err, tc.is) {
					t.Errorf("%s: error %v, want those of %s to be %v", half, err, tc.half, tc.is)
				}
			}
			k, v = cache.Block(0).Append(heads(c, 2, 10, 11), heads(c, 1, 12))
			checkHeld(t, "keys", k, 7, 8, 10, 11)
			checkHeld(t, "values", v, 9, 12)
		})
	}
}

// Rewind removes tokens, and fails for a number of tokens that the cache does not have.
func TestRewind(t *testing.T) {
	cache, _ := open(t, 3)
	cache.Advance(3)
	for _, n := range []int{4, -1} {
		if err := cache.Rewind(n); err == nil || cache.Len() != 3 {
			t.Errorf("rewind to %d of 3 tokens: %v, %d left", n, err, cache.Len())
		}
	}
	for _, n := range []int{3, 1, 0} {
		if err := cache.Rewind(n); err != nil || cache.Len() != n {
			t.Errorf("rewind to %d tokens: %v, %d left", n, err, cache.Len())
		}
	}
}

// New fails for a shape that no cache can have, and leaks nothing.
func TestNewRefuses(t *testing.T) {
	eng := engine.Open(t)
	good := kv.Shape{Format: dtype.F32, Tokens: 2, Blocks: 2, Heads: 1, KeyLength: 32, ValueLength: 32}
	for _, tc := range []struct {
		edit func(s *kv.Shape)
		says string
	}{
		{func(s *kv.Shape) { s.Format = dtype.BF16 }, "KV cache of bf16, want "},
		{func(s *kv.Shape) { s.Format = dtype.Invalid }, "KV cache of "},
		{func(s *kv.Shape) { s.Format, s.KeyLength = dtype.Q8_0, 31 }, "heads of 31 and 32 elements, want multiples of 32"},
		{func(s *kv.Shape) { s.Format, s.ValueLength = dtype.Q8_0, 33 }, "heads of 32 and 33 elements, want multiples of 32"},
		{func(s *kv.Shape) { s.ValueLength = math.MaxInt }, "KV cache: "},
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
