package importgraph

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fucina-go/fucina/tests/repo"
)

// header is the header of the table of floors.
var header = []string{"floor", "package", "holds", "may import beside its floor"}

// room is a package in the table of floors. It may import the packages of lower floors, as
// far as the other fields allow, and those of beside.
type room struct {
	path  string // path in the module; "." is the root
	floor int

	beside  []string         // packages of its own floor that it may import
	nothing bool             // it may import no package of the module
	only    map[int][]string // the packages of a floor that it may import, by floor
	ceiling int              // the highest of the lower floors that it may import
	by      []string         // if not nil, the packages that may import it
}

// plan is the table of floors, by package.
type plan map[string]*room

// The clauses of the last column of the table, separated by semicolons. Any other clause
// lists packages of the room's own floor.
var (
	nothingClause = "nothing of the module"
	onlyClause    = regexp.MustCompile("^of floor (\\d+) only (`.+`)$")
	ceilingClause = regexp.MustCompile(`^nothing above floor (\d+)$`)
	byClause      = regexp.MustCompile("^imported only by (`.+`)$")
	besideClause  = regexp.MustCompile("^`[^`]+`(, `[^`]+`)*$")
)

// parsePlan reads the rows of the table of floors, and returns all their errors.
func parsePlan(rows [][]string) (plan, []error) {
	p := plan{}
	var bad []error
	for _, row := range rows {
		r, err := parseRoom(row)
		if err != nil {
			bad = append(bad, fmt.Errorf("row %q: %w", row[1], err))
			continue
		}
		if p[r.path] != nil {
			bad = append(bad, fmt.Errorf("row %q: the package appears twice", row[1]))
		}
		p[r.path] = r
	}
	return p, append(bad, p.check()...)
}

func parseRoom(row []string) (*room, error) {
	names := repo.Code(row[1])
	if len(names) != 1 || row[1] != "`"+names[0]+"`" {
		return nil, fmt.Errorf("want one package between backquotes")
	}
	r := &room{path: names[0], only: map[int][]string{}}
	var err error
	if r.floor, err = strconv.Atoi(row[0]); err != nil || r.floor < 0 {
		return nil, fmt.Errorf("floor %q, want a number", row[0])
	}
	if row[2] == "" {
		return nil, fmt.Errorf("it does not say what the package holds")
	}
	r.ceiling = r.floor - 1
	for clause := range strings.SplitSeq(row[3], ";") {
		if clause = strings.TrimSpace(clause); clause == "" {
			continue
		}
		if m := onlyClause.FindStringSubmatch(clause); m != nil {
			n, _ := strconv.Atoi(m[1])
			r.only[n] = repo.Code(m[2])
		} else if m := ceilingClause.FindStringSubmatch(clause); m != nil {
			r.ceiling, _ = strconv.Atoi(m[1])
		} else if m := byClause.FindStringSubmatch(clause); m != nil {
			r.by = repo.Code(m[1])
		} else if clause == nothingClause {
			r.nothing = true
		} else if besideClause.MatchString(clause) {
			r.beside = repo.Code(clause)
		} else {
			return nil, fmt.Errorf("clause %q is unknown", clause)
		}
	}
	return r, nil
}

// check returns the contradictions between rows.
func (p plan) check() []error {
	var bad []error
	for _, r := range p {
		for _, other := range r.beside {
			if o := p[other]; o == nil || o.floor != r.floor || o == r {
				bad = append(bad, fmt.Errorf("row %q: %q is no other package of floor %d", r.path, other, r.floor))
			}
		}
		for floor, list := range r.only {
			for _, other := range list {
				if o := p[other]; o == nil || o.floor != floor || floor >= r.floor {
					bad = append(bad, fmt.Errorf("row %q: %q is no package of a lower floor %d", r.path, other, floor))
				}
			}
		}
		for _, other := range r.by {
			if p[other] == nil {
				bad = append(bad, fmt.Errorf("row %q: %q has no row", r.path, other))
			}
		}
		if r.ceiling >= r.floor {
			bad = append(bad, fmt.Errorf("row %q: nothing above floor %d is no limit on floor %d", r.path, r.ceiling, r.floor))
		}
	}
	return bad
}

// forbids returns the reason why the package from must not import the package to, or "".
func forbids(from, to *room) string {
	only, limited := from.only[to.floor]
	switch {
	case from.nothing:
		return "it imports nothing of the module"
	case to.by != nil && !slices.Contains(to.by, from.path):
		return fmt.Sprintf("only %v may import it", to.by)
	case to.floor > from.floor:
		return fmt.Sprintf("upward, from floor %d to %d", from.floor, to.floor)
	case to.floor == from.floor && !slices.Contains(from.beside, to.path):
		return fmt.Sprintf("sideways on floor %d", from.floor)
	case limited && !slices.Contains(only, to.path):
		return fmt.Sprintf("of floor %d it imports only %v", to.floor, only)
	case to.floor < from.floor && to.floor > from.ceiling:
		return fmt.Sprintf("it imports nothing above floor %d", from.ceiling)
	}
	return ""
}
