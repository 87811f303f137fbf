//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fucina-go/fucina/tests/process"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// A signal ends a running process cleanly, and the exit status names the signal.
func TestSignal(t *testing.T) {
	path := tinyllama.New(tinyllama.Options{Context: 100000}).File(t, "patient.gguf")
	for sig, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("ignored where the tests run, and so by what they start")
			}
			cmd := process.Command(t, "run", "-m", path, "-p", "a b", "-c", "0", "--temp", "0")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			err = cmd.Start()
			process.SkipEmulated(t, err)
			if err != nil {
				t.Fatal(err)
			}
			begun := make([]byte, 8)
			if _, err := io.ReadFull(out, begun); err != nil {
				t.Fatalf("%v, stderr %q", err, stderr.String())
			}
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(out)
			if err != nil {
				t.Fatal(err)
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != status {
				t.Errorf("ended with %v, want status %d", err, status)
			}
			if text := string(begun) + string(rest); !strings.HasPrefix(text, "a b") || !strings.HasSuffix(text, "\n") {
				t.Errorf("printed %q", text)
			}
			if stderr.Len() != 0 {
				t.Errorf("stderr %q", stderr.String())
			}
		})
	}
}

// If standard output is closed, the command ends with the status of SIGPIPE and cleans up: no
// part of an output file is left.
func TestReaderGone(t *testing.T) {
	if signal.Ignored(syscall.SIGPIPE) {
		t.Skip("SIGPIPE is ignored where the tests run, and so by what they start")
	}
	for name, args := range map[string][]string{
		"text":    {"run", "-m", "in.gguf", "-p", "a b", "-n", "100"},
		"verbose": {"quantize", "-v", "-pure", "in.gguf", "out.gguf", "Q4_0"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := tinyllama.WriteFile(filepath.Join(dir, "in.gguf"), tinyllama.Options{}); err != nil {
				t.Fatal(err)
			}
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			_ = r.Close()
			cmd := process.Command(t, args...)
			cmd.Dir, cmd.Stdout, cmd.Stderr = dir, w, w
			err = cmd.Run()
			_ = w.Close()
			process.SkipEmulated(t, err)
			// The result goes to the same pipe, however far the command has come.
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 141 {
				t.Errorf("ended with %v, want status 141", err)
			}
			left, err := filepath.Glob(filepath.Join(dir, ".*"))
			if err != nil || len(left) != 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}
