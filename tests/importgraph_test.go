// Package tests holds what concerns the module as a whole.
package tests

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room is a package of the module's map, with the internal packages below it.
type room struct {
	path  string // relative to the module root; "" is the root itself
	floor int
	// tree says that every package under path belongs to the room, with the order
	// among them left to the compiler.
	tree bool
	// beside lists the rooms of the same floor that this one may import.
	beside []string
	// only, if not nil, lists the rooms that this one may import: from the floor
	// that it names a room of, no other.
	only []string
	// by, if not nil, lists the rooms that may import this one.
	by []string
}

// rooms is the floor plan. A room imports the floors below it and what beside says;
// where only names rooms of a floor, it imports no other of that floor. What has by is
// imported by those rooms alone.
var rooms = []room{
	{path: "cmd/fucina", floor: 11},
	{path: "examples", floor: 11, tree: true},

	{path: "llm", floor: 10, tree: true},

	{path: "", floor: 9},

	{path: "autograd", floor: 8},

	{path: "tagged", floor: 7},

	{path: "exec", floor: 6},

	{path: "providers", floor: 5, beside: []string{"providers/cpu", "providers/cuda", "providers/metal", "internal/sim/discrete"}},
	{path: "providers/cpu", floor: 5, beside: []string{"providers/internal/device"}},
	{path: "providers/cuda", floor: 5, beside: []string{"providers/internal/device"}},
	{path: "providers/metal", floor: 5, beside: []string{"providers/internal/device"}},
	{path: "providers/internal/device", floor: 5},
	{path: "residency", floor: 5, only: []string{"core/provider"}},
	{path: "internal/sim/discrete", floor: 5, by: []string{"providers"}},

	{path: "kernels/cpu", floor: 4},
	{path: "kernels/cuda", floor: 4},
	{path: "kernels/metal", floor: 4},

	{path: "core/provider", floor: 3},
	{path: "tags", floor: 3},
	{path: "quant", floor: 3},
	{path: "gguf", floor: 3},
	{path: "safetensors", floor: 3},

	{path: "core/op", floor: 2},

	{path: "core/tensor", floor: 1, beside: []string{"core/storage", "core/accel", "core/shape", "core/dtype"}},
	{path: "core/storage", floor: 1, beside: []string{"core/accel"}},
	{path: "core/accel", floor: 1, only: []string{}},
	{path: "core/shape", floor: 1, beside: []string{"core/dtype"}},
	{path: "core/dtype", floor: 1},

	{path: "internal/offheap", floor: 0, beside: []string{"internal/invariants"}},
	{path: "internal/await", floor: 0},
	{path: "internal/ctxlock", floor: 0},
	{path: "internal/invariants", floor: 0},
	{path: "internal/team", floor: 0, beside: []string{"internal/cpu", "internal/invariants"}},
	{path: "internal/cpu", floor: 0, beside: []string{"internal/invariants"}},
}

// file is a Go file of the module: the package directory, and the module's packages
// that it imports.
type file struct {
	name, dir string
	imports   []string
	test      bool
}

func isTests(dir string) bool { return dir == "tests" || strings.HasPrefix(dir, "tests/") }

// roomOf returns the room of a package, or nil.
func roomOf(dir string) *room {
	var best *room
	for i := range rooms {
		r := &rooms[i]
		inside := dir == r.path
		if rest, ok := strings.CutPrefix(dir, r.path+"/"); ok && r.path != "" {
			inside = r.tree || rest == "internal" || strings.HasPrefix(rest, "internal/")
		}
		if inside && (best == nil || len(r.path) > len(best.path)) {
			best = r
		}
	}
	return best
}

// mayImport says why a file of the room from must not import the room to, or "".
func mayImport(from, to *room) string {
	switch {
	case from == to:
		return ""
	case from.only != nil && len(from.only) == 0:
		return "it imports nothing of the module"
	case to.by != nil && !slices.Contains(to.by, from.path):
		return fmt.Sprintf("only %v may import it", to.by)
	case to.floor > from.floor:
		return fmt.Sprintf("upward, from floor %d to %d", from.floor, to.floor)
	case to.floor == from.floor && !slices.Contains(from.beside, to.path):
		return fmt.Sprintf("sideways on floor %d, against its order", from.floor)
	}
	for _, allowed := range from.only {
		if r := roomOf(allowed); r.floor == to.floor && r != to {
			return fmt.Sprintf("of floor %d it imports only %v", to.floor, from.only)
		}
	}
	return ""
}

