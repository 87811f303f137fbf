package quantize_test

import (
	"bytes"
	"context"
	"fmt"
	"log"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// Quantize a model in memory. File does it for files.
func Example() {
	f, err := gguf.Parse(tinyllama.GGUF(tinyllama.Options{Embedding: 256, FeedForward: 256, Layers: 1}))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	opt := quantize.Options{Type: quantize.Q4_K_M}
	list, err := quantize.Plan(f, opt)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range list[:5] {
		fmt.Println(c.Tensor.Name, c.Tensor.DType, c.To)
	}
	var out bytes.Buffer
	w := gguf.NewWriter(&out)
	if err := quantize.Write(context.Background(), w, f, opt); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// output.weight f32 q6_k
	// output_norm.weight f32 f32
	// token_embd.weight f32 q4_k
	// blk.0.attn_k.weight f32 q4_k
	// blk.0.attn_norm.weight f32 f32
}
