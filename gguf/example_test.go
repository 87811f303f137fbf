package gguf_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

func Example() {
	var b ggufbuild.Builder
	b.SetString("general.architecture", "llama")
	b.SetUint32("llama.block_count", 5)
	b.SetStrings("tokenizer.ggml.tokens", []string{"<s>", "once", "upon"})
	b.AddTensor("token_embd.weight", dtype.F32, []int{3, 4}, make([]byte, 48))

	dir, err := os.MkdirTemp("", "gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny.gguf")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		log.Fatal(err)
	}

	f, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for _, key := range f.Keys() {
		v, _ := f.Value(key)
		fmt.Println(key, "=", v)
	}
	for _, t := range f.Tensors() {
		fmt.Println(t.Name, t.DType, t.Shape, t.Size)
	}
	// Output:
	// general.architecture = "llama"
	// llama.block_count = 5
	// tokenizer.ggml.tokens = [3]str{"<s>", "once", "upon"}
	// token_embd.weight f32 [3 4] 48
}

func ExampleMetadata() {
	var b ggufbuild.Builder
	b.SetUint32("llama.block_count", 5)
	b.SetFloat32("llama.rope.freq_base", 10000)
	f, err := gguf.Parse(b.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	blocks, err := f.Uint("llama.block_count")
	fmt.Println(blocks, err)
	kv, err := f.UintOr("llama.attention.head_count_kv", 4)
	fmt.Println(kv, err)
	_, err = f.Uint("llama.rope.freq_base")
	fmt.Println(err)
	// Output:
	// 5 <nil>
	// 4 <nil>
	// gguf: wrong value type: key "llama.rope.freq_base" is f32, want unsigned integer
}

func ExampleWriteFile() {
	dir, err := os.MkdirTemp("", "gguf")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny.gguf")

	err = gguf.WriteFile(path, func(w *gguf.Writer) error {
		return errors.Join(
			w.Set("general.architecture", gguf.NewValue("llama")),
			w.Set("tokenizer.ggml.scores", gguf.NewArray([]float32{0, -1.5})),
			w.AddTensor(gguf.TensorInfo{Name: "norm", DType: dtype.F16, Shape: []int{2}}),
			w.WriteTensor("norm", []byte{0x00, 0x3c, 0x00, 0x40}),
		)
	})
	if err != nil {
		log.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for key, v := range f.All() {
		fmt.Println(key, "=", v)
	}
	t, _ := f.Tensor("norm")
	fmt.Printf("%s %v % x\n", t.DType, t.Shape, f.Data(t))
	// Output:
	// general.architecture = "llama"
	// tokenizer.ggml.scores = [2]f32{0, -1.5}
	// f16 [2] 00 3c 00 40
}
