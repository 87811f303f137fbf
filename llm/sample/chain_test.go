package sample

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// logits with the probabilities 0.4, 0.3, 0.2, 0.1 of ids 2, 0, 3, 1.
var fourLogits = []float32{
	float32(math.Log(0.3)), float32(math.Log(0.1)), float32(math.Log(0.4)), float32(math.Log(0.2)),
}

func distribution(t testing.TB, s *Sampler, logits []float32) []Candidate {
	t.Helper()
	d, err := s.Distribution(logits)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(d)
}

func checkDistribution(t *testing.T, got, want []Candidate) {
	t.Helper()
	same := func(a, b Candidate) bool { return a.ID == b.ID && math.Abs(a.Probability-b.Probability) < 1e-6 }
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// The distribution after each stage, computed by hand, for the probabilities 0.4 (id 2), 0.3 (0), 0.2 (3), 0.1 (1).
func TestStagesWorked(t *testing.T) {
	third := 1. / 3
	for _, tt := range []struct {
		name    string
		p       Params
		history []int32
		want    []Candidate
	}{
		{"none", Params{}, nil, []Candidate{{2, 0.4}, {0, 0.3}, {3, 0.2}, {1, 0.1}}},
		{"top-k", Params{TopK: 2}, nil, []Candidate{{2, 4. / 7}, {0, 3. / 7}}},
		{"top-k 1", Params{TopK: 1}, nil, []Candidate{{2, 1}}},
		{"top-k of all", Params{TopK: 9}, nil, []Candidate{{2, 0.4}, {0, 0.3}, {3, 0.2}, {1, 0.1}}},
		// 0.4 < 0.65 <= 0.4 + 0.3.
		{"top-p", Params{TopP: 0.65}, nil, []Candidate{{2, 4. / 7}, {0, 3. / 7}}},
		{"top-p below the likeliest", Params{TopP: 0.1}, nil, []Candidate{{2, 1}}},
		{"top-p at 1", Params{TopP: 1}, nil, []Candidate{{2, 0.4}, {0, 0.3}, {3, 0.2}, {1, 0.1}}},
		{"top-p, min-keep", Params{TopP: 0.1, MinKeep: 3}, nil, []Candidate{{2, 4. / 9}, {0, 3. / 9}, {3, 2. / 9}}},
		// At least 0.4 * 0.45 = 0.18.
		{"min-p", Params{MinP: 0.45}, nil, []Candidate{{2, 4. / 9}, {0, 3. / 9}, {3, 2. / 9}}},
		{"min-p 1", Params{MinP: 1}, nil, []Candidate{{2, 1}}},
		{"min-p, min-keep", Params{MinP: 1, MinKeep: 2}, nil, []Candidate{{2, 4. / 7}, {0, 3. / 7}}},
		{"min-keep of more than all", Params{MinP: 1, MinKeep: 9}, nil, []Candidate{{2, 0.4}, {0, 0.3}, {3, 0.2}, {1, 0.1}}},
		// The entropy is 1.27985; the surprises 0.91629, 1.20397, 1.60944, 2.30259 of
		// ids 2, 0, 3, 1 lie 0.36356, 0.07588, 0.32958, 1.02273 from it. Ids 0 and 3
		// have 0.5 together.
		{"typical", Params{TypicalP: 0.49}, nil, []Candidate{{0, 0.6}, {3, 0.4}}},
		{"typical, one", Params{TypicalP: 0.2}, nil, []Candidate{{0, 1}}},
		{"typical, three", Params{TypicalP: 0.6}, nil, []Candidate{{2, 4. / 9}, {0, 3. / 9}, {3, 2. / 9}}},
		{"typical, min-keep", Params{TypicalP: 0.2, MinKeep: 2}, nil, []Candidate{{0, 0.6}, {3, 0.4}}},
		// Halved logits give square roots of the probabilities.
		{"temperature", Params{Temperature: 2, TopK: 2}, nil, []Candidate{
			{2, math.Sqrt(0.4) / (math.Sqrt(0.4) + math.Sqrt(0.3))}, {0, math.Sqrt(0.3) / (math.Sqrt(0.4) + math.Sqrt(0.3))}}},
		// Top-p comes before temperature: 0.4 + 0.3 for any temperature.
		{"order", Params{Temperature: 100, TopP: 0.65}, nil, []Candidate{
			{2, math.Pow(4, 0.01) / (math.Pow(4, 0.01) + math.Pow(3, 0.01))}, {0, math.Pow(3, 0.01) / (math.Pow(4, 0.01) + math.Pow(3, 0.01))}}},
		// 0.3 e^-ln 3 = 0.1, of a sum of 0.8.
		{"bias", Params{LogitBias: map[int32]float32{0: float32(-math.Log(3))}}, nil, []Candidate{{2, 0.5}, {3, 0.25}, {0, 0.125}, {1, 0.125}}},
		{"bias -Inf", Params{LogitBias: map[int32]float32{0: negInf, 2: negInf}}, nil, []Candidate{{3, 2 * third}, {1, third}}},
		// The token is twice in the history: 0.4 e^(-2 ln 2) = 0.1.
		{"frequency", Params{FrequencyPenalty: float32(math.Ln2)}, []int32{2, 9, 2, -1}, []Candidate{{0, 3. / 7}, {3, 2. / 7}, {1, 1. / 7}, {2, 1. / 7}}},
		{"presence", Params{PresencePenalty: float32(math.Ln2)}, []int32{2, 2}, []Candidate{{0, 0.375}, {2, 0.25}, {3, 0.25}, {1, 0.125}}},
		// Negative logits are multiplied: 0.4^2 = 0.16, with 0.3, 0.2, 0.1.
		{"repeat", Params{RepeatPenalty: 2}, []int32{2, 2}, []Candidate{{0, 0.3 / 0.76}, {3, 0.2 / 0.76}, {2, 0.16 / 0.76}, {1, 0.1 / 0.76}}},
		{"window", Params{PresencePenalty: float32(math.Ln2), PenaltyWindow: 2}, []int32{0, 2, 9, 9}, []Candidate{{2, 0.4}, {0, 0.3}, {3, 0.2}, {1, 0.1}}},
		{"window reaches", Params{PresencePenalty: float32(math.Ln2), PenaltyWindow: 3}, []int32{0, 2, 9, 9}, []Candidate{{0, 0.375}, {2, 0.25}, {3, 0.25}, {1, 0.125}}},
		{"default window", Params{PresencePenalty: float32(math.Ln2)}, append([]int32{2}, make([]int32, 63)...), []Candidate{{2, 8. / 17}, {3, 4. / 17}, {0, 3. / 17}, {1, 2. / 17}}},
		{"history of all", Params{PresencePenalty: float32(math.Ln2), PenaltyWindow: -1}, append([]int32{2}, slices.Repeat([]int32{9}, 1000)...), []Candidate{{0, 0.375}, {2, 0.25}, {3, 0.25}, {1, 0.125}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.p.Temperature == 0 {
				tt.p.Temperature = 1
			}
			if tt.name == "default window" {
				// 65 tokens: the first, id 2, is out; id 0 is in.
				tt.history = append(tt.history, 0)
			}
			s := mustNew(t, tt.p)
			for range 2 {
				for _, id := range tt.history {
					s.Accept(id)
				}
				checkDistribution(t, distribution(t, s, fourLogits), tt.want)
				// Distribution adds nothing to the history.
				checkDistribution(t, distribution(t, s, fourLogits), tt.want)
				s.Reset()
			}
		})
	}
}

// The order of the stages matters. The results are computed by hand for the same
// probabilities.
func TestStageOrderWorked(t *testing.T) {
	ln2 := float32(math.Ln2)
	warm := func(x float64) float64 { return math.Pow(x, 0.01) }
	three := warm(4) + warm(3) + warm(2)
	for _, tt := range []struct {
		name   string
		stages []Stage
		p      Params
		want   []Candidate
	}{
		{"none", []Stage{}, Params{TopK: 1, TopP: 0.1, MinP: 1, TypicalP: 0.2, Temperature: 0, PresencePenalty: 9}, []Candidate{{2, 0.4}, {0, 0.3}, {3, 0.2}, {1, 0.1}}},
		{"one of many", []Stage{TopK}, Params{TopK: 2, TopP: 0.1, MinP: 1}, []Candidate{{2, 4. / 7}, {0, 3. / 7}}},
		// Ids 2 and 0 are left, and of them 0.4 becomes 0.2, beside 0.3.
		{"penalties after top-k", []Stage{TopK, Penalties}, Params{TopK: 2, PresencePenalty: ln2}, []Candidate{{0, 0.6}, {2, 0.4}}},
		// Id 2 with 0.2 comes after id 0 with 0.3, and before id 3 because of its id.
		{"penalties before top-k", []Stage{Penalties, TopK}, Params{TopK: 1, PresencePenalty: ln2}, []Candidate{{0, 1}}},
		{"top-k before penalties", []Stage{TopK, Penalties}, Params{TopK: 1, PresencePenalty: ln2}, []Candidate{{2, 1}}},
		// The candidates are not sorted after penalties, and top-p sorts them again: 0.2, 0.3, 0.2 of 0.7.
		{"penalties between", []Stage{TopK, Penalties, TopP}, Params{TopK: 3, TopP: 0.4, PresencePenalty: ln2}, []Candidate{{0, 1}}},
		// The token is penalized twice: 0.4 becomes 0.1.
		{"penalties twice", []Stage{Penalties, TopK, Penalties}, Params{TopK: 3, FrequencyPenalty: ln2}, []Candidate{{0, 0.5}, {3, 1. / 3}, {2, 1. / 6}}},
		// At a high temperature all four probabilities are alike, and 0.65 needs three.
		{"temperature before top-p", []Stage{Temperature, TopP}, Params{TopP: 0.65, Temperature: 100}, []Candidate{{2, warm(4) / three}, {0, warm(3) / three}, {3, warm(2) / three}}},
		{"temperature twice", []Stage{Temperature, Temperature}, Params{Temperature: 0.5}, []Candidate{{2, 256. / 354}, {0, 81. / 354}, {3, 16. / 354}, {1, 1. / 354}}},
		// The first stage is greedy, so typical-p gets one token.
		{"greedy before typical-p", []Stage{Temperature, TypicalP}, Params{TypicalP: 0.2}, []Candidate{{2, 1}}},
		{"greedy after typical-p", []Stage{TypicalP, Temperature}, Params{TypicalP: 0.2}, []Candidate{{0, 1}}},
		// Of ids 0 and 3, the most typical, id 0 is penalized below id 3.
		{"greedy after penalties after typical-p", []Stage{TypicalP, Penalties, Temperature}, Params{TypicalP: 0.49, FrequencyPenalty: 1}, []Candidate{{3, 1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.p.Stages = tt.stages
			s := mustNew(t, tt.p)
			id := int32(2)
			if tt.p.TypicalP != 0 {
				id = 0
			}
			for range 2 {
				s.Accept(id)
				s.Accept(9)
				checkDistribution(t, distribution(t, s, fourLogits), tt.want)
				s.Reset()
			}
		})
	}
}

// Repeated stages keep logits finite, and do not change the order of logits that fit.
func TestRepeatedStages(t *testing.T) {
	const m = math.MaxFloat32
	logits := []float32{m, 1, 2, 3, -m, negInf}
	for _, st := range []Stage{Temperature, Penalties} {
		for _, p := range []Params{
			{Temperature: math.SmallestNonzeroFloat32, RepeatPenalty: m, FrequencyPenalty: m},
			{Temperature: math.SmallestNonzeroFloat32, RepeatPenalty: math.SmallestNonzeroFloat32, PresencePenalty: -m},
			{Temperature: m, RepeatPenalty: math.SmallestNonzeroFloat32},
		} {
			p.Stages = slices.Repeat([]Stage{st}, 20)
			s := mustNew(t, p)
			for id := range int32(6) {
				s.Accept(id)
			}
			sum := 0.0
			for _, c := range distribution(t, s, logits) {
				sum += c.Probability
				if c.ID == 5 {
					t.Errorf("%v: the excluded token is left", p)
				}
			}
			if !(math.Abs(sum-1) < 1e-9) {
				t.Errorf("%+v: sums to %v", p, sum)
			}
			if id, err := s.Sample(logits); err != nil || id == 5 {
				t.Errorf("%+v: %d, %v", p, id, err)
			}
		}
	}
	s := mustNew(t, Params{Stages: slices.Repeat([]Stage{Temperature}, 8), Temperature: math.SmallestNonzeroFloat32})
	checkDistribution(t, distribution(t, s, logits), []Candidate{{0, 0.25}, {1, 0.25}, {2, 0.25}, {3, 0.25}})
}

func TestGreedyParams(t *testing.T) {
	for _, tt := range []struct {
		p    Params
		want bool
	}{
		{Params{}, true}, {Params{Temperature: -1}, true}, {Params{Temperature: 0.5}, false},
		{Params{Stages: []Stage{TopK}}, false}, {Params{Stages: []Stage{TopK, Temperature}}, true}, {DefaultParams(), false},
	} {
		if got := tt.p.Greedy(); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.p, got, tt.want)
		}
		if _, ok := mustNew(t, tt.p).picker.(greedy); ok != tt.want {
			t.Errorf("%+v: the sampler is greedy: %v, want %v", tt.p, ok, tt.want)
		}
	}
}

