//go:build arm64 && !noasm

package isa

import "golang.org/x/sys/cpu"

func supported() []Level {
	switch x := &cpu.ARM64; {
	case x.HasASIMDDP && x.HasI8MM:
		return []Level{NEON, DotProd, I8MM}
	case x.HasASIMDDP:
		return []Level{NEON, DotProd}
	}
	return []Level{NEON}
}
