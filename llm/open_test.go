package llm_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/chat"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/leak"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// badModel is a seeded model with one fault.
type badModel struct {
	name string
	edit func(m *tinyllama.Model)
	is   error  // sentinel of the error
	say  string // a part of its message: the key or the tensor that is wrong
}

func set(key string, value any) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) { m.Set(key, value) }
}

func sets(pairs ...any) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) {
		for i := 0; i < len(pairs); i += 2 {
			m.Set(pairs[i].(string), pairs[i+1])
		}
	}
}

func remove(name string) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) { m.Delete(name) }
}

// replace replaces a tensor by one of zeros.
func replace(name string, d dtype.DType, shape ...int) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) {
		m.Delete(name)
		m.Add(name, d, shape...)
	}
}

func add(name string, d dtype.DType, shape ...int) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) { m.Add(name, d, shape...) }
}

// addFactors adds divisors of the rotary frequencies.
func addFactors(values ...float32) func(*tinyllama.Model) {
	return func(m *tinyllama.Model) {
		m.Add("rope_freqs.weight", dtype.F32, len(values))
		for i, v := range values {
			binary.LittleEndian.PutUint32(m.Tensor("rope_freqs.weight").Data[4*i:], math.Float32bits(v))
		}
	}
}

// badModels returns models with each fault of tensors, and with some faults of metadata. The
// tests of llm/internal/arch have all faults of metadata.
func badModels() []badModel {
	nan := float32(math.NaN())
	const (
		arch    = "general.architecture"
		heads   = "llama.attention.head_count"
		kvHeads = "llama.attention.head_count_kv"
		eps     = "llama.attention.layer_norm_rms_epsilon"
		rope    = "llama.rope.dimension_count"
		tokens  = "tokenizer.ggml.tokens"
	)
	invalid, unsupported := llm.ErrInvalidModel, llm.ErrUnsupportedModel
	bad := []badModel{
		{"no architecture", remove(arch), invalid, arch},
		{"architecture of another type", set(arch, uint32(1)), invalid, arch},
		{"unknown architecture", set(arch, "gpt2"), unsupported, `"gpt2"`},

		{"other KV heads than the tensors", set(kvHeads, uint32(4)), invalid, "blk.0.attn_k.weight"},
		{"other heads than the tensors", sets(heads, uint32(8), rope, uint32(8)), invalid, "blk.0.attn_k.weight"},
		{"other width than the tensors", set("llama.embedding_length", uint32(128)), invalid, "token_embd.weight"},
		{"other key length than the tensors", set("llama.attention.key_length", uint32(32)), invalid, "blk.0.attn_q.weight"},
		{"other value length than the tensors", set("llama.attention.value_length", uint32(32)), invalid, "blk.0.attn_v.weight"},
		{"other inner width than the tensors", set("llama.feed_forward_length", uint32(96)), invalid, "blk.0.ffn_gate.weight"},
		{"more layers than tensors", set("llama.block_count", uint32(3)), invalid, "blk.2.attn_norm.weight"},
		{"fewer layers than tensors", set("llama.block_count", uint32(1)), unsupported, "blk.1."},
		{"most layers there can be", set("llama.block_count", uint32(4096)), invalid, "blk.2.attn_norm.weight"},

		{"no epsilon", remove(eps), invalid, eps},
		{"epsilon of another type", set(eps, "1e-5"), invalid, eps},

		{"mixture of experts", set("llama.expert_count", uint32(8)), unsupported, "llama.expert_count"},

		{"unused tensor", add("blk.0.attn_q.other", dtype.F32, 64), unsupported, "blk.0.attn_q.other"},
		{"f16 norm", replace("blk.0.attn_norm.weight", dtype.F16, 64), unsupported, "blk.0.attn_norm.weight"},
		{"integer matrix", replace("blk.1.ffn_up.weight", dtype.I32, 160, 64), unsupported, "blk.1.ffn_up.weight"},
		{"integer output", replace("output.weight", dtype.I8, 327, 64), unsupported, "output.weight"},
		{"embedding of one axis", replace("token_embd.weight", dtype.F32, 64), invalid, "token_embd.weight"},
		{"embedding of three axes", replace("token_embd.weight", dtype.F32, 1, 327, 64), invalid, "token_embd.weight has shape [1 327 64], want [tokens 64]"},
		{"fewer rows than tokens", replace("token_embd.weight", dtype.F32, 326, 64), invalid, "tokenizer.ggml.tokens has 327 tokens, but token_embd.weight only 326"},
		{"output unlike the embedding", replace("output.weight", dtype.F32, 328, 64), invalid, "output.weight"},
		{"frequency divisors of another number", addFactors(1, 1), invalid, "rope_freqs.weight"},
		{"frequency divisors of another type", add("rope_freqs.weight", dtype.F16, 8), invalid, "rope_freqs.weight"},
		{"zero frequency divisor", addFactors(1, 1, 1, 1, 1, 1, 1, 0), invalid, "rope_freqs.weight[7]"},
		{"NaN frequency divisor", addFactors(nan, 1, 1, 1, 1, 1, 1, 1), invalid, "rope_freqs.weight[0]"},

		{"no tokenizer", remove("tokenizer.ggml.model"), invalid, "tokenizer.ggml.model"},
		{"unknown tokenizer", set("tokenizer.ggml.model", "rwkv"), unsupported, "rwkv"},
		{"no tokens", remove(tokens), invalid, tokens},
		{"tokens of another type", set(tokens, []int32{1}), invalid, tokens},
		{"fewer scores than tokens", set("tokenizer.ggml.scores", []float32{1}), invalid, "scores"},
		{"a token twice", set(tokens, append([]string{"a", "a"}, make([]string, 325)...)), invalid, "vocabulary"},
	}
	for _, t := range tinyllama.New(tinyllama.Options{}).Tensors {
		if t.Name != "output.weight" { // then the embeddings are tied
			bad = append(bad, badModel{"no " + t.Name, remove(t.Name), invalid, t.Name})
		}
		if t.Name == "token_embd.weight" {
			continue
		}
		more := append([]int(nil), t.Shape...)
		more[0]++
		bad = append(bad, badModel{"a row more in " + t.Name, replace(t.Name, dtype.F32, more...), invalid, t.Name})
		if len(t.Shape) == 2 && t.Shape[0] != t.Shape[1] {
			bad = append(bad, badModel{"transposed " + t.Name, replace(t.Name, dtype.F32, t.Shape[1], t.Shape[0]), invalid, t.Name})
		}
		bad = append(bad, badModel{"another axis in " + t.Name, replace(t.Name, dtype.F32, append([]int{1}, t.Shape...)...), invalid, t.Name})
	}
	return bad
}

