package chat_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/llm/chat"
)

// The lines of real programs that change contents, without the lines about tools and images.
// Some files escape the newlines in literals, and others do not.
const (
	qwen2 = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}" +
		"{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

	qwen2VL = "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"

	qwen25 = `{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nDon't <|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}`

	// The index of the last user message, in Qwen 3 and later.
	lastQuery = `{%- set ns = namespace(last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}{%- if message.role == "user" %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}`

	splitThoughts = `        {%- if '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}`

	openIfTold = `{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}`

	openUnlessTold = `{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- else %}
        {{- '<think>\n' }}
    {%- endif %}
{%- endif %}`

	closeUnlessTold = `{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is true %}
        {{- '<think>\n' }}
    {%- else %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}`

	recentThoughts = `        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
            {%- else %}
                {{- '<|im_start|>' + message.role + '\n' + content }}
            {%- endif %}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}`

	allThoughts = `        {%- if preserve_thinking is undefined or preserve_thinking is true or loop.index0 > ns.last_query_index %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}`

	qwen3  = lastQuery + "{%- set content = message.content %}" + splitThoughts + recentThoughts + openIfTold
	qwen35 = lastQuery + "{%- set content = render_content(message.content, true)|trim %}" + splitThoughts + recentThoughts + openUnlessTold
	qwen38 = lastQuery + "{%- set content = message.content|trim %}" + splitThoughts + allThoughts + closeUnlessTold

	qwq = `{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n<think>\n' }}{%- endif %}`

	lfm2 = `{{- "<|im_start|>" + message.role + "\n" -}}
{%- if not (preserve_thinking or loop.index0 > ns.last_user_index) -%}{%- set content = content.split("</think>")[-1] | trim -%}{%- endif -%}`

	splitLast = `{{ '<|im_start|>' }}{% set content = (message['content'].split('</think>')|last).lstrip() %}`
	splitOnly = `{{ '<|im_start|>' }}{% set content = message['content'].split('</think>')[-1] %}`

	// Both branches write the thoughts of the answer.
	miro = lastQuery + "{{- '<|im_start|>' }}" + splitThoughts + `
        {%- if loop.index0 > ns.last_query_index %}
            {{- '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- endif %}`

	nemotron = `{%- set system_message = "" %}
{%- if system_message is defined %}{{- "<|im_start|>system\n" + system_message }}{%- endif %}
{%- set content = "<think>\n" ~ message.reasoning_content ~ "\n</think>\n" ~ (message.content | default('', true)) %}
{%- if '<think>' not in content and '</think>' not in content -%}{%- set content = "<think></think>" ~ content -%}{%- endif -%}
{%- if not (truncate_history_thinking and loop.index0 < ns.last_user_idx) %}{{- content | trim }}
{%- else %}{%- set c = "<think></think>" ~ c.split('</think>')[-1] %}{%- endif %}`

	llama3 = "{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{{ content }}{% endfor %}"

	llama3Untrimmed = "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] + '<|eot_id|>' }}"

	llama31 = `{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
    {%- set system_message = messages[0]['content']|trim %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{#- There's no tool here. #}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}`

	gemma3 = `{%- set first_user_prefix = messages[0]['content'] + '

' -%}
{{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}{{ message['content'] | trim }}{{ '<end_of_turn>
' }}`

	gemmaUntrimmed = "{{ '<start_of_turn>' + role + '\n' + message['content'] + '<end_of_turn>\n' }}"

	llama2 = `{% set system_message = messages[0]['content'] %}{% set content = '<<SYS>>\n' + system_message + '\n<</SYS>>\n\n' + message['content'] %}` +
		`{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{{ ' '  + content.strip() + ' ' + eos_token }}`

	mistralOld = "{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token}}"
	mistralV1  = `{{- ' [INST] ' + system_message + '\n\n' + message['content'] + ' [/INST]' }}{{- ' ' + message['content'] + eos_token}}`
	mistralV3  = `{{- "[AVAILABLE_TOOLS] [" }}{%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}{%- endif %}{{- " " + message["content"]|trim + eos_token}}`
	mistralV7  = `{%- set default_system_message = 'You are Devstral.\n\nDon\'t "guess".' %}{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}{{- '[INST]' + message['content'] + '[/INST]' }}`
	dated      = `{%- set default_system_message = "You are Small. Today is " + today + "." %}{{- '[SYSTEM_PROMPT]' + system_message }}{{- '[INST]' + message['content'] }}`
	unreached  = `{% elif false == true %}{% set system_message = 'You are nobody.' %}{% endif %}{{ '[INST] ' + message['content'] }}`

	phi3        = "{{'<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}{{ '<|assistant|>\n' }}"
	phi3Trimmed = "{{'<|' + message['role'] + '|>' + '\n' + message['content'].strip() + '<|end|>\n' }}{{ '<|assistant|>\n' }}"
	phi4        = "{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}"
)

