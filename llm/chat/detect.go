package chat

import "strings"

// rule recognises a template that contains all strings of all. name is empty if this package
// does not have the template.
type rule struct {
	name string
	all  []string
}

// rules are tried in order. They are those of llm_chat_detect_template of llama.cpp, up to
// the last template that this package has, with one difference, which a comment below
// explains.
var rules = []rule{
	{"phi4", []string{"<|im_start|>", "<|im_sep|>"}},
	{"", []string{"<|im_start|>", "<end_of_utterance>"}}, // SmolVLM
	{"chatml", []string{"<|im_start|>"}},
	// llama.cpp recognises this form as mistral-v7, which adds spaces before contents.
	{"mistral-v7-tekken", []string{"[INST]'", "[SYSTEM_PROMPT]"}},
	{"mistral-v7-tekken", []string{`[INST]"`, "[SYSTEM_PROMPT]"}},
	{"mistral-v7", []string{"[INST]", "[SYSTEM_PROMPT]"}},
	// Quotes and spaces distinguish the forms of v1 and v3.
	{"mistral-v1", []string{"' [INST] ' + system_message"}},
	{"mistral-v1", []string{"[AVAILABLE_TOOLS]", " [INST]"}},
	{"mistral-v3-tekken", []string{"[AVAILABLE_TOOLS]", `"[INST]"`}},
	{"mistral-v3", []string{"[AVAILABLE_TOOLS]", "[INST]"}},
	{"llama2-sys-strip", []string{"[INST]", "content.strip()"}},
	{"llama2-sys-bos", []string{"bos_token + '[INST]"}},
	{"llama2-sys", []string{"[INST]", "<<SYS>>"}},
	{"llama2", []string{"[INST]"}},
	{"phi3", []string{"<|assistant|>", "<|end|>"}},
	{"", []string{"[gMASK]<sop>"}},                                 // ChatGLM 4
	{"", []string{"<|assistant|>", "<|user|>"}},                    // Falcon 3, GLM-Edge
	{"", []string{"<|{{ item['role'] }}|>", "<|begin_of_image|>"}}, // GLM-Edge
	{"", []string{"<|user|>", "<|endoftext|>"}},                    // Zephyr
	{"", []string{"bos_token + message['role']"}},                  // Monarch
	{"gemma", []string{"<start_of_turn>"}},
	{"", []string{`'\n\nAssistant: ' + eos_token`}},             // Orion
	{"", []string{"GPT4 Correct "}},                             // OpenChat
	{"", []string{"USER: ", "ASSISTANT: "}},                     // Vicuna
	{"", []string{"### Instruction:", "<|EOT|>"}},               // DeepSeek Coder
	{"", []string{"<|START_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"}}, // Command R
	{"llama3", []string{"<|start_header_id|>", "<|end_header_id|>"}},
}

// Detect returns the name of the template whose program is text, and whether this package
// has that template. text is the value of tokenizer.chat_template in a model file. If text
// is a name of [Names], Detect returns it. Otherwise it looks for certain strings in text.
// [Recognise] also finds out what the template does to contents.
func Detect(text string) (name string, ok bool) {
	if _, ok := templates[text]; ok {
		return text, true
	}
	for _, r := range rules {
		if r.match(text) {
			return r.name, r.name != ""
		}
	}
	return "", false
}

func (r rule) match(text string) bool {
	for _, s := range r.all {
		if !strings.Contains(text, s) {
			return false
		}
	}
	return true
}
