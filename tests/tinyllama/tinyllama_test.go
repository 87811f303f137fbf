package tinyllama

import (
	"bytes"
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

// The bytes of a model must never change: numbers were recorded from them.
func TestBytesArePinned(t *testing.T) {
	want := map[string]string{
		"f32":       "ce70591e7701573072a0b7b02a2b09ecb3d91df91745d215bd3177f364856391",
		"f16":       "b3fbef78e41617beabc88274a0be24556dbcbfc829152535c4efcb62f63e289e",
		"bf16-tied": "6ea7588efdafda3e0e7a4b55438543091f4f33cdf4691cd1da84cb18046e372f",
		"q8_0":      "3645ad7602690dbf310ed470a6458fc56b92f95218ae59dafef7dca68ddcf3d0",
		"q4_0":      "5c6bffc555145b5096d46c45ebc5b867d101ffeffe68c95b6ecca6dd492edee4",
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

// A tensor depends on the seed and its name only.
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
		"rows":     {DType: dtype.Q4_K},
		"encoder":  {DType: dtype.F64},
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

// TestWriteWidened is the first step of testdata/README.md.
func TestWriteWidened(t *testing.T) {
	if *write == "" {
		t.Skip("no -write")
	}
	models := map[string]*Model{}
	for _, v := range variants {
		models[v.name] = New(v.opt)
	}
	for _, f := range families {
		models[f.name] = f.build()
	}
	for _, d := range matrixFormats() {
		models["format-"+d.String()] = (&Format{DType: d}).Model()
	}
	for name, m := range models {
		m.Widen()
		if err := os.WriteFile(filepath.Join(*write, name+".gguf"), m.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
