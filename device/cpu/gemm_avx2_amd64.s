//go:build amd64 && !noasm

#include "textflag.h"

// ROW adds one element of a times the columns in Y0 and Y1.
#define ROW(address, broadcast, low, high) \
	BROADCAST address, broadcast;          \
	FMA Y0, broadcast, low;                \
	FMA Y1, broadcast, high

// STEP adds one step, offset bytes behind the rows of a, and fetches one of the next panel.
#define STEP(offset, b, b32, next) \
	VMOVUPS b, Y0;                           \
	VMOVUPS b32, Y1;                         \
	PREFETCHT1 next;                         \
	ROW((offset)(SI), Y2, Y4, Y5);           \
	ROW((offset)(SI)(R8*1), Y3, Y6, Y7);     \
	ROW((offset)(SI)(R8*2), Y2, Y8, Y9);     \
	ROW((offset)(R10), Y3, Y10, Y11);        \
	ROW((offset)(R10)(R8*1), Y2, Y12, Y13);  \
	ROW((offset)(R10)(R8*2), Y3, Y14, Y15)

// FOUR adds four steps, stride bytes apart in a, and goes on.
#define FOUR(stride) \
	STEP(0, (DI), 32(DI), (R15));                               \
	STEP(stride, (DI)(R11*1), 32(DI)(R11*1), (R15)(R11*1));     \
	LEAQ (DI)(R11*2), DI;                                       \
	LEAQ (R15)(R11*2), R15;                                     \
	STEP(2*stride, (DI), 32(DI), (R15));                        \
	STEP(3*stride, (DI)(R11*1), 32(DI)(R11*1), (R15)(R11*1));   \
	LEAQ (DI)(R11*2), DI;                                       \
	LEAQ (R15)(R11*2), R15;                                     \
	ADDQ $(4*stride), SI;                                       \
	ADDQ $(4*stride), R10

// ADD adds a row of the old c.
#define ADD(address, address32, low, high) \
	PLUS address, low, low;      \
	PLUS address32, high, high

// STORE writes a row of c.
#define STORE(address, address32, low, high) \
	VMOVUPS low, address;    \
	VMOVUPS high, address32

