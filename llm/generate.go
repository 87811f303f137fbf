package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/fucina-go/fucina/internal/await"
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
	// Stop ends the text before the first of these strings, which is not given out. A
	// string that spells a special token of the vocabulary also stands for that token,
	// whose spelling is no part of the text unless Special shows it.
	Stop []string
	// StopIDs ends the text before the first of these tokens, which adds no text even if
	// Special is set. An id outside of the vocabulary is an error (sample.ErrParams).
	StopIDs []int32
	// Special parses special tokens in the prompt and shows those in the output.
	// [Conversation.Send] only shows them. If a prompt spells the token that the frame
	// puts in front, both are kept; tokenizer.Tokenizer.Doubled finds that in the ids
	// that OnPrompt gets.
	Special bool
	// OnPrompt, if set, is called with the prompt's ids before they are decoded, if
	// they fit into the context; of Conversation.Send, with those that the session does
	// not hold yet.
	OnPrompt func(ids []int32)
	// OnLogits, if set, is called with the logits that each token is chosen from,
	// one per vocabulary entry, before it is chosen. It may change them, and so the
	// choice: a token whose logit it makes -Inf is not chosen. The slice is only good
	// during the call.
	OnLogits func(logits []float32)
}

// Token is a piece of generated text.
type Token struct {
	ID int32
	// Text is what the token adds. It never splits a character, nor gives out a part
	// of a stop string: a token that ends inside one adds its text together with the
	// token that decides.
	Text string
	// End says, at the last token, why it is the last, and is EndNone before.
	End EndReason
}

// EndReason says why a generation ended.
type EndReason uint8

// The reasons for an end. Where several hold at one token, the first of them is
// given.
const (
	EndNone      EndReason = iota // it goes on, or was ended by an error or the caller
	EndToken                      // the model ended its text with the token for that
	EndStop                       // a string of GenerateOptions.Stop or a token of StopIDs came, and was cut off
	EndMaxTokens                  // GenerateOptions.MaxTokens were generated
	EndContext                    // the context is full
)

// String returns a few words for the reason.
func (r EndReason) String() string {
	switch r {
	case EndNone:
		return "none"
	case EndToken:
		return "end token"
	case EndStop:
		return "stop string"
	case EndMaxTokens:
		return "token limit"
	case EndContext:
		return "context full"
	}
	return fmt.Sprintf("EndReason(%d)", uint8(r))
}

// Generate appends the prompt to the session and streams the text that follows it.
// If the session is empty, the prompt gets the frame of a prompt
// (tokenizer.PromptFrame): the beginning-of-sequence token goes in front if the model
// wants one, and nothing goes behind. The sequence ends
//
//   - after MaxTokens;
//   - when the model ends its text: the token that says so is the last, and adds no text
//     of its own unless opt.Special shows it;
//   - at a stop string or token;
//   - when the context is full;
//   - with an error, which is the last pair. If ctx is done, that is ctx's error, also
//     while a long prompt is still being tokenized; nobody then waits for its tokens.
//
// Token.End tells these apart.
//
// The session holds the prompt and the tokens that were generated, save the last,
// and can go on from there.
//
// The session is claimed from the start to the end of the loop: until then its
// other methods, called from the loop's body, from opt's functions or from another
// goroutine, fail with fucina.ErrBusy, save Past, Context and Model. So does a second
// generation. A sequence that was begun with iter.Pull2 holds the claim until it has
// ended or is stopped. An error is given out when the session is free again.
//
// The sequence is for one loop: another one appends the prompt again.
func (s *Session) Generate(ctx context.Context, prompt string, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.claim(yield, func() error {
			frame := tokenizer.NoFrame
			if s.Past() == 0 {
				frame = tokenizer.PromptFrame
			}
			ids, err := await.Do(ctx, func() ([]int32, error) {
				return s.m.tok.Encode(prompt, tokenizer.EncodeOptions{Frame: frame, ParseSpecial: opt.Special})
			})
			if err != nil {
				return fmt.Errorf("llm: prompt: %w", err)
			}
			return s.generate(ctx, ids, opt, yield)
		})
	}
}

// GenerateIDs is Generate after a prompt of token ids, to which it adds nothing.
func (s *Session) GenerateIDs(ctx context.Context, ids []int32, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.claim(yield, func() error { return s.generate(ctx, append([]int32(nil), ids...), opt, yield) })
	}
}

// claim calls run, which may yield tokens, inside of the session, and yields its
// error outside.
func (s *Session) claim(yield func(Token, error) bool, run func() error) {
	err := s.enter()
	if err == nil {
		err = func() error {
			defer s.exit()
			return run()
		}()
	}
	if err != nil {
		yield(Token{}, err)
	}
}

// textDecoder turns generated tokens into text, up to a stop string or token.
type textDecoder struct {
	tok     *tokenizer.Tokenizer
	special bool // special tokens are spelled
	stream  *tokenizer.Stream
	stops   *sample.StopMatcher
	stopIDs map[int32]bool
}

