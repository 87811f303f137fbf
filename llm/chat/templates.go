package chat

import (
	"fmt"
	"maps"
	"slices"
)

// framing adds the segments of a conversation to b. The roles of msgs have been checked and
// their contents prepared.
type framing func(b *builder, msgs []Message, addAssistant bool) error

// templates has the templates by the names of llama.cpp (llama-chat.cpp). Each does what the
// programs of that name have in common. Recognise adds what the program of a file does
// beyond that. The package comment describes both.
var templates = map[string]Template{
	"chatml":            {frame: chatML},
	"gemma":             {frame: gemma, Trim: AllRoles},
	"llama2":            {frame: llama2{}.format},
	"llama2-sys":        {frame: llama2{sys: true}.format},
	"llama2-sys-bos":    {frame: llama2{sys: true, bos: true}.format},
	"llama2-sys-strip":  {frame: llama2{sys: true}.format, Trim: AllRoles},
	"llama3":            {frame: llama3, Trim: AllRoles},
	"mistral-v1":        {frame: mistral{before: " ", after: " "}.format},
	"mistral-v3":        {frame: mistral{after: " "}.format, Trim: AssistantRole},
	"mistral-v3-tekken": {frame: mistral{}.format},
	"mistral-v7":        {frame: mistral7(" ")},
	"mistral-v7-tekken": {frame: mistral7("")},
	"phi3":              {frame: phi3},
	"phi4":              {frame: phi4},
}

// Names returns the names of all templates, sorted.
func Names() []string { return slices.Sorted(maps.Keys(templates)) }

// chatML is the template of Qwen 2, Qwen 3 and many other models.
func chatML(b *builder, msgs []Message, addAssistant bool) error {
	for _, m := range msgs {
		b.mark("<|im_start|>").text(m.Role + "\n" + m.Content).mark("<|im_end|>").text("\n")
	}
	if addAssistant {
		b.mark("<|im_start|>").text("assistant\n")
	}
	return nil
}

// gemma is the template of Gemma. It has no system turn: a system message is a part of the next
// user message.
func gemma(b *builder, msgs []Message, addAssistant bool) error {
	system, last := "", 0
	for i, m := range msgs {
		switch m.Role {
		case System:
			system += m.Content
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
		b.text(m.Content).mark("<end_of_turn>").text("\n")
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
		head(m.Role).text(m.Content).mark("<|eot_id|>")
	}
	if addAssistant {
		head(Assistant)
	}
	return nil
}

// llama2 is the template of Llama 2 and of the first Mistral.
type llama2 struct {
	sys   bool   // put system messages between marks
	bos   bool   // repeat the beginning-of-sequence token before later turns
	space string // the text around answers
}

func (t llama2) format(b *builder, msgs []Message, _ bool) error {
	inTurn := false
	for i, m := range msgs {
		if !inTurn {
			inTurn = true
			if t.bos && i > 0 {
				b.mark("<s>")
			}
			b.mark("[INST]").text(" ")
		}
		switch {
		case m.Role == System && t.sys:
			b.mark("<<SYS>>").text("\n" + m.Content + "\n").mark("<</SYS>>").text("\n\n")
		case m.Role == System:
			b.text(m.Content + "\n")
		case m.Role == User:
			b.text(m.Content + " ").mark("[/INST]")
		default:
			b.text(t.space + m.Content + t.space).mark("</s>")
			inTurn = false
		}
	}
	return nil
}

// mistral is the template of Mistral's v1 and v3 tokenizers.
type mistral struct {
	before string // the text before [INST] and [/INST]
	after  string // the text after [INST] and before an answer
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
			b.text(t.after + m.Content).mark("</s>")
			inTurn = false
		}
	}
	return nil
}

// mistral7 returns the template of Mistral's v7 tokenizers. space is the text before contents.
func mistral7(space string) framing {
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
