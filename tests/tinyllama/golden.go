package tinyllama

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/quant"
)

// Golden is the greedy output of one model if nothing but the stored weights is rounded.
// Exact mode must reproduce it. testdata/README.md describes how the numbers were made.
type Golden struct {
	Name    string // name of the variant, such as "q8_0"
	Options Options

	Prompt      string
	PromptIDs   []int32
	IDs         []int32
	FirstLogits []float32 // the logits from which IDs[0] was chosen
}

//go:embed testdata/golden.json
var goldenJSON []byte

// variants are the models of the recorded goldens. The first is the default.
var variants = []struct {
	name string
	opt  Options
}{
	{"f32", Options{}},
	{"f16", Options{DType: dtype.F16}},
	{"bf16-tied", Options{DType: dtype.BF16, Tied: true}},
	{"q8_0", Options{Seed: 1, DType: dtype.Q8_0, Layers: 3, Embedding: 96, Heads: 6, KVHeads: 2, FeedForward: 224}},
	{"q4_0", Options{DType: dtype.Q4_0, KVHeads: 1}},
}

// Goldens returns the recorded results, the default model's first.
func Goldens() []Golden {
	var file map[string]struct {
		Prompt      string    `json:"prompt"`
		PromptIDs   []int32   `json:"prompt_ids"`
		IDs         []int32   `json:"ids"`
		FirstLogits []float32 `json:"first_logits"`
	}
	if err := json.Unmarshal(goldenJSON, &file); err != nil {
		panic(fmt.Sprintf("tinyllama: testdata/golden.json: %v", err))
	}
	all := make([]Golden, len(variants))
	for i, v := range variants {
		g, ok := file[v.name]
		if !ok {
			panic(fmt.Sprintf("tinyllama: testdata/golden.json: no %q", v.name))
		}
		all[i] = Golden{v.name, v.opt, g.Prompt, g.PromptIDs, g.IDs, g.FirstLogits}
	}
	return all
}

// Widen decodes every tensor to f32, which changes no value. A runtime that rounds
// activations to suit the format of the weights does not round them with the widened model.
func (m *Model) Widen() {
	for i := range m.Tensors {
		t := &m.Tensors[i]
		n := len(t.Data) / t.DType.Size() * t.DType.BlockSize()
		values := make([]float32, n)
		data := make([]byte, 4*n)
		if err := quant.DecodeRow(values, t.DType, t.Data); err != nil {
			panic(fmt.Sprintf("tinyllama: %s: %v", t.Name, err))
		}
		if err := quant.EncodeRow(data, dtype.F32, values); err != nil {
			panic(fmt.Sprintf("tinyllama: %s: %v", t.Name, err))
		}
		t.DType, t.Data = dtype.F32, data
	}
}
