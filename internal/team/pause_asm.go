//go:build (amd64 || arm64) && !noasm

package team

// pause tells the processor that this goroutine polls memory. The processor then runs the other
// thread of its core, or saves power, for 5 to 140 cycles. On arm64 it is an instruction
// barrier, because most processors do nothing at the hint that is meant for this.
//
//go:noescape
func pause()