// violations returns what is wrong with the import graph of files. Tests may import
// upward, and from tests/: what they link is no part of the module's shape.
func violations(files []file) []string {
	var bad []string
	unknown := map[string]bool{}
	for _, f := range files {
		if isTests(f.dir) {
			continue
		}
		from := roomOf(f.dir)
		if from == nil {
			unknown[f.dir] = true
			continue
		}
		if f.test {
			continue
		}
		for _, imp := range f.imports {
			why := ""
			if isTests(imp) {
				why = "shipped code imports no tests"
			} else if to := roomOf(imp); to != nil {
				why = mayImport(from, to)
			} else {
				unknown[imp] = true
			}
			if why != "" {
				bad = append(bad, fmt.Sprintf("%s imports %q: %s", f.name, imp, why))
			}
		}
	}
	for dir := range unknown {
		bad = append(bad, fmt.Sprintf("package %q is on no floor of the map", dir))
	}
	bad = append(bad, cycles(files)...)
	slices.Sort(bad)
	return bad
}

// cycles finds import cycles between packages, over all build tags together: a
// cycle that no single build has still means that two rooms lean on each other.
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

// modulePath reads the module's path from its go.mod.
func modulePath(t *testing.T, root string) string {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if p, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(p)
		}
	}
	t.Fatal("go.mod names no module")
	return ""
}

// moduleFiles parses every Go file of the module, whatever its build tags.
func moduleFiles(t *testing.T, root string) []file {
	t.Helper()
	module := modulePath(t, root)
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel == "." {
				return nil
			}
			base := d.Name()
			if base == "testdata" || base == "vendor" || base[0] == '.' || base[0] == '_' {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return fs.SkipDir // another module
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasPrefix(d.Name(), "_") || strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		f, err := parseFile(p, rel, module)
		if err != nil {
			return err
		}
		files = append(files, f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func parseFile(name, rel, module string) (file, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return file{}, err
	}
	dir := path.Dir(rel)
	if dir == "." {
		dir = ""
	}
	f := file{name: rel, dir: dir, test: strings.HasSuffix(rel, "_test.go")}
	for _, spec := range syntax.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, fmt.Errorf("%s: %w", rel, err)
		}
		if imp == module {
			f.imports = append(f.imports, "")
		} else if in, ok := strings.CutPrefix(imp, module+"/"); ok {
			f.imports = append(f.imports, in)
		}
	}
	return f, nil
}

// Imports point downward only, every package is on the map, and there is no cycle.
func TestImportGraph(t *testing.T) {
	files := moduleFiles(t, "..")
	if len(files) < 10 {
		t.Fatalf("found only %d Go files: not the module's tree", len(files))
	}
	for _, v := range violations(files) {
		t.Error(v)
	}
}

func TestFloorPlan(t *testing.T) {
	known := map[string]*room{}
	for i := range rooms {
		if known[rooms[i].path] != nil {
			t.Errorf("%q is on the map twice", rooms[i].path)
		}
		known[rooms[i].path] = &rooms[i]
	}
	for _, r := range rooms {
		for _, p := range r.beside {
			if known[p] == nil || known[p].floor != r.floor {
				t.Errorf("%q is beside %q, but on another floor", p, r.path)
			}
		}
		for _, p := range r.only {
			if known[p] == nil || known[p].floor >= r.floor {
				t.Errorf("%q imports only %q, which is not below it", r.path, p)
			}
		}
		for _, p := range r.by {
			if known[p] == nil {
				t.Errorf("%q is for %q, which is on no floor", r.path, p)
			}
		}
	}
}

