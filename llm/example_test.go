package llm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

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
