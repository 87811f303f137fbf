package tinyllama

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/gguf"
)

var write = flag.String("write", "", "write the golden variants, widened to f32, into this `directory`")

// The bytes of a model never change, because results were recorded from them.
func TestBytesArePinned(t *testing.T) {
	want := map[string]string{
		"f32":       "24c683ad58a0a87aab9f90239b3f5ab95f7590c8c7d9e7d1d7f6ce5a32466564",
		"f16":       "7f05bcdbb65bac9dcc75309f8acf0de176e9b32189a81d91b641478d366c67df",
		"bf16-tied": "0d815cac3e7b10dacfb3be86f70768b8cc67e3d3326552c7d77c68a1709645d8",
		"q8_0":      "210dd12c577db667498a668a15c5e58a05c3ca8c38776750ecbfce7ca0362150",
		"q4_0":      "b278319542c717319002a27f5eeb2c41e8e2642db3d5d3527f0abf138aa954ff",
	}
	for _, v := range variants {
		sum := sha256.Sum256(GGUF(v.opt))
		if got := hex.EncodeToString(sum[:]); got != want[v.name] {
			t.Errorf("%s: sha256 %s, want %s", v.name, got, want[v.name])
		}
	}
}

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := WriteFile(path, Options{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, GGUF(Options{})) {
		t.Error("the file differs from GGUF")
	}
}

// A tensor depends only on the seed and its name.
func TestSeeds(t *testing.T) {
	a, b, c := New(Options{}), New(Options{Seed: 1}), New(Options{Layers: 1, Tied: true})
	const name = "blk.0.ffn_up.weight"
	if bytes.Equal(a.Tensor(name).Data, b.Tensor(name).Data) {
		t.Error("two seeds give the same weights")
	}
	if !bytes.Equal(a.Tensor(name).Data, c.Tensor(name).Data) {
		t.Error("the weights of a tensor depend on other tensors")
	}
	if bytes.Equal(a.Tensor(name).Data, a.Tensor("blk.1.ffn_up.weight").Data) {
		t.Error("two tensors share their weights")
	}
}

func TestEdits(t *testing.T) {
	m := New(Options{})
	m.Set("llama.block_count", uint32(7))
	m.Set("test.new", []int32{1, 2})
	m.Delete("general.name")
	m.Delete("output.weight")
	m.Add("test.zeros", dtype.Q8_0, 2, 64)
	f, err := gguf.Parse(m.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Int("llama.block_count"); err != nil || n != 7 {
		t.Errorf("block count %d, %v", n, err)
	}
	if _, ok := f.Value("general.name"); ok {
		t.Error("a deleted key is there")
	}
	if _, ok := f.Value("test.new"); !ok {
		t.Error("a new key is missing")
	}
	if _, ok := f.Tensor("output.weight"); ok {
		t.Error("a deleted tensor is there")
	}
	if z, ok := f.Tensor("test.zeros"); !ok || z.DType != dtype.Q8_0 || z.Size != 4*34 {
		t.Errorf("added tensor: %+v, %v", z, ok)
	}
}

func TestBadOptionsPanic(t *testing.T) {
	for name, o := range map[string]Options{
		"heads":    {Heads: 3},
		"odd head": {Embedding: 20, Heads: 4},
		"KV heads": {KVHeads: 3},
		"blocks":   {FeedForward: 100, DType: dtype.Q8_0},
		"encoder":  {DType: dtype.Q4_K},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic for %+v", o)
				}
			}()
			New(o)
		})
	}
}

func TestGoldens(t *testing.T) {
	for _, g := range Goldens() {
		if len(g.IDs) != 32 || len(g.PromptIDs) == 0 || len(g.FirstLogits) != len(newVocabulary().tokens) {
			t.Errorf("%s: %d ids, %d prompt ids, %d logits", g.Name, len(g.IDs), len(g.PromptIDs), len(g.FirstLogits))
		}
		seen := map[int32]bool{}
		for _, id := range g.IDs {
			seen[id] = true
		}
		if len(seen) < 16 {
			t.Errorf("%s: greedy text is degenerate: %v", g.Name, g.IDs)
		}
	}
}

// The widened files have the tensors of their models, in f32. With -write, this is the first
// step of testdata/README.md.
func TestWriteWidened(t *testing.T) {
	dir := cmp.Or(*write, t.TempDir())
	models := map[string]*Model{}
	for _, v := range variants {
		models[v.name] = New(v.opt)
	}
	for _, f := range families {
		models[f.name] = f.build()
	}
	for name, m := range models {
		m.Widen()
		path := filepath.Join(dir, name+".gguf")
		if err := os.WriteFile(path, m.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Tensors()) != len(m.Tensors) {
			t.Errorf("%s: %d tensors, want %d", name, len(f.Tensors()), len(m.Tensors))
		}
		for _, w := range f.Tensors() {
			if w.DType != dtype.F32 {
				t.Errorf("%s: %s is %s, want f32", name, w.Name, w.DType)
			}
			err := f.View(w, func(data []byte) error {
				if !bytes.Equal(data, m.Tensor(w.Name).Data) {
					t.Errorf("%s: %s has other values in the file", name, w.Name)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
