package net_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm/internal/kv"
	"github.com/fucina-go/fucina/llm/internal/net"
	"github.com/fucina-go/fucina/quant"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// prompt has ids of the vocabulary of seeded models.
var prompt = []int32{1, 292, 82, 298, 305, 293, 286, 272, 261, 259, 297, 288}

// blocksOf returns the bytes of a q8_0 tensor, and the values that they decode to.
func blocksOf(t *testing.T, x fucina.Tensor) ([]byte, []float32) {
	t.Helper()
	if d := x.DType(); d != dtype.Q8_0 {
		t.Fatalf("the cache is %s, want q8_0", d)
	}
	blocks := make([]dtype.BlockQ8_0, x.Len()/32)
	if err := fucina.CopyOut(x, blocks); err != nil {
		t.Fatal(err)
	}
	coded := unsafe.Slice((*byte)(unsafe.Pointer(&blocks[0])), len(blocks)*int(unsafe.Sizeof(blocks[0])))
	values := make([]float32, len(blocks)*32)
	if err := quant.DecodeRow(values, dtype.Q8_0, coded); err != nil {
		t.Fatal(err)
	}
	return coded, values
}

// encoded returns the values of an f32 tensor, encoded in q8_0.
func encoded(t *testing.T, x fucina.Tensor) []byte {
	t.Helper()
	values := make([]float32, x.Len())
	if err := fucina.CopyOut(x, values); err != nil {
		t.Fatal(err)
	}
	coded := make([]byte, len(values)/32*int(unsafe.Sizeof(dtype.BlockQ8_0{})))
	if err := quant.EncodeRow(coded, dtype.Q8_0, values); err != nil {
		t.Fatal(err)
	}
	return coded
}

// rounded decodes ids with a q8_0 cache and with an f32 cache, and checks that the q8_0 cache
// of the first block has the keys and values of the f32 cache, encoded in q8_0. It returns
// both sequences, and overwrites the f32 cache with the values that the q8_0 cache decodes to.
func rounded(t *testing.T, eng *fucina.Engine, n *net.Network, ids []int32) (q8, f32 *sequence) {
	t.Helper()
	q8, f32 = begin(t, eng, n, dtype.Q8_0, 64), begin(t, eng, n, dtype.F32, 64)
	q8.decode(t, ids...)
	f32.decode(t, ids...)
	f, g := q8.c.Frame(), f32.c.Frame()
	defer f.Close()
	defer g.Close()
	for i := range n.Params().Layers {
		exact := f32.held(i)
		for j, rows := range q8.held(i) {
			coded, decoded := blocksOf(t, rows)
			// Only the first block's input is the same in both.
			if i == 0 && !bytes.Equal(coded, encoded(t, exact[j])) {
				t.Errorf("part %d of the first block's q8_0 cache differs from the f32 cache encoded in q8_0", j)
			}
			if err := exact[j].CopyFrom(fucina.FromSlice(f32.c, decoded, rows.Axes()...)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return q8, f32
}

// A q8_0 cache and an f32 cache with the values that it decodes to give the same logits. The
// keys and values of the last token are zero, which both formats store exactly, because its
// embedding and the biases of keys and values are zero. Its query is the bias of the queries.
func TestQuantizedCacheIsDecoded(t *testing.T) {
	for _, head := range []int{32, 64, 128} {
		const last = 290
		src := tinyllama.NewShape(tinyllama.Shape{Layers: 1, Embedding: 64, Heads: 4, KVHeads: 2, HeadLength: head, QKVBias: true, Output: true})
		clear(src.Tensor("token_embd.weight").Data[last*64*4:][:64*4])
		clear(src.Tensor("blk.0.attn_k.bias").Data)
		clear(src.Tensor("blk.0.attn_v.bias").Data)
		eng := engine.Open(t, fucina.WithExact(true))
		n := load(t, eng, src)
		q8, f32 := rounded(t, eng, n, prompt)
		got, want := q8.decode(t, last), f32.decode(t, last)
		if d := distance(got, want); !(d <= 1e-6) {
			t.Errorf("heads of %d: logits of a q8_0 cache and of what it decodes to differ by %v", head, d)
		}
		plain := begin(t, eng, n, dtype.F32, 64).decode(t, append(slices.Clone(prompt), last)...)
		if d := distance(got, plain); !(d >= 1e-3) {
			t.Errorf("heads of %d: rounding the cache changes logits by %v, too little to be seen", head, d)
		}
	}
}

// In every family, with windows and caps, the logits of a q8_0 cache and of an f32 cache with
// the values that it decodes to differ only by the rounding of the last token's own keys and
// values.
func TestQuantizedCache(t *testing.T) {
	eng := engine.Open(t, fucina.WithExact(true))
	for _, f := range tinyllama.Families() {
		n := load(t, eng, f.Model())
		if n.Params().KeyLength%32 != 0 {
			_, err := kv.New(eng, shape(n, dtype.Q8_0, 64))
			if err == nil || !strings.Contains(err.Error(), "multiples of 32") {
				t.Errorf("%s: error %v, want one about multiples of 32", f.Name, err)
			}
			continue
		}
		last := len(f.PromptIDs) - 1
		q8, f32 := rounded(t, eng, n, f.PromptIDs[:last])
		got, want := q8.decode(t, f.PromptIDs[last]), f32.decode(t, f.PromptIDs[last])
		if d := distance(got, want); !(d > 0 && d <= 0.02) {
			t.Errorf("%s: logits of a q8_0 cache and of what it decodes to differ by %v, want a little", f.Name, d)
		}
	}
}
