package documents

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/repo"
)

// The tables of docs/environment.md.
var (
	programVariables = []string{"variable", "values", "without it", "what it does", "read by"}
	testVariables    = []string{"variable of tests", "values", "without it", "what it does", "read by"}
)

// foreign are variables of the system that tests pass on.
var foreign = map[string]bool{"PATH": true}

// source has the Go files of the module and an index to find the environment variables that
// they read.
type source struct {
	module string
	files  []repo.GoFile
	consts map[[2]string]string // values of string constants, by package and name
	reads  map[[2]string]int    // index of the parameter that names the variable that a function reads, by package and name
	found  map[string][]string  // packages that read a variable, by variable
	lost   []string             // reads of variables whose names the test cannot determine
}

// newSource looks for the variables that files read.
func newSource(module string, files []repo.GoFile) *source {
	s := &source{
		module: module, files: files, consts: map[[2]string]string{}, found: map[string][]string{},
		reads: map[[2]string]int{{"os", "Getenv"}: 0, {"os", "LookupEnv"}: 0},
	}
	for _, f := range files {
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				s.addConsts(f, d)
			}
			return true
		})
	}
	// A function that passes its parameter to a reading function also reads. The scan is
	// repeated until it finds no more.
	for before := 0; before < len(s.reads); {
		before = len(s.reads)
		s.found, s.lost = map[string][]string{}, nil
		for _, f := range files {
			s.scan(f)
		}
	}
	return s
}

func (s *source) addConsts(f repo.GoFile, d *ast.GenDecl) {
	for _, spec := range d.Specs {
		v := spec.(*ast.ValueSpec)
		for i, name := range v.Names {
			if i < len(v.Values) {
				s.addConst([2]string{f.Dir, name.Name}, f, v.Values[i])
			}
		}
	}
}

// addConst records a constant. If constants of different functions have the same name and
// different values, the name has no text.
func (s *source) addConst(name [2]string, f repo.GoFile, value ast.Expr) {
	text, ok := s.text(f, value)
	if !ok {
		return
	}
	if old, ok := s.consts[name]; ok && old != text {
		text = ""
	}
	s.consts[name] = text
}

// scan records the variables that f reads, and the functions of f that read one.
func (s *source) scan(f repo.GoFile) {
	for _, decl := range f.Syntax.Decls {
		fn, _ := decl.(*ast.FuncDecl)
		ast.Inspect(decl, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			arg, ok := s.reads[s.name(f, call.Fun)]
			if !ok || arg >= len(call.Args) {
				return true
			}
			name, ok := s.text(f, call.Args[arg])
			if i := parameter(fn, call.Args[arg]); i >= 0 {
				s.reads[[2]string{f.Dir, fn.Name.Name}] = i
			} else if !ok {
				s.lost = append(s.lost, f.Name)
			} else if !foreign[name] && !slices.Contains(s.found[name], f.Dir) {
				s.found[name] = append(s.found[name], f.Dir)
			}
			return true
		})
	}
}

// parameter returns the index of the parameter of fn that the expression is, or -1.
func parameter(fn *ast.FuncDecl, e ast.Expr) int {
	id, ok := e.(*ast.Ident)
	if !ok || fn == nil {
		return -1
	}
	i := 0
	for _, field := range fn.Type.Params.List {
		for _, name := range field.Names {
			if name.Name == id.Name {
				return i
			}
			i++
		}
	}
	return -1
}

// name returns the package and the name that e refers to in f. A package of the module is
// given as its directory.
func (s *source) name(f repo.GoFile, e ast.Expr) [2]string {
	switch e := e.(type) {
	case *ast.Ident:
		return [2]string{f.Dir, e.Name}
	case *ast.SelectorExpr:
		id, ok := e.X.(*ast.Ident)
		if !ok {
			return [2]string{}
		}
		for _, spec := range f.Syntax.Imports {
			imp, _ := strconv.Unquote(spec.Path.Value)
			local := path.Base(imp)
			if spec.Name != nil {
				local = spec.Name.Name
			}
			if local != id.Name {
				continue
			}
			if imp == s.module {
				imp = "."
			}
			return [2]string{strings.TrimPrefix(imp, s.module+"/"), e.Sel.Name}
		}
	}
	return [2]string{}
}

// text returns the constant text of e. A part that is added at run time becomes <OP>.
func (s *source) text(f repo.GoFile, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, ok := s.text(f, e.X)
		y, known := s.text(f, e.Y)
		if !known {
			y = "<OP>"
		}
		return x + y, ok && e.Op == token.ADD
	}
	text := s.consts[s.name(f, e)]
	return text, text != ""
}

