package llm

import (
	"context"
	"fmt"
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
	vocabulary := s.m.params.Vocabulary
	logits := s.room(min(logitRows, len(ids), s.opt.Batch))
	for done := 0; done < len(ids); {
		n := min(len(ids)-done, s.opt.Batch)
		f := flow{ctx: ctx, c: s.c, past: s.Past(), n: n}
		x := s.blocks(&f, ids[done:done+n])
		for first := 0; first < n && !f.stop(); {
			rows := min(logitRows, n-first)
			s.readLogits(&f, x, first, rows, logits[:rows*vocabulary])
			f.err = s.checked(f.err)
			for i := 0; i < rows && !f.stop(); i++ {
				if err := yield(done+first+i, logits[i*vocabulary:(i+1)*vocabulary]); err != nil {
					f.drop(x)
					return err
				}
			}
			first += rows
		}
		f.drop(x)
		if f.err != nil {
			return fmt.Errorf("llm: %w", f.err)
		}
		s.keep(ids[done : done+n])
		done += n
	}
	return nil
}
