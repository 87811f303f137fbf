package llm_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// DecodeAll gives the logits that Decode gives token by token, for each size of batches.
func TestDecodeAll(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	ids := make([]int32, 70)
	for i := range ids {
		ids[i] = int32(3 + i*31%200)
	}
	ctx := context.Background()
	one := openSession(t, m, llm.SessionOptions{})
	want := make([][]float32, len(ids))
	for i := range ids {
		want[i] = make([]float32, m.Params().Vocabulary)
		if err := one.Decode(ctx, ids[i:i+1], want[i]); err != nil {
			t.Fatal(err)
		}
	}
	for _, batch := range []int{1, 7, 33, 512} {
		s := openSession(t, m, llm.SessionOptions{Batch: batch})
		next := 0
		for _, part := range [][]int32{ids[:5], ids[5:]} {
			start := next
			err := s.DecodeAll(ctx, part, func(i int, logits []float32) error {
				if start+i != next {
					t.Fatalf("batch %d: token %d, want %d", batch, start+i, next)
				}
				for v, got := range logits {
					if d := got - want[next][v]; d > 1e-4 || d < -1e-4 {
						t.Fatalf("batch %d: logit %d after token %d is %v, want %v", batch, v, next, got, want[next][v])
					}
				}
				next++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if next != len(ids) || s.Past() != len(ids) {
			t.Errorf("batch %d: %d rows, past %d, want %d", batch, next, s.Past(), len(ids))
		}
	}
}

func TestDecodeAllErrors(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{Context: 8, Batch: 4})
	none := func(int, []float32) error { t.Error("a row"); return nil }
	ctx, cancel := context.WithCancel(context.Background())
	for name, ids := range map[string][]int32{"none": nil, "negative": {-1}, "long": make([]int32, 9)} {
		if err := s.DecodeAll(ctx, ids, none); err == nil {
			t.Errorf("%s: no error", name)
		} else if long := errors.Is(err, llm.ErrContextFull); long != (name == "long") {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("stop")
	var rows []int
	err := s.DecodeAll(ctx, []int32{5, 6, 7, 8, 9, 10}, func(i int, _ []float32) error {
		if rows = append(rows, i); i == 4 {
			return stop
		}
		return nil
	})
	if err != stop || !slices.Equal(rows, []int{0, 1, 2, 3, 4}) || s.Past() != 4 {
		t.Errorf("%v after rows %v, past %d; want stop after 4, past 4", err, rows, s.Past())
	}
	if err := s.DecodeAll(ctx, []int32{5}, func(int, []float32) error {
		if err := s.Rewind(0); !errors.Is(err, fucina.ErrBusy) {
			t.Errorf("inside of yield: %v, want busy", err)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	// DecodeAll checks the context before each row, so yield does not have to.
	past, calls := s.Past(), 0
	if err := s.DecodeAll(ctx, []int32{5, 6}, func(int, []float32) error { calls++; cancel(); return nil }); !errors.Is(err, context.Canceled) || calls != 1 || s.Past() != past {
		t.Errorf("cancelled by the first row: %v after %d rows, past %d, want canceled after 1 and %d", err, calls, s.Past(), past)
	}
	if err := s.DecodeAll(ctx, []int32{5}, none); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want canceled", err)
	}
}

// DecodeAll allocates memory for logits only in its first call.
func TestDecodeAllAllocations(t *testing.T) {
	if invariants.Enabled || invariants.RaceEnabled {
		t.Skip("checked builds record every use")
	}
	s := openSession(t, openTiny(t, tinyllama.Options{}), llm.SessionOptions{})
	ctx, ids := context.Background(), []int32{5, 6, 7}
	none := func(int, []float32) error { return nil }
	step := func() {
		if err := errors.Join(s.Rewind(0), s.DecodeAll(ctx, ids, none)); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		step()
	}
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations in a call, want 0", n)
	}
}
