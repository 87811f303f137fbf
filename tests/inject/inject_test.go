package inject

import (
	"context"
	"errors"
	"testing"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

var errCause = errors.New("the test's cause")

// counter is a device that counts its calls.
type counter struct {
	provider.Device
	calls [Calls]int
}

func (c *counter) NewQueue(provider.QueueKind) (provider.Queue, error) {
	c.calls[NewQueue]++
	return nil, nil
}

func (c *counter) Submit(context.Context, provider.Queue, op.ID, *op.Args) (accel.Work, error) {
	c.calls[Submit]++
	return accel.Work{}, nil
}

func (c *counter) WaitFor(context.Context, provider.Queue, accel.Work) error {
	c.calls[WaitFor]++
	return nil
}

func (c *counter) Alloc(int) (op.Mem, error) {
	c.calls[Alloc]++
	return op.Mem{}, nil
}

func (c *counter) Upload(context.Context, provider.Queue, op.Mem, []byte) (accel.Work, error) {
	c.calls[Upload]++
	return accel.Work{}, nil
}

func (c *counter) Download(context.Context, provider.Queue, []byte, op.Mem) (accel.Work, error) {
	c.calls[Download]++
	return accel.Work{}, nil
}

type pinnedCounter struct{ *counter }

func (c pinnedCounter) AllocPinned(int) ([]byte, error) {
	c.calls[AllocPinned]++
	return nil, nil
}

func (pinnedCounter) FreePinned([]byte) {}

// do makes a call of a kind.
func do(ctx context.Context, p provider.Device, call Call) (err error) {
	switch call {
	case NewQueue:
		_, err = p.NewQueue(provider.Compute)
	case Submit:
		_, err = p.Submit(ctx, nil, op.Add, nil)
	case WaitFor:
		err = p.WaitFor(ctx, nil, accel.Work{})
	case Alloc:
		_, err = p.Alloc(1)
	case AllocPinned:
		_, err = p.(provider.PinnedAllocator).AllocPinned(1)
	case Upload:
		_, err = p.Upload(ctx, nil, op.Mem{}, nil)
	case Download:
		_, err = p.Download(ctx, nil, nil, op.Mem{})
	}
	return err
}

// The nth call of a kind fails, once, and does not reach the provider.
func TestFault(t *testing.T) {
	for call := range Calls {
		t.Run(call.String(), func(t *testing.T) {
			c := &counter{}
			p := NewDevice(pinnedCounter{c})
			dev := p.ForEngine()
			done := 0
			p.Arm(Fault{Call: call, Nth: 2, Do: func(provider.Queue) { done = c.calls[call] }, Err: errCause})
			for i := range 4 {
				if err := do(t.Context(), dev, call); errors.Is(err, errCause) != (i == 1) {
					t.Errorf("call %d: %v", i+1, err)
				}
			}
			if done != 1 || c.calls[call] != 3 || p.Count(call, nil) != 4 {
				t.Errorf("the fault came after %d calls; %d reached the provider, %d were counted", done, c.calls[call], p.Count(call, nil))
			}
		})
	}
}

// A fault with a label counts only the calls with that label.
func TestLabel(t *testing.T) {
	p := NewDevice(&counter{})
	mine, theirs := As(t.Context(), "me"), As(t.Context(), "them")
	p.Arm(Fault{Call: Submit, Who: "me", Nth: 2, Err: errCause})
	for i, ctx := range []context.Context{theirs, mine, theirs, t.Context(), mine, mine} {
		if err := do(ctx, p, Submit); errors.Is(err, errCause) != (i == 4) {
			t.Errorf("call %d: %v", i+1, err)
		}
	}
	if me, them, all := p.Count(Submit, "me"), p.Count(Submit, "them"), p.Count(Submit, nil); me != 3 || them != 2 || all != 6 {
		t.Errorf("counted %d, %d and %d calls", me, them, all)
	}
	p.Arm(Fault{Call: Submit, Who: "me", Nth: 1, Err: errCause})
	p.Arm(Fault{Call: Submit, Who: "them", Nth: 1, Err: errCause})
	p.Forget("me")
	if err := do(mine, p, Submit); err != nil {
		t.Errorf("a forgotten fault: %v", err)
	}
	if n := p.Count(Submit, "me"); n != 1 {
		t.Errorf("%d calls are counted after they were forgotten, want 1", n)
	}
	p.Disarm()
	if err := do(theirs, p, Submit); err != nil {
		t.Errorf("a disarmed fault: %v", err)
	}
}

// Only the wrapper of a device with pinned memory has pinned memory.
func TestPinned(t *testing.T) {
	if _, ok := NewDevice(&counter{}).ForEngine().(provider.PinnedAllocator); ok {
		t.Error("pinned memory from a device without")
	}
	if _, ok := NewDevice(pinnedCounter{&counter{}}).ForEngine().(provider.PinnedAllocator); !ok {
		t.Error("no pinned memory from a device with some")
	}
}
