package documents

import (
	"go/build/constraint"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/repo"
)

// tagTable is the table of build tags in docs/environment.md.
var tagTable = []string{"build tag", "what it adds"}

// systems are build constraints that the go command satisfies by itself.
var systems = map[string]bool{
	"amd64": true, "arm64": true, "darwin": true, "dragonfly": true, "freebsd": true, "linux": true,
	"netbsd": true, "openbsd": true, "race": true, "unix": true, "windows": true,
}

// tagsOf returns the build tags of a file's constraint, without those of systems.
func tagsOf(text string) ([]string, error) {
	var tags []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); constraint.IsGoBuild(line) {
			expr, err := constraint.Parse(line)
			if err != nil {
				return nil, err
			}
			// Both values of each tag are tried, so that no part of the expression is skipped.
			for _, value := range []bool{true, false} {
				expr.Eval(func(tag string) bool {
					if !systems[tag] && !slices.Contains(tags, tag) {
						tags = append(tags, tag)
					}
					return value
				})
			}
		} else if line != "" && !strings.HasPrefix(line, "//") {
			break
		}
	}
	return tags, nil
}

func TestTagsOf(t *testing.T) {
	text := "// A licence.\n\n//go:build cuda || (metal && !noasm) || linux\n\npackage x\n\n//go:build late\n"
	tags, err := tagsOf(text)
	if slices.Sort(tags); err != nil || !slices.Equal(tags, []string{"cuda", "metal", "noasm"}) {
		t.Errorf("tags %q, %v", tags, err)
	}
	if _, err := tagsOf("//go:build &&\n"); err == nil {
		t.Error("a comment that is not a constraint has tags")
	}
}

// docs/environment.md lists exactly the build tags of the module's files.
func TestTags(t *testing.T) {
	rows, err := repo.Table(repo.Read(t, "docs/environment.md"), tagTable...)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, row := range rows {
		for _, tag := range repo.Code(row[0]) {
			documented[tag] = false
		}
	}
	for _, name := range repo.Files(t, ".go", ".s") {
		tags, err := tagsOf(repo.Read(t, name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, tag := range tags {
			if _, ok := documented[tag]; !ok {
				t.Errorf("%s has the build tag %s, which is not in docs/environment.md", name, tag)
			}
			documented[tag] = true
		}
	}
	for tag, used := range documented {
		if !used {
			t.Errorf("docs/environment.md has the build tag %s, which no file has", tag)
		}
	}
}
