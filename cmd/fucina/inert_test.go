package main

import (
	"flag"
	"strings"
	"testing"
)

// The flags of llama-cli, llama-completion, llama-perplexity and llama-bench that have nothing
// to act on here do not change the result, and one line names them.
func TestInertFlags(t *testing.T) {
	model := tinyModel(t)
	plain := []string{"run", "-m", model, "-p", "a b", "-n", "6", "--seed", "7", "-c", "64"}
	want := invoke(t, plain...).ok(t)
	for _, tc := range []struct{ more, note string }{
		{"-ngl 99", "-ngl"},
		{"--gpu-layers all -ngl 1", "-gpu-layers, -ngl"},
		{"--n-gpu-layers=auto", "-n-gpu-layers"},
		{"--n_gpu_layers 5", "-n-gpu-layers"},
		{"-fa", "-fa"},
		{"-fa on", "-fa"},
		{"--flash-attn auto --mlock", "-flash-attn, -mlock"},
		{"-fa -1 --no-mmap", "-fa, -no-mmap"},
		{"--color --no-warmup", "-color, -no-warmup"},
		{"--color off --simple-io", "-color, -simple-io"},
		{"-sm none -mg 0 -ub 512 -ts 3,1", "-mg, -sm, -ts, -ub"},
		{"-tb 4 --prio 2 --numa distribute", "-numa, -prio, -tb"},
		{"--jinja --keep 5 --no-context-shift", "-jinja, -keep, -no-context-shift"},
		{"--dry-multiplier 0 --dry-base 1.75 --xtc-probability 0.0 --top-n-sigma -1 --mirostat 0", "-dry-base, -dry-multiplier, -mirostat, -top-n-sigma, -xtc-probability"},
		{"--samplers penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", "the stage dry, the stage top_n_sigma, the stage xtc"},
		{"--sampler-seq edskypmxt", "the stage dry, the stage top_n_sigma, the stage xtc"},
		{"--samplers penalties;top-k;typ_p;top_p;min_p;top-n-sigma;temperature --no-perf", "-no-perf, the stage top_n_sigma"},
	} {
		r := invoke(t, append(plain, strings.Fields(tc.more)...)...)
		if got := r.noted(t, "note: accepted and ignored: "+tc.note+"\n"); got != want {
			t.Errorf("%s: %q, want %q", tc.more, got, want)
		}
	}
	for _, more := range []string{"-no-cnv", "--no-conversation", "--cnv -no-cnv", "--no-escape", "--samplers penalties;top_k;typ_p;top_p;min_p;temperature", "--sampler-seq ekypmt"} {
		if got := invoke(t, append(plain, strings.Fields(more)...)...).ok(t); got != want {
			t.Errorf("%s: %q, want %q", more, got, want)
		}
	}
	if got := invoke(t, append(plain, "--no-display-prompt")...).ok(t); "a b"+got != want {
		t.Errorf("without the prompt: %q, want the rest of %q", got, want)
	}
	text := t.TempDir() + "/text"
	writeText(t, text, strings.Repeat("a b c ", 20))
	invoke(t, "perplexity", "-m", model, "-f", text, "-c", "16", "-ngl", "9", "-fa").noted(t, "note: accepted and ignored: -fa, -ngl\n")
	invoke(t, "bench", "-m", model, "-p", "2", "-n", "0", "-r", "1", "-nkvo", "1", "-mmp", "0", "-fa", "1").noted(t, "note: accepted and ignored: -fa, -mmp, -nkvo\n")
}

// If a command fails, it prints the error and no note about ignored flags.
func TestInertFlagsBeforeError(t *testing.T) {
	invoke(t, "run", "-ngl", "9", "-p", "a").failed(t, exitUsage, "no model")
	invoke(t, "run", "-m", "x", "-ngl", "9", "-p", "a", "--samplers", "dry;nothing").failed(t, exitUsage, `"nothing"`)
}

// The help names every flag by all its names, including the flags that are ignored.
func TestInertHelp(t *testing.T) {
	for _, d := range newTool(nil, nil, nil, false, false).describe(t.Context()) {
		if d.name == "help" {
			continue
		}
		help := strings.NewReplacer("|", " ", "[", " ", "=", " ", "\n", " ", "\t", " ", ",", " ").Replace(invoke(t, "help", d.name).ok(t)) + " "
		for _, fl := range d.flags[1:] { // -h is the help itself
			for _, name := range fl.names {
				if !strings.Contains(help, " -"+name+" ") {
					t.Errorf("help %s does not name -%s", d.name, name)
				}
			}
		}
	}
}

// No flag is defined twice, and a flag that has no value in llama.cpp does not take the next
// word as its value.
func TestInertValues(t *testing.T) {
	fs := newFlags("test", "")
	fs.inert(inertModel)
	fs.inert(inertRun)
	fs.inert(inertSampling)
	fs.off()
	fs.VisitAll(func(fl *flag.Flag) {
		v := fl.Value.(*inert)
		args := []string{"-" + fl.Name, "word"}
		rest, err := fs.read(args)
		if v.off != nil {
			if err == nil || !strings.Contains(err.Error(), "want "+v.want) {
				t.Errorf("-%s takes a word: %v", fl.Name, err)
			}
			return
		}
		if err != nil || (len(rest) == 1) != (v.value != oneValue) {
			t.Errorf("-%s leaves %q: %v", fl.Name, rest, err)
		}
		if rest, err = fs.read([]string{"-" + fl.Name, "on"}); err != nil || (len(rest) == 1) != (v.value == noValue) {
			t.Errorf("-%s before a switch's word leaves %q: %v", fl.Name, rest, err)
		}
	})
}
