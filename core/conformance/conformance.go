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

// T is what Run reports to; a *testing.T is one.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
}

// Options choose what Run runs. The zero value is everything.
type Options struct {
	// Short runs one case in some, with at least one of each operation and format.
	Short bool
	// Seed makes other random operands.
	Seed uint64
	// Only restricts the suite to the cases whose name begins with it, such as
	// "matmul q4_k" or "lifetime".
	Only string
	// Reference says that the provider computes with the CPU's kernels: a decline is a
	// failure, and the tolerances are those of the reference that others are compared
	// with.
	Reference bool
}

// Open opens a provider, which Run closes.
type Open func() (provider.Provider, error)

// Report is what a run came to.
type Report struct {
	Cases    int // that were run
	Failed   int
	Declined []Decline
	// Digest is of the bytes of all outputs in order: two runs of one provider that
	// agree in bits have the same.
	Digest string
}

// Decline is what the provider declined of one operation and its formats.
type Decline struct {
	Op      op.ID
	Formats string // as "q4_k", or "f32 to q8_0" of a copy
	Reason  string // of the first case
	Cases   int
}

// String returns the decline as a line of a report.
func (d Decline) String() string {
	return fmt.Sprintf("%s %s: %d cases declined: %s", d.Op, d.Formats, d.Cases, d.Reason)
}

// Run runs the suite on the providers that open returns and reports failures to t. It
// also logs what was declined.
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
	s.report.Digest = hex.EncodeToString(s.digest.Sum(nil))
	return s.report
}

// maxPrinted is how many failures are printed. One fault makes hundreds of cases fail.
const maxPrinted = 20

// shortEvery is the one in how many cases of each operation and format that a short run
// runs.
const shortEvery = 16

type suite struct {
	t      T
	open   Open
	opt    Options
	report Report
	digest hash.Hash
	seen   map[string]int // cases so far of each operation and its formats
	b      *bench         // of the operations
}

// wants reports whether to run a case of the given kind.
func (s *suite) wants(kind, name string) bool {
	if !strings.HasPrefix(name, s.opt.Only) {
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
	if s.report.Failed++; s.report.Failed <= maxPrinted {
		s.t.Errorf("conformance: %s: %v (seed %d)", name, err, s.opt.Seed)
	}
}

// declined counts a case that the provider declined.
func (s *suite) declined(name string, id op.ID, formats, reason string) {
	s.t.Helper()
	i := slices.IndexFunc(s.report.Declined, func(d Decline) bool { return d.Op == id && d.Formats == formats })
	if i < 0 {
		i = len(s.report.Declined)
		s.report.Declined = append(s.report.Declined, Decline{Op: id, Formats: formats, Reason: reason})
	}
	s.report.Declined[i].Cases++
	if s.opt.Reference {
		s.done(name, fmt.Errorf("declined: %s", reason))
	}
}

// operations runs the cases of every operation on one provider and one queue.
func (s *suite) operations() {
	s.t.Helper()
	b, err := newBench(s.open)
	if err != nil {
		s.done("open", err)
		return
	}
	s.b = b
	for _, group := range groups {
		group(s)
	}
	if err := b.close(); err != nil {
		s.done("close", err)
	}
}

// try runs a case of an operation. detail, if not empty, is the rest of its name after the
// operation and the formats. build returns the arguments, in host memory.
func (s *suite) try(id op.ID, formats, detail string, build func(rng *rand.Rand) op.Args) {
	s.t.Helper()
	s.tryWith(id, formats, detail, func(rng *rand.Rand) error {
		a := build(rng)
		return s.b.check(id, &a, tolerance(id, &a, s.opt.Reference), s.digest, s.opt.Short)
	})
}

// tryWith is try for a case that checks itself.
func (s *suite) tryWith(id op.ID, formats, detail string, run func(rng *rand.Rand) error) {
	s.t.Helper()
	kind := fmt.Sprintf("%s %s", id, formats)
	name := strings.TrimSpace(kind + " " + detail)
	if !s.wants(kind, name) {
		return
	}
	err := run(s.rng(name))
	var d declineError
	if errors.As(err, &d) {
		s.declined(name, id, formats, string(d))
		return
	}
	s.done(name, err)
}
