//go:build arm64 && !noasm

#include "textflag.h"

#define ZERO4(a, b, c, d) \
	VEOR a.B16, a.B16, a.B16; \
	VEOR b.B16, b.B16, b.B16; \
	VEOR c.B16, c.B16, c.B16; \
	VEOR d.B16, d.B16, d.B16

// FMA2 adds the products of eight weights and eight elements of x to two vectors of sums.
#define FMA2(wa, wb, xa, xb, sa, sb) \
	VFMLA wa.S4, xa.S4, sa.S4; \
	VFMLA wb.S4, xb.S4, sb.S4

// FOLD sets fa, the first word of a, to the fold of the sixteen sums in a to d. V31 has ones: adding
// a product with 1 is adding. It changes V24.
#define FOLD(a, b, c, d, fa) \
	VFMLA c.S4, V31.S4, a.S4; \
	VFMLA d.S4, V31.S4, b.S4; \
	VFMLA b.S4, V31.S4, a.S4; \
	VEXT  $8, a.B16, a.B16, V24.B16; \
	VFMLA V24.S4, V31.S4, a.S4; \
	VEXT  $4, a.B16, a.B16, V24.B16; \
	FADDS F24, fa, fa

// ONES sets V31 to ones.
#define ONES \
	MOVD $0x3f800000, R19; \
	VDUP R19, V31.S4

// func tileNEONx2(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)
TEXT ·tileNEONx2(SB), NOSPLIT, $0-136
	MOVD out+0(FP), R0
	MOVD outStride+8(FP), R1
	MOVD w+16(FP), R2
	MOVD wStride+24(FP), R3
	MOVD x+32(FP), R4
	MOVD xStride+40(FP), R5
	MOVD acc+64(FP), R7
	MOVD mode+72(FP), R8
	MOVD rows+80(FP), R9
	MOVD count+88(FP), R10

tile:
	MOVD R2, R11
	ADD  R3, R11, R12
	ADD  R3, R12, R13
	MOVD R4, R16
	ADD  R5, R4, R17
	ADD  R5, R17, R4
	MOVD steps+48(FP), R15
	TBNZ $0, R8, resume
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	ZERO4(V12, V13, V14, V15)
	ZERO4(V16, V17, V18, V19)
	ZERO4(V20, V21, V22, V23)
	B    begin

resume:
	MOVD   R7, R19
	VLD1.P 64(R19), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R19), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R19), [V8.S4, V9.S4, V10.S4, V11.S4]
	VLD1.P 64(R19), [V12.S4, V13.S4, V14.S4, V15.S4]
	VLD1.P 64(R19), [V16.S4, V17.S4, V18.S4, V19.S4]
	VLD1.P 64(R19), [V20.S4, V21.S4, V22.S4, V23.S4]

begin:
	CBZ R15, end

step:
	VLD1.P 32(R16), [V24.S4, V25.S4]
	VLD1.P 32(R17), [V26.S4, V27.S4]
	VLD1.P 32(R11), [V28.S4, V29.S4]
	FMA2(V28, V29, V24, V25, V0, V1)
	FMA2(V28, V29, V26, V27, V12, V13)
	VLD1.P 32(R12), [V30.S4, V31.S4]
	FMA2(V30, V31, V24, V25, V4, V5)
	FMA2(V30, V31, V26, V27, V16, V17)
	VLD1.P 32(R13), [V28.S4, V29.S4]
	FMA2(V28, V29, V24, V25, V8, V9)
	FMA2(V28, V29, V26, V27, V20, V21)
	VLD1.P 32(R16), [V24.S4, V25.S4]
	VLD1.P 32(R17), [V26.S4, V27.S4]
	VLD1.P 32(R11), [V30.S4, V31.S4]
	FMA2(V30, V31, V24, V25, V2, V3)
	FMA2(V30, V31, V26, V27, V14, V15)
	VLD1.P 32(R12), [V28.S4, V29.S4]
	FMA2(V28, V29, V24, V25, V6, V7)
	FMA2(V28, V29, V26, V27, V18, V19)
	VLD1.P 32(R13), [V30.S4, V31.S4]
	FMA2(V30, V31, V24, V25, V10, V11)
	FMA2(V30, V31, V26, V27, V22, V23)
	SUBS   $1, R15
	BNE    step

end:
	TBZ    $1, R8, fold
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R7)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R7)
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R7)
	VST1.P [V16.S4, V17.S4, V18.S4, V19.S4], 64(R7)
	VST1.P [V20.S4, V21.S4, V22.S4, V23.S4], 64(R7)
	B      next

