//go:build accel

package discrete

import "github.com/fucina-go/fucina/kernels/cpu"

// reference returns the CPU reference kernels on one lane, because the queues compute
// concurrently like those of a device.
func reference() Executor { return cpu.NewExecutor(nil) }
