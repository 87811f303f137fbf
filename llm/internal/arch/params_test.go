package arch

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// edit sets a key of a file's metadata to a value. If the value is nil, it removes the key.
type edit struct {
	key   string
	value gguf.Value
}

// tiny returns the file of a small model of two blocks, without tensors and with edits of its
// metadata.
func tiny(t *testing.T, arch string, edits ...edit) *gguf.File {
	t.Helper()
	m := tinyllama.NewShape(tinyllama.Shape{Architecture: arch})
	m.Tensors = nil
	parse := func(image []byte) *gguf.File {
		f, err := gguf.Parse(image)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	var image bytes.Buffer
	w := gguf.NewWriter(&image)
	err := w.SetAll(&parse(m.Bytes()).Metadata)
	for _, e := range edits {
		if e.value == (gguf.Value{}) {
			err = errors.Join(err, w.Remove(e.key))
		} else {
			err = errors.Join(err, w.Set(e.key, e.value))
		}
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return parse(image.Bytes())
}

func u32(n uint32) gguf.Value  { return gguf.NewValue(n) }
func i32(n int32) gguf.Value   { return gguf.NewValue(n) }
func f32(v float32) gguf.Value { return gguf.NewValue(v) }
func str(s string) gguf.Value  { return gguf.NewValue(s) }

// badFile has edits that make a file invalid.
type badFile struct {
	name  string
	arch  string
	edits []edit
	is    error  // the sentinel of the error
	says  string // a part of its text
}

// badFiles returns edits for every kind of invalid metadata.
func badFiles() []badFile {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	invalid, unsupported := ErrInvalidModel, ErrUnsupportedModel
	one := func(key string, v gguf.Value) []edit { return []edit{{key, v}} }
	// bad returns a file with one wrong value. The error names its key.
	bad := func(name, key string, v gguf.Value, is error) badFile {
		arch, _, _ := strings.Cut(key, ".")
		return badFile{name, arch, one(key, v), is, key}
	}
	const (
		heads   = "llama.attention.head_count"
		kvHeads = "llama.attention.head_count_kv"
		eps     = "llama.attention.layer_norm_rms_epsilon"
		rope    = "llama.rope.dimension_count"
		base    = "llama.rope.freq_base"
		scaling = "llama.rope.scaling.type"
	)
	none := gguf.Value{}
	files := []badFile{
		{"no architecture", "llama", one("general.architecture", none), invalid, "general.architecture"},
		{"architecture of another type", "llama", one("general.architecture", u32(1)), invalid, "general.architecture"},
		{"unknown architecture", "llama", one("general.architecture", str("gpt2")), unsupported, `"gpt2", want one of [gemma2 gemma3 llama`},

		bad("heads do not divide the width", heads, u32(3), invalid),
		bad("KV heads do not divide the heads", kvHeads, u32(3), invalid),
		bad("more KV heads than heads", kvHeads, u32(8), invalid),
		{"heads too long", "llama", one("llama.attention.key_length", u32(1<<20)), invalid, "llama.attention.key_length is 1048576, want 1 to 16384"},
		{"heads too long by the width", "llama", []edit{{"llama.embedding_length", u32(1 << 24)}, {heads, u32(1)}, {kvHeads, u32(1)}}, invalid, "gives heads of 16777216 elements"},

		bad("no epsilon", eps, none, invalid),
		bad("epsilon of another type", eps, str("1e-5"), invalid),
		bad("NaN epsilon", eps, f32(nan), invalid),
		bad("negative epsilon", eps, f32(-1e-5), invalid),
		bad("infinite epsilon", eps, f32(inf), invalid),

		bad("odd rotation", rope, u32(15), invalid),
		bad("rotation beyond the head", rope, u32(18), invalid),
		bad("negative frequency base", base, f32(-1), invalid),
		bad("NaN frequency base", base, f32(nan), invalid),
		bad("frequency base of another type", base, gguf.NewValue(true), invalid),
		bad("unknown scaling", scaling, str("longrope"), unsupported),
		bad("scaling of another type", scaling, u32(1), invalid),
		bad("NaN scaling factor", "llama.rope.scaling.factor", f32(nan), invalid),
		bad("a scaling factor without a reciprocal", "llama.rope.scaling.factor", gguf.NewValue(math.SmallestNonzeroFloat64), invalid),
		bad("an old factor without a reciprocal", "llama.rope.scale_linear", gguf.NewValue(math.SmallestNonzeroFloat64), invalid),
		{"yarn over no context", "llama", []edit{{scaling, str("yarn")}, {"llama.rope.scaling.original_context_length", u32(0)}}, invalid, "original_context_length"},

		bad("mixture of experts", "llama.expert_count", u32(8), unsupported),
		bad("experts of another type", "llama.expert_count", str("8"), invalid),

		bad("a window of another type", "gemma2.attention.sliding_window", str("4"), invalid),
		bad("a negative window", "gemma2.attention.sliding_window", i32(-1), invalid),
		bad("a pattern of nothing", "gemma2.attention.sliding_window_pattern", u32(0), invalid),
		bad("a zero cap", "gemma2.attn_logit_softcapping", f32(0), invalid),
		bad("a NaN cap", "gemma2.final_logit_softcapping", f32(nan), invalid),
		{"a pattern in words", "gemma3", []edit{{"gemma3.attention.sliding_window", u32(4)}, {"gemma3.attention.sliding_window_pattern", str("1")}}, invalid, "gemma3.attention.sliding_window_pattern"},
		bad("a negative cap", "gemma3.final_logit_softcapping", f32(-1), invalid),
		{"a negative local base", "gemma3", []edit{{"gemma3.attention.sliding_window", u32(4)}, {"gemma3.rope.freq_base_swa", f32(-1)}}, invalid, "gemma3.rope.freq_base_swa"},

		bad("flags", "gemma3.attention.head_count_kv", gguf.NewArray([]bool{true, true}), invalid),
		bad("64-bit numbers that differ", "gemma3.attention.head_count_kv", gguf.NewArray([]uint64{1, 2}), unsupported),
		bad("64-bit numbers that are too large", "gemma3.attention.head_count_kv", gguf.NewArray([]uint64{math.MaxUint64, 2}), invalid),
		bad("fractions", "gemma3.feed_forward_length", gguf.NewArray([]float64{16, 16}), invalid),
	}
	for _, key := range []string{"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count"} {
		files = append(files, bad("no "+key, "llama."+key, none, invalid))
	}
	perBlock := []string{"feed_forward_length", "attention.head_count", "attention.head_count_kv"}
	scalars := []string{"block_count", "context_length", "embedding_length", "attention.key_length", "attention.value_length", "rope.dimension_count"}
	for _, key := range append(scalars, perBlock...) {
		for _, v := range []gguf.Value{u32(0), i32(-1), u32(math.MaxUint32), f32(2), str("2"), gguf.NewArray([]string{"2", "2"}), gguf.NewArray([]float32{2, 2})} {
			files = append(files, bad(fmt.Sprintf("%s of %s %v", key, v.Type(), v), "llama."+key, v, invalid))
		}
	}
	for _, key := range scalars {
		files = append(files, bad("an array for "+key, "llama."+key, gguf.NewArray([]int32{2, 2}), invalid))
	}
	for _, key := range perBlock {
		for _, c := range []struct {
			value []int32
			is    error
			says  string
		}{
			{[]int32{4, 2}, unsupported, "[1] is 2"},
			{[]int32{0, 2}, unsupported, "[0] is 0"},
			{[]int32{2, -1}, invalid, "[1] is -1"},
			{[]int32{math.MaxInt32, 2}, invalid, "[0] is 2147483647"},
			{[]int32{2, 2, 2}, invalid, " has 3 entries"},
			{[]int32{}, invalid, " has 0 entries"},
		} {
			files = append(files, badFile{fmt.Sprintf("%s of %v", key, c.value), "llama", one("llama."+key, gguf.NewArray(c.value)), c.is, "llama." + key + c.says})
		}
	}
	return files
}

// The error of invalid metadata names the key and the value, and says whether the file is
// invalid or not supported.
func TestReadBadFiles(t *testing.T) {
	for _, c := range badFiles() {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Read(tiny(t, c.arch, c.edits...))
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v\nwant %q that says %q", err, c.is, c.says)
			}
			if errors.Is(err, ErrInvalidModel) && errors.Is(err, ErrUnsupportedModel) {
				t.Errorf("both sentinels: %v", err)
			}
		})
	}
}

