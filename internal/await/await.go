// Package await bounds the wait for a function that cannot be cancelled.
package await

import "context"

// Do returns the result of f, or ctx's error if ctx is done first. In that case f continues
// to its end on its own goroutine and its result is dropped. So f must not hold a lock,
// return a resource that must be released, or use a value that the caller changes after
// Do. If ctx can never be done, f runs on the calling goroutine.
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
