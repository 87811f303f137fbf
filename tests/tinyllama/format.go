package tinyllama

import (
	_ "embed"
	"encoding/json"
	"fmt"

	"github.com/fucina-go/fucina/core/dtype"
)

// Format is the greedy output of a small llama model with all its matrices, including the
// embedding, in a block format. It is like [Golden], for every format of a matrix.
type Format struct {
	DType     dtype.DType
	PromptIDs []int32
	IDs       []int32
	// Logits are the logits from which IDs[0] was chosen, of every eighth token from the
	// first on.
	Logits []float32
}

// Model returns the model. Its rows have whole blocks of 256, the largest block.
func (f *Format) Model() *Model {
	return NewShape(Shape{
		Layers: 1, Embedding: 256, FeedForward: 256, Heads: 8, KVHeads: 1, HeadLength: 32, DType: f.DType,
	})
}

//go:embed testdata/formats.json
var formatsJSON []byte

// Formats returns the recorded results of the formats, in the order of dtype.All.
func Formats() []Format {
	var file struct {
		PromptIDs []int32 `json:"prompt_ids"`
		Formats   map[string]struct {
			IDs    []int32   `json:"ids"`
			Logits []float32 `json:"logits"`
		} `json:"formats"`
	}
	if err := json.Unmarshal(formatsJSON, &file); err != nil {
		panic(fmt.Sprintf("tinyllama: testdata/formats.json: %v", err))
	}
	var all []Format
	for _, d := range matrixFormats() {
		r, ok := file.Formats[d.String()]
		if !ok {
			panic(fmt.Sprintf("tinyllama: testdata/formats.json: no %q", d))
		}
		all = append(all, Format{d, file.PromptIDs, r.IDs, r.Logits})
	}
	return all
}

// matrixFormats returns the block formats that a matrix may have.
func matrixFormats() []dtype.DType {
	var all []dtype.DType
	for _, d := range dtype.All() {
		if d.SupportsQuantizedMatMulRHS() {
			all = append(all, d)
		}
	}
	return all
}
