package llm_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/chat"
	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

const chatML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"

// openChat opens the seeded model with a chat template in its metadata.
func openChat(t *testing.T, template string) *llm.Model {
	t.Helper()
	m := tinyllama.New(tinyllama.Options{Context: 1024})
	if template != "" {
		m.Set("tokenizer.chat_template", template)
	}
	return openModel(t, openExact(t), writeModel(t, m), llm.Options{})
}

func send(c *llm.Conversation, text string, opt llm.GenerateOptions) (string, error) {
	var answer strings.Builder
	for tok, err := range c.Send(context.Background(), text, opt) {
		if err != nil {
			return answer.String(), err
		}
		answer.WriteString(tok.Text)
	}
	return answer.String(), nil
}

// A conversation decodes only tokens that its session does not hold, and gives the same answers
// as a new session that decodes the whole conversation.
func TestConversation(t *testing.T) {
	m := openChat(t, chatML)
	s := openSession(t, m, llm.SessionOptions{})
	c, err := s.NewConversation("", "be brief")
	if err != nil {
		t.Fatal(err)
	}
	if c.Template() != "chatml" {
		t.Errorf("template %q, want chatml", c.Template())
	}
	msgs := []chat.Message{{Role: chat.System, Content: "be brief"}}
	for turn, text := range []string{"hello", "and then", "the end"} {
		msgs = append(msgs, chat.Message{Role: chat.User, Content: text})
		whole, err := chat.Format("chatml", msgs, true)
		if err != nil {
			t.Fatal(err)
		}
		all, err := m.Tokenizer().Encode(whole, tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame, ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		var decoded []int32
		answer, err := send(c, text, llm.GenerateOptions{MaxTokens: 6, OnPrompt: func(ids []int32) { decoded = slices.Clone(ids) }})
		if err != nil {
			t.Fatal(err)
		}
		if got := all[len(all)-len(decoded):]; !slices.Equal(got, decoded) || turn > 0 && len(decoded) > len(all)/2 {
			t.Errorf("turn %d decoded %d of %d tokens", turn, len(decoded), len(all))
		}
		fresh := openSession(t, m, llm.SessionOptions{})
		var want strings.Builder
		for tok, err := range fresh.GenerateIDs(context.Background(), all, llm.GenerateOptions{MaxTokens: 6}) {
			if err != nil {
				t.Fatal(err)
			}
			want.WriteString(tok.Text)
		}
		if answer == "" || answer != want.String() {
			t.Errorf("turn %d answers %q, a fresh session %q", turn, answer, want.String())
		}
		msgs = append(msgs, chat.Message{Role: chat.Assistant, Content: answer})
		if got := c.Messages(); !slices.Equal(got, msgs[1:]) {
			t.Errorf("turns %v, want %v", got, msgs[1:])
		}
	}
	c.Clear()
	if len(c.Messages()) != 0 {
		t.Errorf("turns after Clear: %v", c.Messages())
	}
}

// If the caller leaves the loop, the conversation keeps the part of the answer. After an error it
// keeps neither the question nor the answer.
func TestConversationBreaksOff(t *testing.T) {
	m := openChat(t, "")
	s := openSession(t, m, llm.SessionOptions{})
	c, err := s.NewConversation("chatml", "")
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for tok, err := range c.Send(context.Background(), "hello", llm.GenerateOptions{MaxTokens: 8}) {
		if err != nil {
			t.Fatal(err)
		}
		if said += tok.Text; said != "" {
			break
		}
	}
	turns := c.Messages()
	if len(turns) != 2 || turns[1].Content != said {
		t.Errorf("turns %v, want the answer %q", turns, said)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range c.Send(ctx, "again", llm.GenerateOptions{MaxTokens: 8}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	}
	if got := c.Messages(); !slices.Equal(got, turns) {
		t.Errorf("turns after an error %v, want %v", got, turns)
	}
	if _, err := send(c, "again", llm.GenerateOptions{MaxTokens: 2}); err != nil {
		t.Errorf("after an error: %v", err)
	}
	if _, err := send(c, strings.Repeat("far too much ", 400), llm.GenerateOptions{}); !errors.Is(err, llm.ErrContextFull) {
		t.Errorf("a turn past the context: %v", err)
	}
}

// If the vocabulary recognises a marker in any text and the model writes the marker, the caller
// gets it, but the turn does not, because it would change the frame of the next prompt.
func TestConversationMarkerAnswered(t *testing.T) {
	const marker, id = "<|im_start|>", 270
	model := tinyllama.New(tinyllama.Options{Context: 1024})
	model.Set("tokenizer.chat_template", chatML)
	model.SetToken(id, marker, tokenizer.UserDefined)
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", "")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		n := 0
		opt := llm.GenerateOptions{MaxTokens: 4, OnLogits: func(logits []float32) {
			if n++; n == 2 {
				logits[id] = 1000
			}
		}}
		answer, err := send(c, "hello", opt)
		if err != nil {
			t.Fatal(err)
		}
		turns := c.Messages()
		if before, after, ok := strings.Cut(answer, marker); !ok || turns[len(turns)-1].Content != before+after {
			t.Errorf("the answer %q is kept as %q", answer, turns[len(turns)-1].Content)
		}
	}
	if _, err := send(c, "hello "+marker, llm.GenerateOptions{MaxTokens: 1}); !errors.Is(err, chat.ErrMessage) {
		t.Errorf("a marker in a message: %v, want ErrMessage", err)
	}
}

// Special tokens are shown to the caller, but are not part of the turn, from which the next
// prompt is made.
func TestConversationSpecial(t *testing.T) {
	const hello, again = "hello", "again"
	plainModel := openChat(t, chatML)
	first, err := openSession(t, plainModel, llm.SessionOptions{}).NewConversation("", "")
	if err != nil {
		t.Fatal(err)
	}
	var ids []int32
	for tok, err := range first.Send(context.Background(), hello, llm.GenerateOptions{MaxTokens: 6}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, tok.ID)
	}
	control, end := ids[2], ids[5]
	model := tinyllama.New(tinyllama.Options{Context: 1024})
	model.Set("tokenizer.chat_template", chatML)
	model.Set("tokenizer.ggml.eos_token_id", uint32(end))
	for _, p := range model.Meta {
		if p.Key == "tokenizer.ggml.token_type" {
			types := slices.Clone(p.Value.([]int32))
			types[control], types[end] = int32(tokenizer.Control), int32(tokenizer.UserDefined)
			model.Set(p.Key, types)
			break
		}
	}
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	spelling := func(id int32) string { return string(m.Tokenizer().AppendPiece(nil, id, true)) }
	talk := func(special bool, stop ...string) (said []string, turns []chat.Message) {
		c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", "")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{hello, again} {
			answer, err := send(c, text, llm.GenerateOptions{MaxTokens: 8, Special: special, Stop: stop})
			if err != nil {
				t.Fatalf("special %v: %q: %v", special, text, err)
			}
			said = append(said, answer)
		}
		return said, c.Messages()
	}
	said, turns := talk(true)
	plain, want := talk(false)
	if !slices.Equal(turns, want) {
		t.Errorf("turns %q, without special tokens %q", turns, want)
	}
	if !strings.Contains(said[0], spelling(control)) || !strings.HasSuffix(said[0], spelling(end)) || said[0] == plain[0] {
		t.Errorf("the answer %q does not show %q and, at its end, %q", said[0], spelling(control), spelling(end))
	}
	if turns[1].Content != plain[0] {
		t.Errorf("the turn is %q, want %q", turns[1].Content, plain[0])
	}
	// A stop string ends both, and one that a special token parts ends neither.
	rest, stop := plain[0][:len(plain[0])-2], plain[0][len(plain[0])-2:]
	if _, turns := talk(true, stop); turns[1].Content != rest {
		t.Errorf("stopped at %q: the turn is %q, want %q", stop, turns[1].Content, rest)
	}
	before, _, _ := strings.Cut(said[0], spelling(control))
	if stop = plain[0][len(before)-1 : len(before)+1]; strings.Contains(said[0], stop) {
		t.Fatalf("%q is in %q", stop, said[0])
	}
	if _, turns := talk(true, stop); turns[1].Content != plain[0] {
		t.Errorf("a special token within %q: the turn is %q, want %q", stop, turns[1].Content, plain[0])
	}
}

