//go:build amd64 && !noasm

#include "textflag.h"

#define BYTES 32
#define V0 Y0
#define V1 Y1
#define V2 Y2
#define V3 Y3
#define V4 Y4
#define V5 Y5
#define V6 Y6
#define V7 Y7
#define V8 Y8
#define V9 Y9
#define V10 Y10
#define V11 Y11
#define V12 Y12
#define V13 Y13
#define V14 Y14
#define V15 Y15
#define MAXIMUM ·attentionMaximumAVX2
#define HIDDEN ·attentionMaximumHiddenAVX2
#define EXPONENTIALS ·attentionExpAVX2
#define GRADIENT ·attentionGradientAVX2
#include "attention_amd64.h"

// AHEAD is by how many rows, a power of 2, fetching is ahead: rows of one head lie
// pages apart, where the processor does not foresee them.
#define AHEAD 8

// FETCH asks for the line of offset DX in the row AHEAD of p.
#define FETCH(p, row) \
	LEAQ       (p)(row*AHEAD), R11; \
	PREFETCHT0 (R11)(DX*1)

// func attentionCopyAVX2(dst unsafe.Pointer, dstRow int, src unsafe.Pointer, srcRow, rows, blocks int)
TEXT ·attentionCopyAVX2(SB), NOSPLIT, $0-48
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

// func attentionAddAVX2(dst unsafe.Pointer, dstRow int, x unsafe.Pointer, xRow, rows, blocks int, factor float32)
TEXT ·attentionAddAVX2(SB), NOSPLIT, $0-52
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
