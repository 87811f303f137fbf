// Command simdarm64 generates the assembly of package simd for arm64. The comments of the stubs in
// decl_arm64.go define the results.
package main

import (
	"flag"
	"fmt"
	"os"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// The layout of a stretch of 256 activations; see package simd.
const (
	actBytes  = 320
	actSums16 = 256
	actSums32 = 288
	actScale  = 304
	actScales = 256
	actSums   = 288
)

// level is what the rows of a level are made of.
type level struct {
	name string // the end of a function's name
	dot  bool   // has SDOT
}

var levels = []level{{"NEON", false}, {"Dot", true}}

func main() {
	path := flag.String("out", "", "file to write instead of the standard output")
	flag.Parse()
	Begin("go run ./simdarm64", "arm64 && !noasm")
	for _, l := range levels {
		for _, f := range supers() {
			f.rows(l)
		}
		for _, f := range smalls() {
			f.rows(l)
		}
	}
	quantizeSuper()
	quantizeSmall()
	tiles()
	unpackers()
	if *path == "" {
		os.Stdout.Write(Bytes())
		return
	}
	if err := os.WriteFile(*path, Bytes(), 0o666); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The registers of the functions for rows.
const (
	rOut, rW, rRowBytes, rRows  = R(0), R(1), R(2), R(3)
	rAct, rBlocks, rP           = R(4), R(5), R(6)
	rScales, rSums, rT          = R(7), R(8), R(9)
	vSum                        = V(31)
	vProduct                    = V(14) // what a slot of a level without SDOT may change
	firstConstant, lastConstant = V(24), V(30)
)

// constants loads tables of 16 bytes to the registers from firstConstant on. It changes rT.
func constants(name string, list ...[]byte) {
	if len(list) == 0 {
		return
	}
	var all []byte
	for _, b := range list {
		if len(b) != 16 || firstConstant+V(len(list))-1 > lastConstant {
			panic(name)
		}
		all = append(all, b...)
	}
	Table(rT, name, all)
	for i := range list {
		LoadQ(firstConstant+V(i), rT, 16*i)
	}
}

// repeat returns 16 bytes that repeat the given ones.
func repeat(b ...byte) (all []byte) {
	for len(all) < 16 {
		all = append(all, b...)
	}
	return all
}

// slot is a sum of products of bytes in four lanes of a register.
type slot struct {
	v    V
	most int // of the magnitudes of the codes
	n    int // products of 16 bytes so far
}

// halves reports whether the sum stays in lanes of halves until it ends. Products with activations,
// which are at most 127, of four groups of 16 codes then fit.
func (s *slot) halves(groups int) bool { return s.most*127*2*groups <= 1<<15-1 }

// mul adds the products of 16 codes and activations. groups is how many the slot gets in all.
func (l level) mul(s *slot, codes, act V, groups int) {
	switch {
	case l.dot:
		if s.n == 0 {
			MOVI(s.v, 0)
		}
		SDOT(s.v, codes, act)
	case s.halves(groups):
		if s.n == 0 {
			SMULL(B8, s.v, codes, act)
		} else {
			SMLAL(B8, s.v, codes, act)
		}
		SMLAL(B16, s.v, codes, act)
	default:
		SMULL(B8, vProduct, codes, act)
		SMLAL(B16, vProduct, codes, act)
		if s.n == 0 {
			SADDLP(H8, s.v, vProduct)
		} else {
			SADALP(H8, s.v, vProduct)
		}
	}
	s.n++
}

// end makes the lanes of the slot words.
func (l level) end(s *slot, groups int) {
	if !l.dot && s.halves(groups) {
		SADDLP(H8, s.v, s.v)
	}
}

// rowsBegin begins a function for rows, and rowsEnd ends it. Between them is the product of a row at
// rP, of rBlocks blocks, and rAct, which is to be vSum.
func rowsBegin(name string, constants func()) {
	Text(name, 48)
	Go("MOVD out+0(FP), %v", rOut)
	Go("MOVD w+8(FP), %v", rW)
	Go("MOVD rowBytes+16(FP), %v", rRowBytes)
	Go("MOVD rows+24(FP), %v", rRows)
	if constants != nil {
		constants()
	}
	Label("row")
	Go("MOVD blocks+32(FP), %v", rBlocks)
	Go("MOVD act+40(FP), %v", rAct)
	Go("MOVD %v, %v", rW, rP)
	MOVI(vSum, 0)
}

func rowsEnd() {
	StoreS(vSum, rOut, 0)
	Go("ADD $4, %v", rOut)
	Go("ADD %v, %v", rRowBytes, rW)
	Go("SUB $1, %v", rRows)
	Go("CBNZ %v, row", rRows)
	Go("RET")
}
