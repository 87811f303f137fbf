package quantize_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/quant"
	"github.com/fucina-go/fucina/tests/ggufbuild"
	"github.com/fucina-go/fucina/tests/repo"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// Every tensor of every skeleton gets the format that llama.cpp gives it.
func TestMixtures(t *testing.T) {
	var recorded struct {
		Letters map[string]string
		Models  map[string]map[string]string
	}
	readJSON(t, "mixtures.json", &recorded)
	formats := make(map[byte]dtype.DType)
	for letter, name := range recorded.Letters {
		d, err := dtype.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		formats[letter[0]] = d
	}
	if len(recorded.Models) != len(skeletons) {
		t.Errorf("%d models recorded, want %d", len(recorded.Models), len(skeletons))
	}
	for _, s := range skeletons {
		image := s.image()
		f := parse(t, image)
		var importance *quantize.Importance
		if s.Importance {
			importance = parseRamp(t, image)
		}
		if len(recorded.Models[s.Name]) < 32 {
			t.Errorf("%s: %d recipes recorded", s.Name, len(recorded.Models[s.Name]))
		}
		for name, want := range recorded.Models[s.Name] {
			recipe, err := quantize.ParseFileType(name)
			if err != nil {
				t.Fatal(err)
			}
			list, err := quantize.Plan(f, quantize.Options{Type: recipe, Importance: importance})
			if want == "" {
				if !errors.Is(err, quantize.ErrImportance) && !errors.Is(err, quantize.ErrTensor) {
					t.Errorf("%s as %s: %v, want a refusal", s.Name, name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s as %s: %v", s.Name, name, err)
				continue
			}
			if len(list) != len(want) {
				t.Fatalf("%s as %s: %d tensors, want %d", s.Name, name, len(list), len(want))
			}
			for i, c := range list {
				if d := formats[want[i]]; c.To != d {
					t.Errorf("%s as %s: %s becomes %s, want %s", s.Name, name, c.Tensor.Name, c.To, d)
				}
			}
		}
	}
}

// quantized returns the result of quantizing f.
func quantized(t *testing.T, f *gguf.File, opt quantize.Options) ([]byte, error) {
	t.Helper()
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	if err := quantize.Write(t.Context(), w, f, opt); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), nil
}

// Whole files are the same bytes as those of llama.cpp: metadata, order, formats and data, for
// any number of threads.
func TestBytes(t *testing.T) {
	var recorded map[string]map[string]string
	readJSON(t, "bytes.json", &recorded)
	check := func(t *testing.T, model string, image []byte, ways ...string) {
		for _, way := range ways {
			digests := recorded[model+"/"+way]
			if len(digests) != recordedRecipes {
				t.Errorf("%s/%s: %d recipes recorded, want %d", model, way, len(digests), recordedRecipes)
			}
			for name, want := range digests {
				t.Run(way+"/"+name, func(t *testing.T) { checkBytes(t, model, image, way, name, want) })
			}
		}
	}
	for _, m := range pureModels {
		t.Run(m.name, func(t *testing.T) {
			check(t, m.name, tinyllama.GGUF(m.options), "pure", "pure/importance", "mixture/importance")
		})
	}
	t.Run("stories260K", func(t *testing.T) {
		image, err := os.ReadFile(repo.Shared(t, "the seeded models are quantized by the same recipes", "models", "stories260K.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		check(t, "stories260K", image, "pure", "mixture")
	})
}

// recordedRecipes is the number of recipes of the reference, which lacks NVFP4.
const recordedRecipes = 35

// checkBytes compares the result for a model and a recipe with the recorded digest. The digest
// is empty if the reference refuses the model.
func checkBytes(t *testing.T, model string, image []byte, way, name, want string) {
	if strings.HasPrefix(name, "IQ") && model == "seed2" && os.Getenv("FUCINA_TEST_FULL") != "1" {
		t.Skip("searches of seconds that seed1 shows too; FUCINA_TEST_FULL=1, as in make full, runs them")
	}
	way, calibrated := strings.CutSuffix(way, "/importance")
	opt := quantize.Options{Pure: way == "pure", Threads: 1 + len(name)%3}
	if calibrated {
		opt.Importance = parseRamp(t, image)
	}
	var err error
	if opt.Type, err = quantize.ParseFileType(name); err != nil {
		t.Fatal(err)
	}
	got, err := quantized(t, parse(t, image), opt)
	switch {
	case want == "":
		if !errors.Is(err, quantize.ErrImportance) && !errors.Is(err, quantize.ErrTensor) {
			t.Errorf("%v, want a refusal", err)
		}
	case err != nil:
		t.Error(err)
	case digest(got) != want:
		t.Errorf("digest %s, want %s", digest(got), want)
	}
}

// small returns a file with the metadata of a model and the tensors that add declares.
func small(add func(b *ggufbuild.Builder)) []byte {
	var b ggufbuild.Builder
	b.SetString("general.architecture", "llama")
	b.SetUint32("llama.block_count", 1)
	add(&b)
	return b.Bytes()
}

// matrix returns f32 rows of the values 1, 2, ...
func matrix(rows, cols int, change func(v []float32)) []byte {
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(1 + i%97)
	}
	if change != nil {
		change(v)
	}
	data := make([]byte, 4*len(v))
	if err := quant.EncodeRow(data, dtype.F32, v); err != nil {
		panic(err)
	}
	return data
}

func oneMatrix(name string, d dtype.DType, shape []int, data []byte) []byte {
	return small(func(b *ggufbuild.Builder) { b.AddTensor(name, d, shape, data) })
}

func TestRefusals(t *testing.T) {
	const weight = "blk.0.attn_q.weight"
	q8 := make([]byte, 2*34)
	plain := oneMatrix(weight, dtype.F32, []int{2, 256}, matrix(2, 256, nil))
	plainNaN := oneMatrix(weight, dtype.F32, []int{2, 256}, matrix(2, 256, func(v []float32) { v[300] = float32(math.NaN()) }))
	for _, tc := range []struct {
		name  string
		image []byte
		opt   quantize.Options
		err   error
		says  string
	}{
		{"quantized", oneMatrix(weight, dtype.Q8_0, []int{2, 32}, q8), quantize.Options{Type: quantize.Q4_0},
			quantize.ErrQuantized, `"blk.0.attn_q.weight" is q8_0`},
		{"quantized to f32", oneMatrix(weight, dtype.Q8_0, []int{2, 32}, q8), quantize.Options{Type: quantize.F32},
			quantize.ErrQuantized, "q8_0"},
		{"integers", oneMatrix(weight, dtype.I32, []int{2, 32}, make([]byte, 256)), quantize.Options{Type: quantize.Q4_0},
			quantize.ErrTensor, "is i32"},
		{"doubles", oneMatrix(weight, dtype.F64, []int{2, 32}, make([]byte, 512)), quantize.Options{Type: quantize.F16},
			quantize.ErrTensor, "is f64"},
		{"short rows of q1_0", oneMatrix(weight, dtype.F32, []int{2, 96}, make([]byte, 4*2*96)), quantize.Options{Type: quantize.Q1_0},
			quantize.ErrTensor, "rows of 96"},
		{"no recipe", plain, quantize.Options{Type: 4}, quantize.ErrFileType, "FileType(4)"},
		{"infinity", oneMatrix(weight, dtype.F32, []int{2, 256}, matrix(2, 256, func(v []float32) { v[300] = float32(math.Inf(1)) })),
			quantize.Options{Type: quantize.Q8_0}, quant.ErrRange, `"blk.0.attn_q.weight" as q8_0: row 1, column 44: quant: value out of range: +Inf`},
		{"NaN to f16", plainNaN,
			quantize.Options{Type: quantize.F16}, quant.ErrRange, `"blk.0.attn_q.weight" as f16: row 1, column 44: quant: value out of range: NaN`},
		{"too large for f16", oneMatrix(weight, dtype.F32, []int{2, 256}, matrix(2, 256, func(v []float32) { v[300] = 65520 })),
			quantize.Options{Type: quantize.F16}, quant.ErrRange, "as f16: row 1, column 44: quant: value out of range: 65520"},
		{"too large for a scale", oneMatrix(weight, dtype.F32, []int{2, 256}, matrix(2, 256, func(v []float32) { v[300], v[301] = 1, -1e30 })),
			quantize.Options{Type: quantize.Q8_0}, quant.ErrRange, "as q8_0: row 1, column 45: quant: value out of range: -1e+30"},
		// The value is far from the first row of a task, and in another matrix of the stack.
		{"NaN in the second expert", oneMatrix("blk.0.ffn_up_exps.weight", dtype.F32, []int{2, 300, 256}, matrix(600, 256, func(v []float32) { v[599*256+7] = float32(math.NaN()) })),
			quantize.Options{Type: quantize.Q4_0}, quant.ErrRange, "as q4_0: row 599, column 7: quant: value out of range: NaN"},
		{"NaN with importance", plainNaN,
			quantize.Options{Type: quantize.IQ2_XXS, Pure: true, Importance: parseRamp(t, plain)}, quant.ErrRange, "as iq2_xxs: row 1, column 44: quant: value out of range: NaN"},
		{"NaN to bf16", oneMatrix(weight, dtype.F32, []int{2, 256}, matrix(2, 256, func(v []float32) { v[3] = float32(math.NaN()) })),
			quantize.Options{Type: quantize.BF16}, quant.ErrRange, "row 0, column 3: quant: value out of range: NaN"},
		{"f16 infinity to f32", oneMatrix(weight, dtype.F16, []int{2, 2}, []byte{0, 0x7c, 0, 0, 0, 0, 0, 0}),
			quantize.Options{Type: quantize.F32}, quant.ErrRange, "row 0, column 0: quant: value out of range: +Inf"},
		{"importance too large", plain, quantize.Options{Type: quantize.Q4_0, Pure: true, Importance: parseWeights(t, weight, func(w []float32) { w[100] = 0x1p127 })},
			quant.ErrRange, "as q4_0: row 0: quant: value out of range: its values times their importance overflow"},
		{"importance needed", plain, quantize.Options{Type: quantize.IQ2_XXS, Pure: true}, quantize.ErrImportance, "none was given"},
		{"importance for others", plain, quantize.Options{Type: quantize.IQ2_XXS, Pure: true,
			Importance: parseRamp(t, oneMatrix("blk.0.attn_k.weight", dtype.F32, []int{2, 256}, matrix(2, 256, nil)))},
			quantize.ErrImportance, "no data for"},
		{"importance for others that a good result needs", plain, quantize.Options{Type: quantize.IQ1_M, Pure: true,
			Importance: parseRamp(t, oneMatrix("blk.0.attn_k.weight", dtype.F32, []int{2, 256}, matrix(2, 256, nil)))},
			quantize.ErrImportance, "no data for"},
		{"an embedding that needs importance", oneMatrix("token_embd.weight", dtype.F32, []int{2, 256}, matrix(2, 256, nil)),
			quantize.Options{Type: quantize.IQ2_XXS, Pure: true}, quantize.ErrImportance, "token_embd"},
		{"importance of another width", plain, quantize.Options{Type: quantize.Q4_0,
			Importance: parseRamp(t, oneMatrix(weight, dtype.F32, []int{2, 128}, matrix(2, 128, nil)))},
			quantize.ErrImportance, "128 weights"},
		{"importance of one expert for all", oneMatrix("blk.0.ffn_up_exps.weight", dtype.F32, []int{3, 2, 64}, matrix(6, 64, nil)),
			quantize.Options{Type: quantize.Q4_0, Pure: true,
				Importance: parseRamp(t, oneMatrix("blk.0.ffn_up_exps.weight", dtype.F32, []int{2, 64}, matrix(2, 64, nil)))},
			quantize.ErrImportance, "64 weights for \"blk.0.ffn_up_exps.weight\", want 192"},
		{"importance of all experts for one", plain, quantize.Options{Type: quantize.Q4_0,
			Importance: parseRamp(t, oneMatrix(weight, dtype.F32, []int{3, 2, 256}, matrix(6, 256, nil)))},
			quantize.ErrImportance, "768 weights"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := quantized(t, parse(t, tc.image), tc.opt)
			if !errors.Is(err, tc.err) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v, want %v that says %q", err, tc.err, tc.says)
			}
			if errors.Is(err, quant.ErrRange) && !errors.Is(err, quantize.ErrTensor) {
				t.Errorf("%v is not of a tensor", err)
			}
		})
	}
}

