package documents

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/repo"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	filePath = regexp.MustCompile(`^\w[\w.-]*(/[\w.-]+)*$`)
)

// broken returns the broken links of the document at name, and the module's paths in
// backquotes that do not exist. exists reports whether a path in the module exists.
func broken(name, text string, exists func(string) bool) []string {
	var bad []string
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target, _, _ := strings.Cut(m[1], "#")
		if target == "" || strings.Contains(target, "://") {
			continue
		}
		if !exists(path.Join(path.Dir(name), target)) {
			bad = append(bad, m[1])
		}
	}
	for _, span := range repo.Code(text) {
		span = strings.TrimSuffix(strings.TrimSuffix(span, "/..."), "/")
		if !filePath.MatchString(span) || span == path.Base(span) && !strings.HasSuffix(span, ".md") {
			continue
		}
		// A path begins with a directory of the module, or is relative to the document.
		first, _, _ := strings.Cut(span, "/")
		if beside := path.Join(path.Dir(name), span); (first == span || exists(first)) && !exists(span) && !exists(beside) {
			bad = append(bad, span)
		}
	}
	return bad
}

func TestBroken(t *testing.T) {
	exists := func(p string) bool {
		return p == "quant" || p == "quant/doc.go" || p == "docs/there.md" || p == "README.md"
	}
	for text, want := range map[string]string{
		"[a](there.md) [b](there.md#part) [c](#part) [d](https://example.com/x)": "",
		"[a](gone.md)":           "gone.md",
		"[a](../gone/x.md#part)": "../gone/x.md#part",
		"`quant/doc.go`, `quant/...`, `quant/`, `docs/there.md`": "",
		"`quant/gone.go`":                "quant/gone.go",
		"`GONE.md`":                      "GONE.md",
		"`there.md` and `README.md`":     "",
		"`golang.org/x/sys`, `a/b`":      "",
		"`go test ./quant/gone`, `gone`": "",
	} {
		if got := strings.Join(broken("docs/a.md", text, exists), " "); got != want {
			t.Errorf("%q: broken %q, want %q", text, got, want)
		}
	}
}

// The targets of links and paths in the documents exist.
func TestLinks(t *testing.T) {
	root := repo.Root(t)
	exists := func(p string) bool {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(p)))
		return err == nil
	}
	for _, name := range repo.Files(t, ".md") {
		for _, target := range broken(name, repo.Read(t, name), exists) {
			t.Errorf("%s: %q leads nowhere", name, target)
		}
	}
}

// The README links to the other documents.
func TestReadme(t *testing.T) {
	text := repo.Read(t, "README.md")
	for _, name := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md", "RATIONALE.md"} {
		if !strings.Contains(text, "]("+name+")") {
			t.Errorf("README.md has no link to %s", name)
		}
	}
}
