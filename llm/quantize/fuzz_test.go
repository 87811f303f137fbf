package quantize_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm/quantize"
	"github.com/fucina-go/fucina/tests/ggufbuild"
)

// Write refuses a file, or writes a file that can be opened and has the tensors of the plan.
func FuzzQuantize(f *testing.F) {
	f.Add(oneMatrix("blk.0.ffn_down.weight", dtype.F32, []int{2, 64}, matrix(2, 64, nil)), byte(quantize.Q4_0), false)
	f.Add(oneMatrix("token_embd.weight", dtype.Q8_0, []int{2, 32}, make([]byte, 68)), byte(quantize.F16), true)
	f.Add(small(func(b *ggufbuild.Builder) {
		b.SetUint32("llama.expert_count", 8)
		b.AddTensor("blk.0.ffn_up_exps.weight", dtype.F16, []int{2, 3, 32}, make([]byte, 2*3*32*2))
		b.AddTensor("a.weight", dtype.F32, []int{3, 0}, nil)
		b.AddTensor("b.weight", dtype.F32, []int{0, 32}, nil)
	}), byte(quantize.Q4_K_M), true)
	f.Add(small(func(b *ggufbuild.Builder) {
		b.AddTensor("vector", dtype.Q2_0, []int{4096}, make([]byte, 4096/128*34))
		b.AddTensor("a.weight", dtype.F32, []int{2, 64}, matrix(2, 64, nil))
	}), byte(quantize.Q2_0), true)
	f.Fuzz(func(t *testing.T, image []byte, recipe byte, pure bool) {
		in, err := gguf.Parse(image)
		if err != nil || in.Alignment() > 1<<16 { // gigabytes of padding in a short file
			return
		}
		opt := quantize.Options{Type: quantize.FileType(recipe), Pure: pure, AllowRequantize: true, Threads: 2}
		list, err := quantize.Plan(in, opt)
		if err != nil {
			for _, want := range []error{quantize.ErrFileType, quantize.ErrImportance, quantize.ErrTensor, quantize.ErrMetadata} {
				if errors.Is(err, want) {
					return
				}
			}
			t.Fatal(err)
		}
		var out bytes.Buffer
		w := gguf.NewWriter(&out)
		if err := quantize.Write(t.Context(), w, in, opt); err != nil {
			// The values do not fit, or the file has both formats of type 42.
			if !errors.Is(err, quantize.ErrTensor) && !errors.Is(err, gguf.ErrWrite) {
				t.Fatal(err)
			}
			return
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		g, err := gguf.Parse(out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		got := g.Tensors()
		if len(got) != len(list) {
			t.Fatalf("%d tensors, want %d", len(got), len(list))
		}
		for i, c := range list {
			if got[i].Name != c.Tensor.Name || got[i].DType != c.To || got[i].Size != c.Size {
				t.Errorf("tensor %+v, want %+v", got[i], c)
			}
		}
	})
}
