package sample

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// Errors that New and Sample wrap.
var (
	// ErrParams reports parameters that define no distribution.
	ErrParams = errors.New("sample: invalid parameters")
	// ErrLogits reports logits from which no token can be chosen.
	ErrLogits = errors.New("sample: invalid logits")
)

// defaultPenaltyWindow is llama.cpp's default of penalty_last_n.
const defaultPenaltyWindow = 64

// Params selects how tokens are chosen. The zero value is greedy, and the zero
// value of every field but Stages and Temperature leaves its stage out of the chain.
type Params struct {
	// Stages is the chain, in the order in which its stages are applied; nil is
	// DefaultStages. A stage that is not named is left out whatever its parameters,
	// and one may be named more than once. Without [Temperature] the draw is from
	// the logits that the chain leaves. LogitBias comes before every stage.
	Stages []Stage
	// LogitBias is added to the logits of the tokens that it names; -Inf excludes
	// a token.
	LogitBias map[int32]float32
	// RepeatPenalty makes tokens of the history less likely: a positive logit is
	// divided by it, any other multiplied. 1 changes nothing.
	RepeatPenalty float32
	// FrequencyPenalty is subtracted from a token's logit once for each time that
	// it occurs in the history.
	FrequencyPenalty float32
	// PresencePenalty is subtracted from the logits of all tokens of the history.
	PresencePenalty float32
	// PenaltyWindow is the number of accepted tokens that are the history, counted
	// from the last; 0 is 64, and less is all.
	PenaltyWindow int
	// TopK leaves the TopK largest logits.
	TopK int
	// TypicalP leaves the tokens whose surprise -log p is nearest to its mean, the
	// entropy, as few as have more than this probability together. 1 and above
	// changes nothing.
	TypicalP float32
	// TopP leaves the likeliest tokens, as few as have this probability together. 1
	// and above changes nothing.
	TopP float32
	// MinP leaves the tokens that have at least this part of the likeliest one's
	// probability.
	MinP float32
	// MinKeep is the number of tokens that TypicalP, TopP and MinP leave at least;
	// 0 is 1.
	MinKeep int
	// Temperature scales the logits down before drawing: below 1 likely tokens
	// become likelier, above 1 all become more alike. At 0 and below its stage leaves
	// the token with the largest logit alone.
	Temperature float32
	// Seed starts the random numbers. Every value is a seed, 0 included.
	Seed uint64
}

// DefaultParams returns the parameters that llama.cpp's programs start from:
// temperature 0.8, top-k 40, top-p 0.95 and min-p 0.05, with a window of 64 tokens for
// penalties. The seed is 0, so that texts repeat until the caller sets another.
func DefaultParams() Params {
	return Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, PenaltyWindow: defaultPenaltyWindow}
}

// Greedy reports whether p draws no random numbers: whether its chain has a stage of
// temperature 0 or less.
func (p *Params) Greedy() bool {
	return p.Temperature <= 0 && slices.Contains(p.chain(), Temperature)
}

func (p *Params) chain() []Stage {
	if p.Stages == nil {
		return DefaultStages()
	}
	return p.Stages
}

// check returns an error that names the first parameter out of range.
func (p *Params) check() error {
	for _, f := range []struct {
		name  string
		value float32
		low   float64
		want  string
	}{
		{"temperature", p.Temperature, -math.MaxFloat32, "a finite number"},
		{"repeat penalty", p.RepeatPenalty, 0, "a positive number, or 0 for none"},
		{"frequency penalty", p.FrequencyPenalty, -math.MaxFloat32, "a finite number"},
		{"presence penalty", p.PresencePenalty, -math.MaxFloat32, "a finite number"},
		{"typical-p", p.TypicalP, 0, "a probability"},
		{"top-p", p.TopP, 0, "a probability"},
		{"min-p", p.MinP, 0, "a probability"},
	} {
		if v := float64(f.value); !(v >= f.low && v <= math.MaxFloat32) {
			return fmt.Errorf("%w: %s %v, want %s", ErrParams, f.name, v, f.want)
		}
	}
	for i, st := range p.Stages {
		if int(st) >= len(stageNames) {
			return fmt.Errorf("%w: stage %d of the chain is %v, want 0..%d", ErrParams, i, st, len(stageNames)-1)
		}
	}
	switch {
	case p.MinP > 1:
		return fmt.Errorf("%w: min-p %v, want a probability", ErrParams, p.MinP)
	case p.TopK < 0:
		return fmt.Errorf("%w: top-k %d, want 0 or more", ErrParams, p.TopK)
	case p.MinKeep < 0:
		return fmt.Errorf("%w: min-keep %d, want 0 or more", ErrParams, p.MinKeep)
	}
	for _, id := range slices.Sorted(maps.Keys(p.LogitBias)) {
		if b := p.LogitBias[id]; id < 0 || b != b || b > math.MaxFloat32 {
			return fmt.Errorf("%w: bias %v of token %d, want a finite number or -Inf, and a token of 0 or more", ErrParams, b, id)
		}
	}
	return nil
}

