package await

import (
	"context"
	"errors"
	"testing"
)

// Do returns the result of the function, or the context's error if the context ends first.
func TestDo(t *testing.T) {
	fault := errors.New("fault")
	ctx, cancel := context.WithCancel(t.Context())
	for name, ctx := range map[string]context.Context{"endless": context.Background(), "cancellable": ctx} {
		for _, want := range []error{nil, fault} {
			if v, err := Do(ctx, func() (int, error) { return 7, want }); v != 7 || err != want {
				t.Errorf("%s: %d, %v, want 7, %v", name, v, err, want)
			}
		}
	}
	// The function waits until Do has returned.
	gone, ended := make(chan struct{}), make(chan struct{})
	v, err := Do(ctx, func() (int, error) {
		defer close(ended)
		cancel()
		<-gone
		return 7, nil
	})
	if v != 0 || err != context.Canceled {
		t.Errorf("cancelled: %d, %v, want 0, %v", v, err, context.Canceled)
	}
	close(gone)
	<-ended
}
