//go:build unix

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fucina-go/fucina/tests/process"
	"github.com/fucina-go/fucina/tests/sigbus"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// working has commands on in.gguf, and the output after which the file changes.
var working = []struct {
	name  string
	args  []string
	stdin string
	after string
	tty   bool // whether stderr is a terminal
	// done says that the command has read all that it needs before the change.
	done bool
}{
	{name: "run", args: []string{"run", "-m", "in.gguf", "-p", "a b", "-n", "30", "--temp", "0"}, after: "a b"},
	{name: "run loaded", args: []string{"run", "-m", "in.gguf", "-p", "a b", "-n", "30", "--temp", "0"}, after: "100%", tty: true},
	{name: "chat", args: []string{"run", "-m", "in.gguf", "--chat", "--chat-template", "chatml", "-n", "6", "--temp", "0"}, stdin: "a\nb\nc\n", after: "\n"},
	{name: "perplexity", args: []string{"perplexity", "-m", "in.gguf", "-f", "text.txt", "-c", "16"}, after: "[1]"},
	{name: "bench", args: []string{"bench", "-m", "in.gguf", "-p", "4", "-n", "2", "-r", "1"}, after: "100%", tty: true},
	{name: "quantize", args: []string{"quantize", "-v", "in.gguf", "out.gguf", "Q8_0"}, after: "[ 3/"},
	{name: "quantize kept", args: []string{"quantize", "in.gguf", "out.gguf", "F32"}, after: "[ 3/", tty: true},
	{name: "inspect", args: []string{"inspect", "in.gguf"}, after: "in.gguf", done: true},
	{name: "tokenize", args: []string{"tokenize", "-m", "in.gguf", "-p", "a b"}, after: "a", done: true},
}

// If a model file is truncated or overwritten while a command works on it, the command ends
// with one line on standard error and status 1, and leaves no output file. If another file
// replaces it, or the command has read it before the change, the command succeeds.
func TestFileChangesAtWork(t *testing.T) {
	sigbus.Need(t)
	image := tinyllama.GGUF(tinyllama.Options{})
	page := os.Getpagesize()
	changes := map[string]func(path string) error{
		"to nothing":       func(path string) error { return os.Truncate(path, 0) },
		"at a page":        func(path string) error { return os.Truncate(path, int64(page)) },
		"in a page":        func(path string) error { return os.Truncate(path, int64(len(image)/2/page*page+100)) },
		"in the last page": func(path string) error { return os.Truncate(path, int64(len(image)-1)) },
		"written over": func(path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, len(image)/4), int64(len(image)/2))
			return errors.Join(err, f.Close())
		},
		"replaced": func(path string) error {
			if err := os.WriteFile("other", []byte("short"), 0o600); err != nil {
				return err
			}
			return os.Rename("other", path)
		},
		"": func(string) error { return nil },
	}
	for _, w := range working {
		t.Run(w.name, func(t *testing.T) {
			results := make(map[string]result)
			for name, change := range changes {
				dir := t.TempDir()
				t.Chdir(dir)
				if err := os.WriteFile("in.gguf", image, 0o600); err != nil {
					t.Fatal(err)
				}
				// The modification time may be too coarse to distinguish the later write.
				if err := os.Chtimes("in.gguf", time.Time{}, time.Unix(1e9, 0)); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile("text.txt", []byte(strings.Repeat("the time and the light was up on ", 20)), 0o600); err != nil {
					t.Fatal(err)
				}
				changed := false
				act := func() {
					if changed {
						return
					}
					changed = true
					if err := change("in.gguf"); err != nil {
						t.Error(err)
					}
				}
				stdout, stderr := &trigger{text: w.after, act: act}, &trigger{text: w.after, act: act}
				code := newTool(strings.NewReader(w.stdin), stdout, stderr, false, w.tty).main(t.Context(), w.args)
				if !changed {
					t.Errorf("%s: the change never came: stdout %q, stderr %q", name, stdout.got.String(), stderr.got.String())
				}
				r := result{code, stdout.got.String(), stderr.got.String()}
				if name == "" || name == "replaced" || w.done {
					if r.code != exitOK {
						t.Errorf("%s: status %d, stderr %q", name, r.code, r.stderr)
					}
					if w.name != "bench" {
						results[name] = r
					}
				} else {
					// A terminal gets other messages before the error.
					r.stderr = r.stderr[max(0, strings.LastIndex(r.stderr, "fucina: ")):]
					r.failed(t, exitError, "file changed while it was in use: ")
					if !strings.Contains(r.stderr, "in.gguf has ") {
						t.Errorf("%s: stderr %q does not name the file", name, r.stderr)
					}
				}
				left, err := filepath.Glob(".*.tmp")
				if _, missing := os.Stat("out.gguf"); err != nil || len(left) != 0 || r.code != exitOK && missing == nil {
					t.Errorf("%s: left %v, %v, and out.gguf: %v", name, left, err, missing)
				}
			}
			for name, r := range results {
				if r.stdout != results[""].stdout {
					t.Errorf("%s: printed %q, want %q as without", name, r.stdout, results[""].stdout)
				}
			}
		})
	}
}

// If the disk becomes full, the error names the output file, and no file is left. A limit on
// the size of files stands in for a full disk.
func TestQuantizeDiskFull(t *testing.T) {
	in, dir := tinyModel(t), t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	for _, typ := range []string{"Q8_0", "F32"} {
		program := process.Command(t, "quantize", in, out, typ)
		cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `ulimit -f 64 || exit 77; exec "$0" "$@"`}, program.Args...)...)
		cmd.Env = program.Env
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		_ = cmd.Run()
		switch code := cmd.ProcessState.ExitCode(); code {
		case 77:
			t.Skip("no limit on files here")
		case 126:
			t.Skip("the test binary is emulated: this system cannot start it")
		default:
			r := result{code: code, stderr: stderr.String()}
			r.failed(t, exitError, "write "+out+": file too large")
		}
		only(t, dir)
	}
}
