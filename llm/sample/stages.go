package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
)

// Stage is a stage of a sampler's chain. Params has its parameters.
type Stage uint8

// The stages of a chain, with the fields of Params that are their parameters.
const (
	Penalties   Stage = iota // RepeatPenalty, FrequencyPenalty, PresencePenalty, PenaltyWindow
	TopK                     // TopK
	TypicalP                 // TypicalP, MinKeep
	TopP                     // TopP, MinKeep
	MinP                     // MinP, MinKeep
	Temperature              // Temperature
)

// stageNames has the names of llama.cpp.
var stageNames = [...]string{
	Penalties: "penalties", TopK: "top_k", TypicalP: "typ_p", TopP: "top_p", MinP: "min_p", Temperature: "temperature",
}

// stageAliases has the other names that llama.cpp accepts.
var stageAliases = map[string]Stage{"typical": TypicalP, "typical_p": TypicalP, "typ": TypicalP, "nucleus": TopP, "temp": Temperature}

// DefaultStages returns the chain of a Sampler whose Params.Stages is nil, in llama.cpp's
// order: penalties, top-k, typical-p, top-p, min-p, temperature.
func DefaultStages() []Stage { return []Stage{Penalties, TopK, TypicalP, TopP, MinP, Temperature} }

// String returns the name of the stage, which ParseStages accepts.
func (s Stage) String() string {
	if int(s) < len(stageNames) {
		return stageNames[s]
	}
	return fmt.Sprintf("Stage(%d)", uint8(s))
}

// ParseStages returns the stages of a list of names that are separated by semicolons, such as
// "penalties;top_k;temperature". It accepts llama.cpp's names and aliases, with "-" or "_" in
// them. An empty list gives an empty chain. ParseStages fails with ErrParams if a name is not
// that of a stage.
func ParseStages(list string) ([]Stage, error) {
	stages := []Stage{}
	if list == "" {
		return stages, nil
	}
next:
	for name := range strings.SplitSeq(list, ";") {
		canonical := strings.ReplaceAll(strings.TrimSpace(name), "-", "_")
		for i, n := range stageNames {
			if n == canonical {
				stages = append(stages, Stage(i))
				continue next
			}
		}
		st, ok := stageAliases[canonical]
		if !ok {
			return nil, fmt.Errorf("%w: no stage is named %q, want names from %s", ErrParams, name, strings.Join(stageNames[:], ";"))
		}
		stages = append(stages, st)
	}
	return stages, nil
}

// bias is an amount to add to the logit of a token.
type bias struct {
	id    int32
	value float64
}

// penalties holds the history and lowers the logits of its tokens, as llama.cpp's penalties
// sampler does. The repeat penalty is that of N. S. Keskar et al., "CTRL", 2019, section 4.1,
// except that negative logits are multiplied, because a division would raise them.
type penalties struct {
	repeat, frequency, presence float64
	// history holds the last accepted ids: a ring of window ids whose oldest id is at
	// index next, or all accepted ids if window is negative.
	history []int32
	window  int
	next    int
	// count is scratch memory by id. All its elements are zero between calls.
	count []int32
}

func newPenalties(p *Params) *penalties {
	n := &penalties{
		repeat:    float64(p.RepeatPenalty),
		frequency: float64(p.FrequencyPenalty),
		presence:  float64(p.PresencePenalty),
		window:    p.PenaltyWindow,
	}
	if n.repeat == 0 {
		n.repeat = 1
	}
	if n.window == 0 {
		n.window = defaultPenaltyWindow
	}
	return n
}

func (p *penalties) accept(id int32) {
	if p.window < 0 || len(p.history) < p.window {
		p.history = append(p.history, id)
		return
	}
	p.history[p.next] = id
	p.next = (p.next + 1) % p.window
}

func (p *penalties) reset() { p.history, p.next = p.history[:0], 0 }

// penalize is the step that lowers the logits of the tokens of the history.
type penalize struct {
	*penalties
	// first says that this step is the first one, so that candidate i is token i.
	first bool
}

func (p penalize) apply(s *set) {
	if len(p.count) < s.vocabulary {
		p.count = make([]int32, s.vocabulary)
	}
	for _, id := range p.history {
		if id >= 0 && int(id) < s.vocabulary {
			p.count[id]++
		}
	}
	if !p.first {
		for i := range s.c {
			p.lower(&s.c[i])
		}
	}
	for _, id := range p.history {
		if id >= 0 && int(id) < s.vocabulary {
			if p.first {
				p.lower(&s.c[id])
			}
			p.count[id] = 0
		}
	}
	s.sorted = false
}

// lower lowers the logit of c if its token is in the history.
func (p *penalties) lower(c *candidate) {
	n := p.count[c.id]
	if n == 0 {
		return
	}
	logit := c.logit
	if logit > 0 {
		logit /= p.repeat
	} else {
		logit *= p.repeat
	}
	c.become(logit - (float64(n)*p.frequency + p.presence))
}

