//go:build !accel

package coherence

func devices() []configuration { return nil }
