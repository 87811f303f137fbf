// Command generate loads a model from a GGUF file, on the best device of this machine, and
// writes the text that follows a prompt. It is a complete program, with error handling and
// releases.
//
//	go run ./examples/generate model.gguf "Once upon a time"
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: generate MODEL PROMPT")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := generate(ctx, os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func generate(ctx context.Context, w io.Writer, path, prompt string) (err error) {
	engine, err := fucina.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	model, err := llm.Open(engine, path, llm.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	session, err := model.NewSession(llm.SessionOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	for token, err := range session.Generate(ctx, prompt, llm.GenerateOptions{MaxTokens: 64}) {
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, token.Text); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(w)
	return err
}