// func gemmAVX2(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmAVX2(SB), NOSPLIT, $0-89
#define BROADCAST VBROADCASTSS
#define FMA VFMADD231PS
#define PLUS VADDPS
#define SIZE 4
#include "gemm_avx2_amd64.h"
#undef SIZE
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmAVX2Double(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmAVX2Double(SB), NOSPLIT, $0-89
#define BROADCAST VBROADCASTSD
#define FMA VFMADD231PD
#define PLUS VADDPD
#define SIZE 8
#include "gemm_avx2_amd64.h"
#undef SIZE
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmShortAVX2(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmShortAVX2(SB), NOSPLIT, $0-65
#define BROADCAST VBROADCASTSS
#define FMA VFMADD231PS
#define PLUS VADDPS
#include "gemm_short_avx2_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmShortAVX2Double(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmShortAVX2Double(SB), NOSPLIT, $0-65
#define BROADCAST VBROADCASTSD
#define FMA VFMADD231PD
#define PLUS VADDPD
#include "gemm_short_avx2_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmNarrowAVX2(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)
TEXT ·gemmNarrowAVX2(SB), NOSPLIT, $0-49
#define BROADCAST VBROADCASTSS
#define FMA VFMADD231PS
#define PLUS VADDPS
#include "gemm_narrow_avx2_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmNarrowAVX2Double(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)
TEXT ·gemmNarrowAVX2Double(SB), NOSPLIT, $0-49
#define BROADCAST VBROADCASTSD
#define FMA VFMADD231PD
#define PLUS VADDPD
#include "gemm_narrow_avx2_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// TURN loads four steps of eight rows, at three pointers to rows 0, 3 and 6, and turns them:
// Y0 to Y3 hold the eight rows of one step each.
#define TURN(offset, p0, p3, p6) \
	VMOVUPS     offset(p0), X0;                     \
	VMOVUPS     offset(p0)(R8*1), X1;               \
	VMOVUPS     offset(p0)(R8*2), X2;               \
	VMOVUPS     offset(p3), X3;                     \
	VINSERTF128 $1, offset(p3)(R8*1), Y0, Y0;       \
	VINSERTF128 $1, offset(p3)(R8*2), Y1, Y1;       \
	VINSERTF128 $1, offset(p6), Y2, Y2;             \
	VINSERTF128 $1, offset(p6)(R8*1), Y3, Y3;       \
	VUNPCKLPS   Y1, Y0, Y4;                         \
	VUNPCKHPS   Y1, Y0, Y5;                         \
	VUNPCKLPS   Y3, Y2, Y6;                         \
	VUNPCKHPS   Y3, Y2, Y7;                         \
	VUNPCKLPD   Y6, Y4, Y0;                         \
	VUNPCKHPD   Y6, Y4, Y1;                         \
	VUNPCKLPD   Y7, Y5, Y2;                         \
	VUNPCKHPD   Y7, Y5, Y3

// DOT adds four steps of eight rows times four elements of the vector.
#define DOT(offset, p0, p3, p6, sum) \
	TURN(offset, p0, p3, p6);            \
	VBROADCASTSS offset(DI), Y8;         \
	VBROADCASTSS offset+4(DI), Y9;       \
	VBROADCASTSS offset+8(DI), Y10;      \
	VBROADCASTSS offset+12(DI), Y11;     \
	VFMADD231PS  Y0, Y8, sum;            \
	VFMADD231PS  Y1, Y9, sum;            \
	VFMADD231PS  Y2, Y10, sum;           \
	VFMADD231PS  Y3, Y11, sum

// func gemmDot(blocks int, a unsafe.Pointer, aRow int, x, sums unsafe.Pointer)
//
// A cache line of each of eight rows, then of the other eight: rows a power of two apart
// compete for the same lines.
TEXT ·gemmDot(SB), NOSPLIT, $0-40
	MOVQ blocks+0(FP), CX
	MOVQ a+8(FP), SI
	MOVQ aRow+16(FP), R8
	MOVQ x+24(FP), DI
	MOVQ sums+32(FP), DX
	LEAQ (R8)(R8*2), AX
	LEAQ (SI)(AX*1), R10
	LEAQ (SI)(AX*2), R11
	LEAQ (SI)(R8*8), BX
	LEAQ (BX)(AX*1), R12
	LEAQ (BX)(AX*2), R13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15

block:
	DOT(0, SI, R10, R11, Y14)
	DOT(16, SI, R10, R11, Y14)
	DOT(32, SI, R10, R11, Y14)
	DOT(48, SI, R10, R11, Y14)
	DOT(0, BX, R12, R13, Y15)
	DOT(16, BX, R12, R13, Y15)
	DOT(32, BX, R12, R13, Y15)
	DOT(48, BX, R12, R13, Y15)
	ADDQ $64, SI
	ADDQ $64, R10
	ADDQ $64, R11
	ADDQ $64, BX
	ADDQ $64, R12
	ADDQ $64, R13
	ADDQ $64, DI
	DECQ CX
	JNZ  block
	VMOVUPS Y14, (DX)
	VMOVUPS Y15, 32(DX)
	VZEROUPPER
	RET

// NEXTROW asks for cache lines of the next lanes: four blocks fetch the 256 steps of a row.
#define NEXTROW \
	PREFETCHT1 (R15);    \
	PREFETCHT1 64(R15);  \
	PREFETCHT1 128(R15); \
	PREFETCHT1 192(R15); \
	LEAQ    256(R15), DX; \
	LEAQ    -768(R15)(R8*1), R15; \
	TESTQ   $3, BX;      \
	CMOVQNE DX, R15;     \
	INCQ    BX

// func gemmTranspose8(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)
//
// A block is 8 lanes × 8 steps.
TEXT ·gemmTranspose8(SB), NOSPLIT, $0-40
	MOVQ blocks+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ dstStep+16(FP), R9
	MOVQ src+24(FP), SI
	MOVQ srcLane+32(FP), R8
	LEAQ (R8)(R8*2), AX
	LEAQ (SI)(AX*1), R10     // row 3
	LEAQ (SI)(AX*2), R11     // row 6
	LEAQ (R9)(R9*2), R12
	LEAQ (SI)(R8*8), R15     // the next lanes
	MOVQ $1, BX

block:
	NEXTROW
	TURN(0, SI, R10, R11)
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (DI)(R9*1)
	VMOVUPS Y2, (DI)(R9*2)
	VMOVUPS Y3, (DI)(R12*1)
	LEAQ (DI)(R9*4), DI
	TURN(16, SI, R10, R11)
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, (DI)(R9*1)
	VMOVUPS Y2, (DI)(R9*2)
	VMOVUPS Y3, (DI)(R12*1)
	LEAQ (DI)(R9*4), DI
	ADDQ $32, SI
	ADDQ $32, R10
	ADDQ $32, R11
	DECQ CX
	JNZ  block
	VZEROUPPER
	RET

// STEPS6 turns four steps of six rows.
#define STEPS6(offset) \
	VMOVUPS      offset(SI), X0;                \
	VMOVUPS      offset(SI)(R8*1), X1;          \
	VMOVUPS      offset(SI)(R8*2), X2;          \
	VMOVUPS      offset(R10), X3;               \
	VINSERTF128  $1, offset(R10)(R8*1), Y0, Y0; \
	VINSERTF128  $1, offset(R10)(R8*2), Y1, Y1; \
	VUNPCKLPS    Y1, Y0, Y4;                    \
	VUNPCKHPS    Y1, Y0, Y5;                    \
	VUNPCKLPS    X3, X2, X6;                    \
	VUNPCKHPS    X3, X2, X7;                    \
	VUNPCKLPD    X6, X4, X0;                    \
	VUNPCKHPD    X6, X4, X1;                    \
	VUNPCKLPD    X7, X5, X2;                    \
	VUNPCKHPD    X7, X5, X3;                    \
	VEXTRACTF128 $1, Y4, X4;                    \
	VEXTRACTF128 $1, Y5, X5;                    \
	VMOVUPS      X0, (DI);                      \
	VMOVLPS      X4, 16(DI);                    \
	VMOVUPS      X1, (DI)(R9*1);                \
	VMOVHPS      X4, 16(DI)(R9*1);              \
	VMOVUPS      X2, (DI)(R9*2);                \
	VMOVLPS      X5, 16(DI)(R9*2);              \
	VMOVUPS      X3, (DI)(R12*1);               \
	VMOVHPS      X5, 16(DI)(R12*1);             \
	LEAQ         (DI)(R9*4), DI

// func gemmTranspose6(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)
//
// A block is 6 lanes × 8 steps.
TEXT ·gemmTranspose6(SB), NOSPLIT, $0-40
	MOVQ blocks+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ dstStep+16(FP), R9
	MOVQ src+24(FP), SI
	MOVQ srcLane+32(FP), R8
	LEAQ (R8)(R8*2), AX
	LEAQ (SI)(AX*1), R10     // row 3
	LEAQ (R9)(R9*2), R12
	LEAQ (SI)(AX*2), R15     // the next lanes
	MOVQ $1, BX

block:
	NEXTROW
	STEPS6(0)
	STEPS6(16)
	ADDQ $32, SI
	ADDQ $32, R10
	DECQ CX
	JNZ  block
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

// func gemmTranspose4Double(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)
//
// A block is 4 lanes × 4 steps.
TEXT ·gemmTranspose4Double(SB), NOSPLIT, $0-40
	MOVQ blocks+0(FP), CX
	MOVQ dst+8(FP), DI
	MOVQ dstStep+16(FP), R8
	MOVQ src+24(FP), SI
	MOVQ srcLane+32(FP), R9
	LEAQ (SI)(R9*2), R10
	LEAQ (R8)(R8*2), R11

block:
	VMOVUPD (SI), Y0
	VMOVUPD (SI)(R9*1), Y1
	VMOVUPD (R10), Y2
	VMOVUPD (R10)(R9*1), Y3
	VUNPCKLPD Y1, Y0, Y4        // lanes 0 and 1 of steps 0 and 2
	VUNPCKHPD Y1, Y0, Y5        // of steps 1 and 3
	VUNPCKLPD Y3, Y2, Y6        // lanes 2 and 3
	VUNPCKHPD Y3, Y2, Y7
	VPERM2F128 $0x20, Y6, Y4, Y0
	VPERM2F128 $0x20, Y7, Y5, Y1
	VPERM2F128 $0x31, Y6, Y4, Y2
	VPERM2F128 $0x31, Y7, Y5, Y3
	VMOVUPD Y0, (DI)
	VMOVUPD Y1, (DI)(R8*1)
	VMOVUPD Y2, (DI)(R8*2)
	VMOVUPD Y3, (DI)(R11*1)
	LEAQ (DI)(R8*4), DI
	ADDQ $32, SI
	ADDQ $32, R10
	DECQ CX
	JNZ  block
	VZEROUPPER
	RET

// func gemmDeal(steps, panels, bytes int, dst unsafe.Pointer, dstNext, dstStep int, src unsafe.Pointer, srcStep int)
//
// Steps may be pages apart, which no processor fetches ahead by itself.
TEXT ·gemmDeal(SB), NOSPLIT, $0-64
	MOVQ dst+24(FP), R8
	MOVQ dstNext+32(FP), R9
	MOVQ src+48(FP), R10
	MOVQ srcStep+56(FP), R11
	MOVQ R11, R12
	SHLQ $4, R12             // sixteen steps
	MOVQ bytes+16(FP), AX

step:
	MOVQ R10, SI
	MOVQ R8, DI
	MOVQ panels+8(FP), BX
	CMPQ AX, $24
	JEQ  half
	CMPQ AX, $48
	JEQ  three
	CMPQ AX, $64
	JEQ  four
	CMPQ AX, $128
	JEQ  eight

panel:
	MOVQ DI, DX
	MOVQ AX, CX
	SUBQ $16, CX
	PREFETCHT1 (SI)(R12*1)

chunk:
	MOVUPS (SI), X0
	MOVUPS X0, (DX)
	ADDQ $16, SI
	ADDQ $16, DX
	SUBQ $16, CX
	JGE  chunk
	CMPQ CX, $-8             // eight bytes left, or none
	JNE  whole
	MOVQ (SI), R13
	MOVQ R13, (DX)
	ADDQ $8, SI

whole:
	ADDQ R9, DI
	DECQ BX
	JNZ  panel
	JMP  next

half:
	PREFETCHT1 (SI)(R12*1)
	MOVUPS (SI), X0
	MOVQ   16(SI), R13
	MOVUPS X0, (DI)
	MOVQ   R13, 16(DI)
	ADDQ $24, SI
	ADDQ R9, DI
	DECQ BX
	JNZ  half
	JMP  next

three:
	PREFETCHT1 (SI)(R12*1)
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	MOVUPS X2, 32(DI)
	ADDQ $48, SI
	ADDQ R9, DI
	DECQ BX
	JNZ  three
	JMP  next

four:
	PREFETCHT1 (SI)(R12*1)
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	MOVUPS X2, 32(DI)
	MOVUPS X3, 48(DI)
	ADDQ $64, SI
	ADDQ R9, DI
	DECQ BX
	JNZ  four
	JMP  next

eight:
	PREFETCHT1 (SI)(R12*1)
	PREFETCHT1 64(SI)(R12*1)
	MOVUPS (SI), X0
	MOVUPS 16(SI), X1
	MOVUPS 32(SI), X2
	MOVUPS 48(SI), X3
	MOVUPS 64(SI), X4
	MOVUPS 80(SI), X5
	MOVUPS 96(SI), X6
	MOVUPS 112(SI), X7
	MOVUPS X0, (DI)
	MOVUPS X1, 16(DI)
	MOVUPS X2, 32(DI)
	MOVUPS X3, 48(DI)
	MOVUPS X4, 64(DI)
	MOVUPS X5, 80(DI)
	MOVUPS X6, 96(DI)
	MOVUPS X7, 112(DI)
	ADDQ $128, SI
	ADDQ R9, DI
	DECQ BX
	JNZ  eight

next:
	ADDQ dstStep+40(FP), R8
	ADDQ R11, R10
	DECQ steps+0(FP)
	JNZ  step
	RET