// Errors quote and truncate names and values from files, because these can be long and control
// a terminal.
func TestErrorsQuoteNames(t *testing.T) {
	long := "\x1b[2J\n" + strings.Repeat("k", 1000)
	check := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || strings.ContainsAny(err.Error(), "\x1b\n") || len(err.Error()) > 300 {
			t.Errorf("%s: error %q, want %v", what, err, want)
		}
	}
	for what, set := range map[string]func(b *ggufbuild.Builder){
		"no layers":      func(*ggufbuild.Builder) {},
		"wrong type":     func(b *ggufbuild.Builder) { b.SetString(long+".block_count", long) },
		"out of range":   func(b *ggufbuild.Builder) { b.SetInt32(long+".block_count", -1) },
		"an empty array": func(b *ggufbuild.Builder) { b.SetInt32s(long+".block_count", nil) },
	} {
		var b ggufbuild.Builder
		b.SetString("general.architecture", long)
		set(&b)
		_, err := quantize.Plan(parse(t, b.Bytes()), quantize.Options{Type: quantize.Q4_0})
		check(what, err, quantize.ErrMetadata)
	}

	legacy := func(fill func(b *legacyBuilder)) []byte {
		b := &legacyBuilder{}
		fill(b)
		return b.finish(2, 1, "x")
	}
	name := long[:50] // within the limit of a tensor's name
	for what, image := range map[string][]byte{
		"twice":        legacy(func(b *legacyBuilder) { b.entry(long, 1, []float32{1}); b.entry(long, 1, []float32{1}) }),
		"no sums":      legacy(func(b *legacyBuilder) { b.entry(long, 1, nil); b.entry(long, 1, nil) }),
		"negative sum": legacy(func(b *legacyBuilder) { b.entry(long, 1, []float32{-1}); b.entry(long, 1, nil) }),
		"a model":      func() []byte { var b ggufbuild.Builder; b.SetString("general.type", long); return b.Bytes() }(),
		"counts":       importanceGGUF(func(b *ggufbuild.Builder) { addEntry(b, name, []float32{1}, []float32{-1}) }),
		"no sums in GGUF": importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor(name+".counts", dtype.F32, []int{1}, floatBytes(1))
		}),
		"no counts": importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor(name+".in_sum2", dtype.F32, []int{1}, floatBytes(1))
		}),
		"integers": importanceGGUF(func(b *ggufbuild.Builder) {
			b.AddTensor(name+".in_sum2", dtype.I32, []int{1}, floatBytes(1))
		}),
	} {
		_, err := quantize.ParseImportance(image)
		check(what, err, quantize.ErrImportance)
	}
}

