package llm_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/repo"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// distance is how far the logits of a model are from those of exact mode, in the mean of several
// positions.
type distance struct {
	NMSE float64 `json:"mean_nmse"` // squared error, relative to the sum of squares
	KL   float64 `json:"mean_kl"`   // of the probabilities of exact mode from the others
}

//go:embed testdata/rounded.json
var roundedJSON []byte

// teacher returns the logits that the model at path gives after each of the last n ids.
func teacher(t *testing.T, exact bool, path string, ids []int32, n int) [][]float32 {
	t.Helper()
	m := openModel(t, engine.Open(t, fucina.WithExact(exact)), path, llm.Options{})
	s := openSession(t, m, llm.SessionOptions{KV: dtype.F32})
	var rows [][]float32
	err := s.DecodeAll(context.Background(), ids, func(i int, logits []float32) error {
		if i >= len(ids)-n {
			rows = append(rows, slices.Clone(logits))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// distanceOf returns the distance of logits from those of exact mode.
func distanceOf(got, exact [][]float32) (d distance) {
	for i, want := range exact {
		var e, s float64
		for j, w := range want {
			e += (float64(got[i][j]) - float64(w)) * (float64(got[i][j]) - float64(w))
			s += float64(w) * float64(w)
		}
		d.NMSE += e / s / float64(len(exact))
		top, all := logSum(want)
		gotTop, gotAll := logSum(got[i])
		for j, w := range want {
			p := float64(w) - top - all
			q := float64(got[i][j]) - gotTop - gotAll
			d.KL += math.Exp(p) * (p - q) / float64(len(exact))
		}
	}
	return d
}

// logSum returns the largest logit, and the logarithm of the sum of the exponentials of the others
// beside it.
func logSum(logits []float32) (top, sum float64) {
	top = float64(slices.Max(logits))
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	return top, math.Log(sum)
}

// On a real model, logits whose products round activations are as near to those of exact mode as
// ggml's own are, in every format that the model was stored in. One of the 64 positions may have
// half of the squared error of all, and other orders of sums make it a third larger or smaller.
// Therefore the ratio of the squared errors is bounded more tightly in the mean of the block formats.
func TestStoriesRounded(t *testing.T) {
	const most, mostOfOne = 1.1, 1.5
	var all map[string]distance
	if err := json.Unmarshal(roundedJSON, &all); err != nil {
		t.Fatal(err)
	}
	goldens := storiesGoldens(t)
	var sum, count float64
	for format, ggml := range all {
		t.Run(format, func(t *testing.T) {
			name := fmt.Sprintf("pad256/stories260K-pad256-%s.gguf", format)
			g, ok := goldens[name]
			if !ok {
				t.Fatalf("no results for %s", name)
			}
			path := repo.Shared(t, "TestTinyRounded does the same with seeded models", "models", filepath.FromSlash(name))
			ids := append(slices.Clone(g.PromptIDs), g.IDs[:len(g.IDs)-1]...)
			got := distanceOf(teacher(t, false, path, ids, len(g.IDs)), teacher(t, true, path, ids, len(g.IDs)))
			nmse, kl := got.NMSE/ggml.NMSE, got.KL/ggml.KL
			t.Logf("NMSE %.3g, %.2f times ggml's; KL %.3g, %.2f times ggml's", got.NMSE, nmse, got.KL, kl)
			if !(nmse <= mostOfOne) || !(kl <= most) {
				t.Errorf("want at most %v times the NMSE and %v times the KL of ggml", mostOfOne, most)
			}
			if format != "f16" { // of which nothing is rounded here
				sum, count = sum+nmse, count+1
			}
		})
	}
	if mean := sum / count; mean > most {
		t.Errorf("the NMSE is %.2f times ggml's in the mean of %v block formats, want at most %v", mean, count, most)
	}
}

// In block formats of each kind, logits whose products round activations to 8 bits are near to those
// of exact mode. With 7 bits, the bounds are exceeded.
func TestTinyRounded(t *testing.T) {
	kinds := []dtype.DType{dtype.Q4_0, dtype.Q8_0, dtype.Q2_K, dtype.Q4_K, dtype.Q6_K, dtype.IQ4_XS, dtype.MXFP4}
	for _, f := range tinyllama.Formats() {
		if !slices.Contains(kinds, f.DType) {
			continue
		}
		t.Run(f.DType.String(), func(t *testing.T) {
			path := writeModel(t, f.Model())
			ids := append(slices.Clone(f.PromptIDs), f.IDs...)
			got := distanceOf(teacher(t, false, path, ids, len(ids)), teacher(t, true, path, ids, len(ids)))
			t.Logf("%d positions, NMSE %.3g, KL %.3g", len(ids), got.NMSE, got.KL)
			if !(got.NMSE <= 1e-3) || !(got.KL <= 2e-3) {
				t.Errorf("NMSE %.3g and KL %.3g, want at most 1e-3 and 2e-3", got.NMSE, got.KL)
			}
		})
	}
}
