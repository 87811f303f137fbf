package documents

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/repo"
)

// names are the Go names of the module.
type names struct {
	packages map[string]map[string]bool // names declared by a package, by its name and by its directory's name
	members  map[string]map[string]bool // fields and methods of the types of a name
	words    map[string]bool            // every identifier of a file
	foreign  map[string]bool            // names of imported packages of other modules
	files    map[string]bool            // base names of files, and for each name in a file the path and the name
}

// add adds the names of a file.
func (n *names) add(module string, f repo.GoFile) {
	for _, i := range f.Syntax.Imports {
		p := strings.Trim(i.Path.Value, `"`)
		if !strings.HasPrefix(p, module) {
			n.foreign[path.Base(p)] = true
		}
	}
	n.files[path.Base(f.Name)] = true
	declare := func(name string) {
		put(n.packages, f.Syntax.Name.Name, name)
		put(n.packages, path.Base(f.Dir), name)
	}
	for _, d := range f.Syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				declare(d.Name.Name)
			} else {
				put(n.members, receiver(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, name := range s.Names {
						declare(name.Name)
					}
				case *ast.TypeSpec:
					declare(s.Name.Name)
					put(n.members, s.Name.Name, "")
					n.addMembers(s.Name.Name, s.Type)
				}
			}
		}
	}
	ast.Inspect(f.Syntax, func(node ast.Node) bool {
		if name, ok := node.(*ast.Ident); ok {
			n.words[name.Name] = true
			n.files[f.Name+" "+name.Name] = true
		}
		return true
	})
}

// addMembers adds the fields and methods in the declaration of a type.
func (n *names) addMembers(name string, e ast.Expr) {
	var fields *ast.FieldList
	switch e := e.(type) {
	case *ast.StructType:
		fields = e.Fields
	case *ast.InterfaceType:
		fields = e.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, m := range f.Names {
			put(n.members, name, m.Name)
		}
		if len(f.Names) == 0 {
			put(n.members, name, receiver(f.Type)) // an embedded type
		}
	}
}

func put(m map[string]map[string]bool, key, name string) {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	m[key][name] = true
}

// receiver returns the name of the type that e denotes.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

var (
	identifier = regexp.MustCompile(`^[A-Za-z]\w+(\.[A-Za-z]\w*)*$`)
	fileName   = regexp.MustCompile(`^\w+\.go$`)
	inFile     = regexp.MustCompile("`([A-Za-z][\\w.]*)`\\s+in\\s+`([\\w./]+\\.go)`")
)

// newNames returns the names of files.
func newNames(module string, files []repo.GoFile) *names {
	n := &names{map[string]map[string]bool{}, map[string]map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, f := range files {
		n.add(module, f)
	}
	return n
}

// strangers returns the Go names and files that text has in backquotes and the module has not,
// and the names that text says to be in a file without them. In a.b, a is a package that
// declares b or a type with the field or method b.
func (n *names) strangers(text string) []string {
	var bad []string
	for _, span := range repo.Code(text) {
		if fileName.MatchString(span) && !strings.HasPrefix(span, "_") {
			if !n.files[span] {
				bad = append(bad, span)
			}
		} else if identifier.MatchString(span) && !n.has(span) {
			bad = append(bad, span)
		}
	}
	for _, m := range inFile.FindAllStringSubmatch(text, -1) {
		name := m[1][strings.LastIndexByte(m[1], '.')+1:]
		if strings.Contains(m[2], "/") && !n.files[m[2]+" "+name] {
			bad = append(bad, m[1]+" in "+m[2])
		}
	}
	return bad
}

// has reports whether the module declares a name, or it cannot be a name of Go.
func (n *names) has(span string) bool {
	parts := strings.Split(span, ".")
	if len(parts) == 1 {
		return !mixed(span) || n.words[span] || span == "Makefile"
	}
	if span == strings.ToLower(span) && (len(parts) > 2 || n.packages[parts[0]] != nil) || path.Ext(span) == ".md" {
		return true // a key of metadata, or a file
	}
	for i := 1; i < len(parts); i++ {
		a, b := parts[i-1], parts[i]
		known := n.packages[a] != nil || n.members[a] != nil
		if (known || mixed(b)) && !n.packages[a][b] && !n.members[a][b] && !n.foreign[a] {
			return false
		}
	}
	return true
}

// mixed reports whether s has upper and lower case letters.
func mixed(s string) bool { return s != strings.ToLower(s) && s != strings.ToUpper(s) }

func TestStrangers(t *testing.T) {
	src := `package op
import "testing"
type Args struct { NIn int; *Inner }
type Inner interface { Deep(t testing.TB) }
func (a *Args) fits() { local := 1; _ = local }
var Table [3]int
func TestIt(t *testing.T) {}`
	f, err := parser.ParseFile(token.NewFileSet(), "op_test.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := newNames("m", []repo.GoFile{{Name: "core/op/op_test.go", Dir: "core/op", Test: true, Syntax: f}})
	for text, want := range map[string]string{
		"`Table` `op.Table` `Args.NIn` `op.Args.fits` `Args.Inner` `Inner.Deep` `TestIt` `testing.TB`": "",
		"`Gone` `op.Gone` `Args.gone` `op.Args.Gone` `gone.Gone` `goneToo`":                            "Gone op.Gone Args.gone op.Args.Gone gone.Gone goneToo",
		"`MXFP4` `lower` `go test ./Gone` `general.architecture` `README.md`":                          "",
		"`op_test.go` `gone.go` `x/gone.go`":                                                           "gone.go",
		"`fits` in `core/op/op_test.go`, `Args.NIn` in\n`core/op/op_test.go`":                          "",
		"`blocks` in `core/op/op_test.go`":                                                             "blocks in core/op/op_test.go",
	} {
		if got := strings.Join(n.strangers(text), " "); got != want {
			t.Errorf("%s: strangers %q, want %q", text, got, want)
		}
	}
}

// The types, functions, fields, tests and files that the documents name exist.
func TestNames(t *testing.T) {
	n := newNames(repo.ModulePath(t), repo.GoFiles(t, 0))
	n.foreign["sql"] = true // database/sql, which RATIONALE.md compares with
	guides := 0
	for _, name := range repo.Files(t, ".md") {
		if strings.HasPrefix(name, "docs/adding-") {
			guides++
		}
		for _, span := range n.strangers(repo.Read(t, name)) {
			t.Errorf("%s: the module has no %s", name, span)
		}
	}
	if guides == 0 {
		t.Error("no guides in docs/")
	}
}