// A smaller vocabulary leaves no counts in the scratch memory of penalties.
func TestPenaltyCounts(t *testing.T) {
	for _, stages := range [][]Stage{{Penalties}, {TopK, Penalties}} {
		s := mustNew(t, Params{Stages: stages, TopK: 2, PresencePenalty: 1, PenaltyWindow: 1})
		for _, n := range []int{4, 1, 4} {
			for _, id := range []int32{3, 0, 2} {
				s.Accept(id)
				distribution(t, s, fourLogits[:n])
			}
			for id, c := range s.penalty.count {
				if c != 0 {
					t.Fatalf("%v: token %d is still counted %d times", stages, id, c)
				}
			}
		}
	}
}

func TestParseStages(t *testing.T) {
	for list, want := range map[string][]Stage{
		"":                    {},
		"top_k":               {TopK},
		"top-k;top-k":         {TopK, TopK},
		"penalties; typ_p ":   {Penalties, TypicalP},
		"typical;temp;min-p":  {TypicalP, Temperature, MinP},
		"nucleus;typical-p":   {TopP, TypicalP},
		"temperature;top_p":   {Temperature, TopP},
		"typ;penalties;min_p": {TypicalP, Penalties, MinP},
	} {
		if got, err := ParseStages(list); err != nil || got == nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", list, got, err, want)
		}
	}
	for _, list := range []string{";", "top_k;", "dry", "Top_K", "top k"} {
		if _, err := ParseStages(list); !errors.Is(err, ErrParams) {
			t.Errorf("%q: %v, want ErrParams", list, err)
		}
	}
	for _, st := range DefaultStages() {
		if got, err := ParseStages(st.String()); err != nil || !slices.Equal(got, []Stage{st}) {
			t.Errorf("%v: %v, %v", st, got, err)
		}
	}
}

