// Package await gives up on work that cannot be cut short.
package await

import "context"

// Do returns what f returns, or ctx's error as soon as ctx is done, whichever comes
// first. In that case f goes on alone to its end, and its result is dropped: f must hold
// no lock, nothing that somebody has to give back, and nothing that the caller changes
// after Do. Under a ctx that is never done, f runs on the calling goroutine.
func Do[T any](ctx context.Context, f func() (T, error)) (T, error) {
	if ctx.Done() == nil {
		return f()
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
