package importgraph

import (
	"go/parser"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/repo"
)

// floors reads the table of ARCHITECTURE.md.
func floors(t *testing.T) plan {
	t.Helper()
	rows, err := repo.Table(repo.Read(t, "ARCHITECTURE.md"), header...)
	if err != nil {
		t.Fatal(err)
	}
	p, bad := parsePlan(rows)
	for _, err := range bad {
		t.Error(err)
	}
	return p
}

// moduleFiles returns the module's Go files with their imports of the module.
func moduleFiles(t *testing.T) []file {
	t.Helper()
	module := repo.ModulePath(t)
	var files []file
	for _, g := range repo.GoFiles(t, parser.ImportsOnly) {
		f := file{name: g.Name, dir: g.Dir, test: g.Test}
		for _, spec := range g.Syntax.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatalf("%s: %v", g.Name, err)
			}
			f.testing = f.testing || imp == "testing"
			if imp == module {
				f.imports = append(f.imports, ".")
			} else if in, ok := strings.CutPrefix(imp, module+"/"); ok {
				f.imports = append(f.imports, in)
			}
		}
		files = append(files, f)
	}
	return files
}

// Imports point downward only, every package has a row in the table and every row a
// package, and there is no cycle.
func TestImportGraph(t *testing.T) {
	p, files := floors(t), moduleFiles(t)
	for _, v := range append(p.violations(files), p.absent(files)...) {
		t.Error(v)
	}
}

// Even if the table changes, it forbids certain imports.
func TestFloors(t *testing.T) {
	p := floors(t)
	for _, tt := range []struct{ from, to, why string }{
		{"core/dtype", "core/shape", "sideways"},
		{"core/storage", "core/dtype", "sideways"},
		{"core/accel", "internal/invariants", "nothing of the module"},
		{"residency", "providers/cpu", "sideways"},
		{"residency", "kernels/cpu", "nothing above floor 3"},
		{"residency", "quant", "only [core/provider]"},
		{"residency", "internal/sim/discrete", "only [providers]"},
		{"exec", "internal/sim/discrete", "only [providers]"},
		{"internal/sim/discrete", "providers/cpu", "sideways"},
		{"kernels/cpu", "providers/cpu", "upward"},
		{"exec", ".", "upward"},
		{"gguf", ".", "upward"},
		{".", "llm", "upward"},
		{"llm/quantize", ".", "nothing above floor 3"},
		{"llm/internal/arch/metadata", ".", "nothing above floor 3"},
	} {
		from, to := p[tt.from], p[tt.to]
		if from == nil || to == nil {
			t.Errorf("%q or %q has no row", tt.from, tt.to)
			continue
		}
		if why := forbids(from, to); !strings.Contains(why, tt.why) {
			t.Errorf("%q may import %q (%s), want a refusal that says %q", tt.from, tt.to, why, tt.why)
		}
	}
}

// example is a table of floors that has each kind of clause.
var example = [][]string{
	{"5", "`cmd`", "x", ""},
	{"4", "`.`", "x", ""},
	{"4", "`app`", "x", "`app/text`; nothing above floor 1"},
	{"4", "`app/text`", "x", ""},
	{"3", "`providers`", "x", "`providers/cuda`, `providers/cpu`, `sim`"},
	{"3", "`providers/cpu`", "x", ""},
	{"3", "`providers/cuda`", "x", "`providers/device`"},
	{"3", "`providers/device`", "x", ""},
	{"3", "`residency`", "x", "of floor 2 only `provider`"},
	{"3", "`sim`", "x", "imported only by `providers`"},
	{"2", "`provider`", "x", ""},
	{"2", "`gguf`", "x", ""},
	{"2", "`safetensors`", "x", ""},
	{"1", "`storage`", "x", "`accel`"},
	{"1", "`accel`", "x", "nothing of the module"},
	{"0", "`offheap`", "x", ""},
}

