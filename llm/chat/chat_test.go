package chat_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/llm/chat"
)

type golden struct {
	Conversations [][]chat.Message
	Cases         []struct {
		Name         string
		Conversation int
		AddAssistant bool
		Want         string
	}
	Detect []struct {
		Text  string
		Names []string
	}
}

func readGolden(t *testing.T) golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/llamacpp.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Each template gives exactly the text of llama.cpp.
func TestFormatAgainstLlamaCpp(t *testing.T) {
	g := readGolden(t)
	seen := map[string]bool{}
	for _, c := range g.Cases {
		seen[c.Name] = true
		got, err := chat.Format(c.Name, g.Conversations[c.Conversation], c.AddAssistant)
		if err != nil || got != c.Want {
			t.Errorf("%s, conversation %d, assistant %v: %v\n%q, want\n%q", c.Name, c.Conversation, c.AddAssistant, err, got, c.Want)
		}
	}
	for _, name := range chat.Names() {
		if !seen[name] {
			t.Errorf("no case for template %s", name)
		}
	}
}

func TestDetectAgainstLlamaCpp(t *testing.T) {
	for _, d := range readGolden(t).Detect {
		name, ok := chat.Detect(d.Text)
		if ok != (len(d.Names) > 0) || ok && !slices.Contains(d.Names, name) || !ok && name != "" {
			t.Errorf("%q is %q, %v, want one of %v", d.Text, name, ok, d.Names)
		}
	}
	for _, name := range chat.Names() {
		if got, ok := chat.Detect(name); !ok || got != name {
			t.Errorf("the name %s is detected as %q, %v", name, got, ok)
		}
	}
}

func TestFormat(t *testing.T) {
	msgs := []chat.Message{
		{Role: chat.System, Content: "Be brief."},
		{Role: chat.User, Content: "Hello"},
		{Role: chat.Assistant, Content: " Hi "},
		{Role: chat.User, Content: "Bye"},
	}
	for name, want := range map[string]string{
		"chatml":     "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n Hi <|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n",
		"gemma":      "<start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi<end_of_turn>\n<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n",
		"llama3":     "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHi<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nBye<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
		"llama2":     "[INST] Be brief.\nHello [/INST] Hi </s>[INST] Bye [/INST]",
		"phi3":       "<|system|>\nBe brief.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\n Hi <|end|>\n<|user|>\nBye<|end|>\n<|assistant|>\n",
		"mistral-v7": "[SYSTEM_PROMPT] Be brief.[/SYSTEM_PROMPT][INST] Hello[/INST]  Hi </s>[INST] Bye[/INST]",
	} {
		if got, err := chat.Format(name, msgs, true); err != nil || got != want {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, got, want)
		}
	}
	for _, name := range chat.Names() {
		if got, err := chat.Format(name, nil, false); err != nil || got != "" {
			t.Errorf("%s of no messages: %q, %v", name, got, err)
		}
	}
}

func TestFormatErrors(t *testing.T) {
	user := chat.Message{Role: chat.User, Content: "a"}
	for _, tt := range []struct {
		name string
		msgs []chat.Message
		is   error
		want string
	}{
		{"qwen", []chat.Message{user}, chat.ErrTemplate, `"qwen", want one of chatml, gemma,`},
		{"chatml", []chat.Message{user, {Role: "tool"}}, chat.ErrMessage, `message 1 has the role "tool"`},
		{"chatml", []chat.Message{{Role: "user\nassistant"}}, chat.ErrMessage, `"user\nassistant"`},
		{"phi3", []chat.Message{{}}, chat.ErrMessage, `message 0 has the role ""`},
		{"gemma", []chat.Message{user, {Role: chat.System, Content: "b"}}, chat.ErrMessage, "message 1 is a system message"},
		{"gemma", []chat.Message{{Role: chat.System, Content: "b"}, {Role: chat.Assistant, Content: "c"}}, chat.ErrMessage, "message 0 is a system message"},
	} {
		_, err := chat.Format(tt.name, tt.msgs, true)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s, %q: %v, want %q", tt.name, tt.msgs, err, tt.want)
		}
	}
}

// Segments separates markers from contents for any contents: no special segment has text of a
// message.
func FuzzSegments(f *testing.F) {
	f.Add("Be brief.", "Hello", "Hi")
	f.Add("<|im_end|>", "[/INST]", "</s><s>")
	f.Fuzz(func(t *testing.T, system, user, assistant string) {
		msgs := []chat.Message{{Role: chat.System, Content: system}, {Role: chat.User, Content: user}, {Role: chat.Assistant, Content: assistant}, {Role: chat.User, Content: user}}
		plain := []chat.Message{{Role: chat.System, Content: "x"}, {Role: chat.User, Content: "x"}, {Role: chat.Assistant, Content: "x"}, {Role: chat.User, Content: "x"}}
		for _, name := range chat.Names() {
			got, err := chat.Segments(name, msgs, true)
			if err != nil {
				t.Fatal(err)
			}
			want, err := chat.Segments(name, plain, true)
			if err != nil {
				t.Fatal(err)
			}
			special := func(segments []chat.Segment) (s []string) {
				for i, seg := range segments {
					if seg.Special {
						s = append(s, seg.Text)
					} else if seg.Text == "" || i > 0 && !segments[i-1].Special {
						t.Errorf("%s: segment %d of %v follows text or is empty", name, i, segments)
					}
				}
				return s
			}
			if a, b := special(got), special(want); !slices.Equal(a, b) {
				t.Errorf("%s: markers %q, want %q", name, a, b)
			}
			text, err := chat.Format(name, msgs, true)
			if err != nil {
				t.Fatal(err)
			}
			var joined strings.Builder
			for _, s := range got {
				joined.WriteString(s.Text)
			}
			if joined.String() != text {
				t.Errorf("%s: segments %v, text %q", name, got, text)
			}
		}
	})
}
