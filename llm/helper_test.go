package llm_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/repo"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// openExact returns an engine in exact mode, also if FUCINA_EXACT is set.
func openExact(t testing.TB) *fucina.Engine { return engine.Open(t, fucina.WithExact(true)) }

// openModel opens the file at path, and closes the model at the end of the test.
func openModel(t testing.TB, eng *fucina.Engine, path string, opt llm.Options) *llm.Model {
	t.Helper()
	m, err := llm.Open(eng, path, opt)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, m)
	return m
}

// openSession returns a session, and closes it at the end of the test.
func openSession(t testing.TB, m *llm.Model, opt llm.SessionOptions) *llm.Session {
	t.Helper()
	s, err := m.NewSession(opt)
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, s)
	return s
}

// writeModel writes a seeded model into the test's directory.
func writeModel(t testing.TB, m *tinyllama.Model) string {
	t.Helper()
	return m.File(t, "model.gguf")
}

// openTiny opens the seeded model that opt describes, in exact mode.
func openTiny(t testing.TB, opt tinyllama.Options) *llm.Model {
	t.Helper()
	return openModel(t, openExact(t), writeModel(t, tinyllama.New(opt)), llm.Options{})
}

// greedy appends ids to the session and returns the n most likely tokens that
// follow, and the logits of the first.
func greedy(s *llm.Session, ids []int32, n int) (next []int32, first []float32, err error) {
	logits := make([]float32, s.Model().Params().Vocabulary)
	for range n {
		if err := s.Decode(context.Background(), ids, logits); err != nil {
			return next, first, err
		}
		if first == nil {
			first = slices.Clone(logits)
		}
		next = append(next, argmax(logits))
		ids = next[len(next)-1:]
	}
	return next, first, nil
}

func argmax(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}

// decode returns the logits of Session.Decode. It ends the test if Decode fails.
func decode(t testing.TB, s *llm.Session, ids ...int32) []float32 {
	t.Helper()
	logits := make([]float32, s.Model().Params().Vocabulary)
	if err := s.Decode(context.Background(), ids, logits); err != nil {
		t.Fatal(err)
	}
	return logits
}

// checkLogits checks that each entry of got is within tol of that of want.
func checkLogits(t testing.TB, what string, got, want []float32, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d logits, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if d := math.Abs(float64(got[i]) - float64(want[i])); !(d <= tol) {
			t.Errorf("%s: logit %d is %v, want %v within %v", what, i, got[i], want[i], tol)
			return
		}
	}
}

// golden is the greedy output of a model if activations are not rounded.
type golden struct {
	Prompt      string    `json:"prompt"`
	PromptIDs   []int32   `json:"prompt_ids"`
	IDs         []int32   `json:"ids"`
	FirstLogits []float32 `json:"first_logits"`
}

//go:embed testdata/stories260K.json
var storiesJSON []byte

// storiesGoldens returns the results for real models, by their path in
// ../shared/models. testdata/README.md describes their origin.
func storiesGoldens(t testing.TB) map[string]golden {
	t.Helper()
	var all map[string]golden
	if err := json.Unmarshal(storiesJSON, &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// sharedModel returns the path of a model in ../shared/models. It skips the test if the model is
// not there.
func sharedModel(t testing.TB, name string) string {
	t.Helper()
	return repo.Shared(t, "TestTinyGoldens and TestFormatGoldens do the same with seeded models", "models", filepath.FromSlash(name))
}
