package ctxlock

import (
	"context"
	"errors"
	"testing"
)

func TestLock(t *testing.T) {
	l := New()
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Lock(done); err != nil {
		t.Errorf("a free lock: %v", err)
	}
	if l.TryLock() {
		t.Error("a held lock was taken")
	}
	if err := l.Lock(done); !errors.Is(err, context.Canceled) {
		t.Errorf("a held lock after the end of the context: %v", err)
	}
	taken := make(chan error)
	go func() { taken <- l.Lock(context.Background()) }()
	l.Unlock()
	if err := <-taken; err != nil {
		t.Error(err)
	}
	l.Unlock()
	defer func() {
		if recover() == nil {
			t.Error("unlock of a free lock does not panic")
		}
	}()
	l.Unlock()
}

func TestLockExcludes(t *testing.T) {
	l := New()
	n, done := 0, make(chan struct{})
	for range 4 {
		go func() {
			for range 1000 {
				_ = l.Lock(context.Background())
				n++
				l.Unlock()
			}
			done <- struct{}{}
		}()
	}
	for range 4 {
		<-done
	}
	if n != 4000 {
		t.Errorf("counted %d, want 4000", n)
	}
	if allocs := testing.AllocsPerRun(100, func() { _ = l.Lock(context.Background()); l.Unlock() }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}
