// Package ctxlock has a mutual exclusion lock with a wait that a context can end.
package ctxlock

import "context"

// Lock is held by at most one goroutine at a time. Create it with New. Copies are the same
// lock.
type Lock struct{ held chan struct{} }

// New returns a free lock.
func New() Lock { return Lock{make(chan struct{}, 1)} }

// Lock takes the lock, or returns ctx's error if ctx is done before the lock is free.
// It takes a free lock even if ctx is done.
func (l Lock) Lock(ctx context.Context) error {
	if l.TryLock() {
		return nil
	}
	select {
	case l.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TryLock takes the lock if it is free, and reports whether it did.
func (l Lock) TryLock() bool {
	select {
	case l.held <- struct{}{}:
		return true
	default:
		return false
	}
}

// Unlock frees the lock. It panics if the lock is free.
func (l Lock) Unlock() {
	select {
	case <-l.held:
	default:
		panic("ctxlock: unlock of a free lock")
	}
}