fold:
	ONES
	FOLD(V0, V1, V2, V3, F0)
	FOLD(V4, V5, V6, V7, F4)
	FOLD(V8, V9, V10, V11, F8)
	FOLD(V12, V13, V14, V15, F12)
	FOLD(V16, V17, V18, V19, F16)
	FOLD(V20, V21, V22, V23, F20)
	ADD   R1, R0, R19
	FMOVS F0, (R0)
	FMOVS F12, (R19)
	CMP   $2, R9
	BLT   stored
	FMOVS F4, 4(R0)
	FMOVS F16, 4(R19)
	BEQ   stored
	FMOVS F8, 8(R0)
	FMOVS F20, 8(R19)

stored:
	ADD R1, R19, R0
	ADD $384, R7

next:
	SUBS $1, R10
	BNE  tile
	RET

// func tileNEONx1(out *float32, outStride int, w *byte, wStride int, x *float32, xStride int, steps, tail int, acc *float32, mode, rows, count int, wrap *float32, next *byte, nextStride, nextStep, nextMask int)
TEXT ·tileNEONx1(SB), NOSPLIT, $0-136
	MOVD out+0(FP), R0
	MOVD outStride+8(FP), R1
	MOVD w+16(FP), R2
	MOVD wStride+24(FP), R3
	MOVD x+32(FP), R4
	MOVD xStride+40(FP), R5
	MOVD acc+64(FP), R7
	MOVD mode+72(FP), R8
	MOVD rows+80(FP), R9
	MOVD count+88(FP), R10

tile:
	MOVD R2, R11
	ADD  R3, R11, R12
	ADD  R3, R12, R13
	MOVD R4, R16
	ADD  R5, R4
	MOVD steps+48(FP), R15
	TBNZ $0, R8, resume
	ZERO4(V0, V1, V2, V3)
	ZERO4(V4, V5, V6, V7)
	ZERO4(V8, V9, V10, V11)
	B    begin

resume:
	MOVD   R7, R19
	VLD1.P 64(R19), [V0.S4, V1.S4, V2.S4, V3.S4]
	VLD1.P 64(R19), [V4.S4, V5.S4, V6.S4, V7.S4]
	VLD1.P 64(R19), [V8.S4, V9.S4, V10.S4, V11.S4]

begin:
	CBZ R15, end

step:
	VLD1.P 64(R16), [V12.S4, V13.S4, V14.S4, V15.S4]
	VLD1.P 64(R11), [V16.S4, V17.S4, V18.S4, V19.S4]
	FMA2(V16, V17, V12, V13, V0, V1)
	FMA2(V18, V19, V14, V15, V2, V3)
	VLD1.P 64(R12), [V20.S4, V21.S4, V22.S4, V23.S4]
	FMA2(V20, V21, V12, V13, V4, V5)
	FMA2(V22, V23, V14, V15, V6, V7)
	VLD1.P 64(R13), [V16.S4, V17.S4, V18.S4, V19.S4]
	FMA2(V16, V17, V12, V13, V8, V9)
	FMA2(V18, V19, V14, V15, V10, V11)
	SUBS   $1, R15
	BNE    step

end:
	TBZ    $1, R8, fold
	VST1.P [V0.S4, V1.S4, V2.S4, V3.S4], 64(R7)
	VST1.P [V4.S4, V5.S4, V6.S4, V7.S4], 64(R7)
	VST1.P [V8.S4, V9.S4, V10.S4, V11.S4], 64(R7)
	B      next

fold:
	ONES
	FOLD(V0, V1, V2, V3, F0)
	FOLD(V4, V5, V6, V7, F4)
	FOLD(V8, V9, V10, V11, F8)
	FMOVS F0, (R0)
	CMP   $2, R9
	BLT   stored
	FMOVS F4, 4(R0)
	BEQ   stored
	FMOVS F8, 8(R0)

stored:
	ADD R1, R0
	ADD $192, R7

next:
	SUBS $1, R10
	BNE  tile
	RET

// FCVTL and FCVTL2 convert the lower and the upper half of eight values of f16 in the register with
// the number from. SHLL and SHLL2 do the same for bf16: they shift by 16. The assembler does not have
// these instructions.
#define FCVTL(from, to) WORD $(0x0e217800 | from<<5 | to)
#define FCVTL2(from, to) WORD $(0x4e217800 | from<<5 | to)
#define SHLL(from, to) WORD $(0x2e613800 | from<<5 | to)
#define SHLL2(from, to) WORD $(0x6e613800 | from<<5 | to)

