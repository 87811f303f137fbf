package llm

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/fucina-go/fucina/internal/await"
	"github.com/fucina-go/fucina/llm/sample"
	"github.com/fucina-go/fucina/llm/tokenizer"
)

// GenerateOptions are the options of Generate. Zero fields mean their defaults.
type GenerateOptions struct {
	// MaxTokens is the largest number of tokens to generate. With 0, generation goes on
	// until the model ends its text or the context is full.
	MaxTokens int
	// Sampling has the parameters of the sampler. The zero value is greedy.
	Sampling sample.Params
	// Stop ends the text in front of the first of these strings, which is not part of the
	// text. A string that is the spelling of a special token also stops at that token,
	// even if Special does not show the token.
	Stop []string
	// StopIDs ends the text in front of the first of these tokens, which adds no text even
	// if Special is set. An id outside of the vocabulary is an error (sample.ErrParams).
	StopIDs []int32
	// Special recognises special tokens in the prompt, and shows those that are generated.
	// [Conversation.Send] only shows them. If a prompt spells the token that its frame
	// adds in front, both tokens remain; tokenizer.Tokenizer.Doubled finds that in the
	// ids that OnPrompt gets.
	Special bool
	// OnPrompt, if set, is called with the ids of the prompt before they are decoded, if
	// they fit into the context. Conversation.Send passes only the ids that the session
	// does not hold yet.
	OnPrompt func(ids []int32)
	// OnLogits, if set, is called before each token is chosen, with the logits that it is
	// chosen from, one for each vocabulary entry. It may change them to change the
	// choice: a token whose logit is -Inf is not chosen. The slice is valid only during
	// the call.
	OnLogits func(logits []float32)
}

// Token is a generated token.
type Token struct {
	ID int32
	// Text is the text that the token adds. It never splits a character and never has a
	// part of a stop string. If a token ends within a character or within what may be a
	// stop string, its text is added by a later token.
	Text string
	// End says why this token is the last one. It is EndNone for the other tokens.
	End EndReason
}

// EndReason is the reason for the end of a generation.
type EndReason uint8

// The reasons for the end of a generation. If several apply to one token, Token.End is the
// first of them.
const (
	EndNone      EndReason = iota // generation continues, or an error or the caller ended it
	EndToken                      // the model ended its text by an end token
	EndStop                       // a string of GenerateOptions.Stop or a token of StopIDs was generated
	EndMaxTokens                  // GenerateOptions.MaxTokens tokens were generated
	EndContext                    // the context is full
)

// String returns the reason in a few words.
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

// Generate appends the prompt to the session and streams the text that follows it. If the
// session is empty, the prompt gets the frame tokenizer.PromptFrame: the
// beginning-of-sequence token is added in front, if the model wants one. The sequence ends
//
//   - after MaxTokens;
//   - when the model ends its text: the end token is the last token, and has no text unless
//     opt.Special shows it;
//   - at a stop string or a stop token;
//   - when the context is full;
//   - with an error, which is the last pair. If ctx is done, that is ctx's error. Generate
//     then does not wait for the tokens of a long prompt either.
//
// Token.End distinguishes these cases.
//
// Afterwards the session holds the prompt and the generated tokens except the last, which no step
// has computed. To go on after the text, or to fork or save the session with all of it, give that
// token to GenerateIDs or to Next.
//
// The loop claims the session from its start to its end. Until then, all methods of the
// session except Past, Context and Model fail with fucina.ErrBusy, and so does a second
// generation, if they are called from the body of the loop, from opt's functions or from
// another goroutine. A sequence of iter.Pull2 holds the claim until it ends or is stopped.
// An error is yielded after the claim has ended.
//
// The sequence is for one loop: a second loop appends the prompt again.
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

// GenerateIDs is like Generate with a prompt of token ids. It adds no frame. To continue a
// generation, pass the ID of its last token, which the session does not hold.
func (s *Session) GenerateIDs(ctx context.Context, ids []int32, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.claim(yield, func() error { return s.generate(ctx, append([]int32(nil), ids...), opt, yield) })
	}
}