// The checks find violations in graphs with one import to check.
func TestViolations(t *testing.T) {
	p, errs := parsePlan(example)
	if errs != nil {
		t.Fatal(errs)
	}
	tests := []struct {
		name  string
		files []file
		want  string // part of the only violation; "" if there is none
	}{
		{"downward", []file{{dir: ".", imports: []string{"storage", "residency", "providers"}}}, ""},
		{"upward", []file{{dir: "storage", imports: []string{"provider"}}}, "upward, from floor 1 to 2"},
		{"root upward", []file{{dir: ".", imports: []string{"cmd"}}}, "upward, from floor 4 to 5"},
		{"to the root", []file{{dir: "gguf", imports: []string{"."}}}, "upward, from floor 2 to 4"},
		{"in the order of a floor", []file{{dir: "storage", imports: []string{"accel", "offheap"}}}, ""},
		{"against the order of a floor", []file{{dir: "provider", imports: []string{"gguf"}}}, "sideways on floor 2"},
		{"beside each other", []file{{dir: "gguf", imports: []string{"safetensors"}}}, "sideways on floor 2"},
		{"nothing of the module", []file{{dir: "accel", imports: []string{"offheap"}}}, "imports nothing"},
		{"a chain on one floor", []file{
			{dir: "providers", imports: []string{"providers/cuda", "providers/cpu"}},
			{dir: "providers/cuda", imports: []string{"providers/device", "gguf"}},
		}, ""},
		{"back up the chain", []file{{dir: "providers/device", imports: []string{"providers/cuda"}}}, "sideways on floor 3"},
		{"across two chains", []file{{dir: "providers/cuda", imports: []string{"providers/cpu"}}}, "sideways on floor 3"},
		{"the one package of a floor", []file{{dir: "residency", imports: []string{"provider", "storage", "offheap"}}}, ""},
		{"another package of that floor", []file{{dir: "residency", imports: []string{"gguf"}}}, "only [provider]"},
		{"up to the ceiling", []file{{dir: "app", imports: []string{"app/text", "storage", "offheap"}}}, ""},
		{"above the ceiling", []file{{dir: "app", imports: []string{"gguf"}}}, "nothing above floor 1"},
		{"by a package that may", []file{{dir: "providers", imports: []string{"sim"}}}, ""},
		{"by a neighbour", []file{{dir: "residency", imports: []string{"sim"}}}, "only [providers] may"},
		{"from above", []file{{dir: ".", imports: []string{"sim"}}}, "only [providers] may"},
		{"a test by itself", []file{{dir: ".", test: true, imports: []string{"sim", "cmd"}}}, ""},
		{"no row", []file{{dir: "util"}}, `"util" has no row`},
		{"no row for a test", []file{{dir: "util", test: true}}, `"util" has no row`},
		{"no row for what is imported", []file{{dir: ".", imports: []string{"util"}}}, `"util" has no row`},
		{"no row below a package with one", []file{{dir: "gguf/internal/scan"}}, `"gguf/internal/scan" has no row`},
		{"shipped code and tests", []file{{dir: "gguf", imports: []string{"tests/ggufbuild"}}}, "imports no tests"},
		{"shipped code and the tests' root", []file{{dir: "gguf", imports: []string{"tests"}}}, "imports no tests"},
		{"shipped code and package testing", []file{{dir: "gguf", testing: true}}, "imports package testing"},
		{"test and package testing", []file{{dir: "gguf", test: true, testing: true}}, ""},
		{"test and tests", []file{{dir: "gguf", test: true, imports: []string{"tests/ggufbuild"}}}, ""},
		{"tests import anything", []file{{dir: "tests/soak", imports: []string{"app", "storage", "sim", "tests/harness"}}}, ""},
		{"cycle", []file{
			{dir: "tests/a", imports: []string{"tests/b"}},
			{dir: "tests/b", imports: []string{"tests/c"}},
			{dir: "tests/c", imports: []string{"tests/b"}},
		}, "import cycle: tests/b -> tests/c -> tests/b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := p.violations(tt.files)
			switch {
			case tt.want == "" && len(got) == 0:
			case tt.want != "" && len(got) == 1 && strings.Contains(got[0], tt.want):
			default:
				t.Errorf("violations %q, want %q alone", got, tt.want)
			}
		})
	}
}

// A row whose package does not exist is reported.
func TestAbsent(t *testing.T) {
	p, errs := parsePlan(example[:2])
	if errs != nil {
		t.Fatal(errs)
	}
	if got := p.absent([]file{{dir: "."}}); len(got) != 1 || !strings.Contains(got[0], `"cmd"`) {
		t.Errorf("absent: %q, want cmd alone", got)
	}
}

// A table that contradicts itself, or that the test cannot read, is an error.
func TestBadTable(t *testing.T) {
	for _, tt := range []struct {
		name string
		row  []string // added to the rows of the example
		want string   // part of the only error
	}{
		{"no number", []string{"high", "`x`", "x", ""}, `floor "high"`},
		{"below the ground", []string{"-1", "`x`", "x", ""}, `floor "-1"`},
		{"no package", []string{"1", "x", "x", ""}, "one package"},
		{"two packages", []string{"1", "`x`, `y`", "x", ""}, "one package"},
		{"no contents", []string{"1", "`x`", "", ""}, "what the package holds"},
		{"twice", []string{"2", "`gguf`", "x", ""}, "appears twice"},
		{"unknown clause", []string{"1", "`x`", "x", "everything"}, `"everything"`},
		{"a clause with more to it", []string{"1", "`x`", "x", "`accel` in tests"}, "is unknown"},
		{"beside itself", []string{"1", "`x`", "x", "`x`"}, "no other package of floor 1"},
		{"beside what is not there", []string{"1", "`x`", "x", "`y`"}, "no other package of floor 1"},
		{"beside another floor", []string{"1", "`x`", "x", "`gguf`"}, "no other package of floor 1"},
		{"only what is not there", []string{"3", "`x`", "x", "of floor 2 only `y`"}, "no package of a lower floor 2"},
		{"only of another floor", []string{"3", "`x`", "x", "of floor 2 only `accel`"}, "no package of a lower floor 2"},
		{"only of its own floor", []string{"2", "`x`", "x", "of floor 2 only `gguf`"}, "no package of a lower floor 2"},
		{"by what is not there", []string{"1", "`x`", "x", "imported only by `y`"}, `"y" has no row`},
		{"no limit", []string{"1", "`x`", "x", "nothing above floor 1"}, "is no limit"},
	} {
		if _, errs := parsePlan(append(slices.Clone(example), tt.row)); len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want) {
			t.Errorf("%s: errors %v, want one that says %q", tt.name, errs, tt.want)
		}
	}
}
