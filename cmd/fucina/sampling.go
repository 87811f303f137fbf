package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// samplingFlags are the flags of the sampler. Names and defaults are those of llama.cpp.
type samplingFlags struct {
	params sample.Params
	temp   temperature
	seed   seedValue
	topK   *int
	window *int
	stop   textList

	ignoreEOS bool
}

func (f *flags) sampling() *samplingFlags {
	s := &samplingFlags{params: sample.DefaultParams()}
	f.inert(inertSampling)
	f.off()
	d := s.params
	s.temp = temperature(d.Temperature)
	f.Var(&s.temp, "temp", "`temperature`; 0 or less chooses the likeliest token")
	f.alias("temp", "temperature")
	f.Var(&s.seed, "seed", "`seed` of the sampler (default -1, a random one)")
	f.alias("seed", "s")
	s.topK = f.intRange("top-k", d.TopK, -1, maxTokens, "keep the `k` likeliest tokens; 0 and -1 keep all")
	f.ratio(&s.params.TopP, "top-p", d.TopP, 0, 1, "keep the fewest likeliest tokens whose probabilities add up to `p`; 1 keeps all")
	f.ratio(&s.params.MinP, "min-p", d.MinP, 0, 1, "keep tokens with at least `p` times the probability of the likeliest token; 0 keeps all")
	f.ratio(&s.params.TypicalP, "typical", 1, 0, 1, "keep the fewest most typical tokens whose probabilities add up to `p`; 1 keeps all")
	f.alias("typical", "typical-p")
	f.ratio(&s.params.RepeatPenalty, "repeat-penalty", 1, 0, math.MaxFloat32, "`factor` that makes repeated tokens less likely; 1 changes nothing")
	f.ratio(&s.params.FrequencyPenalty, "frequency-penalty", 0, -math.MaxFloat32, math.MaxFloat32, "`amount` to subtract from the logit of a token for each time it occurred")
	f.ratio(&s.params.PresencePenalty, "presence-penalty", 0, -math.MaxFloat32, math.MaxFloat32, "`amount` to subtract from the logit of each token that occurred")
	s.window = f.intRange("repeat-last-n", d.PenaltyWindow, -1, maxTokens, "number of last `tokens` that the penalties consider; -1 means all, 0 none")
	f.Var((*biasMap)(&s.params.LogitBias), "logit-bias", "amount to add to the logit of a token, as `ID+AMOUNT` or ID-AMOUNT; may be repeated")
	f.alias("logit-bias", "l")
	f.BoolVar(&s.ignoreEOS, "ignore-eos", false, "never choose a token that ends the text")
	stages := stageList{&s.params.Stages, f}
	f.Var(stages, "samplers", "`stages` of the sampler in their order, separated by semicolons (default \""+stageText(sample.DefaultStages())+"\"); stages of llama.cpp that do not exist here are ignored")
	f.Var(stageLetters{stages}, "sampler-seq", "stages of the sampler as `letters`: e, k, y, p, m and t are the default stages of -samplers in their order")
	f.alias("sampler-seq", "sampling-seq")
	f.Var(&s.stop, "stop", "`text` that ends the answer and is not printed; may be repeated")
	f.alias("stop", "r", "reverse-prompt")
	return s
}

// resolve returns the parameters. If no seed was given, it draws one.
func (s *samplingFlags) resolve() sample.Params {
	p := s.params
	p.Temperature = max(float32(s.temp), 0)
	p.TopK = max(*s.topK, 0)
	// 0 turns the stage off in package sample. On the command line it keeps as few tokens as
	// possible.
	for _, v := range []*float32{&p.TopP, &p.TypicalP} {
		*v = max(*v, math.SmallestNonzeroFloat32)
	}
	if p.PenaltyWindow = *s.window; p.PenaltyWindow == 0 {
		p.RepeatPenalty, p.FrequencyPenalty, p.PresencePenalty = 1, 0, 0
	}
	if p.Seed = s.seed.seed; !s.seed.fixed {
		p.Seed = uint64(rand.Uint32())
	}
	return p
}

// suit adds the biases of -ignore-eos to p, which resolve returned, for the tokens of tok.
func (s *samplingFlags) suit(p *sample.Params, tok *tokenizer.Tokenizer) {
	if !s.ignoreEOS {
		return
	}
	p.LogitBias = maps.Clone(p.LogitBias)
	if p.LogitBias == nil {
		p.LogitBias = make(map[int32]float32)
	}
	for id := range int32(tok.VocabSize()) {
		if tok.IsEOG(id) {
			p.LogitBias[id] = float32(math.Inf(-1))
		}
	}
}

// ratioValue is the value of a flag that takes a finite number of a range.
type ratioValue struct {
	p         *float32
	low, high float64
}

