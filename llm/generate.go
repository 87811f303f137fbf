package llm

import (
	"context"
	"errors"
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
	// Stop ends the text before the first of these strings, which is not given out.
	Stop []string
	// Special parses special tokens in the prompt and shows those in the output.
	Special bool
	// OnPrompt, if set, is called with the prompt's ids before they are decoded, if
	// they fit into the context.
	OnPrompt func(ids []int32)
	// OnLogits, if set, is called with the logits that each token is chosen from;
	// the slice is only good during the call.
	OnLogits func(logits []float32)
}

// Token is a piece of generated text.
type Token struct {
	ID int32
	// Text is what the token adds. It never splits a character, nor gives out a part
	// of a stop string: a token that ends inside one adds its text together with the
	// token that decides.
	Text string
}

// Generate appends the prompt to the session and streams the text that follows it.
// The beginning-of-sequence token is added if the session is empty and the model
// wants one. The sequence ends after MaxTokens, when the model ends its text (the
// token that says so is the last, and adds no text of its own), at a stop string,
// when the context is full, or with an error, which is the last pair; ctx's error if
// ctx is done.
//
// The session holds the prompt and the tokens that were generated, save the last,
// and can go on from there.
func (s *Session) Generate(ctx context.Context, prompt string, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		ids, err := s.m.tok.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: s.Past() == 0, ParseSpecial: opt.Special})
		if err != nil {
			yield(Token{}, fmt.Errorf("llm: prompt: %w", err))
			return
		}
		s.stream(ctx, ids, opt, yield)
	}
}

// GenerateIDs is Generate after a prompt of token ids, to which it adds nothing.
func (s *Session) GenerateIDs(ctx context.Context, ids []int32, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.stream(ctx, append([]int32(nil), ids...), opt, yield)
	}
}

func (s *Session) stream(ctx context.Context, ids []int32, opt GenerateOptions, yield func(Token, error) bool) {
	if err := s.generate(ctx, ids, opt, yield); err != nil {
		yield(Token{}, err)
	}
}

// generate owns ids.
func (s *Session) generate(ctx context.Context, ids []int32, opt GenerateOptions, yield func(Token, error) bool) error {
	if opt.MaxTokens < 0 {
		return fmt.Errorf("llm: %d tokens to generate, want 1 or more, or 0 for no limit", opt.MaxTokens)
	}
	sampler, err := sample.New(opt.Sampling)
	if err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	stops, err := sample.NewStopMatcher(opt.Stop...)
	if err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	if len(ids) == 0 {
		return errors.New("llm: the prompt has no tokens")
	}
	if past := s.Past(); len(ids) > s.opt.Context-past {
		return fmt.Errorf("llm: %w: a prompt of %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, s.opt.Context)
	}
	if opt.OnPrompt != nil {
		opt.OnPrompt(ids)
	}
	// The whole sequence is the history of the penalties, whether it was decoded now
	// or before.
	if err := s.enter(); err != nil {
		return err
	}
	for _, id := range s.ids {
		sampler.Accept(id)
	}
	s.exit()
	for _, id := range ids {
		sampler.Accept(id)
	}
	tok := s.m.tok
	choices := tok.VocabSize()
	if choices == 0 {
		choices = s.m.params.Vocabulary // a model without a vocabulary takes ids and gives ids
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
		id, err := sampler.Sample(logits[:choices])
		if err != nil {
			return fmt.Errorf("llm: %w", err)
		}
		sampler.Accept(id)
		last := tok.IsEOG(id) || n+1 == opt.MaxTokens || s.Past() == s.opt.Context
		text := ""
		if !tok.IsEOG(id) || opt.Special {
			text = stream.Next(id)
		}
		if last {
			text += stream.Flush()
		}
		text, stopped := stops.Next(text)
		if last && !stopped {
			text += stops.Flush()
		}
		last = last || stopped
		if !yield(Token{ID: id, Text: text}, nil) || last {
			return nil
		}
		ids = append(ids[:0], id)
	}
	return nil
}
