//go:build (!amd64 && !arm64) || noasm

package isa

func supported() []Level { return nil }
