package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, cancel := context.WithCancelCause(context.Background())
	t := newTool(os.Stdin, os.Stdout, os.Stderr, isTerminal(os.Stdout), isTerminal(os.Stderr))
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			if s == os.Interrupt && t.turn.interrupt() {
				continue
			}
			// Once a signal has asked for a clean end, the next one kills.
			signal.Stop(signals)
			cancel(signalled{s.(syscall.Signal)})
			return
		}
	}()
	os.Exit(t.main(ctx, os.Args[1:]))
}
