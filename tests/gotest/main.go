// Gotest runs go test and compares the tests that skip with a list in the repository.
//
//	gotest [go test's arguments]
//
// It prints what go test prints: the output of failed tests and one line for each
// package. Then it prints how many tests were skipped, which, and why. A skip that
// tests/skips.txt does not allow is a failure, and so is a line of the list that names
// no test. The exit status is that of go test, or 1 if only the list disagrees.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	os.Exit(code)
}

// listPath is the path of the list in the module.
const listPath = "tests/skips.txt"

func run(args []string, stdout, stderr io.Writer) (int, error) {
	env, err := goEnv("GOMOD", "GOOS", "GOARCH")
	if err != nil {
		return 1, err
	}
	root := filepath.Dir(env["GOMOD"])
	data, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(listPath)))
	if err != nil {
		return 1, err
	}
	list, err := parseList(string(data))
	if err != nil {
		return 1, err
	}
	f := factsOf(args, root, env)

	// The terminal sends its interrupt to go test too, which then ends.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cmd := exec.CommandContext(ctx, goCommand(), append([]string{"test", "-json"}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stderr = stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	r := newReport(stdout)
	readErr := r.read(events)
	code := 0
	if err := cmd.Wait(); err != nil {
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) {
			return 1, err
		}
		code = max(1, exit.ExitCode())
	}
	if readErr != nil {
		return max(1, code), readErr
	}
	ok := r.compare(list, f, !selects(args))
	if code == 0 && !ok {
		code = 1
	}
	if code != 0 {
		fmt.Fprintln(stdout, "FAIL")
	}
	return code, nil
}

// goCommand returns the go command to run: $GO, as in the Makefile, or go.
func goCommand() string { return cmp.Or(os.Getenv("GO"), "go") }

// goEnv returns the values of the named variables of the go command.
func goEnv(names ...string) (map[string]string, error) {
	out, err := exec.Command(goCommand(), append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	values := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(values) != len(names) {
		return nil, fmt.Errorf("go env %v printed %q", names, out)
	}
	env := make(map[string]string)
	for i, name := range names {
		env[name] = values[i]
	}
	return env, nil
}

// facts are the names that are true in the conditions of the list: the system, the
// architecture, the build tags and flags of the run, and the names that factsOf derives from
// the environment.
type facts map[string]bool

// factsOf returns the facts of a run of go test with args.
func factsOf(args []string, root string, env map[string]string) facts {
	f := facts{
		env["GOOS"]: true, env["GOARCH"]: true,
		"full":   os.Getenv("FUCINA_TEST_FULL") == "1",
		"nohup":  signal.Ignored(syscall.SIGHUP),
		"nopipe": signal.Ignored(syscall.SIGPIPE),
		"shared": exists(filepath.Join(root, "..", "shared")),
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		_, err := exec.LookPath(shell)
		f[shell] = err == nil
	}
	for i, a := range args {
		name, value := flagOf(a)
		if name == "" {
			continue
		}
		if name != "tags" {
			f[name] = value != "false" && value != "0"
			continue
		}
		if value == "" && i+1 < len(args) {
			value = args[i+1]
		}
		for _, tag := range strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == ' ' }) {
			f[tag] = true
		}
	}
	return f
}

// String returns the facts that are true, in order.
func (f facts) String() string {
	var names []string
	for name, is := range f {
		if is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// flagOf splits -name=value, in any spelling that go test accepts.
func flagOf(arg string) (name, value string) {
	if !strings.HasPrefix(arg, "-") {
		return "", ""
	}
	name, value, _ = strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return strings.TrimPrefix(name, "test."), value
}

// selects reports whether args exclude tests of the named packages.
func selects(args []string) bool {
	return slices.ContainsFunc(args, func(a string) bool {
		name, _ := flagOf(a)
		return name == "run" || name == "skip" || name == "bench" || name == "fuzz" || name == "list"
	})
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
