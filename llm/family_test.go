package llm_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// Exact mode gives the ids and, within 1e-4, the logits of llama.cpp on models of
// every family.
func TestFamilyGoldens(t *testing.T) {
	archs := map[string]bool{}
	for _, f := range tinyllama.Families() {
		t.Run(f.Name, func(t *testing.T) {
			m := openModel(t, openExact(t), writeModel(t, f.Model()), llm.Options{})
			archs[m.Params().Architecture] = true
			ids, err := m.Tokenizer().Encode(f.Prompt, tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ids, f.PromptIDs) {
				t.Fatalf("prompt %q gives %v, want %v", f.Prompt, ids, f.PromptIDs)
			}
			if p := m.Params(); p.Window >= len(ids) && p.Window < 4096 {
				t.Errorf("a prompt of %d tokens in a window of %d", len(ids), p.Window)
			}
			got, first, err := greedy(openSession(t, m, llm.SessionOptions{Context: f.Context}), ids, len(f.IDs))
			if err != nil {
				t.Fatal(err)
			}
			checkLogits(t, "first token", first, f.FirstLogits, 1e-4)
			if !slices.Equal(got, f.IDs) {
				t.Errorf("ids %v\nwant %v", got, f.IDs)
			}
			// Batches that begin within the windows give the same logits.
			batches := openSession(t, m, llm.SessionOptions{Context: f.Context, Batch: 5})
			checkLogits(t, "batches of 5", decode(t, batches, ids...), first, 1e-5)
		})
	}
	for _, arch := range llm.Architectures() {
		if !archs[arch] {
			t.Errorf("no results for %s", arch)
		}
	}
}

// RegisterFamily refuses invalid families, and leaves the table unchanged.
func TestRegisterFamilyRefuses(t *testing.T) {
	before := llm.Architectures()
	for _, c := range []struct {
		name string
		f    llm.Family
		says string
	}{
		{"", llm.Family{}, "no name"},
		{"llama", llm.Family{RoPE: fucina.RoPENeoX}, `"llama": the name is already registered`},
		{"nonsense", llm.Family{Output: 7}, `"nonsense": Output is 7`},
	} {
		err := llm.RegisterFamily(c.name, c.f)
		if !errors.Is(err, llm.ErrInvalidFamily) || !strings.HasPrefix(err.Error(), "llm: ") || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: error %v, want ErrInvalidFamily that says %s", c.name, err, c.says)
		}
	}
	if after := llm.Architectures(); !slices.Equal(after, before) {
		t.Errorf("architectures %v, before %v", after, before)
	}
}

// tinyFamily returns a small model of a family with all required tensors.
func tinyFamily(arch string) *tinyllama.Model {
	s := tinyllama.Shape{Architecture: arch, Embedding: 32, FeedForward: 16, Heads: 2, KVHeads: 1, HeadLength: 8}
	switch arch {
	case "qwen2":
		s.QKVBias = true
	case "qwen3":
		s.QKNorm = true
	case "gemma2":
		s.PostNorms = true
	case "gemma3":
		s.QKNorm, s.PostNorms = true, true
	case "phi3":
		s.Fused = true
	}
	m := tinyllama.NewShape(s)
	if s.PostNorms {
		m.Set(arch+".attention.sliding_window", uint32(4))
	}
	return m
}

