package importgraph

import (
	"fmt"
	"slices"
	"strings"
)

// file is a Go file of the module, with its package directory and the packages of the module
// that it imports.
type file struct {
	name, dir string
	imports   []string
	test      bool
	testing   bool // imports package testing
}

func isTests(dir string) bool { return dir == "tests" || strings.HasPrefix(dir, "tests/") }

// violations returns the imports of files that break the rules. Tests may import upward and
// from tests/.
func (p plan) violations(files []file) []string {
	var bad []string
	unknown := map[string]bool{}
	for _, f := range files {
		if isTests(f.dir) {
			continue
		}
		from := p[f.dir]
		if from == nil {
			unknown[f.dir] = true
			continue
		}
		if f.testing && !f.test {
			bad = append(bad, fmt.Sprintf("%s imports package testing, whose flags every program would get", f.name))
		}
		if f.test {
			continue
		}
		for _, imp := range f.imports {
			why := ""
			if isTests(imp) {
				why = "shipped code imports no tests"
			} else if to := p[imp]; to != nil {
				why = forbids(from, to)
			} else {
				unknown[imp] = true
			}
			if why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %q: %s", f.name, imp, why))
			}
		}
	}
	for dir := range unknown {
		bad = append(bad, fmt.Sprintf("package %q has no row in the table of floors", dir))
	}
	bad = append(bad, cycles(files)...)
	slices.Sort(bad)
	return bad
}

// absent returns the packages of the table that files do not have.
func (p plan) absent(files []file) []string {
	var bad []string
	for path := range p {
		if !slices.ContainsFunc(files, func(f file) bool { return f.dir == path }) {
			bad = append(bad, fmt.Sprintf("the table of floors has a row for %q, which is no package", path))
		}
	}
	slices.Sort(bad)
	return bad
}

// cycles finds import cycles between packages, over all build tags together. A cycle that no
// single build has is an error too, because the packages depend on each other.
func cycles(files []file) []string {
	graph := map[string][]string{}
	for _, f := range files {
		if !f.test {
			graph[f.dir] = append(graph[f.dir], f.imports...)
		}
	}
	const (
		open = iota + 1
		closed
	)
	state := map[string]int{}
	var bad, trail []string
	var visit func(dir string)
	visit = func(dir string) {
		switch state[dir] {
		case open:
			bad = append(bad, "import cycle: "+strings.Join(append(trail[slices.Index(trail, dir):], dir), " -> "))
			return
		case closed:
			return
		}
		state[dir] = open
		trail = append(trail, dir)
		next := slices.Clone(graph[dir])
		slices.Sort(next)
		for _, n := range slices.Compact(next) {
			visit(n)
		}
		trail = trail[:len(trail)-1]
		state[dir] = closed
	}
	dirs := make([]string, 0, len(graph))
	for dir := range graph {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		visit(dir)
	}
	return bad
}
