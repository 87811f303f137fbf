package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/chat"
	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// generation is the result of the run command, as -o json prints it.
type generation struct {
	Model       string  `json:"model"` // base name of the file
	Provider    string  `json:"provider"`
	Prompt      string  `json:"prompt"`
	PromptIDs   []int32 `json:"prompt_ids"`
	IDs         []int32 `json:"ids"`  // what was generated
	Text        string  `json:"text"` // prompt and what was generated
	End         string  `json:"end"`  // why it ended: llm.EndReason
	FirstLogits logits  `json:"first_logits"`
	Seed        uint64  `json:"seed"`
	Exact       bool    `json:"exact"`
	Interrupted bool    `json:"interrupted"`
	Timings     timings `json:"timings"`
}

// timings are in seconds and tokens per second; a rate of 0 is one that could not
// be measured.
type timings struct {
	Load         float64 `json:"load_s"`
	PromptTokens int     `json:"prompt_tokens"`
	Prompt       float64 `json:"prompt_s"`
	PromptRate   float64 `json:"prompt_tok_s"`
	GenTokens    int     `json:"gen_tokens"`
	Gen          float64 `json:"gen_s"`
	// The first token comes from the prompt's logits and takes no step of its own,
	// so the rate counts one token less than GenTokens.
	GenRate float64 `json:"gen_tok_s"`
}

// logits are written with the fewest digits that give the same f32; JSON has no
// infinities, so those are null.
type logits []float32

func (l logits) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, v := range l {
		if i > 0 {
			b = append(b, ',')
		}
		if x := float64(v); math.IsNaN(x) || math.IsInf(x, 0) {
			b = append(b, "null"...)
		} else {
			b = strconv.AppendFloat(b, x, 'g', -1, 32)
		}
	}
	return append(b, ']'), nil
}

// runNote names what a user of llama.cpp may not expect.
var runNote = `The flags are some of llama.cpp's, with its defaults, except that a prompt is taken as
it is, unless -e or -special is given; that it talks only with -chat; that the context
is at most 4096 tokens unless -c is given; and that the stages dry, xtc and top_n_sigma,
which do nothing there by default, are absent. A text ends where the context is full. A
-p or -f with -chat is the first message; the templates are` + columns(chat.Names())

