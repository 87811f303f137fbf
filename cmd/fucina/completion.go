package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// described is a command with its flags, for the completion scripts.
type described struct {
	command
	flags    []describedFlag
	operands []string // the words that an operand may be
	files    bool     // whether an operand may be a file
}

// describedFlag is a flag with all its names.
type describedFlag struct {
	names []string
	usage string
	value bool     // whether a value follows the flag
	words []string // the possible values, or nil
	file  bool     // whether the value is a file
}

// completion is the completion command.
func (t *tool) completion(ctx context.Context, args []string) error {
	shells := map[string]func(io.Writer, []described) error{"bash": completeBash, "zsh": completeZsh, "fish": completeFish}
	fs := newFlags("completion", "bash|zsh|fish")
	fs.operandWords = []string{"bash", "zsh", "fish"}
	fs.note = `bash: source <(fucina completion bash)
zsh:  source <(fucina completion zsh) after compinit, or store the script as _fucina in $fpath
fish: fucina completion fish | source`
	if err := fs.parse(t, args, 1); err != nil {
		return err
	}
	if err := oneOf(fs.Arg(0), fs.operandWords); err != nil {
		return usagef("completion: no script for %q: %v", fs.Arg(0), err)
	}
	return shells[fs.Arg(0)](t.stdout, t.describe(ctx))
}

// describe returns the commands and their flags, with help as the first command.
func (t *tool) describe(ctx context.Context) []described {
	list := []described{{command: command{name: "help", summary: "describe a command and its flags"}}}
	for _, c := range t.commands {
		d := described{command: c}
		// If described is set, a command passes its flags to it and does nothing else.
		taker := &tool{commands: t.commands, described: func(f *flags) {
			d.flags, d.operands, d.files = f.describe(), f.operandWords, f.operandFiles
		}}
		_ = c.run(taker, ctx, nil)
		list = append(list, d)
		list[0].operands = append(list[0].operands, c.name)
	}
	return list
}

// describe returns -h and the flags of f, each with its main name first.
func (f *flags) describe() []describedFlag {
	list := []describedFlag{{names: []string{"h", "help"}, usage: "describe the command and its flags"}}
	at := make(map[string]int)
	f.VisitAll(func(fl *flag.Flag) {
		if _, alias := f.main[fl.Name]; alias {
			return
		}
		operand, usage := flag.UnquoteUsage(fl)
		d := describedFlag{names: []string{fl.Name}, usage: usage, file: operand == "file"}
		d.value = !standsAlone(fl.Value)
		if v, ok := fl.Value.(listed); ok {
			d.words = v.words()
		}
		at[fl.Name] = len(list)
		list = append(list, d)
	})
	f.VisitAll(func(fl *flag.Flag) {
		if name, alias := f.main[fl.Name]; alias {
			list[at[name]].names = append(list[at[name]].names, fl.Name)
		}
	})
	return list
}

// names returns the names of the command's flags.
func (d *described) names() []string {
	var names []string
	for _, fl := range d.flags {
		names = append(names, fl.names...)
	}
	return names
}

// patterns returns a shell pattern for the flags of list, with one dash and with two.
func patterns(list []describedFlag) string {
	var words []string
	for _, fl := range list {
		for _, name := range fl.names {
			words = append(words, "-"+name, "--"+name)
		}
	}
	return strings.Join(words, "|")
}

// bySuccessor groups the flags by the word that may follow them. words has the flags whose
// value is one of a few words, with these words as the key, even if the flag may be given
// without a value. files has the flags whose value is a file, and free those with any other
// value. Flags without a value are in no group.
func bySuccessor(list []describedFlag) (words map[string][]describedFlag, files, free []describedFlag) {
	words = make(map[string][]describedFlag)
	for _, fl := range list {
		switch {
		case len(fl.words) > 0:
			key := strings.Join(fl.words, " ")
			words[key] = append(words[key], fl)
		case fl.value && fl.file:
			files = append(files, fl)
		case fl.value:
			free = append(free, fl)
		}
	}
	return words, files, free
}

// writeCases writes the part of the scripts for bash and zsh that depends on the words
// $command and $prev. That part sets the variables flags (without dashes), operands and
// files, and calls _fucina_files. All words consist of letters, digits, dashes and
// underscores, so they need no quotes.
func writeCases(b *strings.Builder, commands []described) {
	b.WriteString("    case $command in\n")
	for _, c := range commands {
		fmt.Fprintf(b, "    %s)\n        flags=%q\n        operands=%q\n", c.name, strings.Join(c.names(), " "), strings.Join(c.operands, " "))
		if c.files {
			b.WriteString("        files=yes\n")
		}
		words, files, free := bySuccessor(c.flags)
		b.WriteString("        case $prev in\n")
		for _, key := range slices.Sorted(maps.Keys(words)) {
			fmt.Fprintf(b, "        %s)\n            operands=%q files=\n", patterns(words[key]), key)
			if words[key][0].value {
				b.WriteString("            flags=\n")
			}
			b.WriteString("            ;;\n")
		}
		if len(files) > 0 {
			fmt.Fprintf(b, "        %s)\n            _fucina_files\n            return 0\n            ;;\n", patterns(files))
		}
		if len(free) > 0 {
			fmt.Fprintf(b, "        %s)\n            return 0\n            ;;\n", patterns(free))
		}
		b.WriteString("        esac\n        ;;\n")
	}
	b.WriteString("    esac\n")
}