// Open fails if a file lacks a tensor that its family requires, or has one that the family does
// not use.
func TestOpenBadFamilies(t *testing.T) {
	eng := openExact(t)
	nan := float32(math.NaN())
	invalid, unsupported := llm.ErrInvalidModel, llm.ErrUnsupportedModel
	for _, c := range []struct {
		arch string
		badModel
	}{
		{"llama", badModel{"a norm of others", add("blk.0.post_ffw_norm.weight", dtype.F32, 32), unsupported, "blk.0.post_ffw_norm.weight"}},
		{"llama", badModel{"projections twice", add("blk.1.attn_qkv.weight", dtype.F32, 32, 32), unsupported, "blk.1.attn_q.weight"}},
		{"llama", badModel{"a bias of another length", add("blk.0.attn_k.bias", dtype.F32, 16), invalid, "blk.0.attn_k.bias"}},
		{"llama", badModel{"an f16 bias", add("blk.0.ffn_down.bias", dtype.F16, 32), unsupported, "blk.0.ffn_down.bias"}},
		{"llama", badModel{"a bias of the output", add("output.bias", dtype.F32, 327), unsupported, "output.bias"}},
		{"llama", badModel{"a scale of two numbers", floats("blk.0.attn_q.scale", 1, 1), invalid, "blk.0.attn_q.scale"}},
		{"llama", badModel{"an f16 scale", add("blk.0.ffn_up.scale", dtype.F16, 1), invalid, "blk.0.ffn_up.scale"}},
		{"llama", badModel{"a NaN scale", floats("blk.1.ffn_gate.scale", nan), invalid, "blk.1.ffn_gate.scale"}},
		{"llama", badModel{"a scale of no matrix", floats("blk.0.attn_qkv.scale", 1), unsupported, "blk.0.attn_qkv.scale"}},
		{"gemma2", badModel{"a scale of a tied output", floats("output.scale", 1), unsupported, "output.scale"}},
		{"llama", badModel{"long factors", add("rope_factors_long.weight", dtype.F32, 4), unsupported, "rope_factors_long.weight"}},
		{"qwen2", badModel{"no bias", remove("blk.1.attn_v.bias"), invalid, "blk.1.attn_v.bias"}},
		{"qwen2", badModel{"frequency divisors", add("rope_freqs.weight", dtype.F32, 4), unsupported, "rope_freqs.weight"}},
		{"qwen3", badModel{"no norm of the keys", remove("blk.0.attn_k_norm.weight"), invalid, "blk.0.attn_k_norm.weight"}},
		{"qwen3", badModel{"a norm over all heads", replace("blk.0.attn_q_norm.weight", dtype.F32, 16), invalid, "blk.0.attn_q_norm.weight"}},
		{"gemma2", badModel{"an output", add("output.weight", dtype.F32, 327, 32), unsupported, "output.weight"}},
		{"gemma2", badModel{"no norm after attention", remove("blk.0.post_attention_norm.weight"), invalid, "blk.0.post_attention_norm.weight"}},
		{"gemma2", badModel{"no norm after the MLP", remove("blk.1.post_ffw_norm.weight"), invalid, "blk.1.post_ffw_norm.weight"}},
		{"phi3", badModel{"a gate of its own", add("blk.0.ffn_gate.weight", dtype.F32, 16, 32), unsupported, "blk.0.ffn_gate.weight"}},
		{"phi3", badModel{"half of the MLP", replace("blk.0.ffn_up.weight", dtype.F32, 16, 32), invalid, "blk.0.ffn_up.weight"}},
		{"phi3", badModel{"rows too many", replace("blk.1.attn_qkv.weight", dtype.F32, 33, 32), invalid, "blk.1.attn_qkv.weight"}},
		{"phi3", badModel{"fused bias of another length", add("blk.1.attn_qkv.bias", dtype.F32, 16), invalid, "blk.1.attn_qkv.bias"}},
		{"phi3", badModel{"short factors alone", floats("rope_factors_short.weight", 1, 1, 1, 1), invalid, "rope_factors_long.weight"}},
		{"phi3", badModel{"long factors alone", floats("rope_factors_long.weight", 1, 1, 1, 1), invalid, "rope_factors_short.weight"}},
		{"phi3", badModel{"a zero factor", func(m *tinyllama.Model) {
			floats("rope_factors_short.weight", 1, 1, 1, 1)(m)
			floats("rope_factors_long.weight", 1, 1, 1, 0)(m)
		}, invalid, "rope_factors_long.weight[3]"}},
		{"phi3", badModel{"original context of nothing", func(m *tinyllama.Model) {
			floats("rope_factors_short.weight", 1, 1, 1, 1)(m)
			floats("rope_factors_long.weight", 1, 1, 1, 1)(m)
			m.Set("phi3.rope.scaling.original_context_length", uint32(0))
		}, invalid, "original_context_length"}},
	} {
		t.Run(c.arch+" "+c.name, func(t *testing.T) {
			m := tinyFamily(c.arch)
			c.edit(m)
			got, err := llm.Open(eng, writeModel(t, m), llm.Options{})
			if err == nil {
				got.Close()
				t.Fatal("no error")
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.say) {
				t.Errorf("error %v\nwant %q that names %q", err, c.is, c.say)
			}
			if n := eng.Stats().Handles; n != 0 {
				t.Errorf("%d tensors left", n)
			}
		})
	}
}

