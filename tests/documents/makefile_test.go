package documents

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina/tests/repo"
)

var (
	phony = regexp.MustCompile(`(?m)^\.PHONY: (.*)$`)
	stage = regexp.MustCompile(`(?m)^stage (\w+) \d+ make (\w+)`)
	goal  = regexp.MustCompile("`make (\\w+)`")
)

// targets returns the targets of the Makefile that are meant for the command line.
func targets(t *testing.T) []string {
	t.Helper()
	m := phony.FindStringSubmatch(repo.Read(t, "Makefile"))
	if m == nil {
		t.Fatal("the Makefile has no line .PHONY")
	}
	return slices.DeleteFunc(strings.Fields(m[1]), func(name string) bool { return strings.HasPrefix(name, "$") })
}

// CONTRIBUTING.md lists exactly the targets of the Makefile. Other documents name only
// targets that exist.
func TestTargets(t *testing.T) {
	rows, err := repo.Table(repo.Read(t, "CONTRIBUTING.md"), "target", "what it does")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, row := range rows {
		listed = append(listed, strings.TrimPrefix(repo.Code(row[0])[0], "make "))
	}
	have := targets(t)
	for _, name := range have {
		if !slices.Contains(listed, name) {
			t.Errorf("the target %s is not in CONTRIBUTING.md", name)
		}
	}
	for _, doc := range repo.Files(t, ".md") {
		for _, m := range goal.FindAllStringSubmatch(repo.Read(t, doc), -1) {
			if !slices.Contains(have, m[1]) {
				t.Errorf("%s names the target %s, which the Makefile does not have", doc, m[1])
			}
		}
	}
}

// CONTRIBUTING.md lists the stages of CI in their order.
func TestStages(t *testing.T) {
	_, section, found := strings.Cut(repo.Read(t, "CONTRIBUTING.md"), "\n## CI\n")
	stages := stage.FindAllStringSubmatch(repo.Read(t, ".ci/run"), -1)
	if !found || len(stages) == 0 {
		t.Fatalf("CONTRIBUTING.md has a section on CI: %v; .ci/run has %d stages", found, len(stages))
	}
	have, names := targets(t), repo.Code(section)
	var told []string
	for _, name := range names {
		if slices.Contains(have, name) {
			told = append(told, name)
		}
	}
	var run []string
	for _, m := range stages {
		if m[1] != m[2] {
			t.Errorf("the stage %s runs the target %s", m[1], m[2])
		}
		run = append(run, m[2])
	}
	if !slices.Equal(told, run) {
		t.Errorf("CONTRIBUTING.md has the stages %q, .ci/run %q", told, run)
	}
}
