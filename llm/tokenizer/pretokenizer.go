package tokenizer

import (
	"fmt"
	"sync"

	"github.com/fucina-go/fucina/llm/tokenizer/internal/split"
)

// preTokenizer says how a byte-level vocabulary cuts text into words.
type preTokenizer struct {
	// patterns are applied in order, each to the pieces that the one before left.
	patterns func() ([]*split.Pattern, error)
	// whole says that a word that is a token is not taken apart by merges.
	whole bool
	// addBOS says whether BOS is added where the file is silent.
	addBOS bool
	// noBOS says that there is no BOS where the file names none.
	noBOS bool
}

// The expressions that several pre-tokenizers share.
const (
	gpt2Words = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`

	contractions = `(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])`
	letterRun    = `[^\r\n\p{L}\p{N}]?\p{L}+`
	symbolRun    = ` ?[^\s\p{L}\p{N}]+[\r\n]*`
	whitespace   = `\s*[\r\n]+|\s+(?!\S)|\s+`
	symbolsSlash = ` ?[^\s\p{L}\p{N}]+[\r\n/]*|` + whitespace

	llama3Words = contractions + `|` + letterRun + `|\p{N}{1,3}|` + symbolRun + `|` + whitespace
	qwen2Words  = contractions + `|` + letterRun + `|\p{N}|` + symbolRun + `|` + whitespace

	// Runs of letters, few of them lower case and then few of them upper case.
	upperLower  = `[^\r\n\p{L}\p{N}]?((?=\p{L})[^a-z])*((?=\p{L})[^A-Z])+`
	upperRun    = `[^\r\n\p{L}\p{N}]?((?=\p{L})[^a-z])+((?=\p{L})[^A-Z])*`
	gpt4oWords  = upperLower + contractions + `?|` + upperRun + contractions + `?|\p{N}{1,3}|` + symbolsSlash
	tekkenWords = upperLower + `|` + upperRun + `|\p{N}|` + symbolsSlash
)

// preTokenizers holds what tokenizer.ggml.pre may name. Another one is another
// row; expressions are in the syntax of package split.
var preTokenizers = map[string]preTokenizer{}

func register(row preTokenizer, names []string, exprs ...string) {
	row.patterns = sync.OnceValues(func() ([]*split.Pattern, error) {
		patterns := make([]*split.Pattern, len(exprs))
		for i, expr := range exprs {
			var err error
			if patterns[i], err = split.Compile(expr); err != nil {
				return nil, err
			}
		}
		return patterns, nil
	})
	for _, name := range names {
		preTokenizers[name] = row
	}
}

func lookupPreTokenizer(name string) (preTokenizer, error) {
	p, ok := preTokenizers[name]
	if !ok {
		return p, fmt.Errorf("%w: unknown pre-tokenizer %.80q", ErrModel, name)
	}
	return p, nil
}
