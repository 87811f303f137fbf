package fucina

import (
	"errors"
	"slices"
)

// Scope owns the results of the operations of its context that run while it is
// the innermost open scope: Release of such a result does nothing, and Close
// releases them all. A backward pass needs that; inference should do without, as
// a scope keeps every intermediate value alive. nil and the zero Scope are closed.
type Scope struct {
	c     *Context
	items []Tensor
}

// OpenScope opens a scope inside those that are open. The caller closes it.
func (c *Context) OpenScope() (*Scope, error) {
	if err := c.enter("open scope"); err != nil {
		return nil, err
	}
	defer c.exit()
	s := &Scope{c: c}
	c.scopes = append(c.scopes, s)
	return s, nil
}

// Close releases what the scope owns, newest first, after closing the scopes that
// were opened inside it. Closing again, or after the context, does nothing.
func (s *Scope) Close() error {
	if s == nil {
		return nil
	}
	if err := s.c.enter("close scope"); errors.Is(err, ErrClosed) {
		return nil
	} else if err != nil {
		return err
	}
	defer s.c.exit()
	if place := slices.Index(s.c.scopes, s); place >= 0 {
		s.c.closeScopes(place)
	}
	return nil
}

// closeScopes closes the scopes from place on, the innermost first. The caller is
// inside the context.
func (c *Context) closeScopes(place int) {
	for i := len(c.scopes) - 1; i >= place; i-- {
		s := c.scopes[i]
		for j := len(s.items) - 1; j >= 0; j-- {
			// Only the scope releases what it owns, so no tensor is stale here.
			if err := s.items[j].release(true); err != nil {
				panic(err)
			}
		}
		s.items = nil
	}
	c.scopes = slices.Delete(c.scopes, place, len(c.scopes))
}