// withValue returns the file of m with a value of a type that m cannot hold.
func withValue(t testing.TB, m *tinyllama.Model, key string, v gguf.Value) *gguf.File {
	t.Helper()
	src, err := gguf.Parse(m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var image bytes.Buffer
	w := gguf.NewWriter(&image)
	err = errors.Join(w.SetAll(&src.Metadata), w.Set(key, v))
	for _, ti := range src.Tensors() {
		err = errors.Join(err, w.AddTensor(ti))
	}
	for _, ti := range src.Tensors() {
		err = errors.Join(err, w.WriteTensor(ti.Name, src.Data(ti)))
	}
	if err = errors.Join(err, w.Close(), src.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Parse(image.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// An array that says for each block whether it has a window is ignored, as in llama.cpp. If it
// differs from the default pattern, the model has a note.
func TestWindowPatternArray(t *testing.T) {
	eng := openExact(t)
	m := tinyllama.NewShape(tinyllama.Shape{Architecture: "gemma3", Layers: 7, Embedding: 32, FeedForward: 16, Heads: 2, KVHeads: 1, HeadLength: 8, QKNorm: true, PostNorms: true})
	m.Set("gemma3.attention.sliding_window", uint32(3))
	run := func(m *llm.Model, err error) ([]float32, []string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}()
		s, err := m.NewSession(llm.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return decode(t, s, prompt...), m.Params().Notes
	}
	want, _ := run(llm.Open(eng, writeModel(t, m), llm.Options{}))
	const key = "gemma3.attention.sliding_window_pattern"
	for _, tc := range []struct {
		value gguf.Value
		note  bool
	}{
		{gguf.NewArray([]bool{true, true, true, true, true, false, true}), false},
		{gguf.NewArray([]bool{true, false, true, false, true, false, true}), true},
		{gguf.NewArray([]bool{true}), true},
		{gguf.NewArray([]int32{1, 1, 1, 1, 1, 0, 1}), true},
		{gguf.NewArray([]string{"local"}), true},
	} {
		got, notes := run(llm.New(eng, withValue(t, m, key, tc.value), llm.Options{}))
		checkLogits(t, tc.value.String(), got, want, 0)
		if tc.note != (len(notes) == 1 && strings.Contains(notes[0], key)) || len(notes) > 1 {
			t.Errorf("%v: notes %q, want one: %v", tc.value, notes, tc.note)
		}
	}
}

func floats(name string, values ...float32) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) { m.AddFloats(name, values...) }
}

// A model with fused projections and a model with separate ones give the same logits, in each
// format, with and without a bias.
func TestFusedProjections(t *testing.T) {
	eng := openExact(t)
	for _, d := range []dtype.DType{dtype.F32, dtype.F16, dtype.Q8_0} {
		for _, bias := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, bias %v", d, bias), func(t *testing.T) {
				shape := tinyllama.Shape{DType: d, QKVBias: bias}
				m := tinyllama.NewShape(shape)
				want := decode(t, openSession(t, openModel(t, eng, writeModel(t, m), llm.Options{}), llm.SessionOptions{}), prompt...)
				kinds := []string{".weight"}
				if bias {
					kinds = append(kinds, ".bias")
				}
				for block := range 2 {
					for _, kind := range kinds {
						name := func(s string) string { return fmt.Sprintf("blk.%d.attn_%s%s", block, s, kind) }
						whole := tinyllama.Tensor{Name: name("qkv"), Shape: []int{0}}
						for _, s := range []string{"q", "k", "v"} {
							p := m.Tensor(name(s))
							whole.DType = p.DType
							whole.Shape = append([]int{whole.Shape[0] + p.Shape[0]}, p.Shape[1:]...)
							whole.Data = append(whole.Data, p.Data...)
							m.Delete(name(s))
						}
						m.Tensors = append(m.Tensors, whole)
					}
				}
				got := decode(t, openSession(t, openModel(t, eng, writeModel(t, m), llm.Options{}), llm.SessionOptions{}), prompt...)
				checkLogits(t, "fused", got, want, 0)
			})
		}
	}
}

