package quantize_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/ggufbuild"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// modelsDir is the directory for the models of the recorded results, to record them again.
var modelsDir = flag.String("models", "", "write the test models and importance data to this `directory`, and test nothing")

func TestMain(m *testing.M) {
	flag.Parse()
	if *modelsDir != "" {
		if err := writeModels(*modelsDir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func writeModels(dir string) error {
	for _, s := range skeletons {
		if err := os.WriteFile(filepath.Join(dir, s.Name+".gguf"), s.image(), 0o644); err != nil {
			return err
		}
		if s.Importance {
			if err := os.WriteFile(filepath.Join(dir, s.Name+".imatrix"), importanceFile(s.image(), ramp), 0o644); err != nil {
				return err
			}
		}
	}
	for _, m := range pureModels {
		image := tinyllama.GGUF(m.options)
		if err := os.WriteFile(filepath.Join(dir, m.name+".gguf"), image, 0o644); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, m.name+".imatrix"), importanceFile(image, ramp), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pureModels are the models whose bytes are recorded.
var pureModels = []struct {
	name    string
	options tinyllama.Options
}{
	{"seed1", tinyllama.Options{Seed: 1, Layers: 1, Embedding: 256, FeedForward: 256, Heads: 4, KVHeads: 1}},
	{"seed2", tinyllama.Options{Seed: 2, Layers: 1, Embedding: 256, FeedForward: 512, Heads: 4, KVHeads: 2, Tied: true}},
}

// skeleton is a model with the metadata and tensor names that recipes use. Its weights are
// zero.
type skeleton struct {
	Name       string
	Arch       string
	Layers     int
	Heads      int
	KVHeads    int
	Experts    int
	Loose      bool // each expert is a tensor
	Tied       bool
	Fused      bool // queries, keys and values are one tensor
	Sparse     bool // only every other block has attention
	Latent     bool // keys and values come from latent ones, by a stack of one matrix for each head
	Cols, FF   int
	Importance bool
}

var skeletons = []skeleton{
	{Name: "llama16", Arch: "llama", Layers: 16, Heads: 8, KVHeads: 8, Cols: 256, FF: 256},
	{Name: "llama16-grouped", Arch: "llama", Layers: 16, Heads: 8, KVHeads: 2, Cols: 256, FF: 256},
	{Name: "llama16-importance", Arch: "llama", Layers: 16, Heads: 8, KVHeads: 4, Cols: 256, FF: 256, Importance: true},
	{Name: "llama11-tied", Arch: "llama", Layers: 11, Heads: 8, KVHeads: 2, Cols: 256, FF: 256, Tied: true, Importance: true},
	{Name: "llama8-288", Arch: "llama", Layers: 8, Heads: 8, KVHeads: 4, Cols: 288, FF: 256, Importance: true},
	{Name: "llama8-100", Arch: "llama", Layers: 8, Heads: 4, KVHeads: 4, Cols: 256, FF: 100, Importance: true},
	{Name: "llama80", Arch: "llama", Layers: 80, Heads: 8, KVHeads: 4, Cols: 256, FF: 256, Importance: true},
	{Name: "llama8-experts8", Arch: "llama", Layers: 8, Heads: 8, KVHeads: 2, Experts: 8, Cols: 256, FF: 256, Importance: true},
	{Name: "llama8-experts4", Arch: "llama", Layers: 8, Heads: 8, KVHeads: 8, Experts: 4, Cols: 256, FF: 256, Importance: true},
	{Name: "llama16-loose8", Arch: "llama", Layers: 16, Heads: 8, KVHeads: 4, Experts: 8, Loose: true, Cols: 256, FF: 256, Importance: true},
	{Name: "falcon16", Arch: "falcon", Layers: 16, Heads: 8, KVHeads: 1, Fused: true, Cols: 256, FF: 256, Importance: true},
	{Name: "falcon16-blind", Arch: "falcon", Layers: 16, Heads: 8, KVHeads: 8, Fused: true, Cols: 256, FF: 256},
	{Name: "qwen2-24", Arch: "qwen2", Layers: 24, Heads: 14, KVHeads: 2, Tied: true, Cols: 256, FF: 512, Importance: true},
	{Name: "llama16-sparse", Arch: "llama", Layers: 16, Heads: 8, KVHeads: 4, Sparse: true, Cols: 256, FF: 256, Importance: true},
	{Name: "llama8-latent", Arch: "llama", Layers: 8, Heads: 2, KVHeads: 1, Experts: 4, Latent: true, Cols: 256, FF: 256, Importance: true},
	{Name: "bailingmoe3-8", Arch: "bailingmoe3", Layers: 8, Heads: 2, KVHeads: 1, Experts: 4, Latent: true, Cols: 256, FF: 256, Importance: true},
	{Name: "phi3-8", Arch: "phi3", Layers: 8, Heads: 8, KVHeads: 8, Fused: true, Cols: 256, FF: 256, Importance: true},
}

func (s *skeleton) image() []byte {
	var b ggufbuild.Builder
	b.SetString("general.architecture", s.Arch)
	set := func(key string, v int) { b.SetUint32(s.Arch+"."+key, uint32(v)) }
	set("block_count", s.Layers)
	set("context_length", 64)
	set("embedding_length", s.Cols)
	set("feed_forward_length", s.FF)
	set("attention.head_count", s.Heads)
	set("attention.head_count_kv", s.KVHeads)
	set("attention.sliding_window", 0)
	if s.Experts > 0 {
		set("expert_count", s.Experts)
		set("expert_used_count", 2)
	}
	if s.Arch == "bailingmoe3" {
		// llama.cpp does not open the file without these keys.
		for _, key := range []string{
			"attention.key_length_mla", "attention.value_length_mla", "attention.kv_lora_rank", "ssm.conv_kernel", "kda.head_dim",
			"expert_feed_forward_length", "expert_shared_count", "leading_dense_block_count", "expert_gating_func",
		} {
			set(key, 2)
		}
		b.SetFloat32(s.Arch+".kda.gate_lower_bound", -5)
	}
	b.SetFloat32(s.Arch+".attention.layer_norm_rms_epsilon", 1e-5)
	b.SetFloat32(s.Arch+".attention.layer_norm_epsilon", 1e-5)

	add := func(name string, shape ...int) {
		n := 4
		for _, d := range shape {
			n *= d
		}
		b.AddTensor(name, dtype.F32, shape, make([]byte, n))
	}
	add("token_embd.weight", 4, s.Cols)
	add("output_norm.weight", s.Cols)
	if !s.Tied {
		add("output.weight", 4, s.Cols)
	}
	for i := range s.Layers {
		block := func(name string, shape ...int) { add(fmt.Sprintf("blk.%d.%s", i, name), shape...) }
		block("attn_norm.weight", s.Cols)
		switch {
		case s.Sparse && i%2 == 1:
		case s.Latent:
			block("attn_q.weight", 2, s.Cols)
			block("attn_kv_a_mqa.weight", 2, s.Cols)
			block("attn_k_b.weight", s.Heads, 2, s.Cols)
			block("attn_v_b.weight", s.Heads, 2, s.Cols)
		case s.Fused:
			block("attn_qkv.weight", 2, s.Cols)
		default:
			block("attn_q.weight", 2, s.Cols)
			block("attn_k.weight", 2, s.Cols)
			block("attn_v.weight", 2, s.Cols)
			block("attn_v.bias", 2, s.Cols)
		}
		block("attn_output.weight", 2, s.Cols)
		switch {
		case s.Loose:
			block("ffn_gate_inp.weight", s.Experts, s.Cols)
			for e := range s.Experts {
				block(fmt.Sprintf("ffn_gate.%d.weight", e), 2, s.Cols)
				block(fmt.Sprintf("ffn_up.%d.weight", e), 2, s.Cols)
				block(fmt.Sprintf("ffn_down.%d.weight", e), 2, s.FF)
			}
		case s.Experts > 0:
			block("ffn_gate_inp.weight", s.Experts, s.Cols)
			block("ffn_gate_exps.weight", s.Experts, 2, s.Cols)
			block("ffn_up_exps.weight", s.Experts, 2, s.Cols)
			block("ffn_down_exps.weight", s.Experts, 2, s.FF)
		default:
			block("ffn_gate.weight", 2, s.Cols)
			block("ffn_up.weight", 2, s.Cols)
			block("ffn_down.weight", 2, s.FF)
			block("one_row.weight", 1, s.FF)
		}
	}
	return b.Bytes()
}

// ramp returns the importance of column i.
func ramp(i int) float32 { return 0.25 + float32(i*37%64)/32 }

// importanceFile returns importance data in the older format for every matrix of a model.
// weight returns the weight for a column and an expert.
func importanceFile(image []byte, weight func(i int) float32) []byte {
	const calls = 4
	b := &legacyBuilder{}
	var n int32
	eachMatrix(image, func(name string, experts, cols int) {
		sums := make([]float32, experts*cols)
		for i := range sums {
			sums[i] = calls * weight(i)
		}
		b.entry(name, calls, sums)
		n++
	})
	return b.finish(n, 3, "a text")
}

// importanceFileGGUF returns the same data as GGUF. The count of each expert is the number of
// inputs that the router gave it.
func importanceFileGGUF(image []byte, weight func(i int) float32) []byte {
	var b ggufbuild.Builder
	b.SetString("general.type", "imatrix")
	b.SetStrings("imatrix.datasets", []string{"a text"})
	b.SetUint32("imatrix.chunk_count", 3)
	b.SetUint32("imatrix.chunk_size", 512)
	eachMatrix(image, func(name string, experts, cols int) {
		sums, counts := make([]float32, experts*cols), make([]float32, experts)
		for e := range counts {
			counts[e] = float32(96 + 7*e)
		}
		for i := range sums {
			sums[i] = counts[i/cols] * weight(i)
		}
		addEntry(&b, name, sums, counts)
	})
	return b.Bytes()
}

// eachMatrix calls f for every matrix of a model, and for every stack of matrices of experts.
func eachMatrix(image []byte, f func(name string, experts, cols int)) {
	m, err := gguf.Parse(image)
	if err != nil {
		panic(err)
	}
	for _, t := range m.Tensors() {
		switch n := len(t.Shape); {
		case n == 2:
			f(t.Name, 1, t.Shape[1])
		case n > 2:
			f(t.Name, t.Shape[0], t.Shape[n-1])
		}
	}
}

// digest returns the digest under which a file is recorded.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func readJSON(t *testing.T, name string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

func parse(t testing.TB, image []byte) *gguf.File {
	t.Helper()
	f, err := gguf.Parse(image)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, f)
	return f
}

// parseRamp returns the importance data for a model.
// parseWeights returns importance data for one matrix of 256 columns. The weights are 1, and
// set may change them.
func parseWeights(t testing.TB, name string, set func([]float32)) *quantize.Importance {
	t.Helper()
	weights := slices.Repeat([]float32{1}, 256)
	set(weights)
	var b legacyBuilder
	b.entry(name, 1, weights)
	m, err := quantize.ParseImportance(b.finish(1, 1, "text"))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func parseRamp(t testing.TB, image []byte) *quantize.Importance {
	t.Helper()
	m, err := quantize.ParseImportance(importanceFile(image, ramp))
	if err != nil {
		t.Fatal(err)
	}
	return m
}