// Recognise finds the features of programs. The prompts were derived by hand from the whole
// programs.
func TestRecognise(t *testing.T) {
	system, user, assistant := chat.Message{Role: chat.System, Content: " S "}, chat.Message{Role: chat.User, Content: " A "}, chat.Message{Role: chat.Assistant, Content: " B "}
	thinking := chat.Message{Role: chat.Assistant, Content: "<think>\nT\n</think>\n\n B "}
	opened := chat.Message{Role: chat.Assistant, Content: "T\n</think>\n\n B "}
	cutOff := chat.Message{Role: chat.Assistant, Content: "<think>\nT"}
	empty := chat.Message{Role: chat.Assistant, Content: "<think>\n\n</think>\n\nB"}
	last := chat.Message{Role: chat.User, Content: "C"}
	type messages []chat.Message
	chatML := func(turns ...string) string {
		return "<|im_start|>" + strings.Join(turns, "<|im_end|>\n<|im_start|>")
	}
	for _, tt := range []struct {
		program string
		name    string
		msgs    messages
		want    string
	}{
		{qwen2, "chatml", messages{user}, chatML("system\nYou are a helpful assistant.", "user\n A ", "assistant\n")},
		{qwen2, "chatml", messages{system, user}, chatML("system\n S ", "user\n A ", "assistant\n")},
		{qwen2, "chatml", messages{user, thinking, last}, chatML("system\nYou are a helpful assistant.", "user\n A ", "assistant\n<think>\nT\n</think>\n\n B ", "user\nC", "assistant\n")},
		{qwen2VL, "chatml", messages{user}, chatML("system\nYou are a helpful assistant.", "user\n A ", "assistant\n")},
		{qwen25, "chatml", messages{user}, chatML("system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "user\n A ", "assistant\n")},
		{qwen25, "chatml", messages{system, user}, chatML("system\n S ", "user\n A ", "assistant\n")},

		{qwen3, "chatml", messages{system, user, thinking, last}, chatML("system\n S ", "user\n A ", "assistant\n B ", "user\nC", "assistant\n")},
		{qwen3, "chatml", messages{user, opened, last}, chatML("user\n A ", "assistant\n B ", "user\nC", "assistant\n")},
		{qwen3, "chatml", messages{user, empty, last}, chatML("user\n A ", "assistant\nB", "user\nC", "assistant\n")},
		{qwen3, "chatml", messages{user, assistant, last}, chatML("user\n A ", "assistant\n B ", "user\nC", "assistant\n")},
		{qwen3, "chatml", messages{user, cutOff, last}, chatML("user\n A ", "assistant\n<think>\nT", "user\nC", "assistant\n")},
		{qwen3, "chatml", messages{user, thinking, last, thinking}, chatML("user\n A ", "assistant\n B ", "user\nC", "assistant\n<think>\nT\n</think>\n\n B ", "")},
		{qwen3, "chatml", messages{last, assistant, assistant}, chatML("user\nC", "assistant\n B ", "assistant\n<think>\n\n</think>\n\n B ", "")},
		{qwen35, "chatml", messages{system, user, thinking, last}, chatML("system\nS", "user\nA", "assistant\n B", "user\nC", "assistant\n<think>\n")},
		{qwen38, "chatml", messages{system, user, thinking, last}, chatML("system\nS", "user\nA", "assistant\n<think>\nT\n</think>\n\n B", "user\nC", "assistant\n<think>\n\n</think>\n\n")},
		{qwen38, "chatml", messages{user, assistant, last}, chatML("user\nA", "assistant\n<think>\n\n</think>\n\nB", "user\nC", "assistant\n<think>\n\n</think>\n\n")},
		{qwq, "chatml", messages{user, opened, last}, chatML("user\n A ", "assistant\n B ", "user\nC", "assistant\n<think>\n")},
		{lfm2, "chatml", messages{user, thinking, last}, chatML("user\n A ", "assistant\nB", "user\nC", "assistant\n")},
		{splitLast, "chatml", messages{user, thinking, last}, chatML("user\n A ", "assistant\nB ", "user\nC", "assistant\n")},
		{splitOnly, "chatml", messages{user, thinking, last}, chatML("user\n A ", "assistant\n\n\n B ", "user\nC", "assistant\n")},
		{miro, "chatml", messages{user, thinking, last}, chatML("user\n A ", "assistant\n<think>\nT\n</think>\n\n B ", "user\nC", "assistant\n")},
		{nemotron, "chatml", messages{user, thinking, last}, chatML("system\n", "user\n A ", "assistant\n<think></think>\n\n B", "user\nC", "assistant\n")},
		{nemotron, "chatml", messages{system, user, assistant, last}, chatML("system\n S ", "user\n A ", "assistant\n<think></think> B", "user\nC", "assistant\n")},
		{nemotron, "chatml", messages{user, cutOff, last}, chatML("system\n", "user\n A ", "assistant\n<think>\nT", "user\nC", "assistant\n")},

		{llama3, "llama3", messages{system, user, assistant, last}, "<|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{llama3Untrimmed, "llama3", messages{user}, "<|start_header_id|>user<|end_header_id|>\n\n A <|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{llama31, "llama3", messages{user}, "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
		{llama31, "llama3", messages{system, last}, "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nC<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},

		{gemma3, "gemma", messages{system, user, assistant, last}, "<start_of_turn>user\n S \n\nA<end_of_turn>\n<start_of_turn>model\nB<end_of_turn>\n<start_of_turn>user\nC<end_of_turn>\n<start_of_turn>model\n"},
		{gemmaUntrimmed, "gemma", messages{user}, "<start_of_turn>user\n A <end_of_turn>\n<start_of_turn>model\n"},
		{llama2, "llama2-sys-strip", messages{system, user, assistant, last}, "[INST] <<SYS>>\n S \n<</SYS>>\n\n A [/INST] B </s><s>[INST] C [/INST]"},
		{llama2, "llama2-sys-strip", messages{user}, "[INST] A [/INST]"},
		{mistralOld, "llama2", messages{user, assistant, last}, "[INST]  A  [/INST] B </s>[INST] C [/INST]"},
		{mistralV1, "mistral-v1", messages{system, user, assistant, last}, " [INST]  S \n\n A  [/INST]  B </s> [INST] C [/INST]"},
		{mistralV3, "mistral-v3", messages{system, user, assistant, last}, "[INST]  A [/INST] B</s>[INST]  S \n\nC[/INST]"},
		{mistralV3, "mistral-v3", messages{system, user, assistant}, "[INST]  A [/INST] B</s>"},
		{mistralV7, "mistral-v7-tekken", messages{last}, "[SYSTEM_PROMPT]You are Devstral.\n\nDon't \"guess\".[/SYSTEM_PROMPT][INST]C[/INST]"},
		{dated, "mistral-v7-tekken", messages{last}, "[INST]C[/INST]"},
		{unreached, "llama2", messages{last}, "[INST] C [/INST]"},
		{phi3, "phi3", messages{system, user, assistant, last}, "<|system|>\n S <|end|>\n<|user|>\n A <|end|>\n<|assistant|>\n B <|end|>\n<|user|>\nC<|end|>\n<|assistant|>\n"},
		{phi3Trimmed, "phi3", messages{user}, "<|user|>\nA<|end|>\n<|assistant|>\n"},
		{phi4, "phi4", messages{system, user}, "<|im_start|>system<|im_sep|> S <|im_end|><|im_start|>user<|im_sep|> A <|im_end|><|im_start|>assistant<|im_sep|>"},
	} {
		tmpl, ok := chat.Recognise(tt.program)
		if !ok || tmpl.Name != tt.name {
			t.Errorf("%.60q is %q, %v, want %q", tt.program, tmpl.Name, ok, tt.name)
			continue
		}
		before := append(messages(nil), tt.msgs...)
		answers := tt.msgs[len(tt.msgs)-1].Role == chat.User
		segments, err := tmpl.Segments(tt.msgs, answers)
		if err != nil {
			t.Errorf("%.60q: %v", tt.program, err)
			continue
		}
		var got strings.Builder
		for _, s := range segments {
			got.WriteString(s.Text)
		}
		want := tt.want
		if !answers {
			want = strings.TrimSuffix(want, "<|im_start|>")
		}
		if got.String() != want {
			t.Errorf("%.60q of %q:\n%q, want\n%q", tt.program, tt.msgs, got.String(), want)
		}
		for i := range before {
			if tt.msgs[i] != before[i] {
				t.Errorf("%.60q: message %d is now %q", tt.program, i, tt.msgs[i])
			}
		}
	}
}

// A template that is chosen by name has no further features, and the zero Template is an
// error.
func TestNamed(t *testing.T) {
	for _, name := range chat.Names() {
		named, err := chat.Named(name)
		recognised, ok := chat.Recognise(name)
		if err != nil || !ok || named.Name != name || recognised.Name != name || named.System+named.Preface+named.Opening != "" || named.Thoughts != chat.ThoughtsKept {
			t.Errorf("%s: %+v, %+v, %v, %v", name, named, recognised, err, ok)
		}
		if segments, err := named.Segments(nil, false); err != nil || len(segments) != 0 {
			t.Errorf("%s of no messages: %v, %v", name, segments, err)
		}
	}
	if _, err := chat.Named("nosuch"); !errors.Is(err, chat.ErrTemplate) {
		t.Errorf("a name of no template: %v", err)
	}
	if _, ok := chat.Recognise("plain"); ok {
		t.Error("a text of no template is recognised")
	}
	var none chat.Template
	if _, err := none.Segments([]chat.Message{{Role: chat.User}}, true); !errors.Is(err, chat.ErrTemplate) {
		t.Errorf("the zero template: %v", err)
	}
	own, err := chat.Named("chatml")
	if err != nil {
		t.Fatal(err)
	}
	own.System, own.Thoughts = "Be kind.", chat.ThoughtsCut
	segments, err := own.Segments([]chat.Message{{Role: chat.User, Content: "a"}, {Role: chat.Assistant, Content: "b</think>c"}}, false)
	if err != nil || len(segments) != 12 || segments[1].Text != "system\nBe kind." || segments[9].Text != "assistant\nc" {
		t.Errorf("a template of one's own: %v, %v", segments, err)
	}
}

// The block of thoughts that opens an answer consists of markers, which are tokens if the
// vocabulary has them.
func TestOpeningIsMarkers(t *testing.T) {
	tmpl, _ := chat.Recognise(qwen38)
	segments, err := tmpl.Segments([]chat.Message{{Role: chat.User, Content: "<think>"}}, true)
	if err != nil {
		t.Fatal(err)
	}
	var marks []string
	for _, s := range segments {
		if s.Special {
			marks = append(marks, s.Text)
		}
	}
	if got, want := strings.Join(marks, " "), "<|im_start|> <|im_end|> <|im_start|> <think> </think>"; got != want {
		t.Errorf("the markers are %q, want %q", got, want)
	}
}

// The template of any program that Recognise knows accepts messages.
func FuzzRecognise(f *testing.F) {
	for _, program := range []string{qwen2, qwen25, qwen3, qwen38, nemotron, llama31, gemma3, llama2, mistralV3, mistralV7, phi3} {
		f.Add(program, "<think>\na</think>b")
	}
	f.Fuzz(func(t *testing.T, program, answer string) {
		tmpl, ok := chat.Recognise(program)
		if !ok {
			return
		}
		msgs := []chat.Message{{Role: chat.System, Content: answer}, {Role: chat.User, Content: answer}, {Role: chat.Assistant, Content: answer}, {Role: chat.User, Content: answer}}
		for n := range len(msgs) {
			if _, err := tmpl.Segments(msgs[n:], true); err != nil {
				t.Fatal(err)
			}
			if _, err := tmpl.Segments(msgs[:n], false); err != nil && !errors.Is(err, chat.ErrMessage) {
				t.Fatal(err)
			}
		}
	})
}

// The text of a program outside of literals has no escapes.
func TestRecogniseRawSystem(t *testing.T) {
	for program, want := range map[string]string{
		`{% if x %}<|im_start|>system` + "\n" + `C:\new and \\.<|im_end|>` + "\n{% endif %}": `C:\new and \\.`,
		`{{ '<|im_start|>system\nC:\\new\n.<|im_end|>\n' }}`:                                 "C:\\new\n.",
	} {
		if got, ok := chat.Recognise(program); !ok || got.System != want {
			t.Errorf("%q: system message %q, want %q", program, got.System, want)
		}
	}
}
