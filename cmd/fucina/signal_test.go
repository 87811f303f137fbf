//go:build unix

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/fucina-go/fucina/tests/tinyllama"
)

// A signal ends a running process as it should, and the status tells which.
func TestSignal(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "patient.gguf")
	if err := tinyllama.WriteFile(path, tinyllama.Options{Context: 100000}); err != nil {
		t.Fatal(err)
	}
	for signal, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "run", "-m", path, "-p", "a b", "-c", "0", "--temp", "0")
			cmd.Env = append(os.Environ(), asMain+"=1")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); errors.Is(err, syscall.ENOEXEC) {
				t.Skip("the test binary is emulated: this system cannot start it")
			} else if err != nil {
				t.Fatal(err)
			}
			begun := make([]byte, 8)
			if _, err := io.ReadFull(out, begun); err != nil {
				t.Fatalf("%v, stderr %q", err, stderr.String())
			}
			if err := cmd.Process.Signal(signal); err != nil {
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
