//go:build !accel

package soak

func devices() []configuration { return nil }