// PAIR begins with two rows, or with the last row twice. V0 to V3 are the sums of the first and V4 to
// V7 those of the second one.
#define PAIR \
	MOVD R2, R11; \
	ADD  R3, R2, R12; \
	CMP  $1, R9; \
	CSEL EQ, R2, R12, R12; \
	ZERO4(V0, V1, V2, V3); \
	ZERO4(V4, V5, V6, V7)

#define PRODUCTS \
	VLD1.P 64(R16), [V8.S4, V9.S4, V10.S4, V11.S4]; \
	FMA2(V12, V13, V8, V9, V0, V1); \
	FMA2(V14, V15, V10, V11, V2, V3); \
	FMA2(V16, V17, V8, V9, V4, V5); \
	FMA2(V18, V19, V10, V11, V6, V7); \
	SUBS   $16, R15

#define STORE \
	FOLD(V0, V1, V2, V3, F0); \
	FOLD(V4, V5, V6, V7, F4); \
	FMOVS F0, (R0); \
	SUBS  $1, R9; \
	BEQ   done; \
	FMOVS F4, 4(R0); \
	ADD   $8, R0; \
	ADD   R3<<1, R2, R2; \
	SUBS  $1, R9; \
	BNE   pair

// func rowsNEONF32(out *float32, w *byte, rowBytes, rows int, x *float32, k int)
TEXT ·rowsNEONF32(SB), NOSPLIT, $0-48
	MOVD out+0(FP), R0
	MOVD w+8(FP), R2
	MOVD rowBytes+16(FP), R3
	MOVD rows+24(FP), R9
	ONES

pair:
	PAIR
	MOVD x+32(FP), R16
	MOVD k+40(FP), R15

step:
	VLD1.P 64(R11), [V12.S4, V13.S4, V14.S4, V15.S4]
	VLD1.P 64(R12), [V16.S4, V17.S4, V18.S4, V19.S4]
	PRODUCTS
	BNE    step
	STORE

done:
	RET

// func rowsNEONF16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)
TEXT ·rowsNEONF16(SB), NOSPLIT, $0-48
	MOVD out+0(FP), R0
	MOVD w+8(FP), R2
	MOVD rowBytes+16(FP), R3
	MOVD rows+24(FP), R9
	ONES

pair:
	PAIR
	MOVD x+32(FP), R16
	MOVD k+40(FP), R15

step:
	VLD1.P 32(R11), [V20.H8, V21.H8]
	VLD1.P 32(R12), [V22.H8, V23.H8]
	FCVTL(20, 12)
	FCVTL2(20, 13)
	FCVTL(21, 14)
	FCVTL2(21, 15)
	FCVTL(22, 16)
	FCVTL2(22, 17)
	FCVTL(23, 18)
	FCVTL2(23, 19)
	PRODUCTS
	BNE    step
	STORE

done:
	RET

// func rowsNEONBF16(out *float32, w *byte, rowBytes, rows int, x *float32, k int)
TEXT ·rowsNEONBF16(SB), NOSPLIT, $0-48
	MOVD out+0(FP), R0
	MOVD w+8(FP), R2
	MOVD rowBytes+16(FP), R3
	MOVD rows+24(FP), R9
	ONES

pair:
	PAIR
	MOVD x+32(FP), R16
	MOVD k+40(FP), R15

step:
	VLD1.P 32(R11), [V20.H8, V21.H8]
	VLD1.P 32(R12), [V22.H8, V23.H8]
	SHLL(20, 12)
	SHLL2(20, 13)
	SHLL(21, 14)
	SHLL2(21, 15)
	SHLL(22, 16)
	SHLL2(22, 17)
	SHLL(23, 18)
	SHLL2(23, 19)
	PRODUCTS
	BNE    step
	STORE

done:
	RET

// func widenNEONF16(dst *float32, src *byte, count int)
TEXT ·widenNEONF16(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD count+16(FP), R2

step:
	VLD1.P 32(R1), [V20.H8, V21.H8]
	FCVTL(20, 12)
	FCVTL2(20, 13)
	FCVTL(21, 14)
	FCVTL2(21, 15)
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R0)
	SUBS   $16, R2
	BNE    step
	RET

// func widenNEONBF16(dst *float32, src *byte, count int)
TEXT ·widenNEONBF16(SB), NOSPLIT, $0-24
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD count+16(FP), R2

step:
	VLD1.P 32(R1), [V20.H8, V21.H8]
	SHLL(20, 12)
	SHLL2(20, 13)
	SHLL(21, 14)
	SHLL2(21, 15)
	VST1.P [V12.S4, V13.S4, V14.S4, V15.S4], 64(R0)
	SUBS   $16, R2
	BNE    step
	RET
