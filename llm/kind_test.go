package llm_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/providers/cpu"
)

// kindRecorder records how many of the rows of each product and attention are said to be
// generated.
type kindRecorder struct {
	provider.Provider
	mu   sync.Mutex
	seen []int
}

func (r *kindRecorder) Submit(ctx context.Context, q provider.Queue, id op.ID, a *op.Args) (accel.Work, error) {
	if id == op.Project || id == op.Attention {
		r.mu.Lock()
		r.seen = append(r.seen, a.Generated)
		r.mu.Unlock()
	}
	return r.Provider.Submit(ctx, q, id, a)
}

// kinds returns what was recorded since the last call, without repetitions.
func (r *kindRecorder) kinds() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds := slices.Compact(r.seen)
	r.seen = nil
	return kinds
}

// A provider learns which rows belong to generated tokens: those of Next, also when they are
// computed again after a rewind, and no others. What other sessions compute in between does not
// change that.
func TestKindsOfRows(t *testing.T) {
	c, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &kindRecorder{Provider: c}
	eng := openExactWith(t, fucina.WithProvider("cpu"), fucina.WithCPU(r))
	m := newModel(t, eng, openGGUF(t, scheduleModel(8)), llm.Options{PrefixTokens: -1})
	s, other := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{})
	check := func(what string, want ...int) {
		t.Helper()
		if got := r.kinds(); !slices.Equal(got, want) {
			t.Errorf("%s: steps with %d generated rows, want %d", what, got, want)
		}
	}
	logits := make([]float32, m.Params().Vocabulary)
	next := func(s *llm.Session) {
		if err := s.Next(t.Context(), 5, logits); err != nil {
			t.Fatal(err)
		}
	}
	decode(t, s, longIDs(10, 1)...)
	check("a prompt", 0)
	for range 90 {
		next(s)
	}
	check("generated tokens", 1)
	if err := s.Rewind(20); err != nil {
		t.Fatal(err)
	}
	decode(t, s, 7)
	check("after a rewind that lacks 10 rows of each kind", 0, 10, 0)
	err = s.DecodeAll(t.Context(), longIDs(70, 2), func(i int, _ []float32) error {
		if i%32 == 0 { // a new block of logits
			check("all logits", 0)
		}
		next(other)
		check("another session", 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
