package conformance

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// T receives the failures of Run. A *testing.T is a T.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Options choose the cases that Run runs. The zero value runs all of them.
type Options struct {
	// Short runs a part of the cases, with at least one of each operation and format.
	Short bool
	// Seed is the seed of the random operands.
	Seed uint64
	// Only restricts the suite to the cases whose name begins with it, such as
	// "matmul q4_k" or "lifetime".
	Only string
	// Reference says that the provider computes with the CPU's kernels. A decline is then
	// a failure, and the tolerances are the smaller ones of the reference.
	Reference bool
}

// Open opens a provider, which Run closes.
type Open func() (provider.Provider, error)

// Report is the result of a run.
type Report struct {
	Cases    int // number of cases that were run
	Failed   int // number of failures
	Declined []Decline
	// Digest is a hash of the bytes of all outputs in order. Two runs of a provider with
	// the same bits have the same Digest.
	Digest string
}

// Decline counts the declined cases of one operation and its formats.
type Decline struct {
	Op      op.ID
	Formats string // such as "q4_k", or "f32 to q8_0" for a copy
	Reason  string // the reason for the first case
	Cases   int
}

// String returns the decline as a line of a report.
func (d Decline) String() string {
	return fmt.Sprintf("%s %s: %d cases declined: %s", d.Op, d.Formats, d.Cases, d.Reason)
}

// Run runs the suite on the providers that open returns. It reports failures to t and logs
// the declined cases. It is a failure if Options.Only names no case, or if the whole suite
// runs and the provider declines every operation. The suite ends with the first panic of the
// provider, which is a failure of its case.
func Run(t T, open Open, opt Options) Report {
	t.Helper()
	s := &suite{t: t, open: open, opt: opt, digest: sha256.New(), seen: make(map[string]int)}
	s.operations()
	s.lifetimes()
	for _, d := range s.report.Declined {
		t.Logf("conformance: %s", d)
	}
	if n := s.report.Failed - maxPrinted; n > 0 {
		t.Errorf("conformance: %d more cases failed", n)
	}
	switch {
	case s.over:
		t.Errorf("conformance: the suite ends with the panic, after %d cases", s.report.Cases)
	case len(s.seen) == 0:
		s.report.Failed++
		t.Errorf("conformance: no case has a name that begins with %q", opt.Only)
	case opt.Only == "" && !s.ran:
		s.report.Failed++
		t.Errorf("conformance: the provider declines every operation, so nothing was tested")
	}
	s.report.Digest = hex.EncodeToString(s.digest.Sum(nil))
	return s.report
}

// maxPrinted bounds the failures that are printed, because one fault makes hundreds of cases
// fail.
const maxPrinted = 20

// shortEvery is the number of cases of an operation and format of which a short run runs
// one.
const shortEvery = 16

type suite struct {
	t      T
	open   Open
	opt    Options
	report Report
	digest hash.Hash
	seen   map[string]int // cases so far of each operation and its formats
	b      *bench         // of the operations
	ran    bool           // an operation ran
	over   bool           // a case panicked; the provider may hold locks, so no other case runs
}

// wants reports whether to run a case of the given kind.
func (s *suite) wants(kind, name string) bool {
	if s.over || !strings.HasPrefix(name, s.opt.Only) {
		return false
	}
	n := s.seen[kind]
	s.seen[kind]++
	return !s.opt.Short || n%shortEvery == 0
}

// rng returns the random numbers of a case.
func (s *suite) rng(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(s.opt.Seed, h.Sum64()))
}

// done counts a case and reports its failure.
func (s *suite) done(name string, err error) {
	s.t.Helper()
	s.report.Cases++
	if err == nil {
		return
	}
	s.over = s.over || errors.Is(err, errPanic)
	if s.report.Failed++; s.report.Failed <= maxPrinted {
		s.t.Errorf("conformance: %s: %v (seed %d)", name, err, s.opt.Seed)
	}
}

// declined counts a case that the provider declined.
func (s *suite) declined(name, formats string, e declineError) {
	s.t.Helper()
	i := slices.IndexFunc(s.report.Declined, func(d Decline) bool { return d.Op == e.id && d.Formats == formats })
	if i < 0 {
		i = len(s.report.Declined)
		s.report.Declined = append(s.report.Declined, Decline{Op: e.id, Formats: formats, Reason: e.reason})
	}
	s.report.Declined[i].Cases++
	if s.opt.Reference {
		s.done(name, e)
	}
}

// operations runs the cases of every operation on one provider and one queue.
func (s *suite) operations() {
	s.t.Helper()
	err := guarded(func() (err error) {
		s.b, err = newBench(s.open)
		return err
	})
	if err != nil {
		s.done("open", err)
		return
	}
	for _, group := range groups {
		group(s)
	}
	if s.over {
		return
	}
	if err := guarded(s.b.close); err != nil {
		s.done("close", err)
	}
}

// try runs a case of an operation. Its name is the operation, the formats and detail, which
// may be empty. build returns the arguments, in host memory.
func (s *suite) try(id op.ID, formats, detail string, build func(rng *rand.Rand) op.Args) {
	s.t.Helper()
	s.tryWith(id, formats, detail, func(rng *rand.Rand) error {
		a := build(rng)
		_, err := s.b.check(id, &a, s.opt, s.digest)
		return err
	})
}

// tryWith is try for a case whose run function checks the result.
func (s *suite) tryWith(id op.ID, formats, detail string, run func(rng *rand.Rand) error) {
	s.t.Helper()
	for _, exact := range modes(id) {
		s.tryMode(id, formats, detail, exact, run)
	}
}

// tryMode is tryWith in one mode.
func (s *suite) tryMode(id op.ID, formats, detail string, exact bool, run func(rng *rand.Rand) error) {
	s.t.Helper()
	kind := fmt.Sprintf("%s %s", id, formats)
	name := strings.TrimSpace(kind + " " + detail)
	rng := s.rng(name) // the same in both modes
	if exact {
		kind, name = kind+" exact", name+" exact"
	}
	if !s.wants(kind, name) {
		return
	}
	s.b.exact = exact
	err := guarded(func() error { return run(rng) })
	s.ran = s.ran || !errors.As(err, new(declineError))
	s.ended(name, formats, err)
}

// modes returns the values of op.Args.Exact with which the cases of an operation run. Operations
// that move or compare numbers have one mode.
func modes(id op.ID) []bool {
	switch id {
	case op.Copy, op.GetRows, op.SetRows, op.Argmax:
		return []bool{false}
	}
	return []bool{false, true}
}

// ended counts a case that ended with err, as declined if err has a declineError.
func (s *suite) ended(name, formats string, err error) {
	s.t.Helper()
	var d declineError
	if errors.As(err, &d) {
		s.declined(name, formats, d)
		return
	}
	s.done(name, err)
}