// completeBash writes the script for bash 3.2 and later.
func completeBash(w io.Writer, commands []described) error {
	var b strings.Builder
	b.WriteString(`# Completion of fucina for bash. Written by: fucina completion bash
_fucina_files() {
    local IFS=$'\n'
    COMPREPLY+=($(compgen -f -- "$cur"))
    compopt -o filenames 2>/dev/null
}

_fucina() {
    local command=${COMP_WORDS[1]} prev=${COMP_WORDS[COMP_CWORD-1]} cur=${COMP_WORDS[COMP_CWORD]}
    local flags= operands= files= dash=-
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
`)
	var names []string
	for _, c := range commands {
		names = append(names, c.name)
	}
	fmt.Fprintf(&b, "        COMPREPLY=($(compgen -W %q -- \"$cur\"))\n        return 0\n    fi\n", strings.Join(names, " "))
	writeCases(&b, commands)
	b.WriteString(`    if [[ $cur == -* && -n $flags ]]; then
        [[ $cur == --* ]] && dash=--
        COMPREPLY=($(compgen -P "$dash" -W "$flags" -- "${cur#"$dash"}"))
        return 0
    fi
    COMPREPLY=($(compgen -W "$operands" -- "$cur"))
    [[ -n $files ]] && _fucina_files
    return 0
}

complete -F _fucina fucina
`)
	_, err := io.WriteString(w, b.String())
	return err
}

// completeZsh writes the script for zsh.
func completeZsh(w io.Writer, commands []described) error {
	var b strings.Builder
	b.WriteString(`#compdef fucina
# Completion of fucina for zsh. Written by: fucina completion zsh
_fucina_files() {
    _files
}

_fucina() {
    local command=${words[2]} prev=${words[CURRENT-1]} cur=${words[CURRENT]}
    local flags= operands= files= dash=-
    local -a commands
    if ((CURRENT == 2)); then
        commands=(
`)
	for _, c := range commands {
		fmt.Fprintf(&b, "            %s\n", quoted(c.name+":"+c.summary))
	}
	b.WriteString("        )\n        _describe command commands\n        return 0\n    fi\n")
	writeCases(&b, commands)
	b.WriteString(`    if [[ $cur == -* && -n $flags ]]; then
        [[ $cur == --* ]] && dash=--
        compadd -- $dash${^${=flags}}
        return 0
    fi
    compadd -- ${=operands}
    [[ -n $files ]] && _fucina_files
    return 0
}

if [[ $funcstack[1] == _fucina ]]; then
    _fucina "$@"
else
    compdef _fucina fucina
fi
`)
	_, err := io.WriteString(w, b.String())
	return err
}

// completeFish writes the script for fish.
func completeFish(w io.Writer, commands []described) error {
	var b strings.Builder
	b.WriteString(`# Completion of fucina for fish. Written by: fucina completion fish
function __fucina_command
    set -l words (commandline -opc)
    test (count $words) -gt 1; and test $words[2] = $argv[1]
end

complete -c fucina -f
`)
	for _, c := range commands {
		fmt.Fprintf(&b, "complete -c fucina -n __fish_use_subcommand -a %s -d %s\n", c.name, fishQuoted(c.summary))
	}
	for _, c := range commands {
		line := "complete -c fucina -n '__fucina_command " + c.name + "'"
		if len(c.operands) > 0 {
			fmt.Fprintf(&b, "%s -a %s\n", line, fishQuoted(strings.Join(c.operands, " ")))
		}
		if c.files {
			fmt.Fprintf(&b, "%s -F\n", line)
		}
		for _, fl := range c.flags {
			b.WriteString(line)
			for _, name := range fl.names {
				if len(name) == 1 {
					b.WriteString(" -s " + name)
				} else {
					b.WriteString(" -o " + name + " -l " + name)
				}
			}
			switch {
			case fl.value && len(fl.words) > 0:
				fmt.Fprintf(&b, " -x -a %s", fishQuoted(strings.Join(fl.words, " ")))
			case fl.value && fl.file:
				b.WriteString(" -r -F")
			case fl.value:
				b.WriteString(" -x")
			}
			fmt.Fprintf(&b, " -d %s\n", fishQuoted(fl.usage))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quoted returns s as one word of zsh.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// fishQuoted returns s as one word of fish. In fish, a backslash escapes in quotes too.
func fishQuoted(s string) string { return quoted(strings.ReplaceAll(s, `\`, `\\`)) }
