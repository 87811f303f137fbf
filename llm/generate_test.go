package llm_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/dtype"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/harness/engine"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// collect runs Generate and returns all tokens and the text.
func collect(ctx context.Context, s *llm.Session, prompt string, opt llm.GenerateOptions) (ids []int32, text string, err error) {
	for tok, e := range s.Generate(ctx, prompt, opt) {
		if e != nil {
			return ids, text, e
		}
		ids, text = append(ids, tok.ID), text+tok.Text
	}
	return ids, text, nil
}

// spell returns the text of generated ids.
func spell(m *llm.Model, ids []int32) string {
	var b []byte
	for _, id := range ids {
		b = m.Tokenizer().AppendPiece(b, id, false)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// A stop string that is the spelling of a control token stops at that token, although the token
// has no text. A stop id stops at its token.
func TestGenerateStopsAtTokens(t *testing.T) {
	const marker = "<|sep|>"
	g := tinyllama.Goldens()[0]
	stop := slices.Index(g.IDs, g.IDs[5]) // the first occurrence of the token
	id := g.IDs[stop]
	for _, tc := range []struct {
		name    string
		kind    tokenizer.TokenType
		opt     llm.GenerateOptions
		stopped bool
	}{
		{"a control token spelled", tokenizer.Control, llm.GenerateOptions{Stop: []string{"never", marker}}, true},
		{"a control token shown", tokenizer.Control, llm.GenerateOptions{Stop: []string{marker}, Special: true}, true},
		{"a user-defined token spelled", tokenizer.UserDefined, llm.GenerateOptions{Stop: []string{marker}}, true},
		{"a normal token spelled", tokenizer.Normal, llm.GenerateOptions{Stop: []string{marker}}, true},
		{"the id of a control token", tokenizer.Control, llm.GenerateOptions{StopIDs: []int32{id}}, true},
		{"the id of a control token that is shown", tokenizer.Control, llm.GenerateOptions{StopIDs: []int32{id}, Special: true}, true},
		{"the id of a normal token", tokenizer.Normal, llm.GenerateOptions{StopIDs: []int32{1, id}}, true},
		{"a string that begins in the text held back", tokenizer.Control, llm.GenerateOptions{StopIDs: []int32{id}, Stop: []string{spell(openTiny(t, g.Options), g.IDs[stop-1:stop]) + "\x00"}}, true},
		{"a part of the spelling", tokenizer.Control, llm.GenerateOptions{Stop: []string{marker[:4]}}, false},
		{"another id", tokenizer.Control, llm.GenerateOptions{StopIDs: []int32{1}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			model := tinyllama.New(g.Options)
			model.SetToken(id, marker, tc.kind)
			m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
			tc.opt.MaxTokens = len(g.IDs)
			var ids []int32
			var text string
			var end llm.EndReason
			for tok, err := range openSession(t, m, llm.SessionOptions{}).GenerateIDs(context.Background(), g.PromptIDs, tc.opt) {
				if err != nil {
					t.Fatal(err)
				}
				ids, text, end = append(ids, tok.ID), text+tok.Text, tok.End
			}
			if !tc.stopped {
				if end != llm.EndMaxTokens || !slices.Equal(ids, g.IDs) {
					t.Errorf("ends by %v with %v", end, ids)
				}
				return
			}
			if want := spell(m, g.IDs[:stop]); end != llm.EndStop || !slices.Equal(ids, g.IDs[:stop+1]) || text != want {
				t.Errorf("ends by %v with %v, %q, want %v, %q", end, ids, text, g.IDs[:stop+1], want)
			}
		})
	}
	m := openTiny(t, g.Options)
	for _, id := range []int32{-1, int32(m.Tokenizer().VocabSize())} {
		_, _, err := collect(context.Background(), openSession(t, m, llm.SessionOptions{}), g.Prompt, llm.GenerateOptions{StopIDs: []int32{id}})
		if !errors.Is(err, sample.ErrParams) {
			t.Errorf("stop token %d: %v, want sample.ErrParams", id, err)
		}
	}
}

// A vocabulary that ends whole texts does not end a prompt, because the model continues it.
func TestPromptHasNoEnd(t *testing.T) {
	for _, add := range []bool{false, true} {
		model := tinyllama.New(tinyllama.Options{Context: 1024})
		model.Set("tokenizer.ggml.add_eos_token", add)
		m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
		whole, err := m.Tokenizer().Encode("the", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame})
		if err != nil {
			t.Fatal(err)
		}
		if ends := whole[len(whole)-1] == m.Tokenizer().EOS(); ends != add {
			t.Fatalf("a whole text is %v, with its end %v", whole, ends)
		}
		prompt := slices.DeleteFunc(whole, func(id int32) bool { return id == m.Tokenizer().EOS() })
		s := openSession(t, m, llm.SessionOptions{})
		var got []int32
		opt := llm.GenerateOptions{MaxTokens: 1, OnPrompt: func(ids []int32) { got = slices.Clone(ids) }}
		if _, _, err := collect(context.Background(), s, "the", opt); err != nil || !slices.Equal(got, prompt) {
			t.Errorf("add %v: the prompt is %v, want %v; error %v", add, got, prompt, err)
		}
		c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("chatml", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := send(c, "the", opt); err != nil || slices.Contains(got, m.Tokenizer().EOS()) {
			t.Errorf("add %v: the conversation's prompt is %v; error %v", add, got, err)
		}
	}
}

// Generate streams the recorded ids. The texts of its tokens join to the text of the ids, even
// if tokens are single bytes of characters.
func TestGenerate(t *testing.T) {
	for _, g := range tinyllama.Goldens() {
		t.Run(g.Name, func(t *testing.T) {
			m := openTiny(t, g.Options)
			s := openSession(t, m, llm.SessionOptions{})
			var promptIDs []int32
			var first []float32
			var ids []int32
			var text strings.Builder
			for tok, err := range s.Generate(context.Background(), g.Prompt, llm.GenerateOptions{
				MaxTokens: len(g.IDs),
				OnPrompt:  func(ids []int32) { promptIDs = slices.Clone(ids) },
				OnLogits: func(logits []float32) {
					if first == nil {
						first = slices.Clone(logits)
					}
				},
			}) {
				if err != nil {
					t.Fatal(err)
				}
				if !utf8.ValidString(tok.Text) {
					t.Errorf("token %d adds %q", tok.ID, tok.Text)
				}
				ids = append(ids, tok.ID)
				text.WriteString(tok.Text)
			}
			if !slices.Equal(promptIDs, g.PromptIDs) || !slices.Equal(ids, g.IDs) {
				t.Errorf("prompt %v, ids %v\nwant %v and %v", promptIDs, ids, g.PromptIDs, g.IDs)
			}
			checkLogits(t, "first token", first, g.FirstLogits, 1e-4)
			if want := spell(m, ids); text.String() != want {
				t.Errorf("text %q, want %q", text.String(), want)
			}
			if want := len(g.PromptIDs) + len(g.IDs) - 1; s.Past() != want {
				t.Errorf("the session holds %d tokens, want %d", s.Past(), want)
			}
		})
	}
}

// The texts of the tokens join to the text of the ids wherever the generation ends, even within a
// character (after 8 and 15 tokens).
func TestGenerateCutOff(t *testing.T) {
	for _, g := range tinyllama.Goldens() {
		if g.Name != "bf16-tied" { // most of its tokens are bytes
			continue
		}
		m := openTiny(t, g.Options)
		s := openSession(t, m, llm.SessionOptions{})
		for _, n := range []int{1, 7, 8, 9, 15, 16} {
			if err := s.Rewind(0); err != nil {
				t.Fatal(err)
			}
			ids, text, err := collect(context.Background(), s, g.Prompt, llm.GenerateOptions{MaxTokens: n})
			if err != nil {
				t.Fatal(err)
			}
			if want := spell(m, g.IDs[:n]); text != want {
				t.Errorf("%v: text %q, want %q", ids, text, want)
			}
		}
	}
}

// Generate refuses options that do not fit the model, before it computes anything.
func TestOptionsChecked(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	n := int32(m.Tokenizer().VocabSize())
	for name, opt := range map[string]llm.GenerateOptions{
		"bias of a token too far": {Sampling: sample.Params{LogitBias: map[int32]float32{n: 1}}},
		"NaN temperature":         {Sampling: sample.Params{Temperature: float32(math.NaN())}},
		"negative length":         {MaxTokens: -1},
		"empty stop string":       {Stop: []string{""}},
	} {
		opt.OnPrompt = func([]int32) { t.Errorf("%s: the prompt is decoded", name) }
		want := s.Check(opt)
		_, _, err := collect(context.Background(), s, "the cat", opt)
		if want == nil || err == nil || err.Error() != want.Error() || s.Past() != 0 {
			t.Errorf("%s: Generate fails with %v, Check with %v; the session holds %d tokens", name, err, want, s.Past())
		}
	}
	last := llm.GenerateOptions{MaxTokens: 1, Sampling: sample.Params{LogitBias: map[int32]float32{n - 1: 1}}}
	if err := s.Check(last); err != nil {
		t.Errorf("bias of the last token: %v", err)
	}
}

// A second Generate continues the text, without another BOS.
func TestGenerateGoesOn(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	ctx := context.Background()
	if _, _, err := collect(ctx, s, "the cat", llm.GenerateOptions{MaxTokens: 1}); err != nil {
		t.Fatal(err)
	}
	var more []int32
	got, _, err := collect(ctx, s, " and a hat", llm.GenerateOptions{MaxTokens: 4, OnPrompt: func(ids []int32) { more = slices.Clone(ids) }})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(more, m.Tokenizer().BOS()) {
		t.Errorf("the second prompt has a BOS: %v", more)
	}
	fresh := openSession(t, m, llm.SessionOptions{})
	var ids []int32
	if _, _, err := collect(ctx, fresh, "the cat", llm.GenerateOptions{MaxTokens: 1, OnPrompt: func(p []int32) { ids = slices.Clone(p) }}); err != nil {
		t.Fatal(err)
	}
	want, _, err := greedy(openSession(t, m, llm.SessionOptions{}), append(ids, more...), 4)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// An end token is the last token, and has text only if special tokens are shown.
func TestGenerateEnds(t *testing.T) {
	g := tinyllama.Goldens()[0]
	const at = 3
	model := tinyllama.New(g.Options)
	model.Set("tokenizer.ggml.eos_token_id", uint32(g.IDs[at]))
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	for _, special := range []bool{false, true} {
		s := openSession(t, m, llm.SessionOptions{})
		ids, text, err := collect(context.Background(), s, g.Prompt, llm.GenerateOptions{MaxTokens: 32, Special: special})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, g.IDs[:at+1]) {
			t.Errorf("ids %v, want %v", ids, g.IDs[:at+1])
		}
		spoken := ids[:at]
		if special {
			spoken = ids
		}
		if want := spell(m, spoken); text != want {
			t.Errorf("special %v: text %q, want %q", special, text, want)
		}
	}
}

// A full context ends the text without an error. A prompt that is too long is an error.
func TestGenerateFillsContext(t *testing.T) {
	g := tinyllama.Goldens()[0]
	m := openTiny(t, g.Options)
	n := len(g.PromptIDs)
	s := openSession(t, m, llm.SessionOptions{Context: n + 4})
	ids, _, err := collect(context.Background(), s, g.Prompt, llm.GenerateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, g.IDs[:5]) || s.Past() != n+4 {
		t.Errorf("ids %v and %d tokens held, want %v and %d", ids, s.Past(), g.IDs[:5], n+4)
	}
	short := openSession(t, m, llm.SessionOptions{Context: n - 1})
	told := func([]int32) { t.Error("a prompt that does not fit is told") }
	if _, _, err := collect(context.Background(), short, g.Prompt, llm.GenerateOptions{OnPrompt: told}); !errors.Is(err, llm.ErrContextFull) {
		t.Errorf("a long prompt: %v, want ErrContextFull", err)
	}
}

// The caller may leave the loop, and a second Generate continues from there.
func TestGenerateStops(t *testing.T) {
	g := tinyllama.Goldens()[0]
	s := openSession(t, openTiny(t, g.Options), llm.SessionOptions{})
	var last int32
	n := 0
	for tok, err := range s.Generate(context.Background(), g.Prompt, llm.GenerateOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		last = tok.ID
		if n++; n == 4 {
			break
		}
	}
	rest, _, err := greedy(s, []int32{last}, 4)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rest, g.IDs[4:8]) {
		t.Errorf("went on with %v, want %v", rest, g.IDs[4:8])
	}
}

// A generation claims the session until its loop ends, in every way that a loop can end.
func TestGenerateClaims(t *testing.T) {
	g := tinyllama.Goldens()[0]
	m := openTiny(t, g.Options)
	s := openSession(t, m, llm.SessionOptions{})
	ctx := context.Background()
	generate := func() iter.Seq2[llm.Token, error] {
		return s.Generate(ctx, g.Prompt, llm.GenerateOptions{MaxTokens: 6})
	}
	talk, err := s.NewConversation("chatml", "")
	if err != nil {
		t.Fatal(err)
	}
	busy := func(when string) {
		t.Helper()
		_, resumeErr := s.Resume([]int32{1})
		_, generateErr := drain(s.GenerateIDs(ctx, []int32{1}, llm.GenerateOptions{}))
		_, sendErr := drain(talk.Send(ctx, "a", llm.GenerateOptions{}))
		for name, err := range map[string]error{
			"Rewind": s.Rewind(0), "Resume": resumeErr, "Close": s.Close(), "Decode": s.Decode(ctx, []int32{1}, nil),
			"DecodeAll": s.DecodeAll(ctx, []int32{1}, nil), "GenerateIDs": generateErr, "Send": sendErr,
		} {
			if !errors.Is(err, fucina.ErrBusy) {
				t.Errorf("%s %s: %v, want ErrBusy", name, when, err)
			}
		}
	}
	free := func(when string) {
		t.Helper()
		if err := s.Rewind(0); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
	}
	next, stop := iter.Pull2(generate())
	other, stopOther := iter.Pull2(generate())
	defer stop()
	defer stopOther()
	var ids []int32
	for {
		tok, err, ok := next()
		if !ok {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ids = append(ids, tok.ID); len(ids) == 2 {
			if _, err, _ := other(); !errors.Is(err, fucina.ErrBusy) {
				t.Errorf("a second sequence: %v, want ErrBusy", err)
			}
			busy("in a loop")
			if want := len(g.PromptIDs) + 1; s.Past() != want || s.Context() != m.Context() || s.Model() != m {
				t.Errorf("past %d in a loop, want %d", s.Past(), want)
			}
		}
	}
	if !slices.Equal(ids, g.IDs[:6]) {
		t.Errorf("ids %v, want %v", ids, g.IDs[:6])
	}
	if got := talk.Messages(); len(got) != 0 {
		t.Errorf("refused turns %v", got)
	}
	free("at the end")

	next, stop = iter.Pull2(generate())
	if _, err, _ := next(); err != nil {
		t.Fatal(err)
	}
	busy("between two tokens")
	stop()
	free("stopped")
	for range generate() {
		break
	}
	free("broken off")
	func() {
		defer func() { _ = recover() }()
		for range generate() {
			panic("in the loop")
		}
	}()
	free("after a panic")
	for _, err := range s.Generate(ctx, "the cat", llm.GenerateOptions{
		OnPrompt: func([]int32) { busy("in OnPrompt") },
		OnLogits: func(logits []float32) { busy("in OnLogits"); logits[0] = float32(math.NaN()) },
	}) {
		if !errors.Is(err, sample.ErrLogits) {
			t.Errorf("error %v", err)
		}
		free("at an error")
	}
	for tok, err := range talk.Send(ctx, "a", llm.GenerateOptions{MaxTokens: 2}) {
		if err != nil {
			t.Fatal(err)
		}
		if busy("in an answer"); tok.End != llm.EndNone {
			break
		}
	}
	free("after an answer")
}

// drain returns the ids of a sequence and its error.
func drain(tokens iter.Seq2[llm.Token, error]) (ids []int32, err error) {
	for tok, err := range tokens {
		if err != nil {
			return ids, err
		}
		ids = append(ids, tok.ID)
	}
	return ids, nil
}

// The last token has the reason for the end.
func TestGenerateEndReasons(t *testing.T) {
	g := tinyllama.Goldens()[0]
	const n = 4
	model := tinyllama.New(g.Options)
	model.Set("tokenizer.ggml.eos_token_id", uint32(g.IDs[n]))
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	room := len(g.PromptIDs)
	text := spell(m, g.IDs[:n])
	for _, tt := range []struct {
		name    string
		context int
		opt     llm.GenerateOptions
		want    llm.EndReason
		tokens  int
	}{
		{"end of the text", 0, llm.GenerateOptions{}, llm.EndToken, n + 1},
		{"end of the text at the limit", room + n, llm.GenerateOptions{MaxTokens: n + 1}, llm.EndToken, n + 1},
		{"end of the text in a stop string", 0, llm.GenerateOptions{Special: true, Stop: []string{spell(m, g.IDs[n:n+1])}}, llm.EndToken, n + 1},
		{"stop string", 0, llm.GenerateOptions{Stop: []string{text[len(text)-1:]}}, llm.EndStop, 0},
		{"stop string at the limit", room + n - 1, llm.GenerateOptions{MaxTokens: n, Stop: []string{text}}, llm.EndStop, n},
		{"limit", 0, llm.GenerateOptions{MaxTokens: n}, llm.EndMaxTokens, n},
		{"limit in a full context", room + n - 1, llm.GenerateOptions{MaxTokens: n}, llm.EndMaxTokens, n},
		{"full context", room + n - 1, llm.GenerateOptions{}, llm.EndContext, n},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := openSession(t, m, llm.SessionOptions{Context: tt.context})
			var ends []llm.EndReason
			for tok, err := range s.Generate(context.Background(), g.Prompt, tt.opt) {
				if err != nil {
					t.Fatal(err)
				}
				ends = append(ends, tok.End)
			}
			for i, end := range ends {
				want := llm.EndNone
				if i == len(ends)-1 {
					want = tt.want
				}
				if end != want {
					t.Errorf("token %d of %d: %q, want %q", i, len(ends), end, want)
				}
			}
			if tt.tokens != 0 && len(ends) != tt.tokens {
				t.Errorf("%d tokens, want %d", len(ends), tt.tokens)
			}
		})
	}
	seen := map[string]bool{}
	for r := llm.EndNone; r <= llm.EndContext+1; r++ {
		if seen[r.String()] {
			t.Errorf("two reasons %q", r)
		}
		seen[r.String()] = true
	}
}

