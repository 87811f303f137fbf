package llm

import (
	"context"
	"fmt"
	"iter"

	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// GenerateOptions configure Generate; zero fields take their defaults.
type GenerateOptions struct {
	// MaxTokens is the most tokens to generate; 0 is until the model ends its text
	// or the context is full.
	MaxTokens int
	// Sampling chooses the tokens; the zero value is greedy.
	Sampling sample.Params
	// Special parses special tokens in the prompt and shows those in the output.
	Special bool
	// OnPrompt, if set, is called with the prompt's ids before they are decoded.
	OnPrompt func(ids []int32)
	// OnLogits, if set, is called with the logits that each token is chosen from;
	// the slice is only good during the call.
	OnLogits func(logits []float32)
}

// Token is a piece of generated text.
type Token struct {
	ID int32
	// Text is what the token adds. It never splits a character: a token that ends
	// inside one adds its text together with the token that completes it.
	Text string
}

// Generate appends the prompt to the session and streams the text that follows it.
// The beginning-of-sequence token is added if the session is empty and the model
// wants one. The sequence ends after MaxTokens, when the model ends its text (the
// token that says so is the last, with empty text), when the context is full, or
// with an error, which is the last pair; ctx's error if ctx is done.
//
// The session holds the prompt and the tokens that were generated, save the last,
// and can go on from there.
func (s *Session) Generate(ctx context.Context, prompt string, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.generate(ctx, prompt, opt, yield); err != nil {
			yield(Token{}, err)
		}
	}
}

func (s *Session) generate(ctx context.Context, prompt string, opt GenerateOptions, yield func(Token, error) bool) error {
	sampler, err := sample.New(opt.Sampling)
	if err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	tok := s.m.tok
	ids, err := tok.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: s.Past() == 0, ParseSpecial: opt.Special})
	if err != nil {
		return fmt.Errorf("llm: prompt: %w", err)
	}
	if opt.OnPrompt != nil {
		opt.OnPrompt(ids)
	}
	if len(ids) == 0 {
		return fmt.Errorf("llm: the prompt has no tokens")
	}
	if past := s.Past(); len(ids) > s.opt.Context-past {
		return fmt.Errorf("llm: %w: a prompt of %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, s.opt.Context)
	}
	logits := make([]float32, s.m.params.Vocabulary)
	stream := tok.NewStream(tokenizer.StreamOptions{Special: opt.Special})
	for n := 0; opt.MaxTokens == 0 || n < opt.MaxTokens; n++ {
		if err := s.Decode(ctx, ids, logits); err != nil {
			return err
		}
		if opt.OnLogits != nil {
			opt.OnLogits(logits)
		}
		id, err := sampler.Sample(logits[:tok.VocabSize()])
		if err != nil {
			return fmt.Errorf("llm: %w", err)
		}
		t := Token{ID: id}
		last := tok.IsEOG(id) || n+1 == opt.MaxTokens || s.Past() == s.opt.Context
		if !tok.IsEOG(id) || opt.Special {
			t.Text = stream.Next(id)
		}
		if last {
			t.Text += stream.Flush()
		}
		if !yield(t, nil) || last {
			return nil
		}
		ids = append(ids[:0], id)
	}
	return nil
}
