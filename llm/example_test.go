package llm_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
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

// The tokens of a text, by the vocabulary of a file whose network stays unread.
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
	ids, err := tok.Encode("the and", tokenizer.EncodeOptions{AddSpecial: true})
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
