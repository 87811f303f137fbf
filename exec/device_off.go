//go:build !cuda && !metal && !accel

package exec

import (
	"context"
	"fmt"

	"github.com/fucina-go/fucina/core/op"
	"github.com/fucina-go/fucina/core/provider"
)

// device is empty in a build without an accelerator.
type device struct{}

func (*device) open(opt Options) error {
	if opt.Device != nil {
		return fmt.Errorf("%w: %s: this build has no accelerator support", provider.ErrUnavailable, opt.Device.Info().Name)
	}
	return nil
}

func (*device) provider() provider.Device   { return nil }
func (*device) fallbacks() (int64, string)  { return 0, "" }
func (*device) count(op.ID, error)          {}
func (*device) close(context.Context) error { return nil }

type deviceQueue struct{}

func (*deviceQueue) open(*device) error { return nil }
func (*deviceQueue) close() error       { return nil }
func (*deviceQueue) reset()             {}

func (*deviceQueue) sync(context.Context) error { return nil }

func (*Queue) declines(op.ID) bool          { return false }
func (*Queue) onDevice(op.ID) (bool, error) { return false, nil }
func (*Queue) fallBack(error) bool          { return true }

func (*Queue) runDevice(*call) error {
	panic("exec: device operation in a build without devices")
}