// Every constant of a family has an effect: a change of one changes the logits.
func TestFamilyConstantsTakeEffect(t *testing.T) {
	eng := openExact(t)
	run := func(m *tinyllama.Model) []float32 {
		model := openModel(t, eng, writeModel(t, m), llm.Options{})
		return decode(t, openSession(t, model, llm.SessionOptions{}), prompt...)
	}
	for _, c := range []struct {
		arch, key string
		value     any
	}{
		{"gemma2", "attention.sliding_window", uint32(5)},
		{"gemma2", "attention.sliding_window", uint32(0)},
		{"gemma2", "attention.sliding_window_pattern", uint32(1)},
		{"gemma2", "attn_logit_softcapping", float32(2)},
		{"gemma2", "final_logit_softcapping", float32(2)},
		{"gemma2", "rope.freq_base", float32(100)},
		{"gemma2", "rope.freq_base_swa", float32(100)},
		{"gemma3", "attention.sliding_window", uint32(5)},
		{"gemma3", "final_logit_softcapping", float32(2)},
		{"gemma3", "rope.freq_base_swa", float32(100)},
		{"gemma3", "attention.sliding_window_pattern", uint32(2)},
		{"qwen3", "rope.freq_base", float32(100)},
		{"phi3", "rope.scaling.attn_factor", float32(2)},
	} {
		t.Run(c.arch+" "+c.key, func(t *testing.T) {
			plain, changed := tinyFamily(c.arch), tinyFamily(c.arch)
			changed.Set(c.arch+"."+c.key, c.value)
			a, b := run(plain), run(changed)
			if slices.Equal(a, b) {
				t.Errorf("%v changes nothing", c.value)
			}
		})
	}
	// In gemma3 only the blocks without a window follow the model's own base.
	far := func(edit func(*tinyllama.Model)) []float32 {
		m := tinyFamily("gemma3")
		edit(m)
		return run(m)
	}
	local := far(func(*tinyllama.Model) {})
	checkLogits(t, "base of blocks with a window", far(set("gemma3.rope.freq_base", float32(100))), local, 0)
	checkLogits(t, "scaling of blocks with a window", far(set("gemma3.rope.scaling.factor", float32(8))), local, 0)
}

// phi3 uses the long factors in sessions that are longer than the original context.
func TestLongFactors(t *testing.T) {
	eng := openExact(t)
	run := func(m *tinyllama.Model, context int) []float32 {
		model := openModel(t, eng, writeModel(t, m), llm.Options{})
		return decode(t, openSession(t, model, llm.SessionOptions{Context: context}), prompt...)
	}
	model := func(short, long []float32) *tinyllama.Model {
		m := tinyFamily("phi3")
		m.Set("phi3.rope.scaling.type", "longrope")
		m.Set("phi3.rope.scaling.original_context_length", uint32(32))
		m.AddFloats("rope_factors_short.weight", short...)
		m.AddFloats("rope_factors_long.weight", long...)
		return m
	}
	a, b := []float32{1, 2, 3, 4}, []float32{5, 6, 7, 8}
	short := run(model(a, a), 512)
	long := run(model(b, b), 512)
	if slices.Equal(short, long) {
		t.Fatal("factors change nothing")
	}
	checkLogits(t, "at the original context", run(model(a, b), 32), short, 0)
	checkLogits(t, "beyond the original context", run(model(a, b), 33), long, 0)
}

// The parts of a fused weight are views, and the weight is uploaded once.
func TestFusedWeightsGoOverOnce(t *testing.T) {
	if engine.Provider() == "cpu" {
		t.Skip("nothing goes over")
	}
	eng := openExact(t)
	src := tinyllama.NewShape(tinyllama.Shape{Architecture: "phi3", Fused: true})
	m := openModel(t, eng, writeModel(t, src), llm.Options{})
	decode(t, openSession(t, m, llm.SessionOptions{Context: 16}), prompt...)
	weights := 0
	for _, ten := range src.Tensors {
		weights += len(ten.Data)
	}
	if up := int(eng.Stats().Device.UploadBytes); up < weights || up > weights+weights/10 {
		t.Errorf("%d bytes went to the device for weights of %d", up, weights)
	}
}

// The comments of the aliases name every field, because go doc does not show the fields of the
// types that they stand for.
func TestFamilyFieldsAreDocumented(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "family.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := make(map[string]string)
	for _, d := range f.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			comments[d.Specs[0].(*ast.TypeSpec).Name.Name] = d.Doc.Text()
		}
	}
	for _, v := range []any{llm.Params{}, llm.Family{}, llm.Windows{}, llm.SoftCap{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			if name := typ.Field(i).Name; !regexp.MustCompile(`\b` + name + `\b`).MatchString(comments[typ.Name()]) {
				t.Errorf("the comment of %s does not name %s", typ.Name(), name)
			}
		}
	}
}
