package chat

import (
	"fmt"
	"maps"
	"slices"
)

// template adds the segments of a conversation, whose roles are checked, to b.
type template func(b *builder, msgs []Message, addAssistant bool) error

// templates are by llama.cpp's names (llama-chat.cpp).
var templates = map[string]template{
	"chatml":            chatML,
	"gemma":             gemma,
	"llama2":            llama2{}.format,
	"llama2-sys":        llama2{sys: true}.format,
	"llama2-sys-bos":    llama2{sys: true, bos: true}.format,
	"llama2-sys-strip":  llama2{sys: true, strip: true}.format,
	"llama3":            llama3,
	"mistral-v1":        mistral{before: " ", after: " "}.format,
	"mistral-v3":        mistral{after: " ", trim: true}.format,
	"mistral-v3-tekken": mistral{}.format,
	"mistral-v7":        mistral7(" "),
	"mistral-v7-tekken": mistral7(""),
	"phi3":              phi3,
	"phi4":              phi4,
}

// Names returns the names of all templates, sorted.
func Names() []string { return slices.Sorted(maps.Keys(templates)) }

// chatML is the template of Qwen 2 and 3, among many.
func chatML(b *builder, msgs []Message, addAssistant bool) error {
	for _, m := range msgs {
		b.mark("<|im_start|>").text(m.Role + "\n" + m.Content).mark("<|im_end|>").text("\n")
	}
	if addAssistant {
		b.mark("<|im_start|>").text("assistant\n")
	}
	return nil
}

// gemma has no system turn: a system message goes before the next user message.
func gemma(b *builder, msgs []Message, addAssistant bool) error {
	system, last := "", 0
	for i, m := range msgs {
		switch m.Role {
		case System:
			system += trim(m.Content)
			last = i
			continue
		case Assistant:
			b.mark("<start_of_turn>").text("model\n")
		case User:
			b.mark("<start_of_turn>").text("user\n")
			if system != "" {
				b.text(system + "\n\n")
				system = ""
			}
		}
		b.text(trim(m.Content)).mark("<end_of_turn>").text("\n")
	}
	if system != "" {
		return fmt.Errorf("%w: message %d is a system message, which gemma takes only before a user message", ErrMessage, last)
	}
	if addAssistant {
		b.mark("<start_of_turn>").text("model\n")
	}
	return nil
}

func llama3(b *builder, msgs []Message, addAssistant bool) error {
	head := func(role string) *builder {
		return b.mark("<|start_header_id|>").text(role).mark("<|end_header_id|>").text("\n\n")
	}
	for _, m := range msgs {
		head(m.Role).text(trim(m.Content)).mark("<|eot_id|>")
	}
	if addAssistant {
		head(Assistant)
	}
	return nil
}

// llama2 is the template of Llama 2 and of the first Mistral.
type llama2 struct {
	sys   bool // marks system messages
	bos   bool // repeats the beginning-of-sequence token before later turns
	strip bool // trims contents
}

func (t llama2) format(b *builder, msgs []Message, _ bool) error {
	inTurn := false
	for i, m := range msgs {
		content := m.Content
		if t.strip {
			content = trim(content)
		}
		if !inTurn {
			inTurn = true
			if t.bos && i > 0 {
				b.mark("<s>")
			}
			b.mark("[INST]").text(" ")
		}
		switch {
		case m.Role == System && t.sys:
			b.mark("<<SYS>>").text("\n" + content + "\n").mark("<</SYS>>").text("\n\n")
		case m.Role == System:
			b.text(content + "\n")
		case m.Role == User:
			b.text(content + " ").mark("[/INST]")
		default:
			b.text(content).mark("</s>")
			inTurn = false
		}
	}
	return nil
}

// mistral is the template of Mistral's v1 and v3 tokenizers.
type mistral struct {
	before string // before [INST] and [/INST]
	after  string // after [INST], and before an answer
	trim   bool   // trims answers
}

func (t mistral) format(b *builder, msgs []Message, _ bool) error {
	inTurn := false
	for _, m := range msgs {
		if !inTurn {
			inTurn = true
			b.text(t.before).mark("[INST]").text(t.after)
		}
		switch m.Role {
		case System:
			b.text(m.Content + "\n\n")
		case User:
			b.text(m.Content + t.before).mark("[/INST]")
		default:
			content := m.Content
			if t.trim {
				content = trim(content)
			}
			b.text(t.after + content).mark("</s>")
			inTurn = false
		}
	}
	return nil
}

// mistral7 is the template of Mistral's v7 tokenizers; space is before contents.
func mistral7(space string) template {
	return func(b *builder, msgs []Message, _ bool) error {
		for _, m := range msgs {
			switch m.Role {
			case System:
				b.mark("[SYSTEM_PROMPT]").text(space + m.Content).mark("[/SYSTEM_PROMPT]")
			case User:
				b.mark("[INST]").text(space + m.Content).mark("[/INST]")
			default:
				b.text(space + m.Content).mark("</s>")
			}
		}
		return nil
	}
}

func phi3(b *builder, msgs []Message, addAssistant bool) error {
	for _, m := range msgs {
		b.mark("<|" + m.Role + "|>").text("\n" + m.Content).mark("<|end|>").text("\n")
	}
	if addAssistant {
		b.mark("<|assistant|>").text("\n")
	}
	return nil
}

func phi4(b *builder, msgs []Message, addAssistant bool) error {
	for _, m := range msgs {
		b.mark("<|im_start|>").text(m.Role).mark("<|im_sep|>").text(m.Content).mark("<|im_end|>")
	}
	if addAssistant {
		b.mark("<|im_start|>").text("assistant").mark("<|im_sep|>")
	}
	return nil
}
