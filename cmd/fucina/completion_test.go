package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// script writes the completion script of a shell to a file, and returns its path and text.
func script(t *testing.T, shell string) (path, text string) {
	t.Helper()
	text = invoke(t, "completion", shell).ok(t)
	path = filepath.Join(t.TempDir(), "completion."+shell)
	writeText(t, path, text)
	return path, text
}

// shell runs a shell without the user's files, if this machine has the shell.
func shell(t *testing.T, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no %s: %v", name, err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// Every script parses, and names all commands and their flags.
func TestCompletionScripts(t *testing.T) {
	commands := newTool(nil, nil, nil, false, false).describe(t.Context())
	if len(commands) != len(newTool(nil, nil, nil, false, false).commands)+1 {
		t.Errorf("%d commands", len(commands))
	}
	for _, name := range []string{"bash", "zsh", "fish"} {
		path, text := script(t, name)
		words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" \n\"'()|:", r) })
		for _, c := range commands {
			if !slices.Contains(words, c.name) {
				t.Errorf("%s: no command %s", name, c.name)
			}
			for _, flag := range c.names() {
				if !slices.Contains(words, flag) {
					t.Errorf("%s: no flag %s of %s", name, flag, c.name)
				}
			}
		}
		t.Run(name, func(t *testing.T) { shell(t, name, "-n", path) })
	}
}

// completions has command lines, whose last word is completed, and the words that must be
// among the completions. A word with a minus in front must not be among them.
var completions = []struct{ line, want string }{
	{"fucina ", "run inspect quantize help completion"},
	{"fucina per", "perplexity"},
	{"fucina run --te", "--temp --temperature"},
	{"fucina run --", "--model --ctx-size --n-gpu-layers --help"},
	{"fucina run -ng", "-ngl"},
	{"fucina bench --rep", "--repetitions"},
	{"fucina bench --device-m", "--device-memory"},
	{"fucina run -o ", "text json"},
	{"fucina run --o j", "json"},
	{"fucina run --cache-type q", "q8_0"},
	{"fucina run -provider ", "cpu"},
	{"fucina run --chat-template chat", "chatml"},
	{"fucina run -fa ", "on off auto"},
	{"fucina quantize a b Q4_K", "Q4_K_M Q4_K_S"},
	{"fucina completion ", "bash zsh fish"},
	{"fucina help tok", "tokenize"},
	{"fucina tokenize -ids -n", "-no-bos"},
}

func checkCompletion(t *testing.T, line, got, want string) {
	t.Helper()
	list := strings.Fields(got)
	for _, word := range strings.Fields(want) {
		if !slices.Contains(list, word) {
			t.Errorf("%q completes to %q, without %s", line, list, word)
		}
	}
}

// bash completes commands, flags and values.
func TestCompletionBash(t *testing.T) {
	path, _ := script(t, "bash")
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "model one.gguf"), "")
	complete := func(line string) string {
		words := strings.Split(line, " ")
		return shell(t, "bash", append([]string{"--norc", "-c", `
			source "$1"; shift
			COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
			_fucina
			printf '%s\n' "${COMPREPLY[@]}"`, "bash", path}, words...)...)
	}
	for _, tc := range completions {
		checkCompletion(t, tc.line, complete(tc.line), tc.want)
	}
	for _, line := range []string{"fucina run -m " + dir + "/mod", "fucina inspect " + dir + "/mod"} {
		if got := complete(line); got != dir+"/model one.gguf\n" {
			t.Errorf("%q completes to %q", line, got)
		}
	}
	// A number has no completion, and a flag is not completed as the value of a list.
	for _, line := range []string{"fucina run -n ", "fucina run -n -", "fucina run -device-memory ", "fucina run -o -", "fucina nothing -"} {
		if got := complete(line); got != "\n" {
			t.Errorf("%q completes to %q", line, got)
		}
	}
}

// zsh completes the words that the script passes to its builtins.
func TestCompletionZsh(t *testing.T) {
	path, _ := script(t, "zsh")
	for _, tc := range completions {
		words := strings.Split(tc.line, " ")
		got := shell(t, "zsh", append([]string{"-f", "-c", `
			compdef() { }
			compadd() { shift; for w in "$@"; do [[ $w == $cur* ]] && print -r -- $w; done; true }
			_describe() { for w in ${(P)2}; do print -r -- ${w%%:*}; done }
			_files() { print files }
			source $1; shift
			words=("$@"); CURRENT=$#
			_fucina`, "zsh", path}, words...)...)
		checkCompletion(t, tc.line, got, tc.want)
	}
}

// fish completes commands, flags and values.
func TestCompletionFish(t *testing.T) {
	path, _ := script(t, "fish")
	for _, tc := range completions {
		// In fish, one dash may begin several short flags, and two dashes begin a long flag.
		if strings.Contains(tc.line, " -ng") || strings.Contains(tc.line, " -fa") || strings.Contains(tc.line, " -ids") || strings.Contains(tc.line, " --o ") {
			continue
		}
		checkCompletion(t, tc.line, shell(t, "fish", "--no-config", "-c", "source "+path+"; complete -C "+quoted(tc.line)), tc.want)
	}
}