func (v ratioValue) String() string {
	if v.p == nil {
		return ""
	}
	return strconv.FormatFloat(float64(*v.p), 'g', -1, 32)
}

func (v ratioValue) Set(s string) error {
	x, err := strconv.ParseFloat(s, 32)
	if err != nil || !(x >= v.low && x <= v.high) {
		if v.high == math.MaxFloat32 {
			return errors.New("want a finite number" + map[bool]string{true: " of at least 0"}[v.low == 0])
		}
		return errors.New("want a number from " + strconv.FormatFloat(v.low, 'g', -1, 64) + " to " + strconv.FormatFloat(v.high, 'g', -1, 64))
	}
	*v.p = float32(x)
	return nil
}

func (f *flags) ratio(p *float32, name string, def float32, low, high float64, usage string) {
	*p = def
	f.Var(ratioValue{p, low, high}, name, usage)
}

// biasMap collects the values of -logit-bias.
type biasMap map[int32]float32

func (m *biasMap) String() string { return "" }

func (m *biasMap) Set(s string) error {
	i := strings.IndexAny(s, "+-")
	if i > 0 {
		id, err1 := strconv.ParseInt(s[:i], 10, 32)
		bias, err2 := strconv.ParseFloat(s[i:], 32)
		if err1 == nil && err2 == nil && id >= 0 && !math.IsNaN(bias) && !math.IsInf(bias, 1) {
			if *m == nil {
				*m = make(biasMap)
			}
			(*m)[int32(id)] = float32(bias)
			return nil
		}
	}
	return errors.New("want the id of a token, a sign and an amount, such as 15043+1 or 15043-inf")
}

// stageList is the value of -samplers.
type stageList struct {
	stages *[]sample.Stage
	f      *flags
}

// absentStages has the stages of llama.cpp that do not exist here, by their letters in
// -sampler-seq. Each of them is off unless a flag of its own turns it on, and such a flag is
// an error here. Ignoring the stages therefore changes nothing.
var absentStages = map[byte]string{'a': "adaptive_p", 'd': "dry", 's': "top_n_sigma", 'x': "xtc"}

func (l stageList) String() string { return "" }

func (l stageList) Set(s string) error {
	if s == "" {
		*l.stages = []sample.Stage{}
		return nil
	}
	return l.set(strings.Split(s, ";"))
}

func (l stageList) set(names []string) error {
	absent := slices.Sorted(maps.Values(absentStages))
	stages := []sample.Stage{}
	for _, name := range names {
		canonical := strings.ReplaceAll(strings.TrimSpace(name), "-", "_")
		if slices.Contains(absent, canonical) {
			l.f.ignored = append(l.f.ignored, "the stage "+canonical)
			continue
		}
		stage, err := sample.ParseStages(name)
		if err != nil || len(stage) == 0 {
			all := append(stageNames(sample.DefaultStages()), absent...)
			return fmt.Errorf("no stage is named %q, want names from %s%s", name, strings.Join(all, ";"), didYouMean(canonical, all))
		}
		stages = append(stages, stage...)
	}
	*l.stages = stages
	return nil
}

// stageLetters is the value of -sampler-seq.
type stageLetters struct{ list stageList }

func (l stageLetters) String() string { return "" }

func (l stageLetters) Set(s string) error {
	here := stageNames(sample.DefaultStages())
	var names []string
	for i := range len(s) {
		if at := strings.IndexByte("ekypmt", s[i]); at >= 0 {
			names = append(names, here[at])
		} else if name, ok := absentStages[s[i]]; ok {
			names = append(names, name)
		} else {
			return fmt.Errorf("no stage has the letter %q, want letters of ekypmtadsx", s[i])
		}
	}
	return l.list.set(names)
}

func stageNames(stages []sample.Stage) []string {
	names := make([]string, len(stages))
	for i, s := range stages {
		names[i] = s.String()
	}
	return names
}

func stageText(stages []sample.Stage) string { return strings.Join(stageNames(stages), ";") }

// textList collects the values of a flag that may be repeated.
type textList []string

func (l *textList) String() string { return "" }

func (l *textList) Set(s string) error {
	if s == "" {
		return errors.New("want a text that is not empty")
	}
	*l = append(*l, s)
	return nil
}

// seedValue is the value of -seed. If it is unset or -1, resolve draws a seed.
type seedValue struct {
	seed  uint64
	fixed bool
}

func (v *seedValue) String() string { return "" }

func (v *seedValue) Set(s string) error {
	if s == "-1" {
		*v = seedValue{}
		return nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return errors.New("want an integer from 0 to 2^64-1, or -1")
	}
	*v = seedValue{n, true}
	return nil
}
