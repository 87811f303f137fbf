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
	// ErrParams reports parameters that are out of range.
	ErrParams = errors.New("sample: invalid parameters")
	// ErrLogits reports logits from which a token cannot be chosen.
	ErrLogits = errors.New("sample: invalid logits")
)

// defaultPenaltyWindow is llama.cpp's default of penalty_last_n.
const defaultPenaltyWindow = 64

// Params are the parameters of a Sampler. The zero value is greedy. Except for Stages,
// Temperature and Seed, the zero value of a field leaves its stage out of the chain or means
// the field's default.
type Params struct {
	// Stages is the chain, in the order in which its stages are applied. nil means
	// DefaultStages. A stage that is not in Stages is left out, and its parameters have
	// no effect. A stage may occur more than once. Without [Temperature] the token is
	// drawn from the logits after the chain. LogitBias comes before all stages.
	Stages []Stage
	// LogitBias holds, by token id, the amounts to add to logits. -Inf excludes a token.
	LogitBias map[int32]float32
	// RepeatPenalty makes the tokens of the history less likely: it divides a positive
	// logit and multiplies any other. 1 changes nothing.
	RepeatPenalty float32
	// FrequencyPenalty is subtracted from the logit of a token for each time that it
	// occurs in the history.
	FrequencyPenalty float32
	// PresencePenalty is subtracted from the logits of all tokens of the history.
	PresencePenalty float32
	// PenaltyWindow is the number of last accepted tokens that form the history. 0 means
	// 64, and a negative number means all.
	PenaltyWindow int
	// TopK keeps the TopK largest logits.
	TopK int
	// TypicalP keeps the tokens whose surprise -log p is nearest to the entropy, which is
	// the mean surprise. It keeps the fewest tokens whose probabilities add up to more
	// than TypicalP. 1 and above changes nothing.
	TypicalP float32
	// TopP keeps the fewest likeliest tokens whose probabilities add up to at least TopP.
	// 1 and above changes nothing.
	TopP float32
	// MinP keeps the tokens that have at least MinP times the probability of the likeliest
	// token.
	MinP float32
	// MinKeep is the smallest number of tokens that TypicalP, TopP and MinP keep. 0 means
	// 1.
	MinKeep int
	// Temperature divides the logits. Below 1, likely tokens become likelier; above 1,
	// the probabilities become more alike. At 0 and below, its stage keeps only the token
	// with the largest logit.
	Temperature float32
	// Seed is the seed of the random numbers. Every value is a valid seed, including 0.
	Seed uint64
}

// DefaultParams returns the defaults of llama.cpp's programs: temperature 0.8, top-k 40,
// top-p 0.95, min-p 0.05, and a window of 64 tokens for penalties. The seed is 0, so texts
// repeat until the caller sets another seed.
func DefaultParams() Params {
	return Params{Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05, PenaltyWindow: defaultPenaltyWindow}
}

// Greedy reports whether a Sampler for p draws no random numbers, because its chain has a
// temperature of 0 or less.
func (p *Params) Greedy() bool {
	return p.Temperature <= 0 && slices.Contains(p.chain(), Temperature)
}

func (p *Params) chain() []Stage {
	if p.Stages == nil {
		return DefaultStages()
	}
	return p.Stages
}

// check returns an error that names the first parameter that is out of range.
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

// Check returns an error that wraps ErrParams if New fails for p, or if p has a bias of a
// token outside of a vocabulary of n tokens, for which Sample fails.
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
	// weight is scratch memory of a stage or a picker.
	weight float64
}

// set holds the candidates at a point of the chain, at least one. Their logits are neither
// NaN nor +Inf, and one of them is finite.
type set struct {
	c []candidate
	// sorted says that the candidates are sorted by byLogit.
	sorted bool
	// vocabulary is the number of candidates at the start of the chain.
	vocabulary int
}

// step is a stage of the chain with its parameters. apply narrows or reweights s, and reuses
// the array of s.
type step interface {
	apply(s *set)
}

// picker ends the chain: it returns the index of the candidate to choose.
type picker interface {
	pick(s *set) int
	// weigh sets the weights to the probabilities with which pick chooses.
	weigh(s *set)
}

// Sampler chooses the tokens of one sequence. It holds scratch memory, the history and the
// state of the random numbers. Use one Sampler for each sequence, from one goroutine at a
// time.
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

// New returns a sampler with a copy of p. It fails with ErrParams if a parameter is NaN,
// infinite or out of range.
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

// newStep returns the next step of the chain, or nil if the parameters leave the stage out.
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

// beGreedy makes the chain choose the largest logit. It removes the last steps of the chain
// that never remove the token with the largest logit.
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

// Accept adds a token to the history of the penalties: a sampled token, or a token of a
// prompt. An id outside of the vocabulary has no effect.
func (s *Sampler) Accept(id int32) {
	if s.penalty != nil {
		s.penalty.accept(id)
	}
}

// Reset restores the state after New: the history is empty, and the random numbers start
// again.
func (s *Sampler) Reset() {
	// The second word selects one of PCG's streams. It is constant, so that only the seed
	// determines the random numbers.
	s.pcg.Seed(s.seed, 0x9E3779B97F4A7C15)
	if s.penalty != nil {
		s.penalty.reset()
	}
}

// Sample returns the id of the chosen token. logits has one element for each token of the
// vocabulary, and Sample does not change it; -Inf excludes a token. Sample does not add the
// token to the history: see [Sampler.Accept].
//
// It fails with ErrLogits if logits is empty, contains NaN or +Inf, or excludes every token,
// and with ErrParams if a token with a bias has no logit. A call that fails draws no random
// number.
func (s *Sampler) Sample(logits []float32) (int32, error) {
	if err := s.run(logits); err != nil {
		return 0, err
	}
	return s.set.c[s.picker.pick(&s.set)].id, nil
}

// Distribution returns the tokens among which Sample would choose, with their probabilities,
// likeliest first and then by id. Tokens with probability 0 are left out. Distribution draws
// no random number. The slice is valid until the next call of a method. Distribution fails as
// Sample does.
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

// run applies the chain to logits and sets s.set to the remaining candidates.
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
		return fmt.Errorf("%w: all %d logits are -Inf", ErrLogits, len(logits))
	}
	for _, b := range s.bias {
		if int(b.id) >= len(c) {
			return fmt.Errorf("%w: bias of token %d, want a token of 0..%d", ErrParams, b.id, len(c)-1)
		}
		c[b.id].logit += b.value
	}
	if len(s.bias) > 0 && !slices.ContainsFunc(c, func(c candidate) bool { return !math.IsInf(c.logit, -1) }) {
		return fmt.Errorf("%w: with their biases all %d logits are -Inf", ErrLogits, len(logits))
	}
	s.set = set{c: c, vocabulary: len(c)}
	for _, st := range s.steps {
		st.apply(&s.set)
	}
	return nil
}
