//go:build amd64 && !noasm

package main

import "golang.org/x/sys/cpu"

// readVectors reads n times 256 bytes from p on. n is not 0.
//
//go:noescape
func readVectors(p *byte, n int)

// read reads the whole groups of 256 bytes of part.
func read(part []byte) {
	if !cpu.X86.HasAVX2 {
		search(part)
		return
	}
	// A call is short, because the runtime cannot interrupt assembly.
	const call = 1 << 20
	for len(part) >= 256 {
		n := min(len(part), call) / 256
		readVectors(&part[0], n)
		part = part[n*256:]
	}
}
