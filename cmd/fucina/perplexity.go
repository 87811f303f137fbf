package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// perplexityResult is the result of the perplexity command, as -o json prints it.
type perplexityResult struct {
	Model      jsonText  `json:"model"` // base name
	Provider   string    `json:"provider"`
	Exact      bool      `json:"exact"`
	Memory     int64     `json:"device_memory,omitempty"` // the bytes of -device-memory, with a device
	Context    int       `json:"context"`                 // tokens in a window
	Tokens     int       `json:"tokens"`                  // of the text
	Scored     int       `json:"scored"`                  // tokens whose prediction counts
	Estimates  []float64 `json:"estimates"`               // after each window
	Perplexity float64   `json:"ppl"`
	Error      float64   `json:"error"` // one standard deviation; 0 if it is unknown
	Seconds    float64   `json:"seconds"`
	Rate       float64   `json:"tok_s"` // tokens that run through the network per second
}

// defaultWindow is the default of llama.cpp, so that results without -c are comparable.
const defaultWindow = 512

// perplexity is the perplexity command. It measures what llama.cpp's tool measures: it cuts
// the tokens of the text into windows and leaves out the rest. Each window is a sequence of
// its own, with BOS in place of its first token. The predictions in its second half count.
func (t *tool) perplexity(ctx context.Context, args []string) (err error) {
	fs := newFlags("perplexity", "-m MODEL -f FILE")
	m := fs.model()
	file := fs.String("f", "", "`file` with the text; - is standard input")
	fs.alias("f", "file")
	window := fs.size("c", defaultWindow, ownLength, maxTokens, "`tokens` in a window; 0 means the context that the model was trained for")
	fs.alias("c", "ctx-size")
	out := fs.format()
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	if err := m.check("perplexity"); err != nil {
		return err
	}
	if *window == 1 || *window == 2 {
		return usagef("perplexity: a window of %d tokens scores none; want an integer from 3 to %d, 0, or -1 for the default", *window, maxTokens)
	}
	if *file == "" {
		return usagef("perplexity: no text: give its file with -f")
	}
	text, err := t.read(ctx, *file)
	if err != nil {
		return err
	}
	fs.tellIgnored(t)
	l, err := t.load(ctx, m, *window)
	if err != nil {
		return shorter(err)
	}
	defer func() { err = shorter(errors.Join(err, l.close())) }()

	*window = l.session.Context()
	// llama.cpp removes one newline at the end of the file.
	w, err := newWindows(ctx, l.model.Tokenizer(), strings.TrimSuffix(text, "\n"), *window)
	if err != nil {
		return err
	}
	t.warnLength(l)
	r := &perplexityResult{
		Model:    jsonText(m.name()),
		Provider: l.engine.Provider(), Exact: l.engine.Exact(), Memory: m.budget(l),
		Context: *window, Tokens: len(w.ids),
	}
	line := &lineWriter{w: t.stdout}
	if *out == jsonl {
		line.w = io.Discard
	}
	start := time.Now()
	var s lossSum
	err = func() error {
		for i := range w.count() {
			if err := s.window(ctx, l.session, w.window(i)); err != nil {
				return err
			}
			r.Estimates = append(r.Estimates, s.perplexity())
			if err := line.write(fmt.Sprintf("[%d]%.4f,", i+1, s.perplexity())); err != nil {
				return err
			}
		}
		return nil
	}()
	if err = errors.Join(err, line.end()); err != nil {
		return err
	}
	r.Seconds = time.Since(start).Seconds()
	// The last token of a window is predicted and does not run through the network.
	r.Rate = rate(w.count()*(*window-1), r.Seconds)
	r.Scored, r.Perplexity, r.Error = s.n, s.perplexity(), s.deviation()
	if *out == jsonl {
		return t.writeJSON(r)
	}
	_, err = fmt.Fprintf(t.stdout, "Final estimate: PPL = %.4f +/- %.5f\n", r.Perplexity, r.Error)
	return err
}

// windows are the tokens of a text, cut into windows of equal size.
type windows struct {
	ids  []int32
	size int
	bos  int32 // replaces the first token of each window, unless it is tokenizer.None
}

func newWindows(ctx context.Context, tok *tokenizer.Tokenizer, text string, size int) (*windows, error) {
	special := tokenizer.EncodeOptions{Frame: tokenizer.TextFrame}
	ids, err := encode(ctx, tok, text, special)
	if err != nil {
		return nil, err
	}
	if len(ids) < 2*size {
		return nil, fmt.Errorf("the text has %d tokens, but two windows of %d need %d; give a smaller -c", len(ids), size, 2*size)
	}
	w := &windows{ids: ids, size: size, bos: tokenizer.None}
	// An empty text has only the tokens that the vocabulary adds around a text.
	around, err := tok.Encode("", special)
	if err != nil {
		return nil, err
	}
	if len(around) > 0 && around[0] == tok.BOS() {
		w.bos = tok.BOS()
	}
	return w, nil
}

func (w *windows) count() int { return len(w.ids) / w.size }

// window returns a copy of window i.
func (w *windows) window(i int) []int32 {
	ids := append([]int32(nil), w.ids[i*w.size:(i+1)*w.size]...)
	if w.bos != tokenizer.None {
		ids[0] = w.bos
	}
	return ids
}

// lossSum sums the negative logarithms of the probabilities that a model gave to the tokens of
// a text.
type lossSum struct {
	n            int
	sum, squares float64
}

// window runs ids as a new sequence, and adds the tokens of its second half to s, except the
// first one.
func (s *lossSum) window(ctx context.Context, session *llm.Session, ids []int32) error {
	if err := session.Rewind(0); err != nil {
		return err
	}
	first := len(ids) / 2
	if err := session.Decode(ctx, ids[:first], nil); err != nil {
		return err
	}
	return session.DecodeAll(ctx, ids[first:len(ids)-1], func(i int, logits []float32) error {
		if !s.add(logits, ids[first+i+1]) {
			return fmt.Errorf("the prediction after token %d of a window is not a number", first+i)
		}
		return nil
	})
}

// add adds the token id, for which a model predicted logits. It reports whether the logits
// give a probability.
func (s *lossSum) add(logits []float32, id int32) bool {
	top := math.Inf(-1)
	for _, v := range logits {
		top = max(top, float64(v))
	}
	sum := 0.0
	for _, v := range logits {
		sum += math.Exp(float64(v) - top)
	}
	nll := math.Log(sum) + top - float64(logits[id])
	s.n++
	s.sum += nll
	s.squares += nll * nll
	return !math.IsNaN(nll) && !math.IsInf(nll, 0)
}

// perplexity returns the exponential of the mean.
func (s *lossSum) perplexity() float64 { return math.Exp(s.sum / float64(s.n)) }

// deviation returns the standard deviation of perplexity, which follows from the standard
// deviation of the mean. It returns 0 if there are fewer than two tokens or the variance is 0.
func (s *lossSum) deviation() float64 {
	if s.n < 2 {
		return 0
	}
	n := float64(s.n)
	mean := s.sum / n
	variance := s.squares/n - mean*mean
	if !(variance > 0) {
		return 0
	}
	return math.Sqrt(variance/(n-1)) * s.perplexity()
}