// The checks themselves, on graphs with one arrow that matters.
func TestViolations(t *testing.T) {
	tests := []struct {
		name  string
		files []file
		want  string // part of the only violation; "" if there is none
	}{
		{"downward", []file{{dir: "exec", imports: []string{"core/tensor", "residency", "providers"}}}, ""},
		{"upward", []file{{dir: "core/tensor", imports: []string{"exec"}}}, "upward, from floor 1 to 6"},
		{"root upward", []file{{dir: "", imports: []string{"llm"}}}, "upward, from floor 9 to 10"},
		{"to the root", []file{{dir: "gguf", imports: []string{""}}}, "upward, from floor 3 to 9"},
		{"dtype below shape", []file{{dir: "core/shape", imports: []string{"core/dtype"}}}, ""},
		{"shape above dtype", []file{{dir: "core/dtype", imports: []string{"core/shape"}}}, "sideways"},
		{"storage above accel", []file{{dir: "core/storage", imports: []string{"core/accel", "internal/offheap"}}}, ""},
		{"storage knows no dtype", []file{{dir: "core/storage", imports: []string{"core/dtype"}}}, "sideways"},
		{"accel imports nothing", []file{{dir: "core/accel", imports: []string{"internal/invariants"}}}, "imports nothing"},
		{"providers in order", []file{
			{dir: "providers", imports: []string{"providers/cuda", "providers/cpu"}},
			{dir: "providers/cuda", imports: []string{"providers/internal/device", "kernels/cuda"}},
		}, ""},
		{"device above cuda", []file{{dir: "providers/internal/device", imports: []string{"providers/cuda"}}}, "sideways"},
		{"cuda beside metal", []file{{dir: "providers/cuda", imports: []string{"providers/metal"}}}, "sideways"},
		{"residency and the interface", []file{{dir: "residency", imports: []string{"core/provider", "core/storage", "internal/offheap"}}}, ""},
		{"residency and a provider", []file{{dir: "residency", imports: []string{"providers/cpu"}}}, "sideways"},
		{"residency and a codec", []file{{dir: "residency", imports: []string{"quant"}}}, "only [core/provider]"},
		{"model files beside each other", []file{{dir: "gguf", imports: []string{"safetensors"}}}, "sideways"},
		{"inside a tree", []file{{dir: "llm", imports: []string{"llm/tokenizer"}}}, ""},
		{"internal below its room", []file{{dir: "quant", imports: []string{"quant/internal/gentables"}}}, ""},
		{"unknown package", []file{{dir: "util"}}, `"util" is on no floor`},
		{"unknown import", []file{{dir: "exec", imports: []string{"core/util"}}}, `"core/util" is on no floor`},
		{"below a room that is no tree", []file{{dir: "exec/ops"}}, `"exec/ops" is on no floor`},
		{"shipped code and tests", []file{{dir: "gguf", imports: []string{"tests/ggufbuild"}}}, "imports no tests"},
		{"test and tests", []file{{dir: "gguf", test: true, imports: []string{"tests/ggufbuild"}}}, ""},
		{"providers and a simulator", []file{
			{dir: "providers", imports: []string{"internal/sim/discrete"}},
			{dir: "internal/sim/discrete", imports: []string{"kernels/cpu", "core/provider"}},
		}, ""},
		{"simulator and a provider", []file{{dir: "internal/sim/discrete", imports: []string{"providers/cpu"}}}, "sideways"},
		{"simulator and tests", []file{{dir: "internal/sim/discrete", imports: []string{"tests/harness"}}}, "imports no tests"},
		{"simulator beside residency", []file{{dir: "residency", imports: []string{"internal/sim/discrete"}}}, "only [providers] may"},
		{"simulator below exec", []file{{dir: "exec", imports: []string{"internal/sim/discrete"}}}, "only [providers] may"},
		{"test and a simulator", []file{{dir: "exec", test: true, imports: []string{"internal/sim/discrete"}}}, ""},
		{"unknown simulator", []file{{dir: "internal/sim/abacus"}}, `"internal/sim/abacus" is on no floor`},
		{"tests import anything", []file{{dir: "tests/conformance", imports: []string{"llm", "core/dtype"}}}, ""},
		{"cycle", []file{
			{dir: "llm/a", imports: []string{"llm/b"}},
			{dir: "llm/b", imports: []string{"llm/c"}},
			{dir: "llm/c", imports: []string{"llm/b"}},
		}, "import cycle: llm/b -> llm/c -> llm/b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := violations(tt.files)
			switch {
			case tt.want == "" && len(got) == 0:
			case tt.want != "" && len(got) == 1 && strings.Contains(got[0], tt.want):
			default:
				t.Errorf("violations %q, want %q alone", got, tt.want)
			}
		})
	}
}
