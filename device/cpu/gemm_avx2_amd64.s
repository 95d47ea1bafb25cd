//go:build amd64 && !noasm

#include "textflag.h"

// ROW adds one element of a times the sixteen columns in Y0 and Y1.
#define ROW(address, broadcast, low, high) \
	VBROADCASTSS address, broadcast;       \
	VFMADD231PS  Y0, broadcast, low;       \
	VFMADD231PS  Y1, broadcast, high

// ADD adds a row of the old c.
#define ADD(address, address32, low, high) \
	VADDPS address, low, low;    \
	VADDPS address32, high, high

// STORE writes a row of c.
#define STORE(address, address32, low, high) \
	VMOVUPS low, address;    \
	VMOVUPS high, address32

// func gemmAVX2(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)
//
// Y4 to Y15 hold a tile of 6 rows × 16 columns of c.
TEXT ·gemmAVX2(SB), NOSPLIT, $0-89
	MOVQ strips+0(FP), BX
	MOVQ a+16(FP), AX
	MOVQ aRow+32(FP), R8
	MOVQ aStep+40(FP), R9
	MOVQ bStep+56(FP), R11
	MOVQ bNext+64(FP), R15
	MOVQ c+72(FP), DX
	MOVQ cRow+80(FP), R12

strip:
	MOVQ AX, SI              // rows 0, 1, 2 of a
	LEAQ (AX)(R8*2), R10
	ADDQ R8, R10             // rows 3, 4, 5 of a
	MOVQ b+48(FP), DI
	MOVQ k+8(FP), CX
	LEAQ (DX)(R12*2), R13
	ADDQ R12, R13            // row 3 of c
	PREFETCHT0 (DX)
	PREFETCHT0 (DX)(R12*1)
	PREFETCHT0 (DX)(R12*2)
	PREFETCHT0 (R13)
	PREFETCHT0 (R13)(R12*1)
	PREFETCHT0 (R13)(R12*2)
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11
	VXORPS Y12, Y12, Y12
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15

step:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	PREFETCHT1 (DI)(R15*1)
	ROW((SI), Y2, Y4, Y5)
	ROW((SI)(R8*1), Y3, Y6, Y7)
	ROW((SI)(R8*2), Y2, Y8, Y9)
	ROW((R10), Y3, Y10, Y11)
	ROW((R10)(R8*1), Y2, Y12, Y13)
	ROW((R10)(R8*2), Y3, Y14, Y15)
	ADDQ R9, SI
	ADDQ R9, R10
	ADDQ R11, DI
	DECQ CX
	JNZ  step

	CMPB accumulate+88(FP), $0
	JEQ  store
	ADD((DX), 32(DX), Y4, Y5)
	ADD((DX)(R12*1), 32(DX)(R12*1), Y6, Y7)
	ADD((DX)(R12*2), 32(DX)(R12*2), Y8, Y9)
	ADD((R13), 32(R13), Y10, Y11)
	ADD((R13)(R12*1), 32(R13)(R12*1), Y12, Y13)
	ADD((R13)(R12*2), 32(R13)(R12*2), Y14, Y15)

store:
	STORE((DX), 32(DX), Y4, Y5)
	STORE((DX)(R12*1), 32(DX)(R12*1), Y6, Y7)
	STORE((DX)(R12*2), 32(DX)(R12*2), Y8, Y9)
	STORE((R13), 32(R13), Y10, Y11)
	STORE((R13)(R12*1), 32(R13)(R12*1), Y12, Y13)
	STORE((R13)(R12*2), 32(R13)(R12*2), Y14, Y15)
	ADDQ aStrip+24(FP), AX
	LEAQ (R13)(R12*2), DX
	ADDQ R12, DX
	XORL R15, R15            // the next panel is on its way
	DECQ BX
	JNZ  strip
	VZEROUPPER
	RET

// func gemmTranspose4(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)
//
// A block is 4 lanes × 8 steps.
TEXT ·gemmTranspose4(SB), NOSPLIT, $0-40
	MOVQ blocks+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ dstStep+16(FP), R8
	MOVQ src+24(FP), SI
	MOVQ srcLane+32(FP), R9
	LEAQ (SI)(R9*2), R10
	LEAQ (R8)(R8*2), R11

block:
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(R9*1), Y1
	VMOVUPS (R10), Y2
	VMOVUPS (R10)(R9*1), Y3
	VUNPCKLPS Y1, Y0, Y4
	VUNPCKHPS Y1, Y0, Y5
	VUNPCKLPS Y3, Y2, Y6
	VUNPCKHPS Y3, Y2, Y7
	VUNPCKLPD Y6, Y4, Y0     // steps 0 and 4
	VUNPCKHPD Y6, Y4, Y1     // steps 1 and 5
	VUNPCKLPD Y7, Y5, Y2     // steps 2 and 6
	VUNPCKHPD Y7, Y5, Y3     // steps 3 and 7
	VMOVUPS X0, (DI)
	VMOVUPS X1, (DI)(R8*1)
	VMOVUPS X2, (DI)(R8*2)
	VMOVUPS X3, (DI)(R11*1)
	LEAQ (DI)(R8*4), DI
	VEXTRACTF128 $1, Y0, (DI)
	VEXTRACTF128 $1, Y1, (DI)(R8*1)
	VEXTRACTF128 $1, Y2, (DI)(R8*2)
	VEXTRACTF128 $1, Y3, (DI)(R11*1)
	LEAQ (DI)(R8*4), DI
	ADDQ $32, SI
	ADDQ $32, R10
	DECQ CX
	JNZ  block
	VZEROUPPER
	RET

// func gemmDeal(steps, panels, bytes int, dst unsafe.Pointer, dstNext, dstStep int, src unsafe.Pointer, srcStep int)
TEXT ·gemmDeal(SB), NOSPLIT, $0-64
	MOVQ dst+24(FP), R8
	MOVQ dstNext+32(FP), R9
	MOVQ src+48(FP), R10

step:
	MOVQ R10, SI
	MOVQ R8, DI
	MOVQ panels+8(FP), BX

panel:
	MOVQ DI, DX
	MOVQ bytes+16(FP), CX
	SUBQ $16, CX

chunk:
	MOVUPS (SI), X0
	MOVUPS X0, (DX)
	ADDQ $16, SI
	ADDQ $16, DX
	SUBQ $16, CX
	JGE  chunk
	CMPQ CX, $-8             // eight bytes left, or none
	JNE  whole
	MOVQ (SI), AX
	MOVQ AX, (DX)
	ADDQ $8, SI

whole:
	ADDQ R9, DI
	DECQ BX
	JNZ  panel
	ADDQ dstStep+40(FP), R8
	ADDQ srcStep+56(FP), R10
	DECQ steps+0(FP)
	JNZ  step
	RET
