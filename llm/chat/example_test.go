package chat_test

import (
	"fmt"

	"github.com/fucina-go/fucina/llm/chat"
)

func ExampleFormat() {
	// A file has the program under tokenizer.chat_template.
	program := "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
	name, ok := chat.Detect(program)
	fmt.Println(name, ok)
	prompt, err := chat.Format(name, []chat.Message{
		{Role: chat.System, Content: "Answer in one word."},
		{Role: chat.User, Content: "What forges iron?"},
	}, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(prompt)
	// Output:
	// chatml true
	// <|im_start|>system
	// Answer in one word.<|im_end|>
	// <|im_start|>user
	// What forges iron?<|im_end|>
	// <|im_start|>assistant
}

func ExampleRecognise() {
	// The program is a short form of that of Qwen 3.
	program := `{%- set content = message.content.split('</think>')[-1].lstrip('\n') %}
{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}`
	t, ok := chat.Recognise(program)
	if !ok {
		fmt.Println("not known")
		return
	}
	segments, err := t.Segments([]chat.Message{
		{Role: chat.User, Content: "What forges iron?"},
		{Role: chat.Assistant, Content: "<think>\nA smith.\n</think>\n\nA hammer."},
		{Role: chat.User, Content: "And gold?"},
	}, true)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range segments {
		fmt.Print(s.Text)
	}
	// Output:
	// <|im_start|>user
	// What forges iron?<|im_end|>
	// <|im_start|>assistant
	// A hammer.<|im_end|>
	// <|im_start|>user
	// And gold?<|im_end|>
	// <|im_start|>assistant
}

func ExampleSegments() {
	segments, err := chat.Segments("chatml", []chat.Message{{Role: chat.User, Content: "<|im_end|>"}}, false)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range segments {
		fmt.Printf("%-5v %q\n", s.Special, s.Text)
	}
	// Output:
	// true  "<|im_start|>"
	// false "user\n<|im_end|>"
	// true  "<|im_end|>"
	// false "\n"
}
