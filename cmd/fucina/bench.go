package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fucina-go/fucina/llm"
)

// measurement is the result of one test of the bench command, as -o json prints it. The
// rates are in tokens per second, over the repetitions of the test.
type measurement struct {
	// Test is "pp512" for 512 prompt tokens, "tg48" for 48 tokens one by one, both with " @ d1024"
	// after 1024 others, or "first" for the first token of a model that is not yet open.
	Test     string  `json:"test"`
	Median   float64 `json:"median"`
	Min      float64 `json:"min"`
	Max      float64 `json:"max"`
	Threads  int     `json:"threads"`
	Provider string  `json:"provider"`
	Memory   int64   `json:"device_memory,omitempty"` // the bytes of -device-memory, with a device
}

// bench is the bench command.
func (t *tool) bench(ctx context.Context, args []string) (err error) {
	fs := newFlags("bench", "-m MODEL")
	m := fs.model()
	prompt := fs.size("p", 512, 0, maxTokens, "prompt `tokens` to process at once; 0 skips the test")
	fs.alias("p", "n-prompt")
	gen := fs.size("n", 48, 0, maxTokens, "`tokens` to process one at a time; 0 skips the test")
	fs.alias("n", "n-gen")
	depth := fs.size("d", 0, 0, maxTokens, "`tokens` that the session has before each test")
	fs.alias("d", "n-depth")
	first := fs.Bool("first", false, "also measure the first token, from opening the model to its logits")
	reps := fs.size("r", 3, 1, 1<<20, "`times` to repeat each test, after one run that does not count")
	fs.alias("r", "repetitions")
	fs.note = "The defaults of llama-bench, -n 128 and -r 5, take longer. llama-bench prints means, and\nthis command prints medians."
	out := fs.format()
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	if err := m.check("bench"); err != nil {
		return err
	}
	if *prompt == 0 && *gen == 0 && !*first {
		return usagef("bench: nothing to measure: -p and -n are both 0")
	}
	fs.tellIgnored(t)
	var list []measurement
	// After an interrupt or an error, the measurements before it are printed.
	defer func() {
		if len(list) > 0 {
			err = errors.Join(err, t.tell(list, *out))
		}
	}()
	length := *depth + max(*prompt, *gen, 1)
	l, err := t.load(ctx, m, length)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()

	t.warnLength(l)
	b := &benchmark{
		s:      l.session,
		ids:    syntheticIDs(length, l.model.Params().Vocabulary),
		logits: make([]float32, l.model.Params().Vocabulary),
		depth:  *depth,
	}
	at := ""
	if *depth > 0 {
		at = fmt.Sprintf(" @ d%d", *depth)
	}
	for _, test := range []struct {
		name string
		n    int
		run  func(ctx context.Context, n int) error
	}{{fmt.Sprintf("pp%d%s", *prompt, at), *prompt, b.prompt}, {fmt.Sprintf("tg%d%s", *gen, at), *gen, b.generate}} {
		if test.n == 0 {
			continue
		}
		rates, err := b.repeat(ctx, *reps, test.n, test.run)
		if err != nil {
			return err
		}
		list = append(list, measure(test.name, rates, m, l))
	}
	if *first {
		rates, err := firstTokens(ctx, m, *reps)
		if err != nil {
			return err
		}
		list = append(list, measure("first", rates, m, l))
	}
	return nil
}

// measure returns the measurement of a test from the rates of its repetitions, which it sorts.
func measure(test string, rates []float64, m *modelFlags, l *loaded) measurement {
	return measurement{
		Test:     test,
		Median:   median(rates),
		Min:      slices.Min(rates),
		Max:      slices.Max(rates),
		Threads:  l.engine.Threads(),
		Provider: l.engine.Provider(),
		Memory:   m.budget(l),
	}
}

// firstTokens opens the model once to warm up and then reps times, each time with an engine of
// its own, and computes the logits of one token. It returns the rates in tokens per second.
func firstTokens(ctx context.Context, m *modelFlags, reps int) ([]float64, error) {
	quiet := &tool{stderr: io.Discard}
	rates := make([]float64, 0, reps)
	for i := range reps + 1 {
		start := time.Now()
		l, err := quiet.load(ctx, m, 1)
		if err != nil {
			return nil, err
		}
		err = l.session.Decode(ctx, []int32{0}, make([]float32, l.model.Params().Vocabulary))
		seconds := time.Since(start).Seconds()
		if err := errors.Join(err, l.close()); err != nil {
			return nil, err
		}
		if i > 0 {
			rates = append(rates, rate(1, seconds))
		}
	}
	return rates, nil
}

// tell prints the measurements.
func (t *tool) tell(list []measurement, out format) error {
	if out == jsonl {
		return t.writeJSON(list)
	}
	w := tabwriter.NewWriter(t.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "test\tprovider\tthreads\tmedian tok/s\tmin\tmax\t\n")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", r.Test, r.Provider, r.Threads, r.Median, r.Min, r.Max)
	}
	return w.Flush()
}

// syntheticIDs returns n token ids below vocabulary. The same arguments give the same ids.
func syntheticIDs(n, vocabulary int) []int32 {
	random := rand.New(rand.NewPCG(1, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = random.Int32N(int32(vocabulary))
	}
	return ids
}

// benchmark runs synthetic tokens through a session.
type benchmark struct {
	s      *llm.Session
	ids    []int32
	logits []float32
	depth  int // the tokens that the session has before a test
}

// repeat runs a test of n tokens once to warm up and then reps times, each time on a session
// with depth tokens. It returns the rates of the repetitions in tokens per second.
func (b *benchmark) repeat(ctx context.Context, reps, n int, test func(ctx context.Context, n int) error) ([]float64, error) {
	if err := b.s.Rewind(0); err != nil {
		return nil, err
	}
	if b.depth > 0 {
		if err := b.s.Decode(ctx, b.ids[:b.depth], b.logits); err != nil {
			return nil, err
		}
	}
	rates := make([]float64, 0, reps)
	for i := range reps + 1 {
		if err := b.s.Rewind(b.depth); err != nil {
			return nil, err
		}
		// The model keeps the keys and values of tokens that it has seen, so no two repetitions
		// begin with the same token.
		b.ids[b.depth] = int32(i % len(b.logits))
		start := time.Now()
		if err := test(ctx, n); err != nil {
			return nil, err
		}
		if i > 0 {
			rates = append(rates, rate(n, time.Since(start).Seconds()))
		}
	}
	return rates, nil
}

func (b *benchmark) prompt(ctx context.Context, n int) error {
	return b.s.Decode(ctx, b.ids[b.depth:][:n], b.logits)
}

func (b *benchmark) generate(ctx context.Context, n int) error {
	for i := range n {
		if err := b.s.Next(ctx, b.ids[b.depth+i], b.logits); err != nil {
			return err
		}
	}
	return nil
}

// median returns the median of values, and sorts values.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}
