package main

import (
	"math"

	. "github.com/fucina-go/fucina/kernels/cpu/_asm/gen/a64"
)

// The registers of the functions that quantize.
const (
	qDst, qStride, qX, qStretches, qOrder = R(0), R(1), R(2), R(3), R(4)
	qTo, qMost, qFinite, qZero, qD, qInv  = R(5), R(6), R(7), R(8), R(10), R(11)
	vInv, v127, vMagnitude, vD, vZero     = V(20), V(21), V(22), V(23), V(24)
)

func quantizeConstants() {
	Go("MOVD dst+0(FP), %v", qDst)
	Go("MOVD stride+8(FP), %v", qStride)
	Go("MOVD x+16(FP), %v", qX)
	Go("MOVD stretches+24(FP), %v", qStretches)
	Go("MOVW $0x%08x, %v", math.Float32bits(127), qTo)
	FMOVToScalar(v127, qTo)
	MOVI(vMagnitude, 255)
	USHR(S4, vMagnitude, vMagnitude, 1)
	MOVI(vZero, 0)
}

// factors sets lane 0 of vInv to 127/max|x|, and vD to max|x|/127, where v has the greatest
// magnitudes of x as integers. Where the codes are 0, vInv is 0, and if max|x| is below least, so is
// vD. It changes v.
func factors(v V) {
	const least = 0x1p-119
	UMAXV(S4, v, v)
	FMOVToGeneral(qMost, v)
	FDIVScalar(vInv, v127, v)
	FDIVScalar(vD, v, v127)
	FMOVToGeneral(qInv, vInv)
	FMOVToGeneral(qD, vD)
	Go("MOVW $0x%08x, %v", math.Float32bits(least), qFinite)
	Go("CMPW %v, %v", qFinite, qMost)
	Go("CSEL LO, ZR, %v, %v", qInv, qInv)
	Go("CSEL LO, ZR, %v, %v", qD, qD)
	Go("MOVW $0x%08x, %v", math.Float32bits(math.MaxFloat32), qFinite)
	Go("CMPW %v, %v", qFinite, qMost)
	Go("CSEL HI, ZR, %v, %v", qInv, qInv)
	FMOVToScalar(vInv, qInv)
	FMOVToScalar(vD, qD)
}

// code32 sets two registers to the codes of the f32 in x, and the first lanes of sums to their sums.
// A product that is not a number has the code 0.
func code32(x []V, lo, hi V, sums [2]V) {
	for i, v := range x {
		FMULElement(v, v, vInv, 0)
		FCVTNS(v, v)
		if i%2 == 1 {
			XTN(H4, x[i-1], x[i-1])
			XTN(H8, x[i-1], v)
		}
	}
	for i, v := range []V{lo, hi} {
		XTN(B8, v, x[4*i])
		XTN(B16, v, x[4*i+2])
		SADDLV(B16, sums[i], v)
	}
}

// loadX loads 32 activations.
func loadX(x []V, at int) {
	for i := 0; i < 8; i += 2 {
		LoadPair(x[i], x[i+1], qX, at+16*i)
	}
}

// magnitudes sets top to the greatest magnitudes of x, as integers. It changes tmp.
func magnitudes(x []V, top V, tmp V) {
	for _, v := range x {
		AND(tmp, v, vMagnitude)
		UMAX(S4, top, top, tmp)
	}
}

func quantizeSuper() {
	Text("quantizeSuperNEON", 40)
	quantizeConstants()
	x := []V{0, 1, 2, 3, 4, 5, 6, 7}
	Go("MOVD order+32(FP), %v", qOrder)
	Label("stretch")
	top := V(16)
	MOVI(top, 0)
	for g := range 8 {
		loadX(x, 128*g%512)
		magnitudes(x, top, 17)
		if g == 3 {
			Go("ADD $512, %v", qX)
		}
	}
	Go("SUB $512, %v", qX)
	factors(top)
	for g := range 8 {
		loadX(x, 128*g%512)
		sums := [2]V{18, 19}
		code32(x, 16, 17, sums)
		Go("MOVBU %d(%v), %v", g, qOrder, qTo)
		Go("ADD %v<<5, %v, %v", qTo, qDst, qTo)
		StorePair(16, 17, qTo, 0)
		StoreH(sums[0], qDst, actSums16+4*g)
		StoreH(sums[1], qDst, actSums16+4*g+2)
		ADD(H4, sums[0], sums[0], sums[1])
		StoreH(sums[0], qDst, actSums32+2*g)
		if g == 3 {
			Go("ADD $512, %v", qX)
		}
	}
	StoreS(vD, qDst, actScale)
	for at := actScale + 4; at < actBytes; at += 4 {
		StoreS(vZero, qDst, at)
	}
	Go("ADD $512, %v", qX)
	Go("ADD %v, %v", qStride, qDst)
	Go("SUB $1, %v", qStretches)
	Go("CBNZ %v, stretch", qStretches)
	Go("RET")
}

func quantizeSmall() {
	Text("quantizeSmallNEON", 32)
	quantizeConstants()
	x := []V{0, 1, 2, 3, 4, 5, 6, 7}
	Label("stretch")
	for g := range 8 {
		loadX(x, 128*g%512)
		top := V(16)
		MOVI(top, 0)
		magnitudes(x, top, 17)
		factors(top)
		sums := [2]V{18, 19}
		code32(x, 16, 17, sums)
		StorePair(16, 17, qDst, 32*g)
		StoreS(vD, qDst, actScales+4*g)
		ADD(H4, sums[0], sums[0], sums[1])
		StoreH(sums[0], qDst, actSums+2*g)
		if g == 3 {
			Go("ADD $512, %v", qX)
		}
	}
	StoreQ(vZero, qDst, actSums+16)
	Go("ADD $512, %v", qX)
	Go("ADD %v, %v", qStride, qDst)
	Go("SUB $1, %v", qStretches)
	Go("CBNZ %v, stretch", qStretches)
	Go("RET")
}
