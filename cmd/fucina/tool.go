package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fucina-go/fucina/providers"
)

// Exit statuses.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitSignal      = 128 // plus the number of the signal, as shells report it
	exitInterrupted = exitSignal + int(syscall.SIGINT)
)

// signalled is the cause of a context that was cancelled by a signal.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return s.signal.String() }

// exitEnded returns the exit status after the end of ctx. It is that of an interrupt unless
// the cause of ctx is another signal.
func exitEnded(ctx context.Context) int {
	var s signalled
	if errors.As(context.Cause(ctx), &s) {
		return exitSignal + int(s.signal)
	}
	return exitInterrupted
}

// tool is one invocation of the program, with its input and output.
type tool struct {
	stdin  io.Reader
	stdout io.Writer // for text; a screen if raw is a terminal
	raw    io.Writer // standard output without escaping, for JSON
	stderr io.Writer
	tty    bool // whether stderr is a terminal

	commands []command
	summary  string // the summary of the command that runs
	turn     turn

	// described, if set, is called with the flags of a command. The command then does
	// nothing else.
	described func(*flags)
}

// newTool returns an invocation. stdoutTTY and stderrTTY say whether its outputs are
// terminals.
func newTool(stdin io.Reader, stdout, stderr io.Writer, stdoutTTY, stderrTTY bool) *tool {
	t := &tool{stdin: stdin, stdout: stdout, raw: stdout, stderr: stderr, tty: stderrTTY, commands: commands}
	if stdoutTTY {
		t.stdout = &screen{w: stdout}
	}
	return t
}

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// command is a subcommand. run returns a usageError for a wrong command line, and ctx's error
// if ctx ended the command.
type command struct {
	name    string
	summary string
	run     func(t *tool, ctx context.Context, args []string) error
}

var commands = []command{
	{"run", "write text after a prompt", (*tool).generate},
	{"inspect", "show the metadata and tensors of a GGUF file", (*tool).inspect},
	{"quantize", "store the matrices of a GGUF file in another format", (*tool).quantize},
	{"tokenize", "show the tokens of a text", (*tool).tokenize},
	{"perplexity", "measure how well a model predicts a text", (*tool).perplexity},
	{"bench", "measure prompt processing and generation", (*tool).bench},
	{"devices", "list the providers of this build and their devices", (*tool).devices},
	{"version", "show the version", (*tool).version},
	{"completion", "print a script that completes command lines in a shell", (*tool).completion},
}

// main executes the command line args, without the program's name, and returns the exit
// status. When ctx is done, the command ends with the status of the signal that is ctx's
// cause, or else with that of an interrupt.
func (t *tool) main(ctx context.Context, args []string) int {
	err := t.dispatch(ctx, args)
	if s, ok := t.stdout.(*screen); ok {
		err = errors.Join(err, s.flush())
	}
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		t.report(err)
		return exitUsage
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return exitEnded(ctx)
	case errors.Is(err, syscall.EPIPE):
		return exitSignal + int(syscall.SIGPIPE) // standard output was closed
	}
	t.report(err)
	return exitError
}

func (t *tool) dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return usagef("no command; see fucina help")
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		switch {
		case len(args) == 1:
			return t.help()
		case len(args) > 2:
			return usagef("help: unexpected operand %q; see fucina help", args[2])
		}
		args = []string{args[1], "-h"}
	case "-version", "--version":
		args = []string{"version"}
	}
	names := []string{"help"}
	for _, c := range t.commands {
		if c.name == args[0] {
			t.summary = c.summary
			return c.run(t, ctx, args[1:])
		}
		names = append(names, c.name)
	}
	hint := didYouMean(args[0], names)
	return usagef("unknown command %q%s", args[0], cmp.Or(hint, "; see fucina help"))
}

func (t *tool) help() error {
	var b strings.Builder
	b.WriteString("usage: fucina COMMAND [FLAGS]\n\n")
	for _, c := range t.commands {
		fmt.Fprintf(&b, "  %-10s  %s\n", c.name, c.summary)
	}
	b.WriteString("\nfucina COMMAND -h describes a command and its flags.\n")
	_, err := io.WriteString(t.stdout, b.String())
	return err
}

// versionInfo is the result of the version command, as -o json prints it.
type versionInfo struct {
	Version   string   `json:"version"` // the version of the module, or "(devel)" if the build has none
	Go        string   `json:"go"`
	OS        string   `json:"os"`
	Arch      string   `json:"arch"`
	Providers []string `json:"providers"`
}

func (t *tool) version(_ context.Context, args []string) error {
	fs := newFlags("version", "")
	out := fs.format()
	if err := fs.parse(t, args, 0); err != nil {
		return err
	}
	v := versionInfo{"(devel)", runtime.Version(), runtime.GOOS, runtime.GOARCH, providers.Names()}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	if *out == jsonl {
		return t.writeJSON(v)
	}
	_, err := fmt.Fprintf(t.stdout, "fucina %s %s %s/%s, providers: %s\n", v.Version, v.Go, v.OS, v.Arch, strings.Join(v.Providers, ", "))
	return err
}

// report prints err on one line of standard error.
func (t *tool) report(err error) {
	msg := strings.TrimPrefix(err.Error(), "fucina: ")
	fmt.Fprintf(t.stderr, "fucina: %s\n", oneLine(msg))
}

// oneLine returns the text of an error on one line. Joined errors have several lines.
func oneLine(s string) string {
	return visible(strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "; "))
}

// visible escapes characters that must not reach a terminal, such as control characters in
// names of untrusted files.
func visible(s string) string {
	if isPrintable(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			q := strconv.QuoteToASCII(s[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

func isPrintable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// note prints a note about the result on standard error.
func (t *tool) note(text string) {
	fmt.Fprintf(t.stderr, "fucina: note: %s\n", oneLine(text))
}

// writeJSON prints v as JSON on one line. Texts that may not be valid UTF-8 have type
// jsonText.
func (t *tool) writeJSON(v any) error {
	line, err := encodeJSON(v)
	if err == nil {
		_, err = t.raw.Write(line)
	}
	return err
}

// encodeJSON returns v as JSON on one line.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