// The error of a bad file says what is wrong and where. Nothing leaks.
func TestOpenBadModels(t *testing.T) {
	eng := openExact(t)
	good := tinyllama.New(tinyllama.Options{})
	for _, c := range badModels() {
		t.Run(c.name, func(t *testing.T) {
			// Edits replace entries and tensors, and leave the bytes alone.
			m := &tinyllama.Model{Meta: slices.Clone(good.Meta), Tensors: slices.Clone(good.Tensors)}
			c.edit(m)
			path := writeModel(t, m)
			before := leak.Now()
			got, err := llm.Open(eng, path, llm.Options{})
			if err == nil {
				got.Close()
				t.Fatal("no error")
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v\nwant %q that names %q and the file", err, c.is, c.say)
			}
			if errors.Is(err, llm.ErrInvalidModel) && errors.Is(err, llm.ErrUnsupportedModel) {
				t.Errorf("both sentinels: %v", err)
			}
			if n := eng.Stats().Handles; n != 0 {
				t.Errorf("%d tensors left", n)
			}
			if err := before.Left(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Open accepts models with optional or unusual parts.
func TestOpenGoodModels(t *testing.T) {
	eng := openExact(t)
	for name, edit := range map[string]func(*tinyllama.Model){
		"as it is":              func(*tinyllama.Model) {},
		"no name":               remove("general.name"),
		"no rotation count":     remove("llama.rope.dimension_count"),
		"partial rotation":      set("llama.rope.dimension_count", uint32(8)),
		"lengths of heads":      sets("llama.attention.key_length", uint32(16), "llama.attention.value_length", uint32(16)),
		"longest context":       set("llama.context_length", uint32(1<<30)),
		"dimensions per block":  sets("llama.feed_forward_length", []int32{160, 160}, "llama.attention.head_count", []int32{4, 4}, "llama.attention.head_count_kv", []int32{2, 2}),
		"no experts":            set("llama.expert_count", uint32(0)),
		"linear scaling":        sets("llama.rope.scaling.type", "linear", "llama.rope.scaling.factor", float32(4)),
		"linear scaling of old": set("llama.rope.scale_linear", float32(4)),
		"yarn":                  sets("llama.rope.scaling.type", "yarn", "llama.rope.scaling.factor", float32(4), "llama.rope.scaling.original_context_length", uint32(64)),
		"frequency divisors":    addFactors(1, 1, 1, 2, 2, 4, 8, 8),
		"tied":                  remove("output.weight"),
		"more rows than tokens": func(m *tinyllama.Model) {
			replace("token_embd.weight", dtype.F32, 330, 64)(m)
			m.Delete("output.weight")
		},
		"a norm of zeros, still fine": replace("output_norm.weight", dtype.F32, 64),
	} {
		t.Run(name, func(t *testing.T) {
			m := tinyllama.New(tinyllama.Options{})
			edit(m)
			opt := llm.Options{}
			if invariants.RaceEnabled {
				opt.CacheTokens = 1024 // the detector touches all memory of a cache
			}
			model := openModel(t, eng, writeModel(t, m), opt)
			for _, v := range decode(t, openSession(t, model, llm.SessionOptions{}), prompt...) {
				if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
					t.Fatalf("a logit is %v", v)
				}
			}
		})
	}
}

// Unused metadata may have any type. A model with a key of the wrong type that nothing uses has
// the same logits as a model without the key.
func TestUnusedMetadata(t *testing.T) {
	eng := openExact(t)
	open := func(t *testing.T, m *tinyllama.Model) []float32 {
		t.Helper()
		return decode(t, openSession(t, openModel(t, eng, writeModel(t, m), llm.Options{}), llm.SessionOptions{}), prompt...)
	}
	none := func(*tinyllama.Model) {}
	scaling := func(kind string) func(*tinyllama.Model) { return set("llama.rope.scaling.type", kind) }
	for _, tc := range []struct {
		arch string
		with func(*tinyllama.Model) // changes the model so that nothing uses the key
		key  string
	}{
		{"llama", none, "general.name"},
		{"llama", none, "tokenizer.chat_template"},
		{"llama", none, "llama.attention.sliding_window"},
		{"llama", scaling("none"), "llama.rope.scaling.factor"},
		{"llama", scaling("none"), "llama.rope.scale_linear"},
		{"llama", set("llama.rope.scaling.factor", float32(2)), "llama.rope.scale_linear"},
		{"llama", scaling("linear"), "llama.rope.scaling.original_context_length"},
		{"phi3", none, "phi3.rope.scaling.original_context_length"},
		{"phi3", none, "phi3.attention.sliding_window"},
		{"gemma2", set("gemma2.attention.sliding_window", uint32(0)), "gemma2.attention.sliding_window_pattern"},
		{"gemma2", set("gemma2.attention.sliding_window", uint32(0)), "gemma2.rope.freq_base_swa"},
		{"gemma3", set("gemma3.attention.sliding_window", uint32(0)), "gemma3.rope.freq_base_swa"},
		{"gemma3", none, "gemma3.attn_logit_softcapping"},
	} {
		t.Run(tc.arch+" "+tc.key, func(t *testing.T) {
			plain := tinyFamily(tc.arch)
			tc.with(plain)
			want := open(t, plain)
			for _, v := range []any{uint32(7), int32(-7), float32(math.NaN()), true, "seven", []string{"a", "b"}, []int32{1}} {
				m := tinyFamily(tc.arch)
				tc.with(m)
				m.Set(tc.key, v)
				checkLogits(t, fmt.Sprintf("%T %v", v, v), open(t, m), want, 0)
			}
		})
	}
}

// A chat template that is not a string is an error only for a conversation that uses it.
func TestTemplateOfAnotherType(t *testing.T) {
	const key = "tokenizer.chat_template"
	m := tinyllama.New(tinyllama.Options{})
	m.Set(key, []string{"a", "b"})
	model := openModel(t, openExact(t), writeModel(t, m), llm.Options{})
	if text, ok := model.ChatTemplate(); ok || text != "" {
		t.Errorf("template %q, %v", text, ok)
	}
	s := openSession(t, model, llm.SessionOptions{})
	if _, err := s.NewConversation("", ""); !errors.Is(err, chat.ErrTemplate) || !strings.Contains(err.Error(), key) {
		t.Errorf("error %v, want ErrTemplate of %s", err, key)
	}
	if _, err := s.NewConversation("chatml", ""); err != nil {
		t.Errorf("with a template by name: %v", err)
	}
}

// If the frequency base of a file is 0, the default is used, and the model has a note.
func TestZeroFrequencyBase(t *testing.T) {
	eng := openExact(t)
	for _, tc := range []struct {
		arch, key string
		standIn   float32
	}{
		{"llama", "rope.freq_base", 10000},
		{"gemma3", "rope.freq_base", 10000},
		{"gemma3", "rope.freq_base_swa", 10000},
	} {
		key := tc.arch + "." + tc.key
		open := func(base float32) *llm.Model {
			m := tinyllama.NewShape(tinyllama.Shape{Architecture: tc.arch, HeadLength: 32, QKNorm: tc.arch == "gemma3", PostNorms: tc.arch == "gemma3", Output: true})
			m.Set(key, base)
			m.Set(tc.arch+".attention.sliding_window", uint32(4)) // otherwise no block has its own base
			return openModel(t, eng, writeModel(t, m), llm.Options{})
		}
		zero, standIn := open(0), open(tc.standIn)
		got := decode(t, openSession(t, zero, llm.SessionOptions{}), prompt...)
		want := decode(t, openSession(t, standIn, llm.SessionOptions{}), prompt...)
		checkLogits(t, key+" of 0", got, want, 0)
		if notes := zero.Params().Notes; len(notes) != 1 || !strings.Contains(notes[0], key+" is 0") {
			t.Errorf("%s of 0: notes %q", key, notes)
		}
		if notes := standIn.Params().Notes; len(notes) != 0 {
			t.Errorf("%s of %v: notes %q", key, tc.standIn, notes)
		}
	}
}

// Each kind of RoPE scaling changes the logits.
func TestScalingTakesEffect(t *testing.T) {
	eng := openExact(t)
	run := func(edit func(*tinyllama.Model)) []float32 {
		m := tinyllama.New(tinyllama.Options{})
		edit(m)
		model := openModel(t, eng, writeModel(t, m), llm.Options{})
		return decode(t, openSession(t, model, llm.SessionOptions{}), prompt...)
	}
	plain := run(func(*tinyllama.Model) {})
	linear := run(sets("llama.rope.scaling.type", "linear", "llama.rope.scaling.factor", float32(4)))
	checkLogits(t, "old key", run(set("llama.rope.scale_linear", float32(4))), linear, 0)
	checkLogits(t, "divisors of 4", run(addFactors(4, 4, 4, 4, 4, 4, 4, 4)), linear, 1e-5)
	checkLogits(t, "divisors of 1", run(addFactors(1, 1, 1, 1, 1, 1, 1, 1)), plain, 0)
	checkLogits(t, "factor without a type", run(set("llama.rope.scaling.factor", float32(4))), linear, 0)
	checkLogits(t, "factor of no scaling", run(sets("llama.rope.scaling.type", "none", "llama.rope.scaling.factor", float32(4))), plain, 0)
	yarn := run(sets("llama.rope.scaling.type", "yarn", "llama.rope.scaling.factor", float32(4), "llama.rope.scaling.original_context_length", uint32(64)))
	for name, pair := range map[string][2][]float32{"linear": {plain, linear}, "yarn": {plain, yarn}, "yarn and linear": {linear, yarn}} {
		far := 0.0
		for i := range pair[0] {
			far = max(far, math.Abs(float64(pair[0][i]-pair[1][i])))
		}
		if far < 0.01 {
			t.Errorf("%s: no logit changes by more than %v", name, far)
		}
	}
}

func TestOpenOptions(t *testing.T) {
	eng := openExact(t)
	path := writeModel(t, tinyllama.New(tinyllama.Options{Context: 100}))
	if _, err := llm.Open(eng, path, llm.Options{Context: -1}); err == nil {
		t.Error("a negative context: no error")
	}
	if _, err := llm.Open(eng, path, llm.Options{Context: math.MaxInt}); err == nil {
		t.Error("an endless context: no error")
	}
	if n := eng.Stats().Handles; n != 0 {
		t.Errorf("%d tensors left", n)
	}
	if m := openModel(t, eng, path, llm.Options{}); m.Context() != 100 {
		t.Errorf("context %d, want the model's 100", m.Context())
	}
	m := openModel(t, eng, path, llm.Options{Context: 300})
	if s := openSession(t, m, llm.SessionOptions{}); m.Context() != 300 || s.Context() != 300 {
		t.Errorf("contexts %d and %d, want 300", m.Context(), s.Context())
	}
	if m.Engine() != eng {
		t.Error("the model is on another engine")
	}
}

// NewTokenizer needs a vocabulary but no weights. The tokenizer remains usable after the file is
// closed.
func TestNewTokenizer(t *testing.T) {
	m := tinyllama.New(tinyllama.Options{})
	m.Tensors = nil
	open := func(path string) *gguf.File {
		t.Helper()
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	f := open(writeModel(t, m))
	tok, err := llm.NewTokenizer(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if ids, err := tok.Encode("the", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame}); err != nil || !slices.Equal(ids, []int32{1, 264}) {
		t.Errorf("ids %v, %v", ids, err)
	}
	for _, bad := range []badModel{
		{"unknown", set("tokenizer.ggml.model", "klingon"), llm.ErrUnsupportedModel, "klingon"},
		{"no tokens", set("tokenizer.ggml.tokens", "none"), llm.ErrInvalidModel, "tokenizer.ggml.tokens"},
		{"no vocabulary", func(m *tinyllama.Model) {
			m.Meta = slices.DeleteFunc(m.Meta, func(p tinyllama.Pair) bool { return p.Key == "tokenizer.ggml.model" })
		}, llm.ErrInvalidModel, "no tokenizer.ggml.model"},
	} {
		m := tinyllama.New(tinyllama.Options{})
		bad.edit(m)
		if _, err := llm.NewTokenizer(open(writeModel(t, m))); !errors.Is(err, bad.is) || !strings.HasPrefix(err.Error(), "llm: ") || !strings.Contains(err.Error(), bad.say) {
			t.Errorf("%s: %v, want %v that says %s", bad.name, err, bad.is, bad.say)
		}
	}
}

func TestOpenNoModel(t *testing.T) {
	eng := openExact(t)
	dir := t.TempDir()
	if _, err := llm.Open(eng, filepath.Join(dir, "none.gguf"), llm.Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, want os.ErrNotExist", err)
	}
	text := filepath.Join(dir, "text.gguf")
	if err := os.WriteFile(text, []byte("no model at all, but text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := llm.Open(eng, text, llm.Options{}); !errors.Is(err, gguf.ErrNotGGUF) {
		t.Errorf("a text file: %v, want gguf.ErrNotGGUF", err)
	}
}

// Progress reaches the size of all tensors, including those with divisors of the rotary
// frequencies.
func TestProgress(t *testing.T) {
	models := map[string]*tinyllama.Model{"llama": tinyllama.New(tinyllama.Options{})}
	for _, f := range tinyllama.Families() {
		models[f.Name] = f.Model()
	}
	for _, name := range []string{"llama", "llama-3", "phi3-long"} {
		t.Run(name, func(t *testing.T) {
			src := models[name]
			if src == nil {
				t.Fatal("no such model")
			}
			size := 0
			for _, ten := range src.Tensors {
				size += len(ten.Data)
			}
			var last, all int64
			calls := 0
			openModel(t, openExact(t), writeModel(t, src), llm.Options{
				Progress: func(done, total int64) {
					if done <= last || total < done {
						t.Errorf("progress %d of %d after %d", done, total, last)
					}
					last, all = done, total
					calls++
				},
			})
			if last != all || all != int64(size) || calls != len(src.Tensors) {
				t.Errorf("%d calls up to %d of %d, want %d up to %d", calls, last, all, len(src.Tensors), size)
			}
		})
	}
}

// A change of the result of Params does not change the model.
func TestParamsAreCopies(t *testing.T) {
	for _, f := range tinyllama.Families() {
		m := openModel(t, openExact(t), writeModel(t, f.Model()), llm.Options{})
		for _, get := range []func(llm.Params) []float32{
			func(p llm.Params) []float32 { return p.RoPE.FreqFactors },
			func(p llm.Params) []float32 { return p.LongFactors },
		} {
			if got := get(m.Params()); len(got) > 0 {
				want := got[0]
				got[0] = -1
				if again := get(m.Params())[0]; again != want {
					t.Errorf("%s: a factor is %v after a change of what Params returned, want %v", f.Name, again, want)
				}
			}
		}
	}
}

// A model remains usable after its file is closed.
func TestNewOutlivesFile(t *testing.T) {
	path := writeModel(t, tinyllama.New(tinyllama.Options{}))
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := llm.New(openExact(t), f, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, m)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	g := tinyllama.Goldens()[0]
	_, first, err := greedy(openSession(t, m, llm.SessionOptions{}), g.PromptIDs, 1)
	if err != nil {
		t.Fatal(err)
	}
	checkLogits(t, "after the file's close", first, g.FirstLogits, 1e-4)
}

// New refuses or runs every file that parses. It does not panic, and leaks nothing.
func FuzzNew(f *testing.F) {
	f.Add(tinyllama.GGUF(tinyllama.Options{Layers: 1, Embedding: 8, FeedForward: 8, Heads: 2, KVHeads: 1}))
	for _, c := range badModels() {
		if len(c.name)%7 == 0 { // a part of them is enough
			m := tinyllama.New(tinyllama.Options{Layers: 1, Embedding: 8, FeedForward: 8, Heads: 2, KVHeads: 1})
			if c.edit(m); m.Tensor("token_embd.weight") != nil {
				f.Add(m.Bytes())
			}
		}
	}
	for _, arch := range llm.Architectures() {
		f.Add(tinyFamily(arch).Bytes())
	}
	eng := openExact(f)
	f.Fuzz(func(t *testing.T, image []byte) {
		file, err := gguf.Parse(image)
		if err != nil {
			return
		}
		defer file.Close()
		m, err := llm.New(eng, file, llm.Options{})
		if err != nil {
			if n := eng.Stats().Handles; n != 0 {
				t.Errorf("%d tensors left after %v", n, err)
			}
			return
		}
		defer m.Close()
		p := m.Params()
		if p.Layers*p.KVHeads*(p.KeyLength+p.ValueLength) > 1<<16 {
			return
		}
		s, err := m.NewSession(llm.SessionOptions{Context: min(8, m.Context())})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ids, err := m.Tokenizer().Encode("a", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame})
		if err != nil {
			return
		}
		_, _, _ = greedy(s, ids, 1)
	})
}