// force returns a function for GenerateOptions.OnLogits that makes a generation choose ids, one
// after the other.
func force(ids []int32) func(logits []float32) {
	n := 0
	return func(logits []float32) {
		if n < len(ids) {
			logits[ids[n]] = 1e6
		}
		n++
	}
}

// If the template removes the thoughts of earlier answers, they are in no later prompt, whether
// their marks are text or tokens without text. The turns keep the whole answers.
func TestConversationCutsThoughts(t *testing.T) {
	const template = "{%- for message in messages %}" +
		"{%- if message.role == 'assistant' and '</think>' in message.content %}" +
		"{%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}" +
		"{%- else %}{%- set content = message.content %}{%- endif %}" +
		"{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endfor %}"
	for _, tc := range []struct {
		name, template, thoughts string
		marks                    bool // the marks are control tokens
		want                     string
	}{
		{"cut", template, "wise", false, "Well"},
		{"marks without text", template, "wise", true, "Well"},
		{"kept", chatML, "wise", false, "<think>\nwise\n</think>\n\nWell"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			model := tinyllama.New(tinyllama.Options{Context: 1024})
			model.Set("tokenizer.chat_template", tc.template)
			model.Set("tokenizer.ggml.add_space_prefix", false)
			if tc.marks {
				model.SetToken(300, chat.ThinkStart, tokenizer.Control)
				model.SetToken(301, chat.ThinkEnd, tokenizer.Control)
			}
			m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
			c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", "")
			if err != nil {
				t.Fatal(err)
			}
			answer := "<think>\n" + tc.thoughts + "\n</think>\n\nWell"
			ids, err := m.Tokenizer().Encode(answer, tokenizer.EncodeOptions{ParseSpecial: true})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := send(c, "hello", llm.GenerateOptions{MaxTokens: len(ids), OnLogits: force(ids)}); err != nil {
				t.Fatal(err)
			}
			kept := c.Messages()
			if kept[1].Content != answer {
				t.Errorf("the answer is kept as %q, want %q", kept[1].Content, answer)
			}
			fresh, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", "")
			if err != nil {
				t.Fatal(err)
			}
			if err := fresh.SetMessages(kept); err != nil {
				t.Fatal(err)
			}
			whole, err := chat.Format("chatml", []chat.Message{
				{Role: chat.User, Content: "hello"}, {Role: chat.Assistant, Content: tc.want}, {Role: chat.User, Content: "again"},
			}, true)
			if err != nil {
				t.Fatal(err)
			}
			want, err := m.Tokenizer().Encode(whole, tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame})
			if err != nil {
				t.Fatal(err)
			}
			// The first conversation decodes the end of the prompt, from where it changes.
			for _, c := range []*llm.Conversation{fresh, c} {
				var prompt []int32
				opt := llm.GenerateOptions{MaxTokens: 1, OnPrompt: func(ids []int32) { prompt = slices.Clone(ids) }}
				if _, err := send(c, "again", opt); err != nil {
					t.Fatal(err)
				}
				if at := len(want) - len(prompt); at < 0 || !slices.Equal(prompt, want[at:]) || c == fresh && at > 0 {
					t.Errorf("the second prompt is %q, want %q", m.Tokenizer().Decode(prompt), whole)
				}
			}
		})
	}
}

