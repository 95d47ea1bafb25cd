//go:build amd64 && !noasm

#include "textflag.h"

// QUARTERS has four steps of a row in each quarter of a register.
#define QUARTERS(row0, row4, row8, x, y, z) \
	VMOVUPS      row0, x;               \
	VINSERTF128  $1, row4, y, y;        \
	VINSERTF32X4 $2, row8, z, z

// TURN makes of four rows in each quarter of Z0 to Z3 four steps, of all rows each.
#define TURN \
	VUNPCKLPS Z1, Z0, Z4; \
	VUNPCKHPS Z1, Z0, Z5; \
	VUNPCKLPS Z3, Z2, Z6; \
	VUNPCKHPS Z3, Z2, Z7; \
	VUNPCKLPD Z6, Z4, Z0; \
	VUNPCKHPD Z6, Z4, Z1; \
	VUNPCKLPD Z7, Z5, Z2; \
	VUNPCKHPD Z7, Z5, Z3

// FETCH asks for a cache line of each of sixteen steps of a row of the next lanes: the
// sixteen blocks of a panel fetch the next one.
#define FETCH(offset) \
	PREFETCHT1 offset(R15);     \
	PREFETCHT1 offset+64(R15);  \
	PREFETCHT1 offset+128(R15); \
	PREFETCHT1 offset+192(R15)

// STEPS12 turns four steps of twelve rows.
#define STEPS12(offset) \
	QUARTERS(offset(SI), offset(SI)(R9*4), offset(SI)(R9*8), X0, Y0, Z0);       \
	QUARTERS(offset(SI)(R9*1), offset(R10)(R9*2), offset(R13), X1, Y1, Z1);     \
	QUARTERS(offset(SI)(R9*2), offset(R11), offset(R11)(R9*4), X2, Y2, Z2);     \
	QUARTERS(offset(R10), offset(R10)(R9*4), offset(R10)(R9*8), X3, Y3, Z3);    \
	TURN;                               \
	VMOVUPS       Y0, (DI);             \
	VEXTRACTF32X4 $2, Z0, 32(DI);       \
	VMOVUPS       Y1, (DI)(R8*1);       \
	VEXTRACTF32X4 $2, Z1, 32(DI)(R8*1); \
	VMOVUPS       Y2, (DI)(R8*2);       \
	VEXTRACTF32X4 $2, Z2, 32(DI)(R8*2); \
	VMOVUPS       Y3, (DI)(DX*1);       \
	VEXTRACTF32X4 $2, Z3, 32(DI)(DX*1); \
	LEAQ          (DI)(R8*4), DI

// STEPS16 turns four steps of sixteen rows.
#define STEPS16(offset) \
	QUARTERS(offset(SI), offset(SI)(R9*4), offset(SI)(R9*8), X0, Y0, Z0);   \
	VINSERTF32X4  $3, offset(R12)(R9*1), Z0, Z0;                            \
	QUARTERS(offset(SI)(R9*1), offset(R10)(R9*2), offset(R13), X1, Y1, Z1); \
	VINSERTF32X4  $3, offset(R12)(R9*2), Z1, Z1;                            \
	QUARTERS(offset(SI)(R9*2), offset(R11), offset(R11)(R9*4), X2, Y2, Z2); \
	VINSERTF32X4  $3, offset(R11)(R9*8), Z2, Z2;                            \
	QUARTERS(offset(R10), offset(R10)(R9*4), offset(R12), X3, Y3, Z3);      \
	VINSERTF32X4  $3, offset(R12)(R9*4), Z3, Z3;                            \
	TURN;                     \
	VMOVUPS Z0, (DI);         \
	VMOVUPS Z1, (DI)(R8*1);   \
	VMOVUPS Z2, (DI)(R8*2);   \
	VMOVUPS Z3, (DI)(DX*1);   \
	LEAQ    (DI)(R8*4), DI

// ROWS points SI to row 0, R10 to row 3, R11 to row 6, R13 to row 9, R12 to row 11 and R15
// to the row that FETCH begins with.
#define ROWS(next) \
	MOVQ blocks+0(FP), CX;     \
	MOVQ dst+8(FP), DI;        \
	MOVQ dstStep+16(FP), R8;   \
	MOVQ src+24(FP), SI;       \
	MOVQ srcLane+32(FP), R9;   \
	LEAQ (R8)(R8*2), DX;       \
	LEAQ (R9)(R9*2), AX;       \
	LEAQ (SI)(AX*1), R10;      \
	LEAQ (SI)(AX*2), R11;      \
	LEAQ (R10)(AX*2), R13;     \
	LEAQ (R13)(R9*2), R12;     \
	LEAQ (SI)(next), R15

#define NEXTBLOCK \
	ADDQ R9, R15;  \
	ADDQ $64, SI;  \
	ADDQ $64, R10; \
	ADDQ $64, R11; \
	ADDQ $64, R12; \
	ADDQ $64, R13; \
	DECQ CX

// func gemmTranspose12(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)
TEXT ·gemmTranspose12(SB), NOSPLIT, $0-40
	ROWS(AX*4)

block:
	FETCH(0)
	STEPS12(0)
	FETCH(256)
	STEPS12(16)
	FETCH(512)
	STEPS12(32)
	FETCH(768)
	STEPS12(48)
	NEXTBLOCK
	JNZ block
	VZEROUPPER
	RET

// func gemmTranspose16(blocks int, dst unsafe.Pointer, dstStep int, src unsafe.Pointer, srcLane int)
TEXT ·gemmTranspose16(SB), NOSPLIT, $0-40
	ROWS(R9*8)
	LEAQ (R15)(R9*8), R15

block:
	FETCH(0)
	STEPS16(0)
	FETCH(256)
	STEPS16(16)
	FETCH(512)
	STEPS16(32)
	FETCH(768)
	STEPS16(48)
	NEXTBLOCK
	JNZ block
	VZEROUPPER
	RET
