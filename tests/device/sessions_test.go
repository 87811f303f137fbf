//go:build accel

package device

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/gguf"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/llm"
)

// longA and longB are the sequences of two sessions. They have the first 34 tokens in common,
// so that the sessions share a page.
var longA, longB = func() (a, b []int32) {
	for i := range int32(40) {
		a = append(a, 260+i*7%40)
	}
	return a, append(slices.Clone(a[:34]), 271, 265, 280, 266, 290, 262)
}()

// rowsOf returns the logits after each token of ids, which the CPU computes in a session of its
// own.
func rowsOf(t testing.TB, f *gguf.File, ids []int32) [][]float32 {
	t.Helper()
	eng, err := fucina.Open(fucina.WithProvider("cpu"), fucina.WithThreads(1), fucina.WithExact(true))
	if err != nil {
		t.Fatal(err)
	}
	m, err := llm.New(eng, f, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.NewSession(llm.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]float32
	err = s.DecodeAll(t.Context(), ids, func(_ int, logits []float32) error {
		rows = append(rows, slices.Clone(logits))
		return nil
	})
	if err = errors.Join(err, s.Close(), m.Close(), eng.Close()); err != nil {
		t.Fatal(err)
	}
	return rows
}

// pair is two sessions of a model on a device that is about to fail.
type pair struct {
	*rig
	t    *testing.T
	a, b *llm.Session
	want [2][][]float32 // the logits after each token of longA and longB
}

// check decodes the rest of ids in s, in the given number of tokens at a time, and compares the
// logits at the end with those of a session of its own.
func (p *pair) check(what string, s *llm.Session, ids []int32, want [][]float32, at int) error {
	for s.Past() < len(ids) {
		next := ids[s.Past():min(s.Past()+at, len(ids))]
		logits := make([]float32, len(want[0]))
		if err := s.Decode(context.Background(), next, logits); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !slices.Equal(logits, want[s.Past()-1]) {
			return fmt.Errorf("%s: other logits after token %d", what, s.Past()-1)
		}
	}
	return nil
}

// strike makes the fault happen in a step of session a, whose decode fails with an error that
// matches it. If late is set, a is cancelled before the device reports the failure, so that the
// next step of any session finds it.
func (p *pair) strike(fault discrete.Fault, late bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := longA[p.a.Past():min(p.a.Past()+4, len(longA))]
	if err := p.dev.Inject(fault); err != nil {
		return err
	}
	if !late {
		logits := make([]float32, len(p.want[0][0]))
		err := p.a.Decode(ctx, next, logits)
		if err == nil && fault.Kind != discrete.SubmitAsync {
			// The host still had everything that the device had, so the CPU went on.
			if !slices.Equal(logits, p.want[0][p.a.Past()-1]) {
				return errors.New("the session that struck: other logits")
			}
			return nil
		}
		if !errors.Is(err, fucina.ErrDeviceFailed) && !errors.Is(err, fucina.ErrDeviceLost) {
			return fmt.Errorf("the session that struck: %v, want a failure of the device", err)
		}
		return nil
	}
	p.dev.Hold()
	defer p.dev.Release()
	done := make(chan error, 1)
	before := p.dev.Events().Submits
	go func() { done <- p.a.Decode(ctx, next, make([]float32, len(p.want[0][0]))) }()
	for p.dev.Events().Submits < before+fault.Nth {
		select {
		case err := <-done:
			return fmt.Errorf("the step on a held device: %w", err)
		default:
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		return fmt.Errorf("the cancelled session: %w, want %w", err, context.Canceled)
	}
	return nil
}

// writer is the number of the operation of a step that writes to the cache. The next one reads it.
const writer = 4

// A failure of the device during a step of one session is an error of that session at most. The
// other sessions go on with the logits that they have without the failure, whatever they were
// doing. So does the session that failed.
func TestFailureOfAnotherSession(t *testing.T) {
	f := openFile(t, small)
	want := [2][][]float32{rowsOf(t, f, longA), rowsOf(t, f, longB)}
	submits := stepSubmits(t, f)
	type strike struct {
		name  string
		fault discrete.Fault
		late  bool
		lives bool // whether the device computes afterwards
	}
	var strikes []strike
	for _, nth := range []int{1, writer, writer + 1, submits} {
		strikes = append(strikes,
			strike{fmt.Sprintf("op %d of %d fails", nth, submits), discrete.Fault{Kind: discrete.SubmitAsync, Nth: nth}, false, true},
			strike{fmt.Sprintf("op %d of %d fails after a cancellation", nth, submits), discrete.Fault{Kind: discrete.SubmitAsync, Nth: nth}, true, true})
	}
	strikes = append(strikes,
		strike{"the upload fails", discrete.Fault{Kind: discrete.UploadAsync, Nth: 1}, false, false},
		strike{"the upload fails after a cancellation", discrete.Fault{Kind: discrete.UploadAsync, Nth: 1}, true, false},
		strike{"the download fails", discrete.Fault{Kind: discrete.DownloadAsync, Nth: 1}, false, false},
		strike{"the device is lost at the upload", discrete.Fault{Kind: discrete.Loss, Nth: 2}, false, false},
		strike{"the device is lost in the last op", discrete.Fault{Kind: discrete.Loss, Nth: submits}, false, false})
	for _, s := range strikes {
		for name, during := range situations {
			if s.late && strings.Contains(name, "first") {
				continue // the step waits for room to upload weights, so it cannot be cancelled late
			}
			if (s.late || s.fault.Nth <= writer) && strings.Contains(name, "second") {
				continue // if the write to the cache may have failed, the runner need not read the cache
			}
			t.Run(s.name+"/"+name, func(t *testing.T) {
				r := openRig(t, discrete.Options{Ring: deepRing})
				m := r.openModel(t, f)
				p := &pair{rig: r, t: t, a: openSession(t, m), b: openSession(t, m), want: want}
				within(t, "the sessions", func() error {
					if err := during(p, func() error { return p.strike(s.fault, s.late) }); err != nil {
						return err
					}
					if err := p.check("the session that failed", p.a, longA, want[0], 3); err != nil {
						return err
					}
					if !s.lives {
						return nil
					}
					before := r.eng.Stats()
					if err := errors.Join(p.b.Rewind(36), p.check("at the end", p.b, longB, want[1], 2)); err != nil {
						return err
					}
					if after := r.eng.Stats(); after.CPU.Ops() != before.CPU.Ops() {
						return fmt.Errorf("%d ops ran on the cpu after the failure: %s", after.CPU.Ops()-before.CPU.Ops(), after.LastFallback)
					}
					return nil
				})
			})
		}
	}
}

// situations are what session b may be doing when session a fails in strike.
var situations = map[string]func(p *pair, strike func() error) error{
	"in the first step of the model": func(p *pair, strike func() error) error {
		return errors.Join(strike(), p.check("b", p.b, longB, p.want[1], 5))
	},
	"with tokens": func(p *pair, strike func() error) error {
		return errors.Join(p.check("a", p.a, longA[:35], p.want[0], 35), p.check("b", p.b, longB[:37], p.want[1], 37),
			strike(), p.check("b", p.b, longB, p.want[1], 1))
	},
	// Without logits, a step ends with a wait for the queue.
	"without logits": func(p *pair, strike func() error) error {
		err := errors.Join(p.check("b", p.b, longB[:3], p.want[1], 3), strike())
		if err == nil {
			err = p.b.Decode(context.Background(), longB[3:6], nil)
		}
		return errors.Join(err, p.check("b", p.b, longB, p.want[1], 7))
	},
	"before its first step, without logits": func(p *pair, strike func() error) error {
		err := strike()
		if err == nil {
			err = p.b.Decode(context.Background(), longB[:3], nil)
		}
		return errors.Join(err, p.check("b", p.b, longB, p.want[1], 7))
	},
	// The runner reads the cache to see what the failure has left, and that fails too.
	"with a second failure": func(p *pair, strike func() error) error {
		err := errors.Join(p.check("b", p.b, longB[:3], p.want[1], 3), strike(), p.dev.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1}))
		if err == nil {
			err = p.b.Decode(context.Background(), longB[3:6], nil)
		}
		p.dev.Disarm()
		return errors.Join(err, p.check("b", p.b, longB, p.want[1], 7))
	},
	"between two rows of DecodeAll": func(p *pair, strike func() error) error {
		if err := p.check("a", p.a, longA[:2], p.want[0], 2); err != nil {
			return err
		}
		return p.b.DecodeAll(context.Background(), longB, func(i int, logits []float32) error {
			if !slices.Equal(logits, p.want[1][i]) {
				return fmt.Errorf("DecodeAll: other logits after token %d", i)
			}
			if i == 4 {
				return strike()
			}
			return nil
		})
	},
	"before a fork and a rewind": func(p *pair, strike func() error) error {
		if err := errors.Join(p.check("b", p.b, longB[:37], p.want[1], 37), strike()); err != nil {
			return err
		}
		child, err := p.b.Fork()
		if err != nil {
			return err
		}
		err = errors.Join(p.check("the fork", child, longB, p.want[1], 2), p.b.Rewind(20), p.check("b", p.b, longB, p.want[1], 9))
		return errors.Join(err, child.Close())
	},
	"before a rewind to nothing": func(p *pair, strike func() error) error {
		return errors.Join(p.check("b", p.b, longB, p.want[1], 40), strike(), p.b.Rewind(0), p.check("b", p.b, longB, p.want[1], 20))
	},
}

// stepSubmits returns the number of operations of a step of the small model.
func stepSubmits(t *testing.T, f *gguf.File) int {
	t.Helper()
	r, err := newRig(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := llm.New(r.eng, f, llm.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := generate(m, smallPrompt, 1)
	n := r.dev.Events().Submits
	if err = errors.Join(err, m.Close(), r.close()); err != nil || len(ids) != 1 {
		t.Fatal(err)
	}
	return n
}
