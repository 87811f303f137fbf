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
	// What was ignored at the start, as by nohup, stays so.
	take := func(c chan os.Signal, signals ...os.Signal) {
		for _, s := range signals {
			if !signal.Ignored(s) {
				signal.Notify(c, s)
			}
		}
	}
	signals := make(chan os.Signal, 1)
	take(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
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
	// While this one is taken, writing to a pipe that nobody reads is an error, not the
	// end of the process, and the command cleans up.
	pipe := make(chan os.Signal, 1)
	take(pipe, syscall.SIGPIPE)
	go func() {
		<-pipe
		signal.Stop(signals)
		cancel(signalled{syscall.SIGPIPE})
	}()
	os.Exit(t.main(ctx, os.Args[1:]))
}
