package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/fucina-go/fucina/llm"
)

// measurement is the result of one test of the bench command, as -o json prints it. The
// rates are in tokens per second, over the repetitions of the test.
type measurement struct {
	Test     string  `json:"test"` // "pp512": 512 prompt tokens; "tg48": 48 tokens one by one
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
	if *prompt == 0 && *gen == 0 {
		return usagef("bench: nothing to measure: -p and -n are both 0")
	}
	fs.tellIgnored(t)
	l, err := t.load(ctx, m, max(*prompt, *gen))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()

	t.warnLength(l)
	b := &benchmark{
		s:      l.session,
		ids:    syntheticIDs(max(*prompt, *gen), l.model.Params().Vocabulary),
		logits: make([]float32, l.model.Params().Vocabulary),
	}
	list := []measurement{}
	for _, test := range []struct {
		prefix string
		n      int
		run    func(ctx context.Context, n int) error
	}{{"pp", *prompt, b.prompt}, {"tg", *gen, b.generate}} {
		if test.n == 0 {
			continue
		}
		var rates []float64
		if rates, err = b.repeat(ctx, *reps, test.n, test.run); err != nil {
			break
		}
		list = append(list, measurement{
			Test:     fmt.Sprintf("%s%d", test.prefix, test.n),
			Median:   median(rates),
			Min:      slices.Min(rates),
			Max:      slices.Max(rates),
			Threads:  l.engine.Threads(),
			Provider: l.engine.Provider(),
			Memory:   m.budget(l),
		})
	}
	// After an interrupt or an error, the measurements before it are printed.
	if len(list) > 0 {
		err = errors.Join(err, t.tell(list, *out))
	}
	return err
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
}

// repeat runs a test of n tokens once to warm up and then reps times, each time on an empty
// session. It returns the rates of the repetitions in tokens per second.
func (b *benchmark) repeat(ctx context.Context, reps, n int, test func(ctx context.Context, n int) error) ([]float64, error) {
	rates := make([]float64, 0, reps)
	for i := range reps + 1 {
		if err := b.s.Rewind(0); err != nil {
			return nil, err
		}
		// The model keeps the keys and values of tokens that it has seen, so no two repetitions
		// begin with the same token.
		b.ids[0] = int32(i % len(b.logits))
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
	return b.s.Decode(ctx, b.ids[:n], b.logits)
}

func (b *benchmark) generate(ctx context.Context, n int) error {
	for i := range n {
		if err := b.s.Next(ctx, b.ids[i], b.logits); err != nil {
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
