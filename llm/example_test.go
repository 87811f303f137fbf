package llm_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// A model generated from a seed, whose text means nothing but is always the same.
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
