package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm"
)

func chatWith(t *testing.T, ctx context.Context, input io.Reader, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(ctx, append([]string{"run", "-m", tinyModel(t), "--chat", "--chat-template", "chatml", "--temp", "0", "-n", "4"}, args...), input, &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// Each line of input is a message unless it is a command. The end of the input ends the
// conversation.
func TestChat(t *testing.T) {
	one := chatWith(t, t.Context(), strings.NewReader("hello\n")).ok(t)
	if one == "" || !strings.HasSuffix(one, "\n") || strings.Contains(one, "<|im") {
		t.Fatalf("answers %q", one)
	}
	if got := chatWith(t, t.Context(), strings.NewReader(""), "-p", "hello").ok(t); got != one {
		t.Errorf("the same question with -p gives %q, want %q", got, one)
	}
	if got := chatWith(t, t.Context(), strings.NewReader("hello\n\n  \n/clear\nhello")).ok(t); got != one+one {
		t.Errorf("asked again after /clear: %q, want %q twice", got, one)
	}
	two := chatWith(t, t.Context(), strings.NewReader("hello\nhello\n/exit\nhello\n")).ok(t)
	if !strings.HasPrefix(two, one) || two == one+one {
		t.Errorf("two turns give %q; the second has not seen the first (%q)", two, one)
	}
	if got := chatWith(t, t.Context(), strings.NewReader("hello\n"), "-sys", "other words").ok(t); got == one {
		t.Errorf("a system message changes nothing")
	}
	if got := chatWith(t, t.Context(), strings.NewReader("/help\n")).ok(t); got != chatHelp {
		t.Errorf("/help gives %q", got)
	}
}

// With -single-turn, the conversation ends after the first message.
func TestChatSingleTurn(t *testing.T) {
	all := chatWith(t, t.Context(), strings.NewReader("a\nb\n")).ok(t)
	one := chatWith(t, t.Context(), strings.NewReader("a\nb\n"), "--single-turn").ok(t)
	if one == all || !strings.HasPrefix(all, one) || one == "" {
		t.Errorf("one answer %q, all %q", one, all)
	}
	if got := chatWith(t, t.Context(), strings.NewReader("b\n"), "-st", "-p", "a").ok(t); got != one {
		t.Errorf("to -p: %q, want %q", got, one)
	}
}

func TestChatErrors(t *testing.T) {
	m := tinyModel(t)
	for want, args := range map[string][]string{
		"go with -chat":                  {"run", "-m", m, "-p", "x", "-sys", "y"},
		"-chat does not go with -o json": {"run", "-m", m, "--chat", "-o", "json"},
		"-n 0":                           {"run", "-m", m, "--chat", "-n", "0"},
		"want f16, f32":                  {"run", "-m", m, "-p", "x", "--cache-type", "q4_0"},
		"the id of a token":              {"run", "-m", m, "-p", "x", "--logit-bias", "7"},
		"from 0 to 1":                    {"run", "-m", m, "-p", "x", "--top-p", "1.5"},
		"of at least 0":                  {"run", "-m", m, "-p", "x", "--repeat-penalty", "NaN"},
		"is not empty":                   {"run", "-m", m, "-p", "x", "--stop", ""},
		"integer from -1":                {"run", "-m", m, "-p", "x", "--top-k", "-2"},
		"want names from":                {"run", "-m", m, "-p", "x", "--samplers", "top_k;infill"},
	} {
		invoke(t, args...).failed(t, exitUsage, want)
	}
	none := invoke(t, "run", "-m", m, "--chat")
	none.failed(t, exitError, "the file has no template")
	none.failed(t, exitError, "with -chat-template")
	// A mistyped command is not a message. Other text that begins with a slash is.
	for text, note := range map[string]string{
		"/cler":      "fucina: unknown command /cler; did you mean \"/clear\"?\n",
		"/walk":      "fucina: unknown command /walk; /help lists them\n",
		"/ a":        "",
		"/etc/hosts": "",
	} {
		r := chatWith(t, t.Context(), strings.NewReader(text+"\n"))
		if r.code != exitOK || (r.stdout != "") != (note == "") || r.stderr != note {
			t.Errorf("%q: %+v", text, r)
		}
	}
	// A message that does not fit ends a conversation that is not interactive.
	long := strings.Repeat("x y z ", 300)
	r := chatWith(t, t.Context(), strings.NewReader(long+"\nhello\n"))
	if r.code != exitError || r.stdout != "" || !strings.Contains(r.stderr, "context is full") {
		t.Errorf("exit %d, stdout %q, stderr %q", r.code, r.stdout, r.stderr)
	}
}

// An interrupt ends a conversation that is waiting for input.
func TestChatInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	defer out.Close()
	done := make(chan result)
	go func() { done <- chatWith(t, ctx, in) }()
	if _, err := io.WriteString(out, "/help\n"); err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case r := <-done:
		if r.code != exitInterrupted {
			t.Errorf("exit %d, stderr %q", r.code, r.stderr)
		}
	case <-time.After(time.Minute):
		t.Fatal("still waiting for input")
	}
}

