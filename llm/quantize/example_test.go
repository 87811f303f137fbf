package quantize_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// Write quantizes a model in memory.
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
	g, err := gguf.Parse(out.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	defer g.Close()
	recipe, err := g.Uint("general.file_type")
	if err != nil {
		log.Fatal(err)
	}
	t, _ := g.Tensor("output.weight")
	fmt.Println("written as", quantize.FileType(recipe), "with output.weight in", t.DType)
	// Output:
	// output.weight f32 q6_k
	// output_norm.weight f32 f32
	// token_embd.weight f32 q4_k
	// blk.0.attn_k.weight f32 q4_k
	// blk.0.attn_norm.weight f32 f32
	// written as Q4_K_M with output.weight in q6_k
}

// File quantizes a file. Until the output is complete, it does not exist or has its old
// content.
func ExampleFile() {
	dir, err := os.MkdirTemp("", "quantize")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	in, out := filepath.Join(dir, "in.gguf"), filepath.Join(dir, "out.gguf")
	if err := os.WriteFile(in, tinyllama.GGUF(tinyllama.Options{Embedding: 256, FeedForward: 256, Layers: 1}), 0o600); err != nil {
		log.Fatal(err)
	}
	list, err := quantize.File(context.Background(), in, out, quantize.Options{Type: quantize.Q8_0})
	if err != nil {
		log.Fatal(err)
	}
	converted := 0
	for _, c := range list {
		if c.Converts() {
			converted++
		}
	}
	f, err := gguf.Open(out)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, _ := f.Tensor("blk.0.ffn_down.weight")
	fmt.Println(converted, "of", len(list), "tensors converted")
	fmt.Println(t.Name, t.DType, t.Shape)
	// Output:
	// 9 of 12 tensors converted
	// blk.0.ffn_down.weight q8_0 [256 256]
}
