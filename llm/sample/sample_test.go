package sample

import (
	"errors"
	"math"
	"slices"
	"testing"
)

var (
	nan    = float32(math.NaN())
	inf    = float32(math.Inf(1))
	negInf = float32(math.Inf(-1))
)

func mustNew(t testing.TB, p Params) *Sampler {
	t.Helper()
	s, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestGreedy(t *testing.T) {
	for _, tc := range []struct {
		name   string
		logits []float32
		want   int32
	}{
		{"one", []float32{-3}, 0},
		{"largest", []float32{0.5, 2, -1}, 1},
		{"first of equals", []float32{1, 3, 3, 3}, 1},
		{"zeros of both signs are equal", []float32{float32(math.Copysign(0, -1)), 0}, 0},
		{"negative", []float32{-5, -4, -6}, 1},
		{"excluded", []float32{negInf, negInf, -math.MaxFloat32}, 2},
		{"largest is last", []float32{1, 2, 3}, 2},
		{"extremes", []float32{-math.MaxFloat32, math.MaxFloat32}, 1},
	} {
		for _, temp := range []float32{0, -1} {
			got, err := mustNew(t, Params{Temperature: temp, Seed: 1}).Sample(tc.logits)
			if err != nil || got != tc.want {
				t.Errorf("%s, temperature %v: got %d, %v, want %d", tc.name, temp, got, err, tc.want)
			}
		}
	}
}

func TestInvalidLogits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		logits []float32
	}{
		{"nil", nil},
		{"empty", []float32{}},
		{"NaN first", []float32{nan, 1}},
		{"NaN last", []float32{1, 2, nan}},
		{"only NaN", []float32{nan}},
		{"+Inf", []float32{1, inf}},
		{"all excluded", []float32{negInf, negInf}},
	} {
		for _, temp := range []float32{0, 0.8} {
			s := mustNew(t, Params{Temperature: temp})
			if id, err := s.Sample(tc.logits); !errors.Is(err, ErrLogits) {
				t.Errorf("%s, temperature %v: got %d, %v, want ErrLogits", tc.name, temp, id, err)
			}
		}
	}
}

// A failed call must not shift the sequence of a seed.
func TestErrorDrawsNothing(t *testing.T) {
	a, b := mustNew(t, Params{Temperature: 1, Seed: 5}), mustNew(t, Params{Temperature: 1, Seed: 5})
	logits := make([]float32, 1000)
	for range 20 {
		if _, err := a.Sample([]float32{0, nan}); err == nil {
			t.Fatal("NaN accepted")
		}
		x, errX := a.Sample(logits)
		y, errY := b.Sample(logits)
		if x != y || errX != nil || errY != nil {
			t.Fatalf("got %d, %v and %d, %v", x, errX, y, errY)
		}
	}
}

func TestInvalidParams(t *testing.T) {
	for _, temp := range []float32{nan, inf, negInf} {
		if _, err := New(Params{Temperature: temp}); !errors.Is(err, ErrParams) {
			t.Errorf("temperature %v: %v, want ErrParams", temp, err)
		}
	}
}

// The weights of the draw, computed by hand. The logits 0, ln 2, ln 5 have the probabilities
// 1/8, 2/8, 5/8 at temperature 1. At temperature 2, which halves the logits, the
// probabilities are 1, sqrt 2, sqrt 5, divided by their sum.
func TestSoftmaxWorked(t *testing.T) {
	logits := []float32{0, float32(math.Log(2)), float32(math.Log(5))}
	for _, tc := range []struct {
		temp float32
		want []float64
	}{
		{1, []float64{1, 2, 5}},
		{2, []float64{1, math.Sqrt2, math.Sqrt(5)}},
		{0.5, []float64{1, 4, 25}},
	} {
		s := mustNew(t, Params{Temperature: tc.temp})
		if _, err := s.Sample(logits); err != nil {
			t.Fatal(err)
		}
		for i, w := range tc.want {
			got := s.scratch[i].weight / s.scratch[0].weight
			if math.Abs(got-w) > 1e-6*w {
				t.Errorf("temperature %v: weight %d is %v, want %v", tc.temp, i, got, w)
			}
		}
	}
}

