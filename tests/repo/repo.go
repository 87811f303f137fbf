// Package repo reads this repository for tests that compare its parts with each other. It
// reads Go files of all build tags and the tables of documents.
package repo

import (
	"bufio"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// Root returns the directory of the module that the test runs in.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

// Shared returns a file of the data that lies beside a development checkout. Where it does
// not, it skips the test and names its twin: what takes the same path in a clone.
func Shared(t testing.TB, twin string, elem ...string) string {
	t.Helper()
	name := filepath.Join(append([]string{"shared"}, elem...)...)
	path := filepath.Join(filepath.Dir(Root(t)), name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no ../%s beside the module; %s", filepath.ToSlash(name), twin)
	}
	return path
}

// ModulePath returns the module's path from go.mod.
func ModulePath(t testing.TB) string {
	t.Helper()
	for line := range strings.Lines(Read(t, "go.mod")) {
		if p, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(p)
		}
	}
	t.Fatal("go.mod names no module")
	return ""
}

// Read returns the text of the file at a slash-separated path in the module.
func Read(t testing.TB, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(Root(t), filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Files returns the slash-separated paths of the module's files that end in one of the
// suffixes. Like the go command, it skips testdata, names that begin with a dot or an
// underscore, and other modules.
func Files(t testing.TB, suffixes ...string) []string {
	t.Helper()
	root := Root(t)
	var names []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		base := d.Name()
		hidden := base[0] == '.' || base[0] == '_'
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(p, "go.mod"))
			if hidden || base == "testdata" || base == "vendor" || err == nil {
				return fs.SkipDir
			}
			return nil
		}
		for _, s := range suffixes {
			if strings.HasSuffix(base, s) && !hidden {
				rel, err := filepath.Rel(root, p)
				if err != nil {
					return err
				}
				names = append(names, filepath.ToSlash(rel))
				break
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// GoFile is a Go file of the module.
type GoFile struct {
	Name   string // slash-separated path in the module
	Dir    string // slash-separated path of the package; "." is the module's root
	Test   bool
	Syntax *ast.File
}

// GoFiles parses every Go file of the module, of all build tags. mode is the mode of
// go/parser.
func GoFiles(t testing.TB, mode parser.Mode) []GoFile {
	t.Helper()
	var files []GoFile
	for _, name := range Files(t, ".go") {
		syntax, err := parser.ParseFile(token.NewFileSet(), filepath.Join(Root(t), filepath.FromSlash(name)), nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, GoFile{Name: name, Dir: path.Dir(name), Test: strings.HasSuffix(name, "_test.go"), Syntax: syntax})
	}
	if len(files) < 100 {
		t.Fatalf("found only %d Go files: not the module's tree", len(files))
	}
	return files
}

// Table returns the cells of the Markdown table in text with the given header, row by row. It
// fails if there is no such table, if the table is empty, or if a row has another number of
// cells.
func Table(text string, header ...string) ([][]string, error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if strings.Join(cells(lines.Text()), "|") == strings.Join(header, "|") {
			break
		}
	}
	var rows [][]string
	for lines.Scan() {
		row := cells(lines.Text())
		if row == nil {
			break
		}
		if len(row) != len(header) {
			return nil, fmt.Errorf("the row %q has %d cells, its table has %d columns", lines.Text(), len(row), len(header))
		}
		if !isRule(row) {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no table with the header %q", header)
	}
	return rows, lines.Err()
}

// isRule reports whether the row is the line of dashes below a header.
func isRule(row []string) bool {
	return row[0] != "" && strings.Trim(strings.Join(row, ""), ":-") == ""
}

// cells returns the cells of a row of a Markdown table, or nil if line is not a row.
func cells(line string) []string {
	line = strings.TrimSpace(line)
	if len(line) < 2 || line[0] != '|' || line[len(line)-1] != '|' {
		return nil
	}
	row := strings.Split(line[1:len(line)-1], "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

// Code returns the spans of text in backquotes.
func Code(text string) []string {
	parts := strings.Split(text, "`")
	var spans []string
	for i := 1; i+1 < len(parts); i += 2 {
		spans = append(spans, parts[i])
	}
	return spans
}