// The ways in which a program may name the variable that it reads.
func TestReads(t *testing.T) {
	const module = "example.com/m"
	var files []repo.GoFile
	for dir, text := range map[string]string{
		".": `package m
import "os"
import lib "example.com/m/names"
const own = "OWN"
func f() { os.Getenv("LITERAL"); os.LookupEnv(own); os.Getenv(lib.Other); os.Getenv("PATH") }
func each(op string) { number(own, own + "_" + op) }
func Exported(name string) { number(own, name) }
func number(unused, name string) { os.Getenv(name) }
func local() { const a = "LOCAL"; os.Getenv(a) }
func one() { const same = "X"; _ = same }
func two() { const same = "Y"; os.Getenv(same) }
`,
		"names": `package names
const Other = "OTHER"
`,
		"sub": `package sub
import "example.com/m"
import "os"
func f() { m.Exported("FAR"); os.Setenv("SET", "1") }
`,
	} {
		syntax, err := parser.ParseFile(token.NewFileSet(), dir, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, repo.GoFile{Name: dir, Dir: dir, Syntax: syntax})
	}
	s := newSource(module, files)
	for _, readers := range s.found {
		slices.Sort(readers)
	}
	want := map[string][]string{
		"LITERAL": {"."}, "OWN": {"."}, "OTHER": {"."}, "OWN_<OP>": {"."}, "LOCAL": {"."}, "FAR": {"sub"},
	}
	if !maps.EqualFunc(s.found, want, slices.Equal[[]string]) {
		t.Errorf("reads %q, want %q", s.found, want)
	}
	if !slices.Equal(s.lost, []string{"."}) {
		t.Errorf("lost %q, want the read of a name that two constants have", s.lost)
	}
}

// documented returns the variables of docs/environment.md, and for each the packages that
// read it according to the document.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	doc := repo.Read(t, "docs/environment.md")
	vars := map[string][]string{}
	for _, header := range [][]string{programVariables, testVariables} {
		rows, err := repo.Table(doc, header...)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			names := repo.Code(row[0])
			if len(names) != 1 || vars[names[0]] != nil {
				t.Fatalf("row %q names no variable, or one that another row names", row[0])
			}
			vars[names[0]] = repo.Code(row[4])
		}
	}
	return vars
}

// docs/environment.md lists exactly the variables that Go files read, and the packages that
// read them.
func TestVariables(t *testing.T) {
	s := newSource(repo.ModulePath(t), repo.GoFiles(t, parser.SkipObjectResolution))
	for _, name := range s.lost {
		t.Errorf("%s reads a variable whose name this test cannot tell", name)
	}
	want := documented(t)
	for name, readers := range s.found {
		slices.Sort(readers)
		if doc, ok := want[name]; !ok {
			t.Errorf("%s, which %q read, is not in docs/environment.md", name, readers)
		} else if slices.Sort(doc); !slices.Equal(doc, readers) {
			t.Errorf("docs/environment.md says that %s is read by %q, and it is by %q", name, doc, readers)
		}
	}
	for name := range want {
		if s.found[name] == nil {
			t.Errorf("docs/environment.md has %s, which nothing reads", name)
		}
	}
}

// Every FUCINA_ variable that a file names exists. A variable that a test, a target or a
// message names but nothing reads has no effect.
func TestVariableNames(t *testing.T) {
	vars := documented(t)
	texts := map[string]string{"Makefile": repo.Read(t, "Makefile"), ".ci/run": repo.Read(t, ".ci/run")}
	for _, f := range repo.GoFiles(t, parser.SkipObjectResolution|parser.ParseComments) {
		texts[f.Name] = literals(f.Syntax)
	}
	for _, name := range repo.Files(t, ".md") {
		texts[name] = repo.Read(t, name)
	}
	for _, at := range slices.Sorted(maps.Keys(texts)) {
		for _, name := range unknown(texts[at], vars) {
			t.Errorf("%s names %s, which is not in docs/environment.md", at, name)
		}
	}
}

// literals returns the string literals and comments of a file.
func literals(syntax *ast.File) string {
	var b strings.Builder
	ast.Inspect(syntax, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			b.WriteString(lit.Value + "\n")
		}
		return true
	})
	for _, group := range syntax.Comments {
		for _, c := range group.List {
			b.WriteString(c.Text + "\n")
		}
	}
	return b.String()
}

var ours = regexp.MustCompile(`FUCINA_[A-Z0-9_]*[A-Z0-9](_<OP>)?`)

// unknown returns the FUCINA_ variables in text that vars does not have.
func unknown(text string, vars map[string][]string) []string {
	var bad []string
	for _, name := range ours.FindAllString(text, -1) {
		if _, ok := vars[name]; ok || matches(name, vars) || slices.Contains(bad, name) {
			continue
		}
		bad = append(bad, name)
	}
	return bad
}

// matches reports whether name is one of the variables of a row with <OP>.
func matches(name string, vars map[string][]string) bool {
	for row := range vars {
		if prefix, ok := strings.CutSuffix(row, "<OP>"); ok && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
