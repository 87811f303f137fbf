package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Output      string
	FailedBuild string
}

// testID names a test or, with an empty name, a package.
type testID struct{ pkg, name string }

// skip is a test that was skipped.
type skip struct {
	testID
	why string
}

// report turns events into the output of go test, and keeps the skips.
type report struct {
	out     io.Writer
	pending map[testID]*strings.Builder // output of tests and packages that have not ended
	order   map[string][]testID         // order of pending, by package
	ran     map[string]bool             // packages that ran
	seen    []testID
	skips   []skip
}

func newReport(out io.Writer) *report {
	return &report{out: out, pending: make(map[testID]*strings.Builder), order: make(map[string][]testID), ran: make(map[string]bool)}
}

// read reads all events. It prints a line that is not an event.
func (r *report) read(events io.Reader) error {
	in := bufio.NewReader(events)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil {
				fmt.Fprint(r.out, line)
			} else {
				r.add(&e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) add(e *event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output(id, e.Output)
	case "pass", "fail", "skip":
		if id.name != "" {
			r.endTest(id, e.Action)
		} else {
			r.endPackage(id, e.Action)
		}
	}
}

// chatter matches the lines that a test binary adds in verbose mode.
var chatter = regexp.MustCompile(`^=== (RUN|PAUSE|CONT|NAME)\s`)

func (r *report) output(id testID, text string) {
	if chatter.MatchString(text) {
		return
	}
	b := r.pending[id]
	if b == nil {
		b = new(strings.Builder)
		r.pending[id] = b
		r.order[id.pkg] = append(r.order[id.pkg], id)
	}
	b.WriteString(text)
}

// take returns the output of id so far, and removes it from pending.
func (r *report) take(id testID) string {
	b := r.pending[id]
	if b == nil {
		return ""
	}
	delete(r.pending, id)
	return b.String()
}

func (r *report) endTest(id testID, action string) {
	r.seen = append(r.seen, id)
	text := r.take(id)
	switch action {
	case "fail":
		fmt.Fprint(r.out, text)
	case "skip":
		r.skips = append(r.skips, skip{id, reasonOf(text)})
	}
}

func (r *report) endPackage(id testID, action string) {
	r.ran[id.pkg] = true
	text := r.take(id)
	if action == "fail" {
		// Tests that were running when the binary ended have no end event.
		for _, t := range r.order[id.pkg] {
			fmt.Fprint(r.out, r.take(t))
		}
	} else {
		// The output of a binary outside its tests is printed only if the package fails.
		text = lastLine(text)
	}
	delete(r.order, id.pkg)
	fmt.Fprint(r.out, text)
}

func lastLine(text string) string {
	if i := strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n'); i >= 0 {
		return text[i+1:]
	}
	return text
}

// reasonOf returns the message of a skipped test, on one line.
func reasonOf(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "--- SKIP: ") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, " ")
}

// module is the module's path.
const module = "github.com/fucina-go/fucina"

// relative returns the package's path in the module.
func relative(pkg string) string {
	if pkg == module {
		return "."
	}
	return strings.TrimPrefix(pkg, module+"/")
}

// compare prints the skips and whether the list allows them, and returns true if it allows
// all. If whole packages ran, it also reports entries that match no test.
func (r *report) compare(list []entry, f facts, whole bool) bool {
	var unlisted []skip
	groups := make([][]skip, len(list))
	for _, s := range r.skips {
		i := slices.IndexFunc(list, func(e entry) bool { return e.names(relative(s.pkg), s.name) && e.holds(f) })
		if i < 0 {
			unlisted = append(unlisted, s)
			continue
		}
		groups[i] = append(groups[i], s)
	}
	fmt.Fprintf(r.out, "%d tests skipped (%s)\n", len(r.skips), f)
	for i, g := range groups {
		if len(g) == 1 {
			fmt.Fprintf(r.out, "  %s %s: %s\n", list[i].pkg, g[0].name, g[0].why)
		} else if len(g) > 1 {
			fmt.Fprintf(r.out, "  %s %s, %d tests: %s\n", list[i].pkg, list[i].pattern, len(g), g[0].why)
		}
	}
	for _, s := range unlisted {
		fmt.Fprintf(r.out, "  not in %s: %s %s: %s\n", listPath, relative(s.pkg), s.name, s.why)
	}
	if len(unlisted) > 0 {
		fmt.Fprintf(r.out, "A skipped test shows nothing. Make it run, or add a line to %s:\npackage test condition # reason, where the condition is made of: %s\n", listPath, f)
	}
	var stale []entry
	if whole {
		stale = r.stale(list, f)
	}
	for _, e := range stale {
		fmt.Fprintf(r.out, "%s:%d: no test %s in %s\n", listPath, e.line, e.pattern, e.pkg)
	}
	return len(unlisted)+len(stale) == 0
}

// stale returns the entries whose condition is true and whose package ran, and that match no
// test of the package.
func (r *report) stale(list []entry, f facts) []entry {
	ran := make(map[string]bool)
	for pkg := range r.ran {
		ran[relative(pkg)] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(e entry) bool {
		return !e.holds(f) || !ran[e.pkg] || slices.ContainsFunc(r.seen, func(id testID) bool {
			return e.names(relative(id.pkg), id.name)
		})
	})
}
