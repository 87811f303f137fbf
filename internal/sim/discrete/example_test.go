//go:build accel

package discrete_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fucina-go/fucina/core/accel"
	"github.com/fucina-go/fucina/internal/sim/discrete"
)

func Example() {
	d, err := discrete.New(discrete.Options{
		Seed: 1, Chaos: discrete.Sleeps,
		Faults: []discrete.Fault{{Kind: discrete.UploadAsync, Nth: 2}},
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	q, _ := d.NewQueue(0)
	m, _ := d.Alloc(4)
	d.Hold()
	_, _ = d.Upload(ctx, q, m, []byte("good"))
	w, _ := d.Upload(ctx, q, m, []byte("evil"))
	fmt.Println("ended while held:", w.Done())
	d.Release()
	err = w.Wait(ctx)
	fmt.Println("failed:", errors.Is(err, accel.ErrDeviceFailed))
	d.Free(m)
	fmt.Println("closed:", d.Close())
	// Output:
	// ended while held: false
	// failed: true
	// closed: <nil>
}
