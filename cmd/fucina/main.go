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
	// A signal that was ignored at the start, as under nohup, remains ignored.
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
			// The first signal asks for a clean end. The next one kills the process.
			signal.Stop(signals)
			cancel(signalled{s.(syscall.Signal)})
			return
		}
	}()
	// While SIGPIPE is notified, a write to a pipe without a reader is an error and does not
	// end the process, so the command can clean up.
	pipe := make(chan os.Signal, 1)
	take(pipe, syscall.SIGPIPE)
	go func() {
		<-pipe
		signal.Stop(signals)
		cancel(signalled{syscall.SIGPIPE})
	}()
	os.Exit(t.main(ctx, os.Args[1:]))
}
