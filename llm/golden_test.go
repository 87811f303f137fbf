package llm_test

import (
	"slices"
	"testing"

	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// checkGolden checks that a model gives the recorded ids and logits.
func checkGolden(t *testing.T, path string, want golden, tol float64) {
	t.Helper()
	m := openModel(t, openExact(t), path, llm.Options{})
	ids, err := m.Tokenizer().Encode(want.Prompt, tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, want.PromptIDs) {
		t.Fatalf("prompt %q gives %v, want %v", want.Prompt, ids, want.PromptIDs)
	}
	got, first, err := greedy(openSession(t, m, llm.SessionOptions{}), ids, len(want.IDs))
	if err != nil {
		t.Fatal(err)
	}
	checkLogits(t, "first token", first, want.FirstLogits, tol)
	checkBits(t, first)
	if !slices.Equal(got, want.IDs) {
		t.Errorf("ids %v\nwant %v", got, want.IDs)
	}
}

// Exact mode gives the ids of llama.cpp on every seeded model.
func TestTinyGoldens(t *testing.T) {
	for _, g := range tinyllama.Goldens() {
		t.Run(g.Name, func(t *testing.T) {
			path := writeModel(t, tinyllama.New(g.Options))
			checkGolden(t, path, golden{g.Prompt, g.PromptIDs, g.IDs, g.FirstLogits}, 1e-4)
		})
	}
}

// Exact mode gives the ids of llama.cpp on a model in every block format, and those
// of the same model with its weights decoded to f32 beforehand.
func TestFormatGoldens(t *testing.T) {
	eng := openExact(t)
	for _, f := range tinyllama.Formats() {
		t.Run(f.DType.String(), func(t *testing.T) {
			model := f.Model()
			coded := openModel(t, eng, writeModel(t, model), llm.Options{})
			ids, first, err := greedy(openSession(t, coded, llm.SessionOptions{}), f.PromptIDs, len(f.IDs))
			if err != nil {
				t.Fatal(err)
			}
			var eighths []float32
			for i := 0; i < len(first); i += 8 {
				eighths = append(eighths, first[i])
			}
			checkLogits(t, "first token", eighths, f.Logits, 1e-4)
			checkBits(t, first)
			if !slices.Equal(ids, f.IDs) {
				t.Errorf("ids %v\nwant %v", ids, f.IDs)
			}
			model.Widen()
			wide := openModel(t, eng, writeModel(t, model), llm.Options{})
			wideIDs, wideFirst, err := greedy(openSession(t, wide, llm.SessionOptions{}), f.PromptIDs, len(f.IDs))
			if err != nil {
				t.Fatal(err)
			}
			checkLogits(t, "beside decoded weights", first, wideFirst, 1e-5)
			if !slices.Equal(ids, wideIDs) {
				t.Errorf("ids %v\nwith decoded weights %v", ids, wideIDs)
			}
		})
	}
}

// Exact mode gives the ids of llama.cpp on a real model, in every format that it
// was stored in.
func TestStoriesGoldens(t *testing.T) {
	for name, want := range storiesGoldens(t) {
		t.Run(name, func(t *testing.T) {
			tol := 1e-3
			if name == "stories260K.gguf" {
				tol = 1e-4
			}
			checkGolden(t, sharedModel(t, name), want, tol)
		})
	}
}