// A mark of thoughts that is a stop token is not part of the turn.
func TestConversationStopsAtThought(t *testing.T) {
	model := tinyllama.New(tinyllama.Options{Context: 1024})
	model.Set("tokenizer.chat_template", "<|im_start|>{{ content.split('</think>')[-1] }}")
	model.Set("tokenizer.ggml.add_space_prefix", false)
	model.SetToken(300, chat.ThinkStart, tokenizer.Control)
	model.SetToken(301, chat.ThinkEnd, tokenizer.Control)
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	ids, err := m.Tokenizer().Encode("<think>wise</think>Well", tokenizer.EncodeOptions{ParseSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, opt := range map[string]llm.GenerateOptions{
		"by id": {StopIDs: []int32{301}}, "by spelling": {Stop: []string{chat.ThinkEnd}},
	} {
		c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", "")
		if err != nil {
			t.Fatal(err)
		}
		opt.MaxTokens, opt.OnLogits = len(ids), force(ids)
		if _, err := send(c, "hello", opt); err != nil {
			t.Fatal(err)
		}
		if turn := c.Messages()[1].Content; turn != "<think>wise" {
			t.Errorf("%s: the turn is %q, want %q", name, turn, "<think>wise")
		}
	}
}

// A template with its own system message uses it if the conversation has none.
func TestConversationDefaultSystem(t *testing.T) {
	const template = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}" +
		"{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}" +
		"{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
	m := openChat(t, template)
	for system, want := range map[string]string{"": "Be kind.", "Be brief.": "Be brief."} {
		c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", system)
		if err != nil {
			t.Fatal(err)
		}
		prompt := ""
		opt := llm.GenerateOptions{MaxTokens: 1, OnPrompt: func(ids []int32) { prompt = m.Tokenizer().Decode(ids) }}
		if _, err := send(c, "hello", opt); err != nil {
			t.Fatal(err)
		}
		if turn := "<|im_start|>system\n" + want + "<|im_end|>"; strings.Count(prompt, "system") != 1 || !strings.Contains(prompt, turn) {
			t.Errorf("with the system message %q the prompt is %q, want %q in it", system, prompt, turn)
		}
		if len(c.Messages()) != 2 {
			t.Errorf("the turns are %q", c.Messages())
		}
	}
}

// A stop token is not part of the turn, whether it is shown or not.
func TestConversationStopsAtTokens(t *testing.T) {
	const marker = "<|sep|>"
	ids, err := func() ([]int32, error) {
		c, err := openSession(t, openChat(t, chatML), llm.SessionOptions{}).NewConversation("", "")
		if err != nil {
			return nil, err
		}
		return drain(c.Send(context.Background(), "hello", llm.GenerateOptions{MaxTokens: 6}))
	}()
	if err != nil {
		t.Fatal(err)
	}
	stop := slices.Index(ids, ids[4])
	model := tinyllama.New(tinyllama.Options{Context: 1024})
	model.Set("tokenizer.chat_template", chatML)
	model.SetToken(ids[stop], marker, tokenizer.Control)
	m := openModel(t, openExact(t), writeModel(t, model), llm.Options{})
	want := spell(m, ids[:stop])
	for _, opt := range []llm.GenerateOptions{
		{Stop: []string{marker}},
		{Stop: []string{marker}, Special: true},
		{StopIDs: ids[stop : stop+1]},
		{StopIDs: ids[stop : stop+1], Special: true},
	} {
		c, err := openSession(t, m, llm.SessionOptions{}).NewConversation("", "")
		if err != nil {
			t.Fatal(err)
		}
		opt.MaxTokens = 6
		answer, err := send(c, "hello", opt)
		if err != nil {
			t.Fatal(err)
		}
		if turns := c.Messages(); answer != want || turns[1].Content != want {
			t.Errorf("%+v: answers %q and keeps %q, want %q", opt, answer, turns[1].Content, want)
		}
	}
}

// Conversations with the same messages give the same answer.
func TestConversationSetMessages(t *testing.T) {
	m := openChat(t, chatML)
	opt := llm.GenerateOptions{MaxTokens: 6, Sampling: sample.Params{Temperature: 1, Seed: 3}}
	begin := func(s *llm.Session, system string) *llm.Conversation {
		c, err := s.NewConversation("", system)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	answer := func(c *llm.Conversation, text string) string {
		t.Helper()
		said, err := send(c, text, opt)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	talk := begin(openSession(t, m, llm.SessionOptions{}), "be brief")
	answer(talk, "hello")
	before := talk.Messages()
	want := answer(talk, "and then")
	all := append([]chat.Message{{Role: chat.System, Content: "be brief"}}, before...)

	s := openSession(t, m, llm.SessionOptions{})
	kept, told := begin(s, "be brief"), begin(s, "something else")
	if err := errors.Join(kept.SetMessages(before), told.SetMessages(all)); err != nil {
		t.Fatal(err)
	}
	all[0].Content, all[1].Content = "changed", "changed"
	for name, c := range map[string]*llm.Conversation{"its own system message": kept, "that of the messages": told} {
		if got := c.Messages(); !slices.Equal(got, before) {
			t.Errorf("%s: turns %v, want %v", name, got, before)
		}
		if got := answer(c, "and then"); got != want {
			t.Errorf("%s: the answer is %q, want %q", name, got, want)
		}
	}
	turns := kept.Messages()
	for _, bad := range [][]chat.Message{
		{{Role: "judge", Content: "order"}},
		{{Role: chat.User, Content: "a"}, {Role: chat.Assistant, Content: "b"}, {Role: "", Content: "c"}},
	} {
		if err := kept.SetMessages(bad); !errors.Is(err, chat.ErrMessage) {
			t.Errorf("%v: %v, want chat.ErrMessage", bad, err)
		}
	}
	if got := kept.Messages(); !slices.Equal(got, turns) {
		t.Errorf("turns after an error %v, want %v", got, turns)
	}
	if err := kept.SetMessages(nil); err != nil || len(kept.Messages()) != 0 {
		t.Errorf("no messages: %v, %v", kept.Messages(), err)
	}
}

func TestConversationTemplates(t *testing.T) {
	for _, tt := range []struct{ name, inFile, ask, want string }{
		{"none", "", "", "the file has no template"},
		{"unknown in the file", "{{ something else }}", "", "the template of the file is none of"},
		{"unknown by name", "", "nosuch", "nosuch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := openChat(t, tt.inFile)
			if text, ok := m.ChatTemplate(); text != tt.inFile || ok != (tt.inFile != "") {
				t.Errorf("the file's template is %q, %v; want %q", text, ok, tt.inFile)
			}
			s := openSession(t, m, llm.SessionOptions{})
			_, err := s.NewConversation(tt.ask, "")
			if !errors.Is(err, chat.ErrTemplate) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// Resume keeps the common prefix, and leaves at least one token to decode.
func TestResume(t *testing.T) {
	m := openTiny(t, tinyllama.Options{})
	s := openSession(t, m, llm.SessionOptions{})
	for _, tt := range []struct {
		held, ids []int32
		past      int
	}{
		{nil, []int32{5, 6}, 0},
		{[]int32{5, 6, 7}, []int32{5, 6, 7, 8, 9}, 3},
		{[]int32{5, 6, 7}, []int32{5, 6, 7}, 2},
		{[]int32{5, 6, 7}, []int32{5, 8}, 1},
		{[]int32{5, 6, 7}, []int32{9}, 0},
	} {
		if err := s.Rewind(0); err != nil {
			t.Fatal(err)
		}
		if tt.held != nil {
			decode(t, s, tt.held...)
		}
		rest, err := s.Resume(tt.ids)
		if err != nil {
			t.Fatal(err)
		}
		if s.Past() != tt.past || !slices.Equal(rest, tt.ids[tt.past:]) {
			t.Errorf("%v resumed with %v: %d tokens and %v left", tt.held, tt.ids, s.Past(), rest)
		}
		got := decode(t, s, rest...)
		fresh := openSession(t, m, llm.SessionOptions{})
		checkLogits(t, "resumed", got, decode(t, fresh, tt.ids...), 0)
	}
	if _, err := s.Resume(nil); err == nil {
		t.Error("resume with no tokens")
	}
}

// A stop string ends the text before it, even if it extends over several tokens.
func TestGenerateStopsAtStrings(t *testing.T) {
	g := tinyllama.Goldens()[0]
	m := openTiny(t, g.Options)
	whole := spell(m, g.IDs)
	for from := 3; from < len(whole)-4; from += 7 {
		stop := whole[from : from+3]
		s := openSession(t, m, llm.SessionOptions{})
		_, text, err := collect(context.Background(), s, g.Prompt, llm.GenerateOptions{MaxTokens: len(g.IDs), Stop: []string{stop}})
		if err != nil {
			t.Fatal(err)
		}
		if want, _, _ := strings.Cut(whole, stop); text != want {
			t.Errorf("stopped at %q: %q, want %q", stop, text, want)
		}
	}
	// The beginning of a stop string is held back, and is given at the end of the text.
	s := openSession(t, m, llm.SessionOptions{})
	_, text, err := collect(context.Background(), s, g.Prompt, llm.GenerateOptions{MaxTokens: len(g.IDs), Stop: []string{whole[len(whole)-3:] + "\x00"}})
	if err != nil || text != whole {
		t.Errorf("%q, %v, want %q", text, err, whole)
	}
	s = openSession(t, m, llm.SessionOptions{})
	_, _, err = collect(context.Background(), s, g.Prompt, llm.GenerateOptions{Stop: []string{""}})
	if !errors.Is(err, sample.ErrParams) {
		t.Errorf("an empty stop string: %v, want sample.ErrParams", err)
	}
}

// The penalties apply to the tokens of the whole conversation, whether they were decoded for this
// turn or earlier.
func TestConversationHistory(t *testing.T) {
	m := openChat(t, chatML)
	sampling := sample.Params{RepeatPenalty: 3, PenaltyWindow: -1, Temperature: 1, Seed: 5}
	opt := llm.GenerateOptions{MaxTokens: 8, Sampling: sampling}
	answers := func(s *llm.Session) (all []string) {
		c, err := s.NewConversation("", "")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			answer, err := send(c, "hello", opt)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, answer)
		}
		return all
	}
	s := openSession(t, m, llm.SessionOptions{})
	cold := answers(s)
	if warm := answers(s); !slices.Equal(warm, cold) {
		t.Errorf("with a warm cache %q, with a cold one %q", warm, cold)
	}
}

// Each turn uses other random numbers, which depend on the seed and on the place of the turn. Send
// does not change the caller's options.
func TestConversationSeeds(t *testing.T) {
	m := openChat(t, chatML)
	s := openSession(t, m, llm.SessionOptions{})
	c, err := s.NewConversation("", "")
	if err != nil {
		t.Fatal(err)
	}
	// At this temperature the logits, and therefore the prompt, have almost no effect.
	opt := llm.GenerateOptions{MaxTokens: 12, Sampling: sample.Params{Temperature: 1e6, Seed: 5}}
	var turns [2][]int32
	for i := range turns {
		if turns[i], err = drain(c.Send(context.Background(), "hello", opt)); err != nil {
			t.Fatal(err)
		}
	}
	if slices.Equal(turns[0], turns[1]) {
		t.Errorf("two turns draw the same: %v", turns[0])
	}
	c.Clear()
	again := c.Send(context.Background(), "hello", opt)
	for range 2 {
		ids, err := drain(again)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, turns[0]) {
			t.Errorf("the first turn again gives %v, want %v", ids, turns[0])
		}
		c.Clear()
	}
}
