// Package asm is the module of the generators of assembly for amd64. Each directory but gen has the
// generator of the package of the same name below kernels/cpu.
package asm