// A positive logit is divided by the repeat penalty.
func TestRepeatPenaltyOfPositiveLogit(t *testing.T) {
	s := mustNew(t, Params{Temperature: 1, RepeatPenalty: 2})
	s.Accept(0)
	// The logit 2 becomes 1, which is the other logit.
	checkDistribution(t, distribution(t, s, []float32{2, 1}), []Candidate{{0, 0.5}, {1, 0.5}})
}

// As in llama.cpp, top-p ends with the token that reaches its probability, and typical-p with
// the token that exceeds it. Halves and quarters are exact.
func TestMassReachedExactly(t *testing.T) {
	logits := []float32{1, 1, 1, 1}
	for _, tt := range []struct {
		p    Params
		want int
	}{
		{Params{TopP: 0.25}, 1}, {Params{TopP: 0.5}, 2}, {Params{TopP: 0.75}, 3},
		{Params{TypicalP: 0.25}, 2}, {Params{TypicalP: 0.5}, 3}, {Params{TypicalP: 0.75}, 4},
		{Params{MinP: 1}, 4},
	} {
		tt.p.Temperature = 1
		if d := distribution(t, mustNew(t, tt.p), logits); len(d) != tt.want {
			t.Errorf("%+v leaves %d tokens, want %d", tt.p, len(d), tt.want)
		}
	}
}

