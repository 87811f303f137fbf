package leak_test

import (
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/internal/invariants"
	"github.com/fucina-go/fucina/internal/offheap"
	"github.com/fucina-go/fucina/tests/leak"
)

// Left reports a live block. It reports nothing once the block is freed, and waits for a
// goroutine that is about to end.
func TestLeft(t *testing.T) {
	before := leak.Now()
	b, err := offheap.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	err = before.Left()
	if err == nil || !strings.Contains(err.Error(), "host blocks with") {
		t.Errorf("with a block: %v", err)
	} else if invariants.Enabled && !strings.Contains(err.Error(), "TestLeft") {
		t.Errorf("does not say where the block was allocated: %v", err)
	}
	offheap.Free(&b)
	end := make(chan struct{})
	go func() { <-end }()
	close(end)
	if err := before.Left(); err != nil {
		t.Errorf("after all has ended: %v", err)
	}
}

// The goroutine of package os/signal, which never ends, is not left behind.
func TestSignals(t *testing.T) {
	before := leak.Now()
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, os.Interrupt)
	signal.Stop(ch)
	if err := before.Left(); err != nil {
		t.Error(err)
	}
}