// Check returns an error that matches ErrParams if New refuses p, or if p has a bias
// for a token outside a vocabulary of n tokens, which Sample would refuse.
func (p *Params) Check(n int) error {
	if err := p.check(); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(p.LogitBias)) {
		if int(id) >= n {
			return fmt.Errorf("%w: bias of token %d, want a token of 0..%d", ErrParams, id, n-1)
		}
	}
	return nil
}

// candidate is one token that may be chosen.
type candidate struct {
	id    int32
	logit float64
	// weight is scratch of a stage or picker.
	weight float64
}

// set is the candidates at a point of the chain, at least one. Their logits are not
// NaN and below +Inf, and one of them is finite.
type set struct {
	c []candidate
	// sorted says that the logits fall, and that ids rise where logits are equal.
	sorted bool
	// vocabulary is the number of tokens before the chain narrowed them.
	vocabulary int
}

// step is a stage of the chain with its parameters. It narrows or reweights s,
// reusing its array.
type step interface {
	apply(s *set)
}

// picker ends the chain: it returns the index of the candidate to choose.
type picker interface {
	pick(s *set) int
	// weigh sets the weights to the probabilities of being chosen.
	weigh(s *set)
}

// Sampler chooses tokens, one sequence of them for a seed. It keeps scratch
// memory, the history and the state of its random numbers: use one per sequence,
// from one goroutine at a time.
type Sampler struct {
	bias    []bias
	penalty *penalties // nil for none
	steps   []step
	picker  picker
	pcg     *rand.PCG
	seed    uint64

	scratch []candidate
	set     set
	probs   []Candidate
}

// Candidate is a token and the probability that it is chosen.
type Candidate struct {
	ID          int32
	Probability float64
}

// New returns a sampler for p, of which it keeps a copy. It fails with ErrParams
// where a parameter is NaN, infinite or out of its range.
func New(p Params) (*Sampler, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	s := &Sampler{pcg: rand.NewPCG(0, 0), seed: p.Seed}
	s.Reset()
	for _, id := range slices.Sorted(maps.Keys(p.LogitBias)) {
		s.bias = append(s.bias, bias{id, float64(p.LogitBias[id])})
	}
	s.picker = draw{rand.New(s.pcg)}
	for _, st := range p.chain() {
		if st == Temperature && p.Temperature <= 0 {
			s.beGreedy()
			break
		}
		if step := s.newStep(st, &p); step != nil {
			s.steps = append(s.steps, step)
		}
	}
	return s, nil
}

// newStep returns the next step of the chain, or nil where the parameters leave the
// stage out.
func (s *Sampler) newStep(st Stage, p *Params) step {
	keep := max(p.MinKeep, 1)
	switch st {
	case Penalties:
		if r := p.RepeatPenalty; r != 0 && r != 1 || p.FrequencyPenalty != 0 || p.PresencePenalty != 0 {
			if s.penalty == nil {
				s.penalty = newPenalties(p)
			}
			return penalize{s.penalty, len(s.steps) == 0}
		}
	case TopK:
		if p.TopK > 0 {
			return topK(p.TopK)
		}
	case TypicalP:
		if p.TypicalP > 0 && p.TypicalP < 1 {
			return typical{float64(p.TypicalP), keep}
		}
	case TopP:
		if p.TopP > 0 && p.TopP < 1 {
			return topP{float64(p.TopP), keep}
		}
	case MinP:
		if p.MinP > 0 {
			return minP{math.Log(float64(p.MinP)), keep}
		}
	case Temperature:
		return temperature(p.Temperature)
	}
	return nil
}

