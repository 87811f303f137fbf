//go:build accel

package discrete

import "github.com/fucina-go/fucina/kernels/cpu"

// reference returns the CPU reference kernels on one lane: queues compute side by
// side, as they do on a device.
func reference() Executor { return cpu.NewExecutor(nil) }
