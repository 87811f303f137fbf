package llm

import (
	"context"
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
// until Close.
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
	s.c.SetCancel(ctx)
	defer s.c.SetCancel(context.Background())
	logits := s.room(min(logitRows, len(ids), s.batch))
	for done := 0; done < len(ids); {
		n := min(len(ids)-done, s.batch)
		if err := s.allRows(ctx, ids[done:done+n], done, logits, yield); err != nil {
			return err
		}
		s.keep(ids[done : done+n])
		done += n
	}
	return nil
}

// allRows runs one batch of DecodeAll. done is the number of tokens in earlier batches.
func (s *Session) allRows(ctx context.Context, ids []int32, done int, logits []float32, yield func(i int, logits []float32) error) error {
	f := s.c.Frame()
	defer f.Close()
	vocabulary := s.m.net.Params().Vocabulary
	x := s.m.net.Forward(s.c, ids, s.cache, s.angles)
	if err := x.Err(); err != nil {
		return fmt.Errorf("llm: %w", s.checked(err))
	}
	for first := 0; first < len(ids); first += logitRows {
		rows := min(logitRows, len(ids)-first)
		g := s.c.Frame()
		err := fucina.CopyOut(s.m.net.Logits(x.Narrow("seq", first, rows)), logits[:rows*vocabulary])
		g.Close()
		if err = s.checked(err); err != nil {
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