// Recipes that need metadata of the model name the missing key. Other recipes need none.
func TestMetadataNeeded(t *testing.T) {
	build := func(set func(b *ggufbuild.Builder)) *gguf.File {
		var b ggufbuild.Builder
		set(&b)
		b.AddTensor("a.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
		b.AddTensor("blk.7.ffn_down.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
		return parse(t, b.Bytes())
	}
	for name, set := range map[string]func(b *ggufbuild.Builder){
		"no architecture": func(*ggufbuild.Builder) {},
		"no layers":       func(b *ggufbuild.Builder) { b.SetString("general.architecture", "x") },
		"wrong type": func(b *ggufbuild.Builder) {
			b.SetString("general.architecture", "x")
			b.SetString("x.block_count", "1")
		},
		"negative": func(b *ggufbuild.Builder) {
			b.SetString("general.architecture", "x")
			b.SetInt32("x.block_count", -1)
		},
		"huge": func(b *ggufbuild.Builder) {
			b.SetString("general.architecture", "x")
			b.SetUint64("x.block_count", 1<<63)
		},
		"empty array": func(b *ggufbuild.Builder) {
			b.SetString("general.architecture", "x")
			b.SetUint32("x.block_count", 1)
			b.SetInt32s("x.attention.head_count", nil)
		},
		"experts outside of the layers": func(b *ggufbuild.Builder) {
			b.SetString("general.architecture", "x")
			b.SetUint32("x.block_count", 1)
			b.SetUint32("x.expert_count", 2)
		},
	} {
		f := build(set)
		if _, err := quantize.Plan(f, quantize.Options{Type: quantize.Q4_0}); !errors.Is(err, quantize.ErrMetadata) {
			t.Errorf("%s: %v, want a metadata error", name, err)
		}
		for _, opt := range []quantize.Options{{Type: quantize.Q4_0, Pure: true}, {Type: quantize.Q8_0}, {Type: quantize.F16}} {
			if _, err := quantize.Plan(f, opt); err != nil {
				t.Errorf("%s: %v of a recipe that needs no metadata", name, err)
			}
		}
	}
}

// Head counts may be arrays with one number for each layer.
func TestHeadsPerLayer(t *testing.T) {
	var b ggufbuild.Builder
	b.SetString("general.architecture", "x")
	b.SetUint32("x.block_count", 1)
	b.SetInt32s("x.attention.head_count", []int32{8, 1})
	b.SetInt32s("x.attention.head_count_kv", []int32{2, 1})
	b.AddTensor("blk.0.attn_v.weight", dtype.F32, []int{2, 256}, matrix(2, 256, nil))
	list, err := quantize.Plan(parse(t, b.Bytes()), quantize.Options{Type: quantize.Q2_K})
	if err != nil || list[0].To != dtype.Q4_K {
		t.Errorf("%v %v, want q4_k for a value matrix that four heads share", list, err)
	}
}

// With AllowRequantize, a quantized matrix is quantized again, by way of f32.
func TestRequantize(t *testing.T) {
	const name = "blk.0.attn_q.weight"
	values := matrix(3, 64, nil)
	first, err := quantized(t, parse(t, oneMatrix(name, dtype.F32, []int{3, 64}, values)), quantize.Options{Type: quantize.Q8_0, Pure: true})
	if err != nil {
		t.Fatal(err)
	}
	f := parse(t, first)
	again, err := quantized(t, f, quantize.Options{Type: quantize.Q4_0, Pure: true, AllowRequantize: true})
	if err != nil {
		t.Fatal(err)
	}
	old, _ := f.Tensor(name)
	floats := make([]float32, 3*64)
	if err := quant.DecodeRow(floats, dtype.Q8_0, f.Data(old)); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 3*2*18)
	if err := quant.EncodeRow(want, dtype.Q4_0, floats); err != nil {
		t.Fatal(err)
	}
	g := parse(t, again)
	info, _ := g.Tensor(name)
	if !bytes.Equal(g.Data(info), want) {
		t.Error("q8_0 to q4_0 is not the encoding of what q8_0 decodes to")
	}
	// A matrix that already has the format needs no AllowRequantize.
	same, err := quantized(t, f, quantize.Options{Type: quantize.Q8_0})
	if err != nil || !bytes.Equal(same, first) {
		t.Errorf("q8_0 to q8_0: %v, or other bytes", err)
	}
}

// The same importance data in both formats gives llama.cpp's bytes, for different counts. A
// common factor of all weights hardly changes the bytes, so the weights are compared too.
func TestImportanceFormats(t *testing.T) {
	var recorded map[string]map[string]string
	readJSON(t, "bytes.json", &recorded)
	image := tinyllama.GGUF(pureModels[0].options)
	f := parse(t, image)
	importance, err := quantize.ParseImportance(importanceFileGGUF(image, ramp))
	if err != nil {
		t.Fatal(err)
	}
	legacy := parseRamp(t, image)
	if importance.Len() != legacy.Len() {
		t.Errorf("%d entries, want %d", importance.Len(), legacy.Len())
	}
	for _, info := range f.Tensors() {
		if !slices.Equal(importance.Entry(info.Name), legacy.Entry(info.Name)) {
			t.Errorf("weights for %s differ", info.Name)
		}
	}
	for _, tc := range []struct {
		recipe quantize.FileType
		pure   bool
		key    string
	}{
		{quantize.Q4_K_M, false, "seed1/mixture/importance"},
		{quantize.Q5_1, true, "seed1/pure/importance"},
		{quantize.IQ2_XXS, true, "seed1/pure/importance"},
	} {
		if invariants.RaceEnabled && tc.recipe == quantize.IQ2_XXS {
			continue // too slow
		}
		got, err := quantized(t, f, quantize.Options{Type: tc.recipe, Pure: tc.pure, Importance: importance})
		if want := recorded[tc.key][tc.recipe.String()]; err != nil || digest(got) != want {
			t.Errorf("%s: digest %s, %v, want %s", tc.recipe, digest(got), err, want)
		}
	}
}

// Each expert of a stack has its own weights, for any division of the rows among goroutines.
func TestExpertImportance(t *testing.T) {
	const experts, rows, cols = 3, 40, 64
	image := small(func(b *ggufbuild.Builder) {
		b.AddTensor("blk.0.ffn_up_exps.weight", dtype.F32, []int{experts, rows, cols}, matrix(experts*rows, cols, nil))
	})
	weight := func(i int) float32 { return float32((i/cols + 1) * (i%5 + 1)) }
	importance, err := quantize.ParseImportance(importanceFile(image, weight))
	if err != nil {
		t.Fatal(err)
	}
	f := parse(t, image)
	got, err := quantized(t, f, quantize.Options{Type: quantize.Q4_0, Pure: true, Importance: importance, Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	all := importance.Entry("blk.0.ffn_up_exps.weight")
	other, err := quantize.ParseImportance(importanceFileGGUF(image, weight))
	if err != nil || !slices.Equal(other.Entry("blk.0.ffn_up_exps.weight"), all) {
		t.Errorf("the formats of importance data differ, or %v", err)
	}
	in := f.Data(f.Tensors()[0])
	var want []byte
	for e := range experts {
		floats := make([]float32, rows*cols)
		if err := quant.DecodeRow(floats, dtype.F32, in[e*rows*cols*4:(e+1)*rows*cols*4]); err != nil {
			t.Fatal(err)
		}
		part := make([]byte, rows*cols/32*18)
		if err := quant.EncodeRows(part, dtype.Q4_0, floats, cols, all[e*cols:(e+1)*cols]); err != nil {
			t.Fatal(err)
		}
		want = append(want, part...)
	}
	g := parse(t, got)
	if !bytes.Equal(g.Data(g.Tensors()[0]), want) {
		t.Error("the stack differs from its experts one by one")
	}
}

// Weights with the name of an embedding that do not fit it belong to another use of it.
func TestEmbeddingImportance(t *testing.T) {
	f := parse(t, oneMatrix("token_embd.weight", dtype.F32, []int{2, 256}, matrix(2, 256, nil)))
	narrow := parseRamp(t, oneMatrix("token_embd.weight", dtype.F32, []int{2, 128}, matrix(2, 128, nil)))
	opt := quantize.Options{Type: quantize.Q4_0, Pure: true}
	want, err := quantized(t, f, opt)
	if err != nil {
		t.Fatal(err)
	}
	opt.Importance = narrow
	got, err := quantized(t, f, opt)
	if err != nil {
		t.Fatal(err)
	}
	g, w := parse(t, got), parse(t, want)
	if !bytes.Equal(g.Data(g.Tensors()[0]), w.Data(w.Tensors()[0])) {
		t.Error("weights of another width bear on the bytes")
	}
}

// Metadata does not change, except for the keys that describe how the file was made.
func TestMetadata(t *testing.T) {
	image := small(func(b *ggufbuild.Builder) {
		b.SetUint32("general.file_type", 0)
		b.SetUint16("split.no", 0)
		b.SetUint16("split.count", 1)
		b.SetInt32("split.tensors.count", 1)
		b.SetString("general.name", "a name")
		b.SetUint32("general.alignment", 64)
		b.AddTensor("b.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
		b.AddTensor("a.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
	})
	path := filepath.Join(t.TempDir(), "importance.dat")
	if err := os.WriteFile(path, importanceFile(image, ramp), 0o644); err != nil {
		t.Fatal(err)
	}
	importance, err := quantize.ReadImportance(path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := quantized(t, parse(t, image), quantize.Options{Type: quantize.Q5_1, Importance: importance})
	if err != nil {
		t.Fatal(err)
	}
	f := parse(t, out)
	want := []string{
		"general.architecture", "llama.block_count", "general.name", "general.alignment",
		"general.quantization_version", "general.file_type",
		"quantize.imatrix.file", "quantize.imatrix.dataset", "quantize.imatrix.entries_count", "quantize.imatrix.chunks_count",
	}
	if !slices.Equal(f.Keys(), want) {
		t.Errorf("keys %q, want %q", f.Keys(), want)
	}
	for key, want := range map[string]gguf.Value{
		"general.quantization_version":   gguf.NewValue(uint32(2)),
		"general.file_type":              gguf.NewValue(uint32(9)),
		"quantize.imatrix.file":          gguf.NewValue(path[:min(len(path), 127)]),
		"quantize.imatrix.dataset":       gguf.NewValue("a text"),
		"quantize.imatrix.entries_count": gguf.NewValue(uint32(2)),
		"quantize.imatrix.chunks_count":  gguf.NewValue(uint32(3)),
	} {
		if v, _ := f.Value(key); v != want {
			t.Errorf("%s is %v, want %v", key, v, want)
		}
	}
	if f.Alignment() != 64 || f.Tensors()[0].Name != "a.weight" {
		t.Errorf("alignment %d, first tensor %q", f.Alignment(), f.Tensors()[0].Name)
	}
}

// Strings of importance data are truncated as in llama.cpp.
func TestLongStrings(t *testing.T) {
	image := oneMatrix("a.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
	base, a, e := t.TempDir(), strings.Repeat("a", 124), strings.Repeat("\u00e9", 70)
	t.Chdir(base)
	for _, tc := range []struct{ file, text, wantFile, wantText string }{
		{"short", "", "short", "none"},
		{a + "127", a + "127", a + "127", a + "127"},
		{a + "1278", a + "1278", a + "127", a + "127"},
		{e, e, e[:127], e[:127]}, // the cut is within a character
		{"nul", "a\x00b", "nul", "a"},
	} {
		b := &legacyBuilder{}
		b.entry("a.weight", 1, make([]float32, 32))
		if err := os.WriteFile(tc.file, b.finish(1, 3, tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		importance, err := quantize.ReadImportance(tc.file)
		if err != nil {
			t.Fatal(err)
		}
		if importance.File() != tc.file {
			t.Errorf("file %q, want %q", importance.File(), tc.file)
		}
		out, err := quantized(t, parse(t, image), quantize.Options{Type: quantize.Q8_0, Importance: importance})
		if err != nil {
			t.Fatal(err)
		}
		f := parse(t, out)
		file, err := f.String("quantize.imatrix.file")
		if err != nil || file != tc.wantFile {
			t.Errorf("file %q, %v, want %q", file, err, tc.wantFile)
		}
		if text, err := f.StringOr("quantize.imatrix.dataset", "none"); err != nil || text != tc.wantText {
			t.Errorf("dataset %q, %v, want %q", text, err, tc.wantText)
		}
	}
}

// Models that llama.cpp treats as models of 70 billion parameters have better value matrices.
// The results are those of llama.cpp.
func Test70B(t *testing.T) {
	for _, tc := range []struct {
		arch   string
		layers int
		want   dtype.DType
	}{
		{"llama", 80, dtype.Q5_K}, {"llama", 79, dtype.Q4_K}, {"llama-embed", 80, dtype.Q5_K}, {"mistral3", 80, dtype.Q4_K},
		{"qwen2", 80, dtype.Q5_K}, {"qwen3", 80, dtype.Q4_K}, {"olmo", 80, dtype.Q5_K}, {"deci", 80, dtype.Q5_K},
		{"jais2", 68, dtype.Q5_K}, {"jais2", 80, dtype.Q4_K},
	} {
		s := skeleton{Arch: tc.arch, Layers: tc.layers, Heads: 8, KVHeads: 4, Cols: 256, FF: 256}
		list, err := quantize.Plan(parse(t, s.image()), quantize.Options{Type: quantize.Q4_K_S})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Tensor.Name == "blk.9.attn_v.weight" && c.To != tc.want {
				t.Errorf("%s with %d layers: %s, want %s", tc.arch, tc.layers, c.To, tc.want)
			}
		}
	}
}

// A tensor without importance data is encoded without weights, and the plan says so.
func TestPartialImportance(t *testing.T) {
	const known, unknown, kept = "blk.0.attn_k.weight", "blk.0.attn_q.weight", "blk.0.attn_k_norm.weight"
	data := matrix(2, 256, nil)
	build := func(names ...string) []byte {
		return small(func(b *ggufbuild.Builder) {
			for _, name := range names {
				b.AddTensor(name, dtype.F32, []int{2, 256}, data)
			}
		})
	}
	f := parse(t, build(known, unknown, kept))
	opt := quantize.Options{Type: quantize.Q4_0, Pure: true}
	blind, err := quantized(t, f, opt)
	if err != nil {
		t.Fatal(err)
	}
	opt.Importance = parseRamp(t, build(known, kept, "blk.9.attn_q.weight"))
	list, err := quantize.Plan(f, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Weighted != (c.Tensor.Name == known) {
			t.Errorf("%s: weighted %v", c.Tensor.Name, c.Weighted)
		}
	}
	out, err := quantized(t, f, opt)
	if err != nil {
		t.Fatal(err)
	}
	g, h := parse(t, out), parse(t, blind)
	for _, ti := range g.Tensors() {
		o, _ := h.Tensor(ti.Name)
		if same := bytes.Equal(g.Data(ti), h.Data(o)); same == (ti.Name == known) {
			t.Errorf("%s: the bytes are those without importance data: %v", ti.Name, same)
		}
	}
}

// onlyFile fails the test unless dir holds exactly one file, with that name and content.
func onlyFile(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].Name() != name {
		t.Errorf("the directory holds %v, want only %s", entries, name)
	}
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%s changed, or %v", name, err)
	}
}

// After an interrupt or an error there is no output file, and an older output file is
// unchanged.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "model.gguf")
	image := tinyllama.GGUF(tinyllama.Options{})
	if err := os.WriteFile(path, image, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opt := quantize.Options{Type: quantize.Q8_0, Progress: func(i, n int, c quantize.Choice) {
		if i == n/2 {
			cancel()
		}
	}}
	if _, err := quantize.File(ctx, path, filepath.Join(dir, "out.gguf"), opt); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	onlyFile(t, dir, "model.gguf", image)
	if _, err := quantize.File(t.Context(), filepath.Join(dir, "none.gguf"), path, opt); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want no such file", err)
	}
	onlyFile(t, dir, "model.gguf", image)
	// The error does not name the temporary file.
	lost := filepath.Join(dir, "none", "out.gguf")
	if _, err := quantize.File(t.Context(), path, lost, quantize.Options{Type: quantize.Q8_0}); !errors.Is(err, fs.ErrNotExist) ||
		!strings.HasPrefix(err.Error(), "gguf: open "+lost+": ") {
		t.Errorf("%v, want one of %s", err, lost)
	}
	// The same holds if all tensors are copied.
	if _, err := quantize.File(ctx, path, filepath.Join(dir, "out.gguf"), quantize.Options{Type: quantize.F32}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	onlyFile(t, dir, "model.gguf", image)

	out := filepath.Join(t.TempDir(), "out.gguf")
	if err := os.WriteFile(out, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if _, err := quantize.File(ctx, path, out, opt); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
	onlyFile(t, filepath.Dir(out), "out.gguf", []byte("old"))

	var seen []string
	opt.Progress = func(i, n int, c quantize.Choice) { seen = append(seen, fmt.Sprint(i, n, c.Tensor.Name)) }
	list, err := quantize.File(t.Context(), path, out, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range list {
		if want := fmt.Sprint(i, len(list), c.Tensor.Name); i >= len(seen) || seen[i] != want {
			t.Fatalf("progress %q, want %q at %d", seen, want, i)
		}
	}
	want, err := quantized(t, parse(t, image), quantize.Options{Type: quantize.Q8_0})
	if err != nil {
		t.Fatal(err)
	}
	onlyFile(t, filepath.Dir(out), "out.gguf", want)
}

// An output that is the input or a part of it, under any name, is an error before anything is
// written, and the input is unchanged.
func TestFileOverInput(t *testing.T) {
	dir := t.TempDir()
	image := oneMatrix("a.weight", dtype.F32, []int{2, 32}, matrix(2, 32, nil))
	path := filepath.Join(dir, "model.gguf")
	prefix := filepath.Join(dir, "parts")
	files := map[string][]byte{path: image}
	for no := range 2 {
		files[gguf.SplitPath(prefix, no, 2)] = small(func(b *ggufbuild.Builder) {
			b.SetUint16("split.no", uint16(no))
			b.SetUint16("split.count", 2)
			b.SetInt32("split.tensors.count", 2)
			b.AddTensor(fmt.Sprintf("%d.weight", no), dtype.F32, []int{2, 32}, matrix(2, 32, nil))
		})
	}
	for path, image := range files {
		if err := os.WriteFile(path, image, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opt := quantize.Options{Type: quantize.Q8_0, Progress: func(int, int, quantize.Choice) { t.Error("work was done") }}
	first, second := gguf.SplitPath(prefix, 0, 2), gguf.SplitPath(prefix, 1, 2)
	cases := [][2]string{{path, path}, {first, first}, {first, second}, {second, first}}
	for i, link := range []func(old, name string) error{os.Symlink, os.Link} {
		name := filepath.Join(dir, fmt.Sprint("link", i))
		if err := link(path, name); err == nil {
			cases = append(cases, [2]string{path, name}, [2]string{name, path})
		}
	}
	for _, c := range cases {
		if _, err := quantize.File(t.Context(), c[0], c[1], opt); !errors.Is(err, quantize.ErrOutput) || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s to %s: %v, want ErrOutput", c[0], c[1], err)
		}
	}
	for path, image := range files {
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, image) {
			t.Errorf("%s changed, or %v", path, err)
		}
	}
	// The parts of a split model become one file.
	opt.Progress = nil
	out := filepath.Join(dir, "out.gguf")
	if _, err := quantize.File(t.Context(), second, out, opt); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, numbered := f.Value("split.count"); numbered || f.Parts() != 1 || len(f.Tensors()) != 2 {
		t.Errorf("%d tensors in %d parts, keys %q", len(f.Tensors()), f.Parts(), f.Keys())
	}
}

func TestFileTypes(t *testing.T) {
	for _, recipe := range quantize.FileTypes() {
		for _, name := range []string{recipe.String(), strings.ToLower(recipe.String())} {
			if got, err := quantize.ParseFileType(name); err != nil || got != recipe {
				t.Errorf("%s parses as %v, %v", name, got, err)
			}
		}
		if !recipe.DType().Valid() {
			t.Errorf("%s has no format", recipe)
		}
	}
	for name, want := range map[string]quantize.FileType{"q4_k": quantize.Q4_K_M, "Q3_K": quantize.Q3_K_M, "mxfp4": quantize.MXFP4_MOE} {
		if got, err := quantize.ParseFileType(name); err != nil || got != want {
			t.Errorf("%s parses as %v, %v, want %v", name, got, err, want)
		}
	}
	if _, err := quantize.ParseFileType("Q9_9"); !errors.Is(err, quantize.ErrFileType) || !strings.Contains(err.Error(), "Q4_K_M") {
		t.Errorf("%v, want an error that lists the types", err)
	}
}

// Matrices with certain names do not change, because a model is sensitive to them, and neither
// do vectors. llama.cpp does the same.
func TestKept(t *testing.T) {
	names := map[string]bool{ // whether the tensor is converted
		"blk.0.attn_q.weight":              true,
		"blk.0.ffn_gate_exps.weight":       true,
		"weight":                           true,
		"blk.0.attn_q_norm.weight":         false,
		"blk.0.attn_q.bias":                false,
		"blk.0.attn_q.weights":             false,
		"blk.0.ffn_gate_inp.weight":        false,
		"blk.0.ffn_gate_tid2eid.weight":    false,
		"altup_proj.weight":                false,
		"blk.0.laurel_l.weight":            false,
		"per_layer_model_proj.weight":      false,
		"position_embd.weight":             false,
		"token_types.weight":               false,
		"blk.0.ssm_conv1d.weight":          false,
		"blk.0.shortconv.conv.weight":      false,
		"blk.0.indexer.k_proj.weight":      false,
		"blk.0.indexer.q_proj.weight":      false,
		"blk.0.time_mix_first.weight":      false,
		"blk.0.time_mix_w1.weight":         false,
		"blk.0.time_mix_w2.weight":         false,
		"blk.0.time_mix_v1.weight":         false,
		"blk.0.time_mix_a2.weight":         false,
		"blk.0.time_mix_g1.weight":         false,
		"blk.0.time_mix_decay_w1.weight":   false,
		"blk.0.time_mix_lerp_fused.weight": false,
		"blk.0.attn_rel_b.weight":          false,
		"v.position_embd.weight":           false,
		"v.sam.pos_embd.weight":            false,
		"v.sam.neck.0.weight":              false,
		"v.sam.net_2.weight":               false,
		"v.blk.0.rel_pos.weight":           false,
		"v.patch_embd.weight":              false,
		"mm.patch_merger.weight":           false,
		"a.rvq.codebook.weight":            false,
		"mm.a.code_embd.weight":            false,
	}
	image := small(func(b *ggufbuild.Builder) {
		for name := range names {
			b.AddTensor(name, dtype.F32, []int{2, 32}, make([]byte, 256))
		}
		b.AddTensor("row.weight", dtype.F32, []int{1, 1, 32}, make([]byte, 128))
		b.AddTensor("column.weight", dtype.F32, []int{2, 1, 32}, make([]byte, 256))
	})
	names["row.weight"], names["column.weight"] = false, true
	list, err := quantize.Plan(parse(t, image), quantize.Options{Type: quantize.F16})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if c.Converts() != names[c.Tensor.Name] {
			t.Errorf("%s becomes %s", c.Tensor.Name, c.To)
		}
	}
}

// A value that is not finite in a tensor that does not change is an error with the name of the
// tensor and the position, and no file is left. Tensors of integers are copied without a check.
func TestKeptIsChecked(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(-1)
	f64 := make([]byte, 8*40)
	binary.LittleEndian.PutUint64(f64[8*33:], math.Float64bits(inf))
	f16 := make([]byte, 2*2*32)
	binary.LittleEndian.PutUint16(f16[2*35:], 0x7c00)
	q8 := make([]byte, 2*34)
	binary.LittleEndian.PutUint16(q8[34:], 0x7e00)
	plain := func(dim []int, at int, v float64) []byte {
		return matrix(dim[0], dim[1], func(values []float32) { values[at] = float32(v) })
	}
	for _, tc := range []struct {
		name  string
		d     dtype.DType
		shape []int
		data  []byte
		opt   quantize.Options
		want  string // empty if there is no error
	}{
		{"output_norm.weight", dtype.F32, []int{64}, plain([]int{1, 64}, 5, nan), quantize.Options{Type: quantize.Q8_0}, "f32: element 5: quant: value out of range: NaN"},
		{"output_norm.weight", dtype.F32, []int{64}, plain([]int{1, 64}, 5, inf), quantize.Options{Type: quantize.F16}, "f32: element 5: quant: value out of range: -Inf"},
		{"blk.2.ffn_norm.weight", dtype.F32, []int{64}, plain([]int{1, 64}, 63, inf), quantize.Options{Type: quantize.F32}, "element 63"},
		{"blk.0.attn_q.weight", dtype.F32, []int{300, 256}, plain([]int{300, 256}, 299*256+7, nan), quantize.Options{Type: quantize.F32}, "row 299, column 7"},
		{"blk.0.ffn_gate_inp.weight", dtype.F32, []int{2, 64}, plain([]int{2, 64}, 70, nan), quantize.Options{Type: quantize.Q4_0}, "row 1, column 6"},
		{"blk.0.attn_q.weight", dtype.F16, []int{2, 32}, f16, quantize.Options{Type: quantize.F16}, "row 1, column 3: quant: value out of range: +Inf"},
		{"blk.0.attn_q.weight", dtype.Q8_0, []int{2, 32}, q8, quantize.Options{Type: quantize.Q8_0}, "row 1, column 0: quant: value out of range: NaN"},
		{"x", dtype.F64, []int{40}, f64, quantize.Options{Type: quantize.Q8_0}, "element 33: quant: value out of range: -Inf"},
		{"x", dtype.F64, []int{40}, make([]byte, 8*40), quantize.Options{Type: quantize.Q8_0}, ""},
		{"x", dtype.I32, []int{1}, []byte{0, 0, 0x80, 0x7f}, quantize.Options{Type: quantize.Q8_0}, ""}, // the bits of an infinity in f32
		{"x", dtype.I8, []int{3, 5}, bytes.Repeat([]byte{0xff}, 15), quantize.Options{Type: quantize.Q8_0}, ""},
	} {
		image := oneMatrix(tc.name, tc.d, tc.shape, tc.data)
		dir := t.TempDir()
		in := filepath.Join(dir, "in.gguf")
		if err := os.WriteFile(in, image, 0o600); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "out.gguf")
		_, err := quantize.File(t.Context(), in, out, tc.opt)
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s, %s: %v", tc.name, tc.d, err)
				continue
			}
			f, err := gguf.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := f.Tensor(tc.name); !bytes.Equal(f.Data(got), tc.data) {
				t.Errorf("%s, %s: the bytes changed", tc.name, tc.d)
			}
			_ = f.Close()
			continue
		}
		if !errors.Is(err, quantize.ErrTensor) || !errors.Is(err, quant.ErrRange) ||
			strings.Count(err.Error(), strconv.Quote(tc.name)) != 1 || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s, %s to %s: error %v, want one that names the tensor once and says %q", tc.name, tc.d, tc.opt.Type, err, tc.want)
		}
		onlyFile(t, dir, "in.gguf", image)
	}
}
