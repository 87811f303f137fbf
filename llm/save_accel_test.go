//go:build accel

package llm_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/llm"
	"github.com/fucina-go/fucina/tests/harness"
	"github.com/fucina-go/fucina/tests/tinyllama"
)

// writer is the number of the operation of a step that writes to the cache. If an earlier one fails,
// the step may end before it writes.
const writer = 4

// openFailing returns a model on a device that can fail.
func openFailing(t *testing.T) (*discrete.Device, *llm.Model) {
	t.Helper()
	d, err := discrete.New(discrete.Options{})
	if err != nil {
		t.Fatal(err)
	}
	eng, err := fucina.Open(fucina.WithDevice(d), fucina.WithExact(true))
	if err != nil {
		t.Fatal(err)
	}
	harness.CloseLater(t, eng)
	return d, openModel(t, eng, writeModel(t, tinyllama.New(tinyllama.Options{})), llm.Options{})
}

// After a failure of the device, also one during Save or LoadSession, sessions are saved and
// loaded, and continue with the same bits. What the device has lost is decoded again.
func TestSaveAfterDeviceFailure(t *testing.T) {
	d, m := openFailing(t)
	s, other := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{})
	follow(t, s, mixed(150))
	whole := save(t, s)
	want := follow(t, s, mixed(3))
	if err := s.Rewind(153); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken device")
	check := func(what string, kind discrete.FaultKind, nth int, fails func() error) {
		t.Helper()
		if err := d.Inject(discrete.Fault{Kind: kind, Nth: nth, Err: broken}); err != nil {
			t.Fatal(err)
		}
		if err := fails(); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want the error of the device", what, err)
		}
		d.Disarm()
		file := save(t, s)
		if rows := binary.LittleEndian.Uint64(file[atRows:]); rows != 0 && rows != 153 {
			t.Errorf("after %s: %d rows of 153 tokens are saved", what, rows)
		}
		for name, file := range map[string][]byte{"before": whole, "after": file} {
			l := load(t, m, file, llm.SessionOptions{})
			if got := follow(t, l, mixed(3)); l.Past() != 159 || !slices.Equal(got, want) {
				t.Errorf("%s: other logits of a session that was saved %s", what, name)
			}
		}
	}
	check("a step", discrete.SubmitAsync, writer, func() error { return other.Decode(context.Background(), mixed(50), nil) })
	if rows := binary.LittleEndian.Uint64(save(t, s)[atRows:]); rows != 0 {
		t.Errorf("%d rows are left after a failure of the compute queue", rows)
	}
	decode(t, other, mixed(5)...)
	follow(t, s, mixed(3))
	if err := s.Rewind(153); err != nil {
		t.Fatal(err)
	}
	check("load", discrete.SubmitAsync, 2, func() error {
		_, err := m.LoadSession(context.Background(), bytes.NewReader(whole), llm.SessionOptions{})
		return err
	})
	follow(t, s, mixed(3))
	if err := s.Rewind(153); err != nil {
		t.Fatal(err)
	}
	// Without its queue for downloads, the device computes nothing more.
	check("save", discrete.DownloadAsync, 2, func() error { return s.Save(context.Background(), io.Discard) })
}

// striking calls strike before the first write.
type striking struct{ strike func() }

func (w *striking) Write(p []byte) (int, error) {
	if w.strike != nil {
		w.strike()
		w.strike = nil
	}
	return len(p), nil
}

// If a step of another session makes the cache lose its contents between the pieces of Save, Save
// fails. The next Save writes the tokens without rows.
func TestSaveFromLostCache(t *testing.T) {
	d, m := openFailing(t)
	s, other := openSession(t, m, llm.SessionOptions{}), openSession(t, m, llm.SessionOptions{})
	decode(t, s, mixed(150)...)
	err := s.Save(context.Background(), &striking{func() {
		if err := d.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: writer, Err: errInjected}); err != nil {
			t.Fatal(err)
		}
		if err := other.Decode(context.Background(), []int32{5, 6, 7}, nil); !errors.Is(err, errInjected) {
			t.Errorf("decode: %v, want %v", err, errInjected)
		}
	}})
	if !errors.Is(err, fucina.ErrDeviceFailed) || !strings.Contains(err.Error(), "the rows of the session are lost") {
		t.Errorf("save: %v, want the error of a failed device that says what is lost", err)
	}
	file := save(t, s)
	if n := binary.LittleEndian.Uint64(file[atRows:]); n != 0 || s.Past() != 150 {
		t.Errorf("%d rows of %d tokens are saved, want 0 of 150", n, s.Past())
	}
	l := load(t, m, file, llm.SessionOptions{})
	if !slices.Equal(follow(t, l, mixed(3)), follow(t, s, mixed(3))) {
		t.Error("the loaded session gets other logits")
	}
}
