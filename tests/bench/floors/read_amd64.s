//go:build !noasm

#include "textflag.h"

// func readVectors(p *byte, n int)
TEXT ·readVectors(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), SI
	MOVQ n+8(FP), CX

loop:
	PREFETCHT0 4096(SI)
	PREFETCHT0 4160(SI)
	PREFETCHT0 4224(SI)
	PREFETCHT0 4288(SI)
	VMOVDQU    0(SI), Y0
	VMOVDQU    32(SI), Y1
	VMOVDQU    64(SI), Y2
	VMOVDQU    96(SI), Y3
	VMOVDQU    128(SI), Y4
	VMOVDQU    160(SI), Y5
	VMOVDQU    192(SI), Y6
	VMOVDQU    224(SI), Y7
	ADDQ       $256, SI
	DECQ       CX
	JNZ        loop
	VZEROUPPER
	RET
