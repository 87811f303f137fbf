package llm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/chat"
	"github.com/fucina-go/fucina/llm/tokenizer"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// The weights of the model come from a seed, so its text means nothing, but it is always the
// same.
func Example() {
	dir, err := os.MkdirTemp("", "fucina")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny.gguf")
	if err := tinyllama.WriteFile(path, tinyllama.Options{}); err != nil {
		log.Fatal(err)
	}

	eng, err := fucina.Open(fucina.WithExact(true))
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	model, err := llm.Open(eng, path, llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession(llm.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	prompt := "Once upon a time"
	fmt.Print(prompt)
	for tok, err := range session.Generate(context.Background(), prompt, llm.GenerateOptions{MaxTokens: 24}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Println()
	fmt.Println("tokens held:", session.Past())
	// Output:
	// Once upon a timemefx upq bretanvjtiaan sgmew tonfk w
	// tokens held: 35
}

// A file has an architecture of its own, and the network of llama. With a registered family
// that describes this network, it generates the same tokens as a file of llama.
func ExampleRegisterFamily() {
	err := llm.RegisterFamily("tinystory", llm.Family{
		RoPE:    fucina.RoPEInterleaved,
		Output:  llm.Optional,
		QKVBias: llm.Optional,
	})
	if err != nil {
		log.Fatal(err)
	}
	eng, err := fucina.Open(fucina.WithExact(true))
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()

	for _, name := range []string{"llama", "tinystory"} {
		f, err := gguf.Parse(tinyllama.NewShape(tinyllama.Shape{Architecture: name, Output: true}).Bytes())
		if err != nil {
			log.Fatal(err)
		}
		model, err := llm.New(eng, f, llm.Options{})
		if err := errors.Join(err, f.Close()); err != nil {
			log.Fatal(err)
		}
		defer model.Close()
		session, err := model.NewSession(llm.SessionOptions{})
		if err != nil {
			log.Fatal(err)
		}
		defer session.Close()

		fmt.Printf("%-9s", model.Params().Architecture)
		for tok, err := range session.Generate(context.Background(), "Once upon a time", llm.GenerateOptions{MaxTokens: 8}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(" ", tok.ID)
		}
		fmt.Println()
	}
	fmt.Println(llm.Architectures())
	// Output:
	// llama     288 307 316 286 315 271 270 294
	// tinystory 288 307 316 286 315 271 270 294
	// [gemma2 gemma3 llama phi3 qwen2 qwen3 tinystory]
}

// A server stores no conversations, so each request has the whole conversation. The session
// still decodes only the tokens that it does not hold yet.
func ExampleConversation_SetMessages() {
	dir, err := os.MkdirTemp("", "fucina")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny.gguf")
	if err := tinyllama.WriteFile(path, tinyllama.Options{}); err != nil {
		log.Fatal(err)
	}
	eng, err := fucina.Open(fucina.WithExact(true))
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	model, err := llm.Open(eng, path, llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()
	session, err := model.NewSession(llm.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()

	serve := func(messages []chat.Message) (answer chat.Message, end llm.EndReason, err error) {
		template := "" // that of the file
		if _, ok := model.ChatTemplate(); !ok {
			template = "chatml"
		}
		talk, err := session.NewConversation(template, "")
		if err != nil {
			return answer, end, err
		}
		last := len(messages) - 1
		if err := talk.SetMessages(messages[:last]); err != nil {
			return answer, end, err
		}
		for tok, err := range talk.Send(context.Background(), messages[last].Content, llm.GenerateOptions{MaxTokens: 8}) {
			if err != nil {
				return answer, end, err
			}
			end = tok.End
		}
		turns := talk.Messages()
		return turns[len(turns)-1], end, nil
	}

	messages := []chat.Message{{Role: chat.System, Content: "Be brief."}}
	for _, question := range []string{"Who are you?", "And then?"} {
		messages = append(messages, chat.Message{Role: chat.User, Content: question})
		answer, end, err := serve(messages)
		if err != nil {
			log.Fatal(err)
		}
		messages = append(messages, answer)
		fmt.Printf("%s %q (%v)\n", answer.Role, answer.Content, end)
	}
	// Output:
	// assistant "vv ouaeyb" (token limit)
	// assistant "ait and wasanayu" (token limit)
}

// exampleSession returns a session on a model whose weights come from a seed. The function that it
// returns closes everything.
func exampleSession(opt llm.SessionOptions) (*llm.Session, func()) {
	eng, err := fucina.Open(fucina.WithExact(true))
	if err != nil {
		log.Fatal(err)
	}
	f, err := gguf.Parse(tinyllama.GGUF(tinyllama.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	model, err := llm.New(eng, f, llm.Options{})
	if err := errors.Join(err, f.Close()); err != nil {
		log.Fatal(err)
	}
	session, err := model.NewSession(opt)
	if err != nil {
		log.Fatal(err)
	}
	return session, func() {
		if err := errors.Join(session.Close(), model.Close(), eng.Close()); err != nil {
			log.Fatal(err)
		}
	}
}

// allText returns the text of a generation.
func allText(tokens iter.Seq2[llm.Token, error]) string {
	var b strings.Builder
	for tok, err := range tokens {
		if err != nil {
			log.Fatal(err)
		}
		b.WriteString(tok.Text)
	}
	return b.String()
}

// Two texts go on from one prompt, which is decoded once. The fork and the session share the memory
// of the prompt.
func ExampleSession_Fork() {
	session, end := exampleSession(llm.SessionOptions{})
	defer end()
	ctx := context.Background()
	ids, err := session.Model().Tokenizer().Encode("Once upon a time", tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame})
	if err != nil {
		log.Fatal(err)
	}
	if err := session.Decode(ctx, ids, nil); err != nil {
		log.Fatal(err)
	}
	fork, err := session.Fork()
	if err != nil {
		log.Fatal(err)
	}
	defer fork.Close()

	fmt.Printf("%q\n", allText(session.Continue(ctx, llm.GenerateOptions{MaxTokens: 8})))
	fmt.Printf("%q\n", allText(fork.Generate(ctx, " the", llm.GenerateOptions{MaxTokens: 8})))
	fmt.Println(len(ids), session.Past(), fork.Past())
	// Output:
	// "mefx upq bret"
	// "ightmeav'ved!"
	// 12 19 21
}

// A text that has reached its token limit goes on.
func ExampleSession_Continue() {
	session, end := exampleSession(llm.SessionOptions{})
	defer end()
	ctx, opt := context.Background(), llm.GenerateOptions{MaxTokens: 8}
	var last int32
	for tok, err := range session.Generate(ctx, "Once upon a time", opt) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
		last = tok.ID
	}
	// The session does not hold the last token of a generation yet.
	if err := session.Next(ctx, last, nil); err != nil {
		log.Fatal(err)
	}
	fmt.Print("|")
	fmt.Println(allText(session.Continue(ctx, opt)))
	// Output:
	// mefx upq bret|anvjtiaan s
}

// A program takes each prompt back with its answer, before it tries the next one. If the model has
// blocks that see only a window of tokens, KeepWindows makes that cheap in a long session.
func ExampleSession_Rewind() {
	session, end := exampleSession(llm.SessionOptions{KeepWindows: true})
	defer end()
	ctx := context.Background()
	for _, prompt := range []string{"Once", " upon", " a"} {
		start := session.Past()
		answer := allText(session.Generate(ctx, prompt, llm.GenerateOptions{MaxTokens: 4}))
		fmt.Printf("%q: %q, %d tokens\n", prompt, answer, session.Past())
		if err := session.Rewind(start); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(session.Past())
	// Output:
	// "Once": "or to b.", 9 tokens
	// " upon": "oremen", 7 tokens
	// " a": "mefvre", 6 tokens
	// 0
}

// IDs tells what a session holds: the prompt, with the token that its frame adds, and the
// generated tokens except the last.
func ExampleSession_IDs() {
	session, end := exampleSession(llm.SessionOptions{})
	defer end()
	fmt.Printf("%q\n", allText(session.Generate(context.Background(), " the and", llm.GenerateOptions{MaxTokens: 3})))
	ids, err := session.IDs()
	if err != nil {
		log.Fatal(err)
	}
	tok := session.Model().Tokenizer()
	for _, id := range ids {
		fmt.Printf("%d %q\n", id, tok.AppendPiece(nil, id, true))
	}
	// Output:
	// "u theu"
	// 1 "<s>"
	// 292 " "
	// 264 " the"
	// 269 " and"
	// 304 "u"
	// 264 " the"
}

// A program saves a session, and goes on with it when it is started again. Here a buffer stands for
// the file.
func ExampleSession_Save() {
	dir, err := os.MkdirTemp("", "fucina")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "tiny.gguf")
	if err := tinyllama.WriteFile(path, tinyllama.Options{}); err != nil {
		log.Fatal(err)
	}
	eng, err := fucina.Open(fucina.WithExact(true))
	if err != nil {
		log.Fatal(err)
	}
	defer eng.Close()
	model, err := llm.Open(eng, path, llm.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer model.Close()

	ctx, prompt := context.Background(), "Once upon a time"
	var file bytes.Buffer
	first, err := model.NewSession(llm.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for tok, err := range first.Generate(ctx, prompt, llm.GenerateOptions{MaxTokens: 8}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Println()
	if err := errors.Join(first.Save(ctx, &file), first.Close()); err != nil {
		log.Fatal(err)
	}

	second, err := model.LoadSession(ctx, &file, llm.SessionOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer second.Close()
	fmt.Println("tokens held:", second.Past())
	// Only the tokens that the session does not hold are decoded.
	ids, err := model.Tokenizer().Encode(prompt, tokenizer.EncodeOptions{Frame: tokenizer.PromptFrame})
	if err != nil {
		log.Fatal(err)
	}
	rest, err := second.Resume(ids)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("to decode: %d of %d\n", len(rest), len(ids))
	for tok, err := range second.GenerateIDs(ctx, rest, llm.GenerateOptions{MaxTokens: 8}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(tok.Text)
	}
	fmt.Println()
	// Output:
	// mefx upq bret
	// tokens held: 19
	// to decode: 1 of 12
	// mefx upq bret
}

// NewTokenizer needs only the vocabulary of a file.
func ExampleNewTokenizer() {
	f, err := gguf.Parse(tinyllama.GGUF(tinyllama.Options{}))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	tok, err := llm.NewTokenizer(f)
	if err != nil {
		log.Fatal(err)
	}
	ids, err := tok.Encode("the and", tokenizer.EncodeOptions{Frame: tokenizer.TextFrame})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range ids {
		fmt.Printf("%d %q\n", id, tok.AppendPiece(nil, id, true))
	}
	// Output:
	// 1 "<s>"
	// 264 " the"
	// 269 " and"
}
