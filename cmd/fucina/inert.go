package main

import (
	"errors"
	"flag"
	"strconv"
	"strings"
)

// inert is a flag of llama.cpp that has nothing to act on here, so that commands
// written for llama-cli and llama-completion run. It is accepted and ignored, and a
// note says so.
type inert struct {
	value inertValue
	// off says which numbers turn off a feature that is absent here; others are
	// refused. Nil takes any value. want names the numbers.
	off  func(x float64) bool
	want string
}

// inertValue says what follows an inert flag on the command line.
type inertValue uint8

const (
	noValue    inertValue = iota
	oneValue              // the next word
	maybeValue            // the next word if it is a switch's: releases of llama.cpp differ
)

// switchWords are llama.cpp's words for on, off, and whichever is better.
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

// inertNames lists flags by what follows them, each with all its names.
type inertNames map[inertValue][]string

// inertModel are flags that say how llama.cpp loads and computes: where, with which
// memory and threads, and what it logs.
var inertModel = inertNames{
	noValue: {
		"check-tensors", "cpu-moe cmoe", "kv-offload kvo", "log-disable", "log-prefix", "log-timestamps", "mlock",
		"no-host", "no-log-prefix", "no-log-timestamps", "no-op-offload", "no-perf", "no-repack nr", "no-warmup",
		"offline", "op-offload", "perf", "repack", "swa-full", "verbose-prompt", "warmup",
	},
	oneValue: {
		"cpu-mask C", "cpu-mask-batch Cb", "cpu-range Cr", "cpu-range-batch Crb", "cpu-strict", "cpu-strict-batch",
		"defrag-thold dt", "device dev", "fit", "fit-ctx fitc", "fit-target fitt", "load-mode lm", "log-file",
		"log-verbosity lv verbosity", "main-gpu mg", "n-cpu-moe ncmoe", "n-gpu-layers ngl gpu-layers", "numa",
		"override-tensor ot", "parallel np", "poll", "poll-batch", "prio", "prio-batch", "rpc", "split-mode sm",
		"tensor-split ts", "threads-batch tb", "ubatch-size ub",
	},
	// llama-bench has some of these with a value that llama-cli has without.
	maybeValue: {
		"direct-io dio", "flash-attn fa", "log-colors", "mmap mmp", "no-direct-io ndio", "no-kv-offload nkvo", "no-mmap",
	},
}

// inertRun are flags that say how llama.cpp's programs show and keep a text. The
// context is never shifted, and a template is recognised, not run.
var inertRun = inertNames{
	noValue: {
		"context-shift", "jinja", "multiline-input mli", "no-context-shift", "no-jinja", "no-show-timings", "no-skip-chat-parsing",
		"prompt-cache-all", "prompt-cache-ro", "simple-io", "skip-chat-parsing",
	},
	oneValue:   {"cache-ram cram", "ctx-checkpoints ctxcp swa-checkpoints", "grp-attn-w gaw", "keep", "print-token-count ptc", "prompt-cache", "reasoning-format"},
	maybeValue: {"color co"},
}

// inertSampling are flags of stages that are absent here.
var inertSampling = inertNames{
	noValue: {"backend-sampling bs"},
	oneValue: {
		"adaptive-decay", "dry-allowed-length", "dry-base", "dry-penalty-last-n", "dry-sequence-breaker", "dynatemp-exp",
		"mirostat-ent", "mirostat-lr", "xtc-threshold",
	},
}

// offFlags are features that are absent here, by the numbers that turn them off.
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

// tellIgnored names what the command line has that does nothing, in one line.
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

// inertHelp lists the inert flags and what they take.
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
		help += "\nFlags of llama.cpp that do nothing here, accepted with a note; V is a value, which may\nalso be the next word:" + columns(ignored) + "\n"
	}
	if len(off) > 0 {
		help += "\nFlags of features that are absent here, accepted with a value that turns them off:" + columns(off) + "\n"
	}
	return help
}
