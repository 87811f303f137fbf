package llm

import (
	"context"
	"fmt"

	"github.com/fucina-go/fucina"
)

// logitRows is how many tokens of a batch DecodeAll takes through the output matrix
// at once. A row of logits is as long as the vocabulary, so that those of a whole
// batch would outgrow everything else.
const logitRows = 32

// DecodeAll is [Session.Decode] with the logits that follow every token: it calls
// yield with those after ids[i], one per vocabulary entry, in order. The slice
// is the session's, which keeps room for up to 32 of them until Close, and is used
// again for the next call. An error of yield ends DecodeAll, which returns it;
// the sequence then is as Decode leaves it after an error. DecodeAll looks at ctx where
// Decode does, and before each call of yield.
//
// yield runs inside of the session: it must not use it.
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

// allRows runs one batch of DecodeAll, whose first token is number done of all.
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
