package llm

import (
	"context"
	"errors"
	"fmt"

	"github.com/fucina-go/fucina"
)

// logitRows is the number of tokens that DecodeAll takes through the output matrix at once. A
// row of logits is as long as the vocabulary, so the rows of a whole batch would need more
// memory than everything else.
const logitRows = 32

// DecodeAll is like [Session.Decode], with the logits that follow every token. For each i in
// order, it calls yield with the logits that follow ids[i], one for each vocabulary entry. The
// slice is valid only during the call. The session keeps memory for up to 32 rows of logits
// until Close. All of ids are computed, also those whose keys and values the model's cache has.
//
// If yield returns an error, DecodeAll ends and returns that error unchanged. The sequence is
// then the same as after an error of Decode. DecodeAll checks ctx like Decode, and also before
// each call of yield. yield must not use the session, whose methods fail with fucina.ErrBusy.
func (s *Session) DecodeAll(ctx context.Context, ids []int32, yield func(i int, logits []float32) error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.exit()
	if err := s.check(ids); err != nil {
		return err
	}
	logits := s.room(min(logitRows, len(ids), s.batch))
	for done := 0; done < len(ids); {
		n := min(len(ids)-done, s.batch)
		if err := s.allRows(ctx, ids[done:done+n], done, logits, yield); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// allRows runs one batch of DecodeAll. done is the number of tokens in earlier batches. If it
// fails, the tokens do not remain in the sequence.
func (s *Session) allRows(ctx context.Context, ids []int32, done int, logits []float32, yield func(i int, logits []float32) error) (err error) {
	past := s.Past()
	s.keep = true
	defer func() {
		s.keep = false
		s.hidden.Release()
		s.hidden = fucina.Tensor{}
		if err == nil || s.Past() == past {
			return
		}
		if undo := s.rewind(past); undo != nil {
			err = errors.Join(err, undo)
		}
	}()
	if err := s.advance(ctx, ids, false, nil); err != nil {
		return fmt.Errorf("llm: %w", err)
	}
	vocabulary := s.m.net.Params().Vocabulary
	for first := 0; first < len(ids); first += logitRows {
		rows := min(logitRows, len(ids)-first)
		err := s.rowLogits(ctx, first, logits[:rows*vocabulary])
		for errors.Is(err, errLost) {
			if err := s.rewind(past); err != nil {
				return err
			}
			if err = s.advance(ctx, ids, false, nil); err == nil {
				err = s.rowLogits(ctx, first, logits[:rows*vocabulary])
			}
		}
		if err != nil {
			return fmt.Errorf("llm: %w", err)
		}
		for i := range rows {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("llm: %w", err)
			}
			if err := yield(done+first+i, logits[i*vocabulary:(i+1)*vocabulary]); err != nil {
				return err
			}
		}
	}
	return nil
}

// rowLogits writes the logits that follow the rows of hidden from first on to logits. It fails
// with errLost if hidden is lost, because a step of another session has failed meanwhile.
func (s *Session) rowLogits(ctx context.Context, first int, logits []float32) error {
	r := &s.m.steps
	c, f, err := r.begin(ctx)
	if err != nil {
		return err
	}
	others := r.failed != s.failed
	rows := len(logits) / s.m.net.Params().Vocabulary
	err = r.verify(fucina.CopyOut(s.m.net.Logits(s.hidden.On(c).Narrow("seq", first, rows)), logits))
	if err = r.end(f, err); err != nil && others && ctx.Err() == nil && !errors.Is(err, ErrFileChanged) {
		return errLost
	}
	return err
}
