//go:build amd64 && !noasm

#include "textflag.h"

// AHEAD is by how many rows, a power of 2, fetching is ahead: rows of one head lie
// pages apart, where the processor does not foresee them.
#define AHEAD 8

// FETCH asks for the line of offset DX in the row AHEAD of p.
#define FETCH(p, row) \
	LEAQ       (p)(row*AHEAD), R11; \
	PREFETCHT0 (R11)(DX*1)

// func copyRowsAVX2(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow, rows, blocks int)
TEXT ·copyRowsAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ dstRow+8(FP), R8
	MOVQ src+16(FP), SI
	MOVQ srcRow+24(FP), R9
	MOVQ rows+32(FP), BX

copyRow:
	MOVQ blocks+40(FP), CX
	XORL DX, DX

copyBlock:
	FETCH(SI, R9)
	VMOVUPS (SI)(DX*1), Y0
	VMOVUPS Y0, (DI)(DX*1)
	ADDQ    $32, DX
	DECQ    CX
	JNZ     copyBlock
	ADDQ    R8, DI
	ADDQ    R9, SI
	DECQ    BX
	JNZ     copyRow
	VZEROUPPER
	RET

// func addRowsAVX2(dst unsafe.Pointer, dstRow int, x unsafe.Pointer, xRow, rows, blocks int, factor float32)
TEXT ·addRowsAVX2(SB), NOSPLIT, $0-52
	MOVQ         dst+0(FP), DI
	MOVQ         dstRow+8(FP), R8
	MOVQ         x+16(FP), SI
	MOVQ         xRow+24(FP), R9
	MOVQ         rows+32(FP), BX
	VBROADCASTSS factor+48(FP), Y0

addRow:
	MOVQ blocks+40(FP), CX
	XORL DX, DX

addBlock:
	FETCH(DI, R8)
	VMULPS  (SI)(DX*1), Y0, Y1
	VADDPS  (DI)(DX*1), Y1, Y1
	VMOVUPS Y1, (DI)(DX*1)
	ADDQ    $32, DX
	DECQ    CX
	JNZ     addBlock
	ADDQ    R8, DI
	ADDQ    R9, SI
	DECQ    BX
	JNZ     addRow
	VZEROUPPER
	RET