// At temperature 0 the likeliest token after the stages is chosen.
func TestGreedyChain(t *testing.T) {
	for _, tt := range []struct {
		p    Params
		want int32
	}{
		{Params{TopK: 1, TopP: 0.1, MinP: 1}, 2},
		{Params{TypicalP: 0.2}, 0}, // the likeliest token is less typical
		{Params{TypicalP: 0.2, TopK: 1}, 2},
		{Params{LogitBias: map[int32]float32{1: 5}}, 1},
		{Params{RepeatPenalty: 2}, 0},
	} {
		s := mustNew(t, tt.p)
		s.Accept(2)
		if id, err := s.Sample(fourLogits); err != nil || id != tt.want {
			t.Errorf("%+v: %d, %v, want %d", tt.p, id, err, tt.want)
		}
		checkDistribution(t, distribution(t, s, fourLogits), []Candidate{{tt.want, 1}})
	}
}

func TestInvalidChain(t *testing.T) {
	for name, p := range map[string]Params{
		"repeat NaN":       {RepeatPenalty: nan},
		"repeat negative":  {RepeatPenalty: -1},
		"repeat Inf":       {RepeatPenalty: inf},
		"frequency NaN":    {FrequencyPenalty: nan},
		"frequency Inf":    {FrequencyPenalty: negInf},
		"presence NaN":     {PresencePenalty: nan},
		"presence Inf":     {PresencePenalty: inf},
		"top-k negative":   {TopK: -1},
		"typical NaN":      {TypicalP: nan},
		"typical negative": {TypicalP: -0.1},
		"top-p NaN":        {TopP: nan},
		"top-p negative":   {TopP: -0.1},
		"min-p NaN":        {MinP: nan},
		"min-p negative":   {MinP: -0.1},
		"min-p above 1":    {MinP: 1.5},
		"min-keep":         {MinKeep: -1},
		"stage":            {Stages: []Stage{TopK, Temperature + 1}},
		"bias NaN":         {LogitBias: map[int32]float32{1: nan}},
		"bias Inf":         {LogitBias: map[int32]float32{1: inf}},
		"bias of -1":       {LogitBias: map[int32]float32{-1: 1}},
	} {
		if _, err := New(p); !errors.Is(err, ErrParams) {
			t.Errorf("%s: %v, want ErrParams", name, err)
		}
	}
	s := mustNew(t, Params{LogitBias: map[int32]float32{4: 1}})
	if _, err := s.Sample(fourLogits); !errors.Is(err, ErrParams) {
		t.Errorf("bias past the vocabulary: %v, want ErrParams", err)
	}
	s = mustNew(t, Params{LogitBias: map[int32]float32{0: negInf, 1: negInf}})
	if _, err := s.Sample(fourLogits[:2]); !errors.Is(err, ErrLogits) {
		t.Errorf("all tokens excluded: %v, want ErrLogits", err)
	}
	if _, err := s.Distribution([]float32{1, nan}); !errors.Is(err, ErrLogits) {
		t.Errorf("NaN: %v, want ErrLogits", err)
	}
}