// A hundred thousand draws follow the softmax: the chi-square statistic over
// five tokens stays below 18.47, its 0.1% point for four degrees of freedom.
func TestDistribution(t *testing.T) {
	const draws = 100_000
	logits := []float32{0.3, -1.2, negInf, 2.1, 0.3, 1}
	for _, temp := range []float32{0.5, 1, 3} {
		want := make([]float64, len(logits))
		sum := 0.0
		for i, l := range logits {
			want[i] = math.Exp(float64(l) / float64(temp))
			sum += want[i]
		}
		s := mustNew(t, Params{Temperature: temp, Seed: 2024})
		count := make([]int, len(logits))
		for range draws {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			count[id]++
		}
		if count[2] != 0 {
			t.Errorf("temperature %v: an excluded token was drawn %d times", temp, count[2])
		}
		chi := 0.0
		for i := range want {
			if e := want[i] / sum * draws; e > 0 {
				chi += (float64(count[i]) - e) * (float64(count[i]) - e) / e
			}
		}
		if chi > 18.47 {
			t.Errorf("temperature %v: chi-square %v, counts %v", temp, chi, count)
		}
	}
}

func TestSeed(t *testing.T) {
	logits := make([]float32, 100)
	run := func(seed uint64) []int32 {
		s := mustNew(t, Params{Temperature: 1, Seed: seed})
		ids := make([]int32, 50)
		for i := range ids {
			var err error
			if ids[i], err = s.Sample(logits); err != nil {
				t.Fatal(err)
			}
		}
		return ids
	}
	if a, b := run(7), run(7); !slices.Equal(a, b) {
		t.Errorf("one seed, two sequences:\n%v\n%v", a, b)
	}
	if a, b := run(7), run(8); slices.Equal(a, b) {
		t.Errorf("two seeds, one sequence: %v", a)
	}
	// The ids are recorded, because a release must not change the ids of a seed.
	if got, want := run(7)[:8], []int32{54, 59, 37, 64, 17, 24, 11, 38}; !slices.Equal(got, want) {
		t.Errorf("seed 7 gives %v, want %v", got, want)
	}
}

func TestExtremeTemperatures(t *testing.T) {
	logits := []float32{-math.MaxFloat32, 1, math.MaxFloat32, negInf, -3}
	for _, temp := range []float32{math.SmallestNonzeroFloat32, 1e-30, 1, 1e30, math.MaxFloat32} {
		s := mustNew(t, Params{Temperature: temp, Seed: 3})
		for range 200 {
			id, err := s.Sample(logits)
			if err != nil || id == 3 {
				t.Fatalf("temperature %v: got %d, %v", temp, id, err)
			}
			if temp <= 1 && id != 2 {
				t.Fatalf("temperature %v: got %d, want 2", temp, id)
			}
		}
	}
}

func TestLogitsUnchanged(t *testing.T) {
	logits := []float32{1, 2, 3}
	if _, err := mustNew(t, Params{Temperature: 0.1}).Sample(logits); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(logits, []float32{1, 2, 3}) {
		t.Errorf("logits became %v", logits)
	}
}

func TestVocabularySizeChanges(t *testing.T) {
	s := mustNew(t, Params{})
	for _, logits := range [][]float32{{0, 1}, {0, 0, 0, 5}, {3, 1}} {
		want := int32(0)
		if logits[0] == 0 {
			want = int32(len(logits) - 1)
		}
		if got, err := s.Sample(logits); err != nil || got != want {
			t.Errorf("%v: got %d, %v, want %d", logits, got, err, want)
		}
	}
}

func TestAllocs(t *testing.T) {
	logits := make([]float32, 4096)
	for i := range logits {
		logits[i] = float32(i%37) / 10
	}
	for _, temp := range []float32{0, 0.7} {
		s := mustNew(t, Params{Temperature: temp})
		if n := testing.AllocsPerRun(20, func() {
			if _, err := s.Sample(logits); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("temperature %v: %v allocations per token, want 0", temp, n)
		}
	}
}

func BenchmarkSample(b *testing.B) {
	logits := make([]float32, 32000)
	for i := range logits {
		logits[i] = float32(i%101) / 10
	}
	for _, bc := range []struct {
		name string
		temp float32
	}{{"greedy", 0}, {"temperature", 0.8}} {
		b.Run(bc.name, func(b *testing.B) {
			s := mustNew(b, Params{Temperature: bc.temp})
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Sample(logits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Check fails if New fails, and for biases of tokens outside of the vocabulary.
func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name string
		p    Params
		ok   bool
	}{
		{"nothing", Params{}, true},
		{"the last token", Params{LogitBias: map[int32]float32{0: 1, 9: 1}}, true},
		{"one token more", Params{LogitBias: map[int32]float32{0: 1, 10: 1}}, false},
		{"no temperature", Params{Temperature: float32(math.NaN())}, false},
	} {
		err := tc.p.Check(10)
		if tc.ok && err != nil || !tc.ok && !errors.Is(err, ErrParams) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
