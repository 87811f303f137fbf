//go:build accel

package providers

import (
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

func init() {
	register(device{
		name: "discrete",
		list: func() ([]provider.Info, error) {
			d, err := discrete.New(discrete.Options{})
			if err != nil {
				return nil, err
			}
			return []provider.Info{d.Info()}, d.Close()
		},
		open: func() (provider.Device, error) { return discrete.New(discrete.Options{}) },
	})
}