// beGreedy ends the chain with the largest logit. The steps just before which it
// outlives, as the likeliest token, need not be run.
func (s *Sampler) beGreedy() {
	s.picker = greedy{}
	for len(s.steps) > 0 {
		switch s.steps[len(s.steps)-1].(type) {
		case topK, topP, minP:
			s.steps = s.steps[:len(s.steps)-1]
		default:
			return
		}
	}
}

// Accept adds a token to the history that penalties count: the one that was
// sampled, or one of a prompt. An id that is none of the vocabulary counts for
// nothing.
func (s *Sampler) Accept(id int32) {
	if s.penalty != nil {
		s.penalty.accept(id)
	}
}

// Reset takes the sampler back to where New left it: no history, and the random
// numbers start again.
func (s *Sampler) Reset() {
	// The second word selects one of PCG's streams; it is a constant so that the
	// seed alone decides.
	s.pcg.Seed(s.seed, 0x9E3779B97F4A7C15)
	if s.penalty != nil {
		s.penalty.reset()
	}
}

// Sample returns the index of the chosen logit. logits holds one per token of
// the vocabulary and is not changed; -Inf excludes a token. The token does not
// enter the history: see [Sampler.Accept].
//
// It fails with ErrLogits where logits is empty, holds NaN or +Inf, or excludes
// every token, and with ErrParams where a token with a bias has no logit. A failed
// call draws no random number.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	if err := s.run(logits); err != nil {
		return 0, err
	}
	return s.set.c[s.picker.pick(&s.set)].id, nil
}

// Distribution returns the tokens among which Sample would choose, likeliest first
// (and by id where equally likely), with their probabilities. Tokens of probability
// 0 are left out. It draws no random number. The slice is good until the next call
// of a method. It fails as Sample does.
func (s *Sampler) Distribution(logits []float32) ([]Candidate, error) {
	if err := s.run(logits); err != nil {
		return nil, err
	}
	s.picker.weigh(&s.set)
	s.probs = s.probs[:0]
	order(s.set.c, len(s.set.c), byLogit)
	for _, c := range s.set.c {
		if c.weight > 0 {
			s.probs = append(s.probs, Candidate{c.id, c.weight})
		}
	}
	return s.probs, nil
}

// run leaves in s.set what the chain leaves of logits.
func (s *Sampler) run(logits []float32) error {
	if len(logits) == 0 || len(logits) > math.MaxInt32 {
		return fmt.Errorf("%w: %d logits, want 1..%d", ErrLogits, len(logits), math.MaxInt32)
	}
	if cap(s.scratch) < len(logits) {
		s.scratch = make([]candidate, len(logits))
	}
	c := s.scratch[:len(logits)]
	possible := false
	for i, l := range logits {
		if l != l || l > math.MaxFloat32 {
			return fmt.Errorf("%w: logit %d is %v, want a finite number or -Inf", ErrLogits, i, l)
		}
		possible = possible || l >= -math.MaxFloat32
		c[i] = candidate{id: int32(i), logit: float64(l)}
	}
	if !possible {
		return fmt.Errorf("%w: all %d are -Inf", ErrLogits, len(logits))
	}
	for _, b := range s.bias {
		if int(b.id) >= len(c) {
			return fmt.Errorf("%w: bias of token %d, but %d logits", ErrParams, b.id, len(c))
		}
		c[b.id].logit += b.value
	}
	if len(s.bias) > 0 && !slices.ContainsFunc(c, func(c candidate) bool { return !math.IsInf(c.logit, -1) }) {
		return fmt.Errorf("%w: with their biases all %d are -Inf", ErrLogits, len(logits))
	}
	s.set = set{c: c, vocabulary: len(c)}
	for _, st := range s.steps {
		st.apply(&s.set)
	}
	return nil
}
