package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/await"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// tokenization is the result of the tokenize command, as -o json prints it.
type tokenization struct {
	Model jsonText `json:"model"` // base name
	IDs   []int32  `json:"ids"`
	// Pieces are the texts of IDs, with the spelling of special tokens.
	Pieces []jsonText `json:"pieces"`
}

// tokenize is the tokenize command.
func (t *tool) tokenize(ctx context.Context, args []string) error {
	fs := newFlags("tokenize", "-m MODEL (-p TEXT | -f FILE)")
	model := fs.String("m", "", "model `file`, GGUF; only its vocabulary is read")
	fs.alias("m", "model")
	prompt := fs.String("p", "", "`text` to tokenize")
	fs.alias("p", "prompt")
	file := fs.String("f", "", "`file` with the text; - is standard input")
	fs.alias("f", "file")
	ids := fs.Bool("ids", false, "print only the ids, as one list")
	noBOS := fs.Bool("no-bos", false, "add no special tokens around the text")
	special := fs.Bool("parse-special", false, "recognise special tokens in the text")
	out := fs.format()
	fs.note = "Unlike llama-tokenize, this command recognises no escapes, and recognises special tokens\nonly with -parse-special.\n" + bytesNote
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	if *model == "" {
		return usagef("tokenize: no model: give its file with -m")
	}
	text, err := t.text(ctx, fs, *prompt, *file)
	if err != nil {
		return err
	}
	tok, err := openTokenizer(*model)
	if err != nil {
		return err
	}
	r := &tokenization{Model: jsonText(filepath.Base(*model))}
	frame := tokenizer.TextFrame
	if *noBOS {
		frame = tokenizer.NoFrame
	}
	if r.IDs, err = encode(ctx, tok, text, tokenizer.EncodeOptions{Frame: frame, ParseSpecial: *special}); err != nil {
		return err
	}
	t.warnDoubled(tok, r.IDs, frame)
	if r.IDs == nil {
		r.IDs = []int32{}
	}
	switch {
	case *out == jsonl:
		line, err := await.Do(ctx, func() ([]byte, error) {
			r.Pieces = pieces(tok, r.IDs)
			return encodeJSON(r)
		})
		if err == nil {
			_, err = t.raw.Write(line)
		}
		return err
	case *ids:
		line, err := await.Do(ctx, func() (string, error) { return r.list(), nil })
		if err == nil {
			_, err = fmt.Fprintln(t.stdout, line)
		}
		return err
	}
	return r.print(ctx, t, tok)
}

// encode returns the ids of a text. It returns without them once ctx is done.
func encode(ctx context.Context, tok *tokenizer.Tokenizer, text string, opt tokenizer.EncodeOptions) ([]int32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return await.Do(ctx, func() ([]int32, error) { return tok.Encode(text, opt) })
}

// pieces returns the texts of ids, with the spelling of special tokens.
func pieces(tok *tokenizer.Tokenizer, ids []int32) []jsonText {
	list := make([]jsonText, len(ids))
	for i, id := range ids {
		list[i] = jsonText(tok.AppendPiece(nil, id, true))
	}
	return list
}

// openTokenizer reads the vocabulary of a file. The file may hold a model that cannot run.
func openTokenizer(path string) (_ *tokenizer.Tokenizer, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	tok, err := llm.NewTokenizer(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return tok, nil
}

// list returns the ids in the form "[1, 2, 3]".
func (r *tokenization) list() string {
	return strings.ReplaceAll(fmt.Sprint(r.IDs), " ", ", ")
}

// print writes a line for each token, in the form of llama-tokenize. On a terminal, it
// escapes characters that the terminal would interpret.
func (r *tokenization) print(ctx context.Context, t *tool, tok *tokenizer.Tokenizer) error {
	show := func(s string) string { return s }
	if _, ok := t.stdout.(*screen); ok {
		show = visible
	}
	w := bufio.NewWriter(t.stdout)
	var piece []byte
	for _, id := range r.IDs {
		if err := ctx.Err(); err != nil {
			return errors.Join(err, w.Flush())
		}
		piece = tok.AppendPiece(piece[:0], id, true)
		fmt.Fprintf(w, "%6d -> '%s'\n", id, show(string(piece)))
	}
	return w.Flush()
}