// Each answer has its timings. Those of the first answer contain the time of loading.
func TestChatTimings(t *testing.T) {
	r := chatWith(t, t.Context(), strings.NewReader("hello\nhello\n/help\n"), "-v", "-s", "7", "-temp", "0.5")
	lines := strings.Split(r.stderr, "\n")
	if r.code != exitOK || len(lines) != 3 || !strings.HasPrefix(lines[0], "load ") || !strings.HasPrefix(lines[1], "prompt ") {
		t.Fatalf("exit %d, stderr %q", r.code, r.stderr)
	}
	var asked [2]int
	for i, line := range lines[:2] {
		var seconds, rate float64
		var n int
		line = line[strings.Index(line, "prompt "):]
		if _, err := fmt.Sscanf(line, "prompt %d tokens, %f s, %f tok/s; generated %d tokens", &asked[i], &seconds, &rate, &n); err != nil || n != 4 || asked[i] < 1 || !strings.HasSuffix(line, "; seed 7") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

// lineReader is input that arrives one line at a time.
type lineReader struct{ lines chan string }

func (p *lineReader) Read(b []byte) (int, error) {
	line, ok := <-p.lines
	if !ok {
		return 0, io.EOF
	}
	return copy(b, line), nil
}

// openSession returns a session of the tiny model. The end of the test closes it.
func openSession(t *testing.T) *llm.Session {
	t.Helper()
	eng, err := fucina.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = eng.Close() })
	model, err := llm.Open(eng, tinyModel(t), llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = model.Close() })
	s, err := model.NewSession(llm.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// After a message that does not fit, an interactive conversation says so and continues.
func TestChatFull(t *testing.T) {
	in := &lineReader{lines: make(chan string, 2)}
	in.lines <- strings.Repeat("x y z ", 300) + "\n"
	in.lines <- "hello\n"
	close(in.lines)
	var out, errs bytes.Buffer
	c := &conversation{flags: &chatFlags{template: "chatml"}, interactive: true, opt: llm.GenerateOptions{MaxTokens: 4}}
	err := newTool(in, &out, &errs, false, false).converse(t.Context(), openSession(t), c, "")
	if err != nil || errs.String() != "fucina: the context is full; /clear starts a new conversation\n" || strings.Trim(out.String(), "> \n") == "" {
		t.Errorf("%v, stdout %q, stderr %q", err, out.String(), errs.String())
	}
}

// In an interactive conversation, an interrupt during an answer ends the answer. An interrupt
// at the prompt ends the program.
func TestChatAnswerInterrupted(t *testing.T) {
	s := openSession(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in := &lineReader{lines: make(chan string, 2)}
	in.lines <- "hello\n"
	var tl *tool
	pieces := 0
	out := &recorder{}
	out.hook = func(n int) error {
		switch last := out.writes[n-1]; {
		case last == "> " && pieces > 0:
			if tl.turn.interrupt() {
				t.Error("an interrupt at the prompt found an answer")
			}
			cancel()
		case last != "> " && last != "\n":
			if pieces++; pieces == 3 && !tl.turn.interrupt() {
				t.Error("the interrupt found no answer")
			} else if pieces == 3 && tl.turn.interrupt() {
				t.Error("a second interrupt found the same answer")
			}
		}
		return nil
	}
	tl = newTool(in, out, io.Discard, false, false)
	c := &conversation{flags: &chatFlags{template: "chatml"}, interactive: true}
	if err := tl.converse(ctx, s, c, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if got := out.text(); pieces != 3 || !strings.HasPrefix(got, "> ") || !strings.HasSuffix(got, "\n> \n") {
		t.Errorf("%d pieces: %q", pieces, out.writes)
	}
}

// An interrupt ends the reading of a prompt.
func TestPromptInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	defer out.Close()
	go func() {
		_, _ = io.WriteString(out, "some text") // the end of the input does not follow
		cancel()
	}()
	var stdout, stderr bytes.Buffer
	if code := run(ctx, []string{"run", "-m", tinyModel(t), "-f", "-"}, in, &stdout, &stderr); code != exitInterrupted {
		t.Errorf("exit %d, stderr %q", code, stderr.String())
	}
}

// The sampling flags reach the sampler.
func TestRunSampling(t *testing.T) {
	m := tinyModel(t)
	ids := func(args ...string) []int32 {
		t.Helper()
		var g generation
		decodeStrict(t, invoke(t, append([]string{"run", "-m", m, "-p", "a b", "-n", "12", "--seed", "3", "-o", "json"}, args...)...).ok(t), &g)
		return g.IDs
	}
	greedy := ids("--temp", "0")
	if got := ids("--temp", "-1"); !slices.Equal(got, greedy) {
		t.Errorf("below temperature 0: %v, want %v", got, greedy)
	}
	if got, want := ids("--top-k", "-1"), ids("--top-k", "0"); !slices.Equal(got, want) {
		t.Errorf("-1 likeliest: %v, want as of all, %v", got, want)
	}
	if got := ids("--top-k", "1"); !slices.Equal(got, greedy) {
		t.Errorf("the likeliest of one: %v, want %v", got, greedy)
	}
	if got := ids("--top-p", "0"); !slices.Equal(got, greedy) {
		t.Errorf("as few as have no probability: %v, want %v", got, greedy)
	}
	if got := ids("--min-p", "1"); !slices.Equal(got, greedy) {
		t.Errorf("as likely as the likeliest: %v, want %v", got, greedy)
	}
	for _, id := range ids("--temp", "0", "--logit-bias", "100+1000") {
		if id != 100 {
			t.Errorf("a token with a great bias was not chosen: %d", id)
		}
	}
	for _, args := range [][]string{{"--repeat-penalty", "100"}, {"--presence-penalty", "1000"}, {"--frequency-penalty", "1000"}} {
		got := ids(append(args, "--temp", "0")...)
		seen := map[int32]bool{}
		for _, id := range got {
			if seen[id] {
				t.Errorf("%v: %v repeats %d", args, got, id)
			}
			seen[id] = true
		}
		if got := ids(append(args, "--temp", "0", "--repeat-last-n", "0")...); !slices.Equal(got, greedy) {
			t.Errorf("%v over no tokens: %v, want %v", args, got, greedy)
		}
	}
	// -samplers leaves out the stages that it does not name, such as the temperature.
	if got := ids("--temp", "0", "--samplers", "penalties"); slices.Equal(got, greedy) {
		t.Errorf("without temperature 0 the draw is as with it: %v", got)
	}
	if got := ids("--samplers", "temp;top-k", "--top-k", "1"); !slices.Equal(got, greedy) {
		t.Errorf("the likeliest of one: %v, want %v", got, greedy)
	}
	if got := invoke(t, "run", "-m", m, "-p", "a b", "-n", "12", "--temp", "0", "--logit-bias", "100+1000", "--stop", "zz", "--cache-type", "f32").ok(t); !strings.HasPrefix(got, "a b") {
		t.Errorf("prints %q", got)
	}
}
