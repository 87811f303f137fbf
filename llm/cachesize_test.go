package llm_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/ggufbuild"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// By default, a cache has room for four sessions of the greatest length, but takes at most a
// quarter of the memory, and has at least a page.
func TestDefaultCacheTokens(t *testing.T) {
	f, err := gguf.Parse(tinyllama.New(tinyllama.Options{Context: 256}).Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const row = 2 * 2 * (16 + 16) // the elements of a token: layers, heads, key and value
	for _, c := range []struct {
		opt    llm.Options
		format dtype.DType
		memory int64
		want   int
	}{
		{llm.Options{}, dtype.F16, 0, 1024},
		{llm.Options{}, dtype.F16, 1 << 40, 1024},
		{llm.Options{Context: 1000}, dtype.F16, 1 << 40, 4000},
		{llm.Options{Context: 1 << 30}, dtype.F16, 0, 1 << 30}, // places of rows are 32-bit ints
		{llm.Options{}, dtype.F16, 4 * 2 * row * 1000, 1000},
		{llm.Options{}, dtype.F16, 4*2*row*1000 - 1, 999},
		{llm.Options{}, dtype.F32, 4 * 2 * row * 1000, 500},
		{llm.Options{}, dtype.F16, 1000, 32},
		{llm.Options{Context: 1 << 30}, dtype.F16, 0, 1 << 30}, // what Options.CacheTokens can be
	} {
		got, err := llm.DefaultCacheTokens(f, c.opt, c.format, c.memory)
		if err != nil || got != c.want {
			t.Errorf("%+v, %s in %d bytes: %d tokens and error %v, want %d", c.opt, c.format, c.memory, got, err, c.want)
		}
	}
	if _, err := llm.DefaultCacheTokens(f, llm.Options{Context: -1}, dtype.F16, 0); err == nil || !strings.Contains(err.Error(), "context of -1 tokens") {
		t.Errorf("negative context: %v", err)
	}
	if _, err := llm.DefaultCacheTokens(f, llm.Options{}, dtype.Q8_0, 0); err == nil || !strings.Contains(err.Error(), "multiples of 32") {
		t.Errorf("heads of 16 in q8_0: %v", err)
	}
	var empty ggufbuild.Builder
	bad, err := gguf.Parse(empty.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := llm.DefaultCacheTokens(bad, llm.Options{}, dtype.F16, 0); !errors.Is(err, llm.ErrInvalidModel) {
		t.Errorf("a file without a model: %v, want %v", err, llm.ErrInvalidModel)
	}
}

// A model has the cache that DefaultCacheTokens says.
func TestDefaultCache(t *testing.T) {
	m := openModel(t, openExact(t), writeModel(t, tinyllama.New(tinyllama.Options{})), llm.Options{Context: 64})
	for i := range int32(4) { // they have no page in common
		decode(t, openSession(t, m, llm.SessionOptions{}), append([]int32{260 + i}, mixed(63)...)...)
	}
	s := openSession(t, m, llm.SessionOptions{})
	if err := s.Decode(context.Background(), []int32{300}, nil); !errors.Is(err, llm.ErrCacheFull) {
		t.Errorf("a fifth session decodes: %v, want %v", err, llm.ErrCacheFull)
	}
}