// For the same logits and history, the stages keep the same tokens with the same
// probabilities as llama.cpp's samplers.
func TestAgainstLlamaCpp(t *testing.T) {
	raw, err := os.ReadFile("testdata/llamacpp.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Logits map[string][]float32
		Cases  []struct {
			Name    string
			Logits  string
			History []int32
			Params  Params
			// Count is the number of remaining tokens. IDs and Probs are those of the
			// likeliest.
			Count int
			IDs   []int32
			Probs []float64
		}
	}
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	for _, c := range golden.Cases {
		t.Run(c.Name, func(t *testing.T) {
			s := mustNew(t, c.Params)
			for _, id := range c.History {
				s.Accept(id)
			}
			got := distribution(t, s, golden.Logits[c.Logits])
			if len(got) != c.Count {
				t.Fatalf("%d tokens are left, want %d", len(got), c.Count)
			}
			byID := map[int32]float64{}
			for _, g := range got {
				byID[g.ID] = g.Probability
			}
			for i, id := range c.IDs {
				p, ok := byID[id]
				if !ok || math.Abs(p-c.Probs[i]) > 1e-6 {
					t.Errorf("token %d has probability %v, want %v", id, p, c.Probs[i])
				}
			}
		})
	}
}

// For random logits and parameters, the distribution is sorted, sums to 1, and has only the
// likeliest tokens. It has at least MinKeep tokens, and no more tokens than its stage needs.
func TestChainProperties(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 80 {
		n := 1 + rng.IntN(3000)
		logits := make([]float32, n)
		for i := range logits {
			logits[i] = float32(math.Round(rng.NormFloat64()*8)) / 2 // with ties
			if rng.IntN(10) == 0 {
				logits[i] = negInf
			}
		}
		logits[rng.IntN(n)] = 1
		all := distribution(t, mustNew(t, Params{Temperature: 1}), logits)
		p := Params{Temperature: 1, MinKeep: rng.IntN(3)}
		check := func(p Params, enough func(i int, mass float64) bool) {
			t.Helper()
			d := distribution(t, mustNew(t, p), logits)
			sum, mass := 0.0, 0.0
			for i, c := range d {
				if i > 0 && c.Probability > d[i-1].Probability {
					t.Fatalf("%+v: %v after %v", p, c, d[i-1])
				}
				if c.ID != all[i].ID {
					t.Fatalf("%+v: token %d is %d, want %d", p, i, c.ID, all[i].ID)
				}
				if enough(i, mass) && i >= max(p.MinKeep, 1) {
					t.Fatalf("%+v: %d tokens with the probability %v were enough, got %d", p, i, mass, len(d))
				}
				sum += c.Probability
				mass += all[i].Probability
			}
			if math.Abs(sum-1) > 1e-9 {
				t.Fatalf("%+v: sum %v", p, sum)
			}
			if len(d) < len(all) && (!enough(len(d), mass) || len(d) < max(p.MinKeep, 1)) {
				t.Fatalf("%+v: %d tokens with the probability %v are too few", p, len(d), mass)
			}
		}
		topP, topK, minP := p, p, p
		topP.TopP = 0.01 + 0.98*rng.Float32()
		check(topP, func(_ int, mass float64) bool { return mass >= float64(topP.TopP) })
		topK.TopK, topK.MinKeep = 1+rng.IntN(n), 0
		check(topK, func(i int, _ float64) bool { return i >= topK.TopK })
		minP.MinP = rng.Float32()
		check(minP, func(i int, _ float64) bool {
			return i < len(all) && all[i].Probability < float64(minP.MinP)*all[0].Probability*(1-1e-9)
		})
	}
}

func TestOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 80 {
		c := make([]candidate, 1+rng.IntN(2000))
		for i := range c {
			c[i] = candidate{id: int32(i), logit: float64(rng.IntN(500)), weight: rng.Float64()}
		}
		for _, by := range []compare{byLogit, byWeight} {
			rng.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
			want := slices.Clone(c)
			slices.SortFunc(want, by)
			k := rng.IntN(len(c) + 1)
			order(c, k, by)
			if !slices.Equal(c[:k], want[:k]) {
				t.Fatalf("the first %d of %d are not in order", k, len(c))
			}
			for i, sorted := 0, 0; i < len(c); i++ {
				if sorted = extend(c, sorted, i, by); c[i] != want[i] {
					t.Fatalf("candidate %d of %d is out of order", i, len(c))
				}
			}
		}
	}
}

// Reset repeats the random numbers.
func TestReset(t *testing.T) {
	s := mustNew(t, Params{Temperature: 1, Seed: 4, TopK: 50})
	logits := make([]float32, 100)
	run := func() (ids []int32) {
		for range 20 {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	first, second := run(), run()
	s.Reset()
	if third := run(); !slices.Equal(first, third) || slices.Equal(first, second) {
		t.Errorf("runs\n%v\n%v\nand after Reset\n%v", first, second, third)
	}
}

// Extreme logits keep the invariants of every stage: at least one candidate remains, and
// logits are finite.
func TestChainExtremes(t *testing.T) {
	const m = math.MaxFloat32
	for _, logits := range [][]float32{
		{m}, {-m}, {m, -m}, {-m, -m, negInf}, {negInf, 0}, {m, m, m}, {0, 0, negInf, negInf},
		{math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32},
	} {
		for _, p := range []Params{
			{TypicalP: 0.5}, {TypicalP: 0.999, MinKeep: 5}, {TopP: 0.999999}, {MinP: 1}, {TopK: 3},
			{RepeatPenalty: m, FrequencyPenalty: -m, PresencePenalty: m},
			{RepeatPenalty: math.SmallestNonzeroFloat32, TopK: 2, TypicalP: 0.1, TopP: 0.1, MinP: 0.1},
			{LogitBias: map[int32]float32{0: -m}, TypicalP: 0.9, TopP: 0.9},
		} {
			for _, p.Temperature = range []float32{0, math.SmallestNonzeroFloat32, 1, m} {
				s := mustNew(t, p)
				s.Accept(0)
				d := distribution(t, s, logits)
				sum := 0.0
				for _, c := range d {
					if math.IsInf(float64(logits[c.ID]), -1) {
						t.Errorf("%v, %+v: the excluded token %d is left", logits, p, c.ID)
					}
					sum += c.Probability
				}
				if !(math.Abs(sum-1) < 1e-9) {
					t.Errorf("%v, %+v: %v sums to %v", logits, p, d, sum)
				}
				if id, err := s.Sample(logits); err != nil || math.IsInf(float64(logits[id]), -1) {
					t.Errorf("%v, %+v: %d, %v", logits, p, id, err)
				}
			}
		}
	}
}

func vocabulary(n int) []float32 {
	rng := rand.New(rand.NewPCG(5, 6))
	logits := make([]float32, n)
	for i := range logits {
		logits[i] = float32(rng.NormFloat64() * 3)
	}
	return logits
}

var benchChains = []struct {
	name string
	p    Params
}{
	{"top-k 40", Params{Temperature: 0.8, TopK: 40}},
	{"top-k 4000", Params{Temperature: 0.8, TopK: 4000}},
	{"top-p", Params{Temperature: 0.8, TopP: 0.9}},
	{"min-p", Params{Temperature: 0.8, MinP: 0.05}},
	{"typical", Params{Temperature: 0.8, TypicalP: 0.9}},
	{"all", Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 0.98, RepeatPenalty: 1.1,
		FrequencyPenalty: 0.1, LogitBias: map[int32]float32{3: 1}}},
	{"all, penalties last", Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, TypicalP: 0.98, RepeatPenalty: 1.1,
		Stages: []Stage{TopK, TypicalP, TopP, MinP, Temperature, Penalties}}},
}