// escapes are the spellings that -e reads.
var escapes = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\'`, "'", `\"`, `"`, `\\`, `\`)

// generate is the run command.
func (t *tool) generate(ctx context.Context, args []string) (err error) {
	fs := newFlags("run", "-m MODEL (-p PROMPT | -f FILE | -chat)")
	m := fs.model()
	prompt := fs.String("p", "", "`prompt` to go on from")
	fs.alias("p", "prompt")
	file := fs.String("f", "", "`file` to read the prompt from; - is standard input")
	fs.alias("f", "file")
	escape := fs.Bool("e", false, "read \\n, \\r, \\t, \\', \\\" and \\\\ in -p, -sys and -stop as what they stand for")
	fs.alias("e", "escape")
	n := fs.intRange("n", -1, -1, maxTokens, "`tokens` to generate; -1 is until the text ends or the context is full")
	fs.alias("n", "predict", "n-predict")
	length := fs.intRange("c", defaultLength, ownLength, maxTokens, "`tokens` of context; 0 is all that the model was trained for (default that, at most 4096)")
	fs.alias("c", "ctx-size")
	sampling := fs.sampling()
	talk := fs.chat()
	special := fs.Bool("special", false, "read special tokens in the prompt and show those that are generated")
	fs.alias("special", "sp")
	verbose := fs.Bool("v", false, "show timings and the seed on standard error; without -chat a terminal gets them anyway")
	out := fs.format()
	fs.note = runNote
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	if err := m.check("run"); err != nil {
		return err
	}
	if err := talk.check(*out, *n); err != nil {
		return err
	}
	if *escape {
		*prompt, talk.system = escapes.Replace(*prompt), escapes.Replace(talk.system)
		for i, s := range sampling.stop {
			sampling.stop[i] = escapes.Replace(s)
		}
	}
	if !talk.on || *prompt != "" || *file != "" {
		if *prompt, err = t.prompt(ctx, fs, *prompt, *file); err != nil {
			return err
		}
	}
	params := sampling.resolve()

	l, err := t.load(ctx, m, *length)
	if err != nil {
		return shorter(err)
	}
	defer func() { err = shorter(errors.Join(err, l.close())) }()

	t.warnLength(l)
	opt := llm.GenerateOptions{MaxTokens: *n, Sampling: params, Stop: sampling.stop, Special: *special}
	if talk.on {
		opt.MaxTokens = max(opt.MaxTokens, 0) // 0 is no limit to Send
		c := &conversation{flags: talk, opt: opt, verbose: *verbose, load: l.seconds, person: isTerminal(t.stdin)}
		return t.converse(ctx, l.session, c, *prompt)
	}
	r := &generation{
		Model:     m.name(),
		Provider:  l.engine.Provider(),
		Prompt:    *prompt,
		PromptIDs: []int32{},
		IDs:       []int32{},
		Text:      *prompt,
		Seed:      params.Seed,
		Exact:     l.engine.Exact(),
		Timings:   timings{Load: l.seconds},
	}
	if err := r.encode(l.model.Tokenizer(), *special); err != nil {
		return err
	}
	t.warnDoubled(l.model.Tokenizer(), r.PromptIDs)
	line := &lineWriter{w: t.stdout}
	if *out == jsonl {
		line.w = io.Discard
	}
	err = errors.Join(r.stream(ctx, l.session, opt, line.write), line.end())
	r.Interrupted = ctx.Err() != nil && errors.Is(err, ctx.Err())
	if err != nil && !r.Interrupted {
		return err
	}
	if *out == jsonl {
		if werr := t.writeJSON(r); werr != nil {
			return werr
		}
	}
	if t.tty || *verbose {
		t.tellTimings(r.Timings, &params)
	}
	return err
}

// prompt returns the prompt that the flags name. As llama.cpp does, it drops one
// newline at the end of a file.
func (t *tool) prompt(ctx context.Context, fs *flags, prompt, file string) (string, error) {
	text, err := t.text(ctx, fs, prompt, file)
	if file != "" {
		text = strings.TrimSuffix(text, "\n")
	}
	return text, err
}

// text returns the text that the flags -p and -f name, one of which must be given.
func (t *tool) text(ctx context.Context, fs *flags, prompt, file string) (string, error) {
	given := fs.given("p")
	switch {
	case given && file != "":
		return "", usagef("%s: two prompts: give -p or -f", fs.Name())
	case given:
		return prompt, nil
	case file == "":
		return "", usagef("%s: no prompt: give it with -p, or its file with -f", fs.Name())
	}
	return t.read(ctx, file)
}

// maxText is the most bytes of a prompt or text: far above what any context holds.
const maxText = 256 << 20

// read returns the content of a file, or of standard input if it is called "-". It
// gives up past maxText, and when ctx is done, since input may never end.
func (t *tool) read(ctx context.Context, file string) (string, error) {
	type content struct {
		data []byte
		err  error
	}
	done := make(chan content, 1)
	go func() {
		var c content
		if file == "-" {
			c.data, c.err = readText(t.stdin, maxText)
		} else if f, err := os.Open(file); err != nil {
			c.err = err // names the file
		} else {
			if c.data, c.err = readText(f, maxText); errors.Is(c.err, errTextSize) {
				c.err = fmt.Errorf("%s: %w", file, c.err)
			}
			_ = f.Close()
		}
		done <- c
	}()
	select {
	case c := <-done:
		switch {
		case c.err != nil && file == "-":
			return "", fmt.Errorf("standard input: %w", c.err)
		case c.err != nil:
			return "", c.err
		}
		return string(c.data), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

var errTextSize = errors.New("too much text")

// readText reads text of at most limit bytes.
func readText(r io.Reader, limit int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err == nil && len(data) > limit {
		err = fmt.Errorf("%w: more than %d bytes", errTextSize, limit)
	}
	return data, err
}

// encode sets the ids of the prompt.
func (r *generation) encode(tok *tokenizer.Tokenizer, special bool) error {
	ids, err := tok.Encode(r.Prompt, tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame, ParseSpecial: special})
	if err != nil {
		return fmt.Errorf("prompt: %w", err)
	}
	r.PromptIDs = append(r.PromptIDs, ids...)
	return nil
}

// warnDoubled says so if ids have a token twice that the vocabulary adds to a text.
func (t *tool) warnDoubled(tok *tokenizer.Tokenizer, ids []int32) {
	warn := func(does string, id int32) {
		fmt.Fprintf(t.stderr, "fucina: warning: the text %s with %s twice: it has one of its own beside the one that the vocabulary adds\n", does, visible(tok.Text(id)))
	}
	head, tail := tok.Doubled(ids)
	if head {
		warn("begins", ids[0])
	}
	if tail {
		warn("ends", ids[len(ids)-1])
	}
}

// stream generates into r from the prompt's ids, and gives emit the prompt, if it fits
// the context, and then each piece of text as it comes. Whatever error it returns, r holds what was generated
// before.
func (r *generation) stream(ctx context.Context, s *llm.Session, opt llm.GenerateOptions, emit func(string) error) (err error) {
	if len(r.PromptIDs) <= s.Context() {
		if err := emit(r.Prompt); err != nil {
			return err
		}
	}
	r.End = llm.EndNone.String()
	watch := startWatch()
	defer func() { watch.stop(&r.Timings, len(r.PromptIDs), len(r.IDs)) }()
	if opt.MaxTokens == 0 {
		return r.evaluate(ctx, s)
	}
	opt.MaxTokens = max(opt.MaxTokens, 0) // 0 is no limit to GenerateIDs
	opt.OnLogits = func(logits []float32) {
		if watch.predicted() {
			r.FirstLogits = append(r.FirstLogits, logits...)
		}
	}
	var generated strings.Builder
	err = func() error {
		for token, err := range s.GenerateIDs(ctx, r.PromptIDs, opt) {
			if err != nil {
				return err
			}
			r.IDs = append(r.IDs, token.ID)
			r.End = token.End.String()
			generated.WriteString(token.Text)
			if err := emit(token.Text); err != nil {
				return err
			}
		}
		return nil
	}()
	r.Text += generated.String()
	return err
}

// evaluate runs the prompt alone.
func (r *generation) evaluate(ctx context.Context, s *llm.Session) error {
	logits := make([]float32, s.Model().Params().Vocabulary)
	if err := s.Decode(ctx, r.PromptIDs, logits); err != nil {
		return err
	}
	r.FirstLogits = logits
	return nil
}

// stopwatch takes the times of one text.
type stopwatch struct {
	start time.Time
	first time.Time // when the prompt's logits were there
}

func startWatch() *stopwatch { return &stopwatch{start: time.Now()} }

// predicted notes that there are logits, and reports whether they are the first.
func (w *stopwatch) predicted() bool {
	if !w.first.IsZero() {
		return false
	}
	w.first = time.Now()
	return true
}

// stop fills in all of t but Load.
func (w *stopwatch) stop(t *timings, promptTokens, genTokens int) {
	now := time.Now()
	if w.first.IsZero() {
		w.first = now
	}
	t.PromptTokens, t.GenTokens = promptTokens, genTokens
	t.Prompt, t.Gen = w.first.Sub(w.start).Seconds(), now.Sub(w.first).Seconds()
	t.PromptRate = rate(promptTokens, t.Prompt)
	t.GenRate = rate(genTokens-1, t.Gen)
}

// tellTimings says how long a text took, and what draws it again if it was drawn.
func (t *tool) tellTimings(tm timings, p *sample.Params) {
	seed := ""
	if !p.Greedy() {
		seed = fmt.Sprintf("; seed %d", p.Seed)
	}
	fmt.Fprintf(t.stderr, "%s%s\n", tm, seed)
}

// String leaves out a Load of 0: there was none.
func (t timings) String() string {
	load := ""
	if t.Load > 0 {
		load = fmt.Sprintf("load %.3f s; ", t.Load)
	}
	return fmt.Sprintf("%sprompt %d tokens, %.3f s, %.1f tok/s; generated %d tokens, %.3f s, %.1f tok/s",
		load, t.PromptTokens, t.Prompt, t.PromptRate, t.GenTokens, t.Gen, t.GenRate)
}

// lineWriter passes text on and knows whether the last line is ended.
type lineWriter struct {
	w    io.Writer
	open bool // the last line is not ended
	err  error
}

func (l *lineWriter) write(s string) error {
	if s == "" || l.err != nil {
		return l.err
	}
	_, l.err = io.WriteString(l.w, s)
	l.open = !strings.HasSuffix(s, "\n")
	return l.err
}

// end ends the last line. The error is that of its own write only.
func (l *lineWriter) end() error {
	if !l.open || l.err != nil {
		return nil
	}
	return l.write("\n")
}
