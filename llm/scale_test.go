package llm_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// The scale that an NVFP4 file has for a matrix multiplies the product, before the bias is added
// or, in the MLP, after. The scale of the activations has no effect. The test compares bits: a
// scale of a half gives the product of the halved matrix.
func TestScalesOfMatrices(t *testing.T) {
	eng := openExact(t)
	run := func(m *tinyllama.Model) []float32 {
		t.Helper()
		model := openModel(t, eng, writeModel(t, m), llm.Options{})
		return decode(t, openSession(t, model, llm.SessionOptions{}), prompt...)
	}
	halve := func(ten *tinyllama.Tensor) {
		data := slices.Clone(ten.Data)
		for i := 0; i < len(data); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(data[i:]))
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(v/2))
		}
		ten.Data = data
	}
	shape := func(arch string, fused, biased bool) tinyllama.Shape {
		gemma := strings.HasPrefix(arch, "gemma")
		return tinyllama.Shape{
			Architecture: arch, Embedding: 64, FeedForward: 64, Heads: 4, KVHeads: 2, HeadLength: 16, Fused: fused, Output: arch != "gemma2",
			QKNorm: arch == "qwen3" || arch == "gemma3", PostNorms: gemma, QKVBias: arch == "qwen2" || biased, AttnBias: biased, FFNBias: biased,
		}
	}
	for _, s := range []tinyllama.Shape{
		shape("llama", false, false), shape("llama", false, true), shape("qwen2", false, false), shape("qwen3", false, false),
		shape("gemma2", false, false), shape("gemma3", false, false), shape("phi3", true, false),
	} {
		plain := run(tinyllama.NewShape(s))
		for _, ten := range tinyllama.NewShape(s).Tensors {
			base, isWeight := strings.CutSuffix(ten.Name, ".weight")
			if !isWeight || len(ten.Shape) != 2 || base == "token_embd" || strings.HasPrefix(base, "blk.0.") {
				continue
			}
			t.Run(fmt.Sprintf("%s, biases %v/%s", s.Architecture, s.FFNBias, base), func(t *testing.T) {
				scaled, halved := tinyllama.NewShape(s), tinyllama.NewShape(s)
				scaled.AddFloats(base+".scale", 0.5)
				scaled.AddFloats(base+".input_scale", 7)
				halve(halved.Tensor(ten.Name))
				if bias := halved.Tensor(base + ".bias"); bias != nil && strings.Contains(base, "ffn_") {
					halve(bias)
				}
				got := run(scaled)
				checkLogits(t, "scaled", got, run(halved), 0)
				if slices.Equal(got, plain) {
					t.Error("the scale changes nothing")
				}
			})
		}
	}
}

// The scales of NVFP4 blocks and the scale of the matrix are multiplied.
func TestNVFP4WithScales(t *testing.T) {
	eng := openExact(t)
	// With these widths, sums over NVFP4 and over f32 fall into the same chunks.
	shape := tinyllama.Shape{DType: dtype.NVFP4, Embedding: 64, Heads: 8, KVHeads: 2, HeadLength: 64, FeedForward: 512, Output: true}
	m, wide := tinyllama.NewShape(shape), tinyllama.NewShape(shape)
	wide.Widen()
	for _, m := range []*tinyllama.Model{m, wide} {
		for i, name := range []string{"blk.0.attn_q", "blk.0.ffn_down", "blk.1.attn_output", "output"} {
			m.AddFloats(name+".scale", 0.25*float32(i+1))
			m.AddFloats(name+".input_scale", 3)
		}
	}
	run := func(m *tinyllama.Model) []float32 {
		model := openModel(t, eng, writeModel(t, m), llm.Options{})
		return decode(t, openSession(t, model, llm.SessionOptions{}), prompt...)
	}
	checkLogits(t, "nvfp4", run(m), run(wide), 0)
}