func TestChainAllocs(t *testing.T) {
	logits := vocabulary(5000)
	for _, c := range benchChains {
		s := mustNew(t, c.p)
		for range 100 { // fills the history
			s.Accept(7)
		}
		if n := testing.AllocsPerRun(10, func() {
			id, err := s.Sample(logits)
			if err != nil {
				t.Fatal(err)
			}
			s.Accept(id)
			if _, err := s.Distribution(logits); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations per token, want 0", c.name, n)
		}
	}
}

func BenchmarkChain(b *testing.B) {
	logits := vocabulary(128 << 10)
	for _, c := range benchChains {
		b.Run(c.name, func(b *testing.B) {
			s := mustNew(b, c.p)
			b.ReportAllocs()
			for b.Loop() {
				id, err := s.Sample(logits)
				if err != nil {
					b.Fatal(err)
				}
				s.Accept(id)
			}
		})
	}
}

// The benchmark compares the partial sort with a full sort.
func BenchmarkOrder(b *testing.B) {
	logits := vocabulary(128 << 10)
	c := make([]candidate, len(logits))
	for _, k := range []struct {
		name string
		k    int
	}{{"40", 40}, {"4000", 4000}, {"all", len(c)}} {
		b.Run(k.name, func(b *testing.B) {
			for b.Loop() {
				for i, l := range logits {
					c[i] = candidate{id: int32(i), logit: float64(l)}
				}
				order(c, k.k, byLogit)
			}
		})
	}
}
