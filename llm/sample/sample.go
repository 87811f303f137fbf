package sample

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
)

// Errors that New and Sample wrap.
var (
	// ErrParams reports parameters that define no distribution.
	ErrParams = errors.New("sample: invalid parameters")
	// ErrLogits reports logits from which no token can be chosen.
	ErrLogits = errors.New("sample: invalid logits")
)

// Params selects how tokens are chosen. The zero value is greedy.
type Params struct {
	// Temperature scales the logits down before drawing: below 1 likely tokens
	// become likelier, above 1 all become more alike. At 0 and below the token
	// with the largest logit is always chosen.
	Temperature float32
	// Seed starts the random numbers. Every value is a seed, 0 included.
	Seed uint64
}

// candidate is one token that may be chosen.
type candidate struct {
	id    int32
	logit float64
	// weight is proportional to the probability, once a picker has set it.
	weight float64
}

// stage is a step of the chain before the choice. It returns the candidates
// that stay, in their order, reusing the array of c; at least one stays. The
// logits it gets are not NaN and below +Inf, and one of them is finite; so are
// those it leaves.
type stage interface {
	apply(c []candidate) []candidate
}

// picker ends the chain: it returns the index of the candidate to choose. c is
// not empty and it may be written.
type picker interface {
	pick(c []candidate) int
}

// Sampler chooses tokens, one sequence of them for a seed. It keeps scratch
// memory and the state of its random numbers: use one per sequence, from one
// goroutine at a time.
type Sampler struct {
	stages  []stage
	picker  picker
	scratch []candidate
}

// New returns a sampler for p. It fails with ErrParams where the temperature is
// NaN or infinite.
func New(p Params) (*Sampler, error) {
	t := float64(p.Temperature)
	if math.IsNaN(t) || math.IsInf(t, 0) {
		return nil, fmt.Errorf("%w: temperature %v, want a finite number", ErrParams, t)
	}
	if t <= 0 {
		return &Sampler{picker: greedy{}}, nil
	}
	return &Sampler{
		stages: []stage{temperature(t)},
		// The second word selects one of PCG's streams; it is a constant so that
		// the seed alone decides.
		picker: &draw{rng: rand.New(rand.NewPCG(p.Seed, 0x9E3779B97F4A7C15))},
	}, nil
}

// Sample returns the index of the chosen logit. logits holds one per token of
// the vocabulary and is not changed; -Inf excludes a token.
//
// It fails with ErrLogits where logits is empty, holds NaN or +Inf, or excludes
// every token. A failed call draws no random number.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	if len(logits) == 0 || len(logits) > math.MaxInt32 {
		return 0, fmt.Errorf("%w: %d logits, want 1..%d", ErrLogits, len(logits), math.MaxInt32)
	}
	if cap(s.scratch) < len(logits) {
		s.scratch = make([]candidate, len(logits))
	}
	c := s.scratch[:len(logits)]
	possible := false
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return 0, fmt.Errorf("%w: logit %d is %v, want a finite number or -Inf", ErrLogits, i, l)
		}
		possible = possible || l >= -math.MaxFloat32
		c[i] = candidate{id: int32(i), logit: float64(l)}
	}
	if !possible {
		return 0, fmt.Errorf("%w: all %d are -Inf", ErrLogits, len(logits))
	}
	for _, st := range s.stages {
		c = st.apply(c)
	}
	return c[s.picker.pick(c)].id, nil
}

// temperature divides the logits by its value.
type temperature float64

func (t temperature) apply(c []candidate) []candidate {
	for i := range c {
		c[i].logit /= float64(t)
	}
	return c
}

// greedy picks the largest logit, the first of equal ones.
type greedy struct{}

func (greedy) pick(c []candidate) int {
	best := 0
	for i := range c {
		if c[i].logit > c[best].logit {
			best = i
		}
	}
	return best
}

// draw picks a candidate with the probability that the softmax gives it.
type draw struct {
	rng *rand.Rand
}

func (d *draw) pick(c []candidate) int {
	largest := c[greedy{}.pick(c)].logit
	sum := 0.0
	for i := range c {
		c[i].weight = math.Exp(c[i].logit - largest)
		sum += c[i].weight
	}
	// The running sum repeats the additions of sum and so ends at sum. Should
	// the product round up to sum, nothing exceeds it and the last candidate of
	// positive weight is taken.
	threshold := d.rng.Float64() * sum
	acc, last := 0.0, 0
	for i := range c {
		if c[i].weight == 0 {
			continue
		}
		acc += c[i].weight
		last = i
		if threshold < acc {
			break
		}
	}
	return last
}