// The value of a missing key follows from other keys, or is a constant of the family.
func TestReadDefaults(t *testing.T) {
	for _, tc := range []struct {
		name  string
		arch  string
		edits []edit
		get   func(*Params) any
		want  any
	}{
		{"name", "llama", nil, func(p *Params) any { return p.Name }, ""},
		{"name that is no text", "llama", []edit{{"general.name", u32(1)}}, func(p *Params) any { return p.Name }, ""},
		{"KV heads", "llama", []edit{{"llama.attention.head_count_kv", gguf.Value{}}}, func(p *Params) any { return p.KVHeads }, 4},
		{"head lengths", "llama", nil, func(p *Params) any { return [2]int{p.KeyLength, p.ValueLength} }, [2]int{16, 16}},
		{"rotation", "llama", nil, func(p *Params) any { return p.RoPE.Dims }, 16},
		{"frequency base", "llama", nil, func(p *Params) any { return p.RoPE.FreqBase }, 10000.0},
		{"window of llama", "llama", []edit{{"llama.attention.sliding_window", u32(4)}}, func(p *Params) any { return p.Window }, 0},
		{"window of gemma2", "gemma2", nil, func(p *Params) any { return [2]int{p.Window, p.WindowPattern} }, [2]int{4096, 2}},
		{"window of gemma3", "gemma3", nil, func(p *Params) any { return p.Window }, 0},
		{"pattern of gemma3", "gemma3", []edit{{"gemma3.attention.sliding_window", u32(4)}}, func(p *Params) any { return [2]int{p.Window, p.WindowPattern} }, [2]int{4, 6}},
		{"local base of gemma2", "gemma2", []edit{{"gemma2.rope.freq_base", f32(100)}}, func(p *Params) any { return p.LocalRoPE.FreqBase }, 100.0},
		{"local base of gemma3", "gemma3", []edit{{"gemma3.attention.sliding_window", u32(4)}, {"gemma3.rope.freq_base", f32(100)}}, func(p *Params) any { return p.LocalRoPE.FreqBase }, 10000.0},
		{"caps of llama", "llama", []edit{{"llama.final_logit_softcapping", f32(2)}}, func(p *Params) any { return [2]float32{p.AttentionSoftCap, p.FinalSoftCap} }, [2]float32{}},
		{"caps of gemma2", "gemma2", nil, func(p *Params) any { return [2]float32{p.AttentionSoftCap, p.FinalSoftCap} }, [2]float32{50, 30}},
		{"caps of gemma3", "gemma3", nil, func(p *Params) any { return [2]float32{p.AttentionSoftCap, p.FinalSoftCap} }, [2]float32{}},
		{"caps in a file of gemma3", "gemma3", []edit{{"gemma3.attn_logit_softcapping", f32(2)}, {"gemma3.final_logit_softcapping", f32(2)}}, func(p *Params) any { return [2]float32{p.AttentionSoftCap, p.FinalSoftCap} }, [2]float32{0, 2}},
		{"embedding scale of qwen3", "qwen3", nil, func(p *Params) any { return p.EmbeddingScale }, float32(0)},
		{"embedding scale of gemma2", "gemma2", nil, func(p *Params) any { return p.EmbeddingScale }, float32(8)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, _, err := Read(tiny(t, tc.arch, tc.edits...))
			if err != nil {
				t.Fatal(err)
			}
			if got := tc.get(&p); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// The number of blocks identifies the variants whose scores are scaled by the width.
func TestWideScale(t *testing.T) {
	for arch, wide := range map[string]uint32{"gemma2": 46, "gemma3": 62, "llama": 0} {
		for _, n := range []uint32{45, 46, 61, 62} {
			f := tiny(t, arch, edit{arch + ".block_count", u32(n)}, edit{arch + ".attention.key_length", u32(8)})
			p, _, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			want := float32(1 / math.Sqrt(8)) // 8 is the length of a head
			if n == wide {
				want = float32(1 / math.Sqrt(64/4))
			}
			if p.AttentionScale != want {
				t.Errorf("%s of %d blocks: scale %v, want %v", arch, n, p.AttentionScale, want)
			}
		}
	}
}

// Sessions longer than the original context use the long factors, if the file has them.
func TestStretched(t *testing.T) {
	p := Params{LongFactors: []float32{2}}
	p.RoPE.FreqFactors, p.RoPE.OriginalContext = []float32{1}, 32
	for n, want := range map[int]float32{32: 1, 33: 2} {
		if got := Stretched(&p, n).FreqFactors; len(got) != 1 || got[0] != want {
			t.Errorf("%d tokens: factors %v, want %v", n, got, want)
		}
	}
	p.LongFactors = nil
	if got := Stretched(&p, 33).FreqFactors; len(got) != 1 || got[0] != 1 {
		t.Errorf("without long factors: %v", got)
	}
}
