// Package ctxlock has a mutual exclusion lock whose wait a context can end.
package ctxlock

import "context"

// Lock is held by one goroutine at a time. Make it with New; copies are the same lock.
type Lock struct{ held chan struct{} }

// New returns a lock that nobody holds.
func New() Lock { return Lock{make(chan struct{}, 1)} }

// Lock takes the lock, or returns ctx's error if ctx is done before the lock is free.
// A free lock is taken whatever ctx says.
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

// Unlock frees the lock. It panics if nobody holds it.
func (l Lock) Unlock() {
	select {
	case <-l.held:
	default:
		panic("ctxlock: unlock of a lock that is free")
	}
}