// newTextDecoder returns a decoder that stops as opt says, and spells special tokens if
// special is set, whatever opt.Special is.
func newTextDecoder(tok *tokenizer.Tokenizer, special bool, opt *GenerateOptions) (*textDecoder, error) {
	stops, err := sample.NewStopMatcher(opt.Stop...)
	if err != nil {
		return nil, fmt.Errorf("llm: %w", err)
	}
	stopIDs := make(map[int32]bool)
	for _, id := range opt.StopIDs {
		stopIDs[id] = true
	}
	for _, text := range opt.Stop {
		if id := tok.LookupSpecial(text); id != tokenizer.None {
			stopIDs[id] = true
		}
	}
	return &textDecoder{tok, special, tok.NewStream(tokenizer.StreamOptions{Special: special}), stops, stopIDs}, nil
}

// next returns the text that id adds, and whether a stop string or token has ended the
// text. The token that ends a generation is a special one, whatever its type. Nothing
// is held back after the last token.
func (d *textDecoder) next(id int32, last bool) (text string, stopped bool) {
	stop := d.stopIDs[id]
	last = last || stop
	if !stop && (d.special || !d.tok.IsEOG(id)) {
		text = d.stream.Next(id)
	}
	if last {
		text += d.stream.Flush()
	}
	text, stopped = d.stops.Next(text)
	if last && !stopped {
		text += d.stops.Flush()
	}
	return text, stopped || stop
}

// beside returns the text that t adds without special tokens, where another decoder has
// spelled them. No stop string reaches across a special token.
func (d *textDecoder) beside(t Token) string {
	parted := ""
	if len(d.tok.AppendPiece(nil, t.ID, true)) > len(d.tok.AppendPiece(nil, t.ID, false)) {
		parted = d.stops.Flush()
		d.stops.Reset()
	}
	text, _ := d.next(t.ID, t.End != EndNone)
	return parted + text
}

// choices returns the number of tokens that generation chooses among. A model without
// a vocabulary takes ids and gives ids.
func (m *Model) choices() int {
	if n := m.tok.VocabSize(); n > 0 {
		return n
	}
	return m.net.Params().Vocabulary
}

// Check returns an error if opt is out of range or does not suit the session's model.
// Generate and Conversation.Send return the same error before they compute anything.
func (s *Session) Check(opt GenerateOptions) error {
	_, _, err := s.prepare(opt)
	return err
}

// prepare checks opt and returns what chooses the tokens and what spells them.
func (s *Session) prepare(opt GenerateOptions) (*sample.Sampler, *textDecoder, error) {
	if opt.MaxTokens < 0 {
		return nil, nil, fmt.Errorf("llm: %d tokens to generate, want 1 or more, or 0 for no limit", opt.MaxTokens)
	}
	if err := opt.Sampling.Check(s.m.choices()); err != nil {
		return nil, nil, fmt.Errorf("llm: %w", err)
	}
	sampler, err := sample.New(opt.Sampling)
	if err != nil {
		return nil, nil, fmt.Errorf("llm: %w", err)
	}
	for _, id := range opt.StopIDs {
		if n := s.m.choices(); id < 0 || int(id) >= n {
			return nil, nil, fmt.Errorf("llm: %w: stop token %d, want 0 to %d", sample.ErrParams, id, n-1)
		}
	}
	decoder, err := newTextDecoder(s.m.tok, opt.Special, &opt)
	return sampler, decoder, err
}

// generate owns ids. The caller has claimed the session.
func (s *Session) generate(ctx context.Context, ids []int32, opt GenerateOptions, yield func(Token, error) bool) error {
	sampler, decoder, err := s.prepare(opt)
	if err != nil {
		return err
	}
	if len(ids) == 0 {
		return errors.New("llm: the prompt has no tokens")
	}
	if past, room := s.Past(), s.Context(); len(ids) > room-past {
		return fmt.Errorf("llm: %w: a prompt of %d tokens after %d in a context of %d", ErrContextFull, len(ids), past, room)
	}
	if opt.OnPrompt != nil {
		opt.OnPrompt(ids)
	}
	// The whole sequence is the history of the penalties, whether it was decoded now
	// or before.
	for _, id := range s.ids {
		sampler.Accept(id)
	}
	for _, id := range ids {
		sampler.Accept(id)
	}
	logits := s.room(1)
	for n := 1; ; n++ {
		if err := s.decode(ctx, ids, logits); err != nil {
			return err
		}
		if opt.OnLogits != nil {
			opt.OnLogits(logits)
		}
		id, err := sampler.Sample(logits[:s.m.choices()])
		if err != nil {
			return fmt.Errorf("llm: %w", err)
		}
		sampler.Accept(id)
		end := EndNone
		switch {
		case s.m.tok.IsEOG(id):
			end = EndToken
		case n == opt.MaxTokens:
			end = EndMaxTokens
		case s.Past() == s.Context():
			end = EndContext
		}
		text, stopped := decoder.next(id, end != EndNone)
		if stopped && end != EndToken {
			end = EndStop
		}
		if !yield(Token{ID: id, Text: text, End: end}, nil) || end != EndNone {
			return nil
		}
		ids = append(ids[:0], id)
	}
}