// Continue is like Generate without a prompt: the text goes on after the tokens that the session
// holds, for example after Decode, Fork or LoadSession. It computes the last of them again. After
// Generate, the session does not hold the last token of the text, so Continue begins with that
// token once more, unless Next was called with it. An empty session is an error.
func (s *Session) Continue(ctx context.Context, opt GenerateOptions) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		s.claim(yield, func() error {
			sampler, decoder, err := s.prepare(opt)
			if err != nil {
				return err
			}
			return s.again(func(last []int32, generated bool) error {
				return s.stream(ctx, last, generated, sampler, decoder, &opt, yield)
			})
		})
	}
}

// claim calls run, which may yield tokens, inside the session, and yields the error of run
// after it has left the session.
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

// textDecoder turns generated tokens into text, up to a stop string or a stop token.
type textDecoder struct {
	tok     *tokenizer.Tokenizer
	special bool // show special tokens
	stream  *tokenizer.Stream
	stops   *sample.StopMatcher
	stopIDs map[int32]bool
}

// newTextDecoder returns a decoder that stops as opt says, and shows special tokens if special
// is set. opt.Special has no effect.
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

// next returns the text that id adds, and whether a stop string or a stop token has ended the
// text. An end token counts as a special token, even if it has another type. After the last
// token, no text is held back.
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

// withoutSpecial returns the text that t adds without special tokens. t comes from another decoder,
// which shows them. No stop string extends across a special token.
func (d *textDecoder) withoutSpecial(t Token) string {
	parted := ""
	if len(d.tok.AppendPiece(nil, t.ID, true)) > len(d.tok.AppendPiece(nil, t.ID, false)) {
		parted = d.stops.Flush()
		d.stops.Reset()
	}
	text, _ := d.next(t.ID, t.End != EndNone)
	return parted + text
}

// choices returns the number of tokens that generation chooses among. For a model without a
// vocabulary, that is the number of rows of the embedding.
func (m *Model) choices() int {
	if n := m.tok.VocabSize(); n > 0 {
		return n
	}
	return m.net.Params().Vocabulary
}

// Check returns an error if opt is out of range or does not fit the session's model.
// Generate and Conversation.Send return the same error before they compute anything.
func (s *Session) Check(opt GenerateOptions) error {
	_, _, err := s.prepare(opt)
	return err
}

// prepare checks opt, and returns the sampler and the decoder of a generation.
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

// generate decodes ids and yields the tokens that follow. It may change ids. The caller has
// claimed the session.
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
	return s.stream(ctx, ids, false, sampler, decoder, &opt, yield)
}

// again calls next with the last token of the sequence, which it first removes, and with whether
// the token was generated. If next has not appended the token again, again does so.
func (s *Session) again(next func(last []int32, generated bool) error) error {
	held := s.ids()
	n := len(held) - 1
	if n < 0 {
		return errors.New("llm: nothing to continue: the session has no tokens")
	}
	last, generated := []int32{held[n]}, s.generated[n]
	if err := s.rewind(n); err != nil {
		return err
	}
	defer func() {
		if s.Past() == n {
			s.putBack(last, generated)
		}
	}()
	return next(slices.Clone(last), generated)
}

// stream decodes ids, of which generated says whether they were generated, and yields the tokens
// that follow. It may change ids.
func (s *Session) stream(ctx context.Context, ids []int32, generated bool, sampler *sample.Sampler, decoder *textDecoder, opt *GenerateOptions, yield func(Token, error) bool) error {
	// The history of the penalties is the whole sequence, including the part that was
	// decoded earlier.
	for _, id := range s.ids() {
		sampler.Accept(id)
	}
	for _, id := range ids {
		sampler.Accept(id)
	}
	logits := s.room(1)
	for n := 1; ; n++ {
		if err := s.decode(ctx, ids, generated || n > 1, logits); err != nil {
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
