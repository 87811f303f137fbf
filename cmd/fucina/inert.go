package main

import (
	"errors"
	"flag"
	"strconv"
	"strings"
)

// inert is a flag of llama.cpp that has nothing to act on here. It is accepted and ignored,
// with a note, so that command lines for llama-cli and llama-completion work.
type inert struct {
	value inertValue
	// off reports whether a number turns off a feature that does not exist here. Other
	// numbers are an error. If off is nil, the flag takes any value. want describes the
	// numbers in errors.
	off  func(x float64) bool
	want string
}

// inertValue says what follows an inert flag on the command line.
type inertValue uint8

const (
	noValue    inertValue = iota
	oneValue              // the next word
	maybeValue            // the next word if it is in switchWords, because releases of llama.cpp differ
)

// switchWords are the words of llama.cpp for on, off and automatic.
var switchWords = []string{"on", "off", "auto", "1", "0", "-1", "true", "false", "enabled", "disabled"}

func (v *inert) String() string { return "" }

func (v *inert) IsBoolFlag() bool { return v.value != oneValue }

func (v *inert) optional() []string {
	if v.value == maybeValue {
		return switchWords
	}
	return nil
}

func (v *inert) words() []string {
	if v.value == maybeValue {
		return switchWords[:3]
	}
	return nil
}

func (v *inert) Set(s string) error {
	if v.off == nil {
		return nil
	}
	if x, err := strconv.ParseFloat(s, 64); err != nil || !v.off(x) {
		return errors.New("want " + v.want + ", which turns it off: there is no such feature here")
	}
	return nil
}

// inertNames lists flags by the value that follows them. Each entry has all names of a flag.
type inertNames map[inertValue][]string

// inertModel has the flags for how llama.cpp loads a model, where it computes, with which
// memory and threads, and what it logs.
var inertModel = inertNames{
	noValue: {
		"check-tensors", "cpu-moe cmoe", "kv-offload kvo", "log-disable", "log-prefix", "log-timestamps", "mlock",
		"no-host", "no-log-prefix", "no-log-timestamps", "no-op-offload", "no-perf", "no-repack nr", "no-warmup",
		"offline", "op-offload", "perf", "repack", "verbose-prompt", "warmup",
	},
	oneValue: {
		"cpu-mask C", "cpu-mask-batch Cb", "cpu-range Cr", "cpu-range-batch Crb", "cpu-strict", "cpu-strict-batch",
		"defrag-thold dt", "device dev", "fit", "fit-ctx fitc", "fit-target fitt", "load-mode lm", "log-file",
		"log-verbosity lv verbosity", "main-gpu mg", "n-cpu-moe ncmoe", "n-gpu-layers ngl gpu-layers", "numa",
		"override-tensor ot", "parallel np", "poll", "poll-batch", "prio", "prio-batch", "rpc", "split-mode sm",
		"tensor-split ts", "threads-batch tb", "ubatch-size ub",
	},
	// Some of these flags have a value in llama-bench and none in llama-cli.
	maybeValue: {
		"direct-io dio", "flash-attn fa", "log-colors", "mmap mmp", "no-direct-io ndio", "no-kv-offload nkvo", "no-mmap",
	},
}

// inertRun has the flags for how llama.cpp's programs show and store a text. Fucina never
// shifts the context, and recognises chat templates instead of running them.
var inertRun = inertNames{
	noValue: {
		"context-shift", "jinja", "multiline-input mli", "no-context-shift", "no-jinja", "no-show-timings", "no-skip-chat-parsing",
		"simple-io", "skip-chat-parsing",
	},
	oneValue:   {"cache-ram cram", "ctx-checkpoints ctxcp swa-checkpoints", "grp-attn-w gaw", "keep", "print-token-count ptc", "reasoning-format"},
	maybeValue: {"color co"},
}

// inertSampling has the flags of stages that do not exist here.
var inertSampling = inertNames{
	noValue: {"backend-sampling bs"},
	oneValue: {
		"adaptive-decay", "dry-allowed-length", "dry-base", "dry-penalty-last-n", "dry-sequence-breaker", "dynatemp-exp",
		"mirostat-ent", "mirostat-lr", "xtc-threshold",
	},
}

// offFlags has the flags of features that do not exist here, with the numbers that turn the
// features off.
var offFlags = []struct {
	names string
	off   func(x float64) bool
	want  string
}{
	{"adaptive-target", func(x float64) bool { return x < 0 }, "a number below 0"},
	{"dry-multiplier", func(x float64) bool { return x == 0 }, "0"},
	{"dynatemp-range", func(x float64) bool { return x <= 0 }, "0"},
	{"grp-attn-n gan", func(x float64) bool { return x == 1 }, "1"},
	{"mirostat", func(x float64) bool { return x == 0 }, "0"},
	{"reasoning-budget", func(x float64) bool { return x == -1 }, "-1"},
	{"top-n-sigma top-nsigma", func(x float64) bool { return x <= 0 }, "0 or less"},
	{"xtc-probability", func(x float64) bool { return x <= 0 }, "0"},
}

// inert defines the flags of list.
func (f *flags) inert(list inertNames) {
	for value, flags := range list {
		for _, names := range flags {
			f.addInert(names, &inert{value: value})
		}
	}
}

// off defines offFlags.
func (f *flags) off() {
	for _, o := range offFlags {
		f.addInert(o.names, &inert{oneValue, o.off, o.want})
	}
}

func (f *flags) addInert(names string, v *inert) {
	all := strings.Fields(names)
	f.Var(v, all[0], "accepted and ignored")
	f.alias(all[0], all[1:]...)
}

// tellIgnored prints a note with the parts of the command line that are ignored.
func (f *flags) tellIgnored(t *tool) {
	var names []string
	f.Visit(func(fl *flag.Flag) {
		if _, ok := fl.Value.(*inert); ok {
			names = append(names, "-"+fl.Name)
		}
	})
	if names = append(names, f.ignored...); len(names) > 0 {
		t.note("accepted and ignored: " + strings.Join(names, ", "))
	}
}

// inertHelp returns the part of the help that lists the inert flags and their values.
func (f *flags) inertHelp() string {
	var ignored, off []string
	f.VisitAll(func(fl *flag.Flag) {
		v, ok := fl.Value.(*inert)
		if _, alias := f.main[fl.Name]; !ok || alias {
			return
		}
		names := "-" + fl.Name
		f.VisitAll(func(other *flag.Flag) {
			if f.main[other.Name] == fl.Name {
				names += "|-" + other.Name
			}
		})
		switch {
		case v.off != nil:
			off = append(off, names)
		case v.value == oneValue:
			ignored = append(ignored, names+"=V")
		case v.value == maybeValue:
			ignored = append(ignored, names+"[=V]")
		default:
			ignored = append(ignored, names)
		}
	})
	help := ""
	if len(ignored) > 0 {
		help += "\nThe following flags of llama.cpp do nothing here. They are accepted with a note. V is a\nvalue, which may also be the next word:" + columns(ignored) + "\n"
	}
	if len(off) > 0 {
		help += "\nThe following flags belong to features that do not exist here. They are accepted with a\nvalue that turns the feature off:" + columns(off) + "\n"
	}
	return help
}
