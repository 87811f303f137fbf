package llm_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/quant"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// blocksOf returns the blocks of n tokens of a q8_0 cache, and what they decode to.
func blocksOf(t *testing.T, cache fucina.Tensor, n int) ([]byte, []float32) {
	t.Helper()
	if d := cache.DType(); d != dtype.Q8_0 {
		t.Fatalf("the cache is %s, want q8_0", d)
	}
	tokens := cache.Axes()[0].Size
	blocks := make([]dtype.BlockQ8_0, cache.Len()/32)
	if err := fucina.CopyOut(cache, blocks); err != nil {
		t.Fatal(err)
	}
	blocks = blocks[:len(blocks)/tokens*n]
	coded := unsafe.Slice((*byte)(unsafe.Pointer(&blocks[0])), len(blocks)*int(unsafe.Sizeof(blocks[0])))
	values := make([]float32, len(blocks)*32)
	if err := quant.DecodeRow(values, dtype.Q8_0, coded); err != nil {
		t.Fatal(err)
	}
	return coded, values
}

// floatsOf returns n tokens of an f32 cache.
func floatsOf(t *testing.T, cache fucina.Tensor, n int) []float32 {
	t.Helper()
	values := make([]float32, cache.Len())
	if err := fucina.CopyOut(cache, values); err != nil {
		t.Fatal(err)
	}
	return values[:len(values)/cache.Axes()[0].Size*n]
}

// setFloats writes values over the first tokens of an f32 cache.
func setFloats(t *testing.T, eng *fucina.Engine, cache fucina.Tensor, values []float32) {
	t.Helper()
	c, err := eng.NewContext()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	axes := cache.Axes()
	axes[0].Size = len(values) / (axes[1].Size * axes[2].Size)
	if err := cache.On(c).Narrow("key", 0, axes[0].Size).CopyFrom(fucina.FromSlice(c, values, axes...)).Err(); err != nil {
		t.Fatal(err)
	}
}

// roundedCache gives ids to a session with a q8_0 cache and to one with an f32 cache,
// requires the former's keys and values to be those of the latter in q8_0, and
// returns both, the f32 cache overwritten with what the q8_0 cache decodes to.
func roundedCache(t *testing.T, m *llm.Model, ids []int32) (q8, f32 *llm.Session) {
	t.Helper()
	q8 = openSession(t, m, llm.SessionOptions{Context: 64, KV: dtype.Q8_0})
	f32 = openSession(t, m, llm.SessionOptions{Context: 64, KV: dtype.F32})
	decode(t, q8, ids...)
	decode(t, f32, ids...)
	for i := range m.Params().Layers {
		qk, qv := q8.Cache(i)
		fk, fv := f32.Cache(i)
		for name, pair := range map[string][2]fucina.Tensor{"keys": {qk, fk}, "values": {qv, fv}} {
			coded, decoded := blocksOf(t, pair[0], len(ids))
			plain := floatsOf(t, pair[1], len(ids))
			// Only the first block's input is the same in both.
			if i == 0 {
				want := make([]byte, len(coded))
				if err := quant.EncodeRow(want, dtype.Q8_0, plain); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(coded, want) {
					t.Errorf("the %s of the first block are not those of an f32 cache, in q8_0", name)
				}
			}
			setFloats(t, m.Engine(), pair[1], decoded)
		}
	}
	return q8, f32
}

// A session with a q8_0 cache gives the very logits of one with an f32 cache that
// holds what the blocks decode to. The last token is made to have keys and values of
// zero, which both hold as they are, but a query of its own: its embedding is zero,
// and so is what its layer adds to the biases.
func TestQuantizedCacheIsDecoded(t *testing.T) {
	for _, head := range []int{32, 64, 128} {
		const last = 290
		shape := tinyllama.Shape{Layers: 1, Embedding: 64, Heads: 4, KVHeads: 2, HeadLength: head, QKVBias: true, Output: true}
		src := tinyllama.NewShape(shape)
		clear(src.Tensor("token_embd.weight").Data[last*64*4:][:64*4])
		clear(src.Tensor("blk.0.attn_k.bias").Data)
		clear(src.Tensor("blk.0.attn_v.bias").Data)
		m := openModel(t, openExact(t), writeModel(t, src), llm.Options{})
		q8, f32 := roundedCache(t, m, prompt)
		got, want := decode(t, q8, last), decode(t, f32, last)
		checkLogits(t, "q8_0 cache", got, want, 1e-6)
		plain := decode(t, openSession(t, m, llm.SessionOptions{}), append(slices.Clone(prompt), last)...)
		diff := float32(0)
		for i := range plain {
			diff = max(diff, plain[i]-got[i], got[i]-plain[i])
		}
		if diff < 1e-3 {
			t.Errorf("heads of %d: rounding the cache changes logits by %v, too little to be seen", head, diff)
		}
	}
}

// In every family, with windows and caps, a q8_0 cache differs from an f32 cache of
// what it decodes to by the rounding of the last token's own keys and values.
func TestQuantizedCache(t *testing.T) {
	eng := openExact(t)
	for _, f := range tinyllama.Families() {
		m := openModel(t, eng, writeModel(t, f.Model()), llm.Options{})
		if m.Params().KeyLength%32 != 0 {
			_, err := m.NewSession(llm.SessionOptions{KV: dtype.Q8_0})
			if err == nil || !strings.Contains(err.Error(), "multiples of 32") {
				t.Errorf("%s: error %v, want one about multiples of 32", f.Name, err)
			}
			continue
		}
		n := len(f.PromptIDs) - 1
		q8, f32 := roundedCache(t, m, f.PromptIDs[:n])
		got, want := decode(t, q8, f.PromptIDs[n]), decode(t, f32, f.PromptIDs[n])
		checkLogits(t, f.Name, got, want, 0.02)
		if slices.Equal(got, want) {
			t.Errorf("%s: a q8_0 cache gives the very logits of an f32 cache", f.Name)
		}
	}
}
