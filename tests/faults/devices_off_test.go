//go:build !accel

package faults

func devices() []configuration { return nil }
