//go:build accel

package soak

import (
	"github.com/fucina-go/fucina"
	"github.com/fucina-go/fucina/core/provider"
	"github.com/fucina-go/fucina/internal/sim/discrete"
	"github.com/fucina-go/fucina/tests/inject"
)

func devices() []configuration {
	return []configuration{{"discrete", 4000, openDiscrete}}
}

func openDiscrete() (*device, error) {
	d, err := discrete.New(discrete.Options{})
	if err != nil {
		return nil, err
	}
	faults := inject.NewDevice(d)
	failWork := func(q provider.Queue) {
		if err := d.Inject(discrete.Fault{Kind: discrete.SubmitAsync, Nth: 1, On: q, Err: errFault}); err != nil {
			panic(err)
		}
	}
	return &device{faults: faults.Provider, opts: []fucina.Option{fucina.WithDevice(faults.ForEngine())}, failWork: failWork}, nil
}
