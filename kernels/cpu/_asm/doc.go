// Package asm is the module of the generators of assembly. A directory has the generator of the
// package of the same name below kernels/cpu, for amd64, or for arm64 where the name ends with it.
// Those below gen have what generators share.
package asm
