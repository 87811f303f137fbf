package main

import (
	"fmt"
	"go/build/constraint"
	"path"
	"strings"
)

// entry is a line of the list: tests of a package that may skip under a condition.
type entry struct {
	line      int
	pkg       string // relative to the module; "." is its root
	pattern   string // pattern of path.Match for the test's name
	condition constraint.Expr
	reason    string
}

// parseList reads the list: one entry a line, of the package, the test, a condition as
// in a //go:build line, and behind a # the reason.
func parseList(text string) ([]entry, error) {
	var list []entry
	for i, line := range strings.Split(text, "\n") {
		spec, reason, _ := strings.Cut(line, "#")
		fields := strings.Fields(spec)
		if len(fields) == 0 {
			continue
		}
		e := entry{line: i + 1, reason: strings.TrimSpace(reason)}
		if len(fields) < 3 || e.reason == "" {
			return nil, fmt.Errorf("%s:%d: want a package, a test, a condition and # the reason", listPath, e.line)
		}
		e.pkg, e.pattern = fields[0], fields[1]
		if _, err := path.Match(e.pattern, ""); err != nil {
			return nil, fmt.Errorf("%s:%d: test %q: %w", listPath, e.line, e.pattern, err)
		}
		var err error
		if e.condition, err = constraint.Parse("//go:build " + strings.Join(fields[2:], " ")); err != nil {
			return nil, fmt.Errorf("%s:%d: condition: %w", listPath, e.line, err)
		}
		list = append(list, e)
	}
	return list, nil
}

func (e *entry) holds(f facts) bool {
	return e.condition.Eval(func(name string) bool { return f[name] })
}

// names reports whether the entry matches the test.
func (e *entry) names(pkg, test string) bool {
	if e.pkg != pkg {
		return false
	}
	ok, _ := path.Match(e.pattern, test)
	return ok
}