// OnLogits gets the logits before each choice, and its changes affect the choice.
func TestGenerateMasks(t *testing.T) {
	g := tinyllama.Goldens()[0]
	s := openSession(t, openTiny(t, g.Options), llm.SessionOptions{})
	second := slices.Clone(g.FirstLogits)
	second[g.IDs[0]] = float32(math.Inf(-1))
	ids, _, err := collect(context.Background(), s, g.Prompt, llm.GenerateOptions{
		MaxTokens: 8,
		OnLogits:  func(logits []float32) { logits[g.IDs[0]] = float32(math.Inf(-1)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if ids[0] != argmax(second) || slices.Contains(ids, g.IDs[0]) {
		t.Errorf("ids %v without %d, want %d first", ids, g.IDs[0], argmax(second))
	}
}

func TestGenerateErrors(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	n := 0
	var last error
	for _, err := range s.Generate(ctx, "the cat", llm.GenerateOptions{}) {
		if last != nil {
			t.Fatal("the error is not the last pair")
		}
		if last = err; err == nil {
			if n++; n == 3 {
				cancel()
			}
		}
	}
	if !errors.Is(last, context.Canceled) || n != 3 {
		t.Errorf("cancelled after %d tokens: %v, want 3 and context.Canceled", n, last)
	}
	before := s.Past()
	bad := llm.GenerateOptions{Sampling: sample.Params{Temperature: float32(math.NaN())}}
	less := llm.GenerateOptions{MaxTokens: -1}
	if _, _, err := collect(context.Background(), s, "a", less); err == nil || !strings.Contains(err.Error(), "-1 tokens to generate") {
		t.Errorf("-1 tokens: %v", err)
	}
	if _, _, err := collect(context.Background(), s, "a", bad); !errors.Is(err, sample.ErrParams) {
		t.Errorf("NaN temperature: %v, want sample.ErrParams", err)
	}
	if _, _, err := collect(context.Background(), s, "", llm.GenerateOptions{}); err == nil {
		t.Error("no prompt, behind text: no error")
	}
	if s.Past() != before {
		t.Errorf("refused calls moved the session from %d to %d", before, s.Past())
	}
	if _, _, err := collect(context.Background(), s, "a", llm.GenerateOptions{MaxTokens: 2}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// The same seed gives the same tokens.
func TestGenerateSampling(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	run := func(temperature float32, seed uint64) []int32 {
		ids, _, err := collect(context.Background(), openSession(t, m, llm.SessionOptions{}), "the cat",
			llm.GenerateOptions{MaxTokens: 16, Sampling: sample.Params{Temperature: temperature, Seed: seed}})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	a := run(0.8, 1)
	if b := run(0.8, 1); !slices.Equal(a, b) {
		t.Errorf("one seed gives %v and %v", a, b)
	}
	if b := run(0.8, 2); slices.Equal(a, b) {
		t.Errorf("two seeds give %v", a)
	}
	if b := run(0, 1); !slices.Equal(b, run(0, 2)) {
		t.Error("greedy text depends on the seed")
	}
}

// Generate never chooses a row of the embedding beyond the tokens of the vocabulary. Some files
// have such rows as padding.
func TestGenerateWithinTokens(t *testing.T) {
	model := tinyllama.New(tinyllama.Options{Tied: true})
	embd := model.Tensor("token_embd.weight")
	// Scaled copies of all rows, whose logits would be the largest.
	rows := embd.Shape[0]
	embd.Shape = []int{2 * rows, embd.Shape[1]}
	loud := slices.Clone(embd.Data)
	for i := 3; i < len(loud); i += 4 {
		if loud[i]&0x7f != 0 {
			loud[i]++ // adds to the exponent
		}
	}
	embd.Data = append(embd.Data, loud...)
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	beyond := false
	ids, _, err := collect(context.Background(), openSession(t, m, llm.SessionOptions{}), "the cat", llm.GenerateOptions{
		MaxTokens: 8,
		OnLogits:  func(logits []float32) { beyond = beyond || int(argmax(logits)) >= rows },
	})
	if err != nil {
		t.Fatal(err)
	}
	if !beyond {
		t.Error("the padding never has the largest logit: nothing was tested")
	}
	for _, id := range ids {
		if int(id) >= rows {
			t.Errorf("id %d of %d tokens", id, rows)
		}
	}
}

// With f32 weights and an f32 cache, a seeded model gives the same text without exact mode,
// because no rounding changes a choice.
func TestDefaultMode(t *testing.T) {
	g := tinyllama.Goldens()[0]
	m := openModel(t, engine.Open(t, fucina.WithExact(false)), writeModel(t, tinyllama.New(g.Options)), llm.Options{})
	ids, _, err := collect(context.Background(), openSession(t, m, llm.SessionOptions{KV: dtype.F32}), g.Prompt, llm.GenerateOptions{MaxTokens: len(g.IDs)})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ids, g.IDs) {
		t.Errorf("ids %v\nwant %v", ids, g.IDs)
	}
}

// If the context ends while a long prompt is tokenized, the call ends with its error and leaves
// the session unchanged.
func TestTokenizingIsCancelled(t *testing.T) {
	s := openSession(t, openTiny(t, tinyllama.Options{}), llm.SessionOptions{})
	text := strings.Repeat("the and ", 1<<17)
	c, err := s.NewConversation("chatml", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for name, texts := range map[string]iter.Seq2[llm.Token, error]{
		"generate": s.Generate(ctx, text, llm.GenerateOptions{}),
		"send":     c.Send(ctx, text, llm.GenerateOptions{}),
	} {
		for _, err := range texts {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want %v", name, err, context.Canceled)
			}
		}
		if n := len(c.Messages()); n != 0 || s.Past() != 0 {
			t.Errorf("%s: left %d messages and %d tokens", name, n, s.Past())
		}
	}
}