// topK keeps the given number of largest logits, sorted.
type topK int

func (k topK) apply(s *set) {
	n := min(int(k), len(s.c))
	if !s.sorted {
		order(s.c, n, byLogit)
	}
	s.c, s.sorted = s.c[:n], true
}

// typical keeps the candidates whose surprise is nearest to the entropy. (C. Meister et al.,
// "Locally Typical Sampling", 2023, section 4.)
type typical struct {
	p    float64
	keep int
}

func (t typical) apply(s *set) {
	largest, sum := softmax(s)
	logSum := math.Log(sum)
	entropy := 0.0
	for i := range s.c {
		if w := s.c[i].weight; w > 0 {
			entropy += w / sum * (logSum - (s.c[i].logit - largest))
		}
	}
	// The weights become the distances from the entropy, for byWeight.
	for i := range s.c {
		s.c[i].weight = math.Abs(logSum - (s.c[i].logit - largest) - entropy)
	}
	mass, sorted := 0.0, 0
	for i := range s.c {
		sorted = extend(s.c, sorted, i, byWeight)
		mass += math.Exp(s.c[i].logit-largest) / sum
		if mass > t.p && i+1 >= t.keep {
			s.c = s.c[:i+1]
			break
		}
	}
	s.sorted = false
}

// topP keeps the likeliest candidates. (A. Holtzman et al., "The Curious Case of Neural Text
// Degeneration", 2020, section 3.1.)
type topP struct {
	p    float64
	keep int
}

func (t topP) apply(s *set) {
	_, sum := softmax(s)
	mass, sorted := 0.0, 0
	if s.sorted {
		sorted = len(s.c)
	}
	for i := range s.c {
		sorted = extend(s.c, sorted, i, byLogit)
		mass += s.c[i].weight / sum
		if mass >= t.p && i+1 >= t.keep {
			s.c = s.c[:i+1]
			break
		}
	}
	s.sorted = true
}

// minP keeps the candidates with at least a given part of the largest probability.
type minP struct {
	logP float64 // the logarithm of that part
	keep int
}

func (m minP) apply(s *set) {
	threshold := s.c[largest(s)].logit + m.logP
	if m.keep > 1 {
		n := 0
		for i := range s.c {
			if s.c[i].logit >= threshold {
				n++
			}
		}
		if n < m.keep {
			topK(m.keep).apply(s)
			return
		}
	}
	kept := s.c[:0]
	for _, c := range s.c {
		if c.logit >= threshold {
			kept = append(kept, c)
		}
	}
	s.c = kept
}

// become sets the logit that a stage computed. The logit remains finite even if stages are
// repeated often. An excluded candidate remains excluded.
func (c *candidate) become(logit float64) {
	const most = math.MaxFloat64 / 4
	if !math.IsInf(c.logit, -1) {
		c.logit = min(max(logit, -most), most)
	}
}

// temperature divides the logits by its value, which is positive.
type temperature float64

func (t temperature) apply(s *set) {
	for i := range s.c {
		s.c[i].become(s.c[i].logit / float64(t))
	}
}

// largest returns the index of the largest logit. Of equal logits it returns the first.
func largest(s *set) int {
	if s.sorted {
		return 0
	}
	best := 0
	for i := range s.c {
		if s.c[i].logit > s.c[best].logit {
			best = i
		}
	}
	return best
}

// softmax sets the weights in proportion to the probabilities. It returns the largest logit,
// whose weight is 1, and the sum of the weights.
func softmax(s *set) (max, sum float64) {
	max = s.c[largest(s)].logit
	for i := range s.c {
		w := math.Exp(s.c[i].logit - max)
		s.c[i].weight = w
		sum += w
	}
	return max, sum
}

// greedy picks the largest logit. Of equal logits it picks the first.
type greedy struct{}

func (greedy) pick(s *set) int { return largest(s) }

func (greedy) weigh(s *set) {
	for i := range s.c {
		s.c[i].weight = 0
	}
	s.c[largest(s)].weight = 1
}

// draw picks a random candidate with the probabilities of the softmax.
type draw struct {
	rng *rand.Rand
}

func (d draw) pick(s *set) int {
	_, sum := softmax(s)
	// The additions of acc are those of sum, so acc ends at sum. If the product rounds up
	// to sum, no acc exceeds it, and the last candidate with a positive weight is chosen.
	threshold := d.rng.Float64() * sum
	acc, last := 0.0, 0
	for i := range s.c {
		if s.c[i].weight == 0 {
			continue
		}
		acc += s.c[i].weight
		last = i
		if threshold < acc {
			break
		}
	}
	return last
}

func (d draw) weigh(s *set) {
	_, sum := softmax(s)
	for i := range s.c {
		s.c[i].weight /= sum
	}
}
