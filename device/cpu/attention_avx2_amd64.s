//go:build amd64 && !noasm

#include "textflag.h"

// Each constant fills a register. They are those of exp32.
#define CONSTANT(name, bits) \
	DATA name<>+0(SB)/4, bits;  \
	DATA name<>+4(SB)/4, bits;  \
	DATA name<>+8(SB)/4, bits;  \
	DATA name<>+12(SB)/4, bits; \
	DATA name<>+16(SB)/4, bits; \
	DATA name<>+20(SB)/4, bits; \
	DATA name<>+24(SB)/4, bits; \
	DATA name<>+28(SB)/4, bits; \
	GLOBL name<>(SB), RODATA|NOPTR, $32

CONSTANT(exp32Low, $0xC2AD0000)       // -86.5
CONSTANT(exp32High, $0x42B00000)      // 88
CONSTANT(log2E, $0x3FB8AA3B)
CONSTANT(roundToInteger, $0x4B400000) // 3 << 22
CONSTANT(ln2High, $0x3F318000)
CONSTANT(ln2Low, $0xB95E8083)
CONSTANT(expC2, $0x3F000000)
CONSTANT(expC3, $0x3E2AAAAA)
CONSTANT(expC4, $0x3D2AA9C1)
CONSTANT(expC5, $0x3C088908)
CONSTANT(expC6, $0x3AB743CE)
CONSTANT(expC7, $0x39506967)
CONSTANT(one, $0x3F800000)
CONSTANT(minusInfinity, $0xFF800000)

// tailMask, read from (8 − n)·4 on, has n lanes set.
DATA tailMask<>+0(SB)/8, $-1
DATA tailMask<>+8(SB)/8, $-1
DATA tailMask<>+16(SB)/8, $-1
DATA tailMask<>+24(SB)/8, $-1
DATA tailMask<>+32(SB)/8, $0
DATA tailMask<>+40(SB)/8, $0
DATA tailMask<>+48(SB)/8, $0
DATA tailMask<>+56(SB)/8, $0
GLOBL tailMask<>(SB), RODATA|NOPTR, $64

// TAIL loads the mask of the last n&7 lanes and leaves when there are none.
#define TAIL(n, mask, done) \
	ANDQ    $7, n;                \
	JEQ     done;                 \
	LEAQ    tailMask<>+32(SB), R8; \
	SHLQ    $2, n;                \
	SUBQ    n, R8;                \
	VMOVUPS (R8), mask

// LOAD_CONSTANTS sets up EXP.
#define LOAD_CONSTANTS \
	VMOVUPS exp32Low<>(SB), Y15;       \
	VMOVUPS exp32High<>(SB), Y14;      \
	VMOVUPS roundToInteger<>(SB), Y13; \
	VMOVUPS log2E<>(SB), Y12;          \
	VMOVUPS ln2High<>(SB), Y11;        \
	VMOVUPS expC7<>(SB), Y10

// EXP computes Y1 = exp(Y0·Y8 + Y9) like exp32, but for fused sums and for
// results below exp(-86.5), which are 0, and above exp(88), which are that.
#define EXP \
	VFMADD213PS  Y9, Y8, Y0;            \
	VMAXPS       Y0, Y15, Y1;           \
	VMINPS       Y1, Y14, Y1;           \
	VMOVAPS      Y13, Y2;               \
	VFMADD231PS  Y1, Y12, Y2;           \
	VSUBPS       Y13, Y2, Y3;           \
	VFNMADD231PS Y3, Y11, Y1;           \
	VFNMADD231PS ln2Low<>(SB), Y3, Y1;  \
	VPSLLD       $23, Y2, Y2;           \
	VMULPS       Y1, Y1, Y4;            \
	VMOVAPS      Y10, Y3;               \
	VFMADD213PS  expC6<>(SB), Y1, Y3;   \
	VFMADD213PS  expC5<>(SB), Y1, Y3;   \
	VFMADD213PS  expC4<>(SB), Y1, Y3;   \
	VFMADD213PS  expC3<>(SB), Y1, Y3;   \
	VFMADD213PS  expC2<>(SB), Y1, Y3;   \
	VADDPS       one<>(SB), Y1, Y1;     \
	VFMADD231PS  Y3, Y4, Y1;            \
	VPADDD       Y2, Y1, Y1;            \
	VCMPPS       $5, Y15, Y0, Y3;       \
	VANDPS       Y3, Y1, Y1;            \
	VCMPPS       $3, Y0, Y0, Y3;        \
	VORPS        Y3, Y1, Y1

// func attentionExpAVX2(x unsafe.Pointer, n int, scale, shift float32) (sum float32)
TEXT ·attentionExpAVX2(SB), NOSPLIT, $0-28
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	VBROADCASTSS scale+16(FP), Y8
	VBROADCASTSS shift+20(FP), Y9
	LOAD_CONSTANTS
	VXORPS       Y6, Y6, Y6
	MOVQ         CX, DX
	SHRQ         $3, DX
	JEQ          tail

loop:
	VMOVUPS (SI), Y0
	EXP
	VMOVUPS Y1, (SI)
	VADDPS  Y1, Y6, Y6
	ADDQ    $32, SI
	DECQ    DX
	JNZ     loop

tail:
	TAIL(CX, Y7, done)
	VMASKMOVPS (SI), Y7, Y0
	EXP
	VMASKMOVPS Y1, Y7, (SI)
	VANDPS     Y7, Y1, Y1
	VADDPS     Y1, Y6, Y6

done:
	VEXTRACTF128 $1, Y6, X0
	VADDPS       X0, X6, X6
	VHADDPS      X6, X6, X6
	VHADDPS      X6, X6, X6
	VMOVSS       X6, sum+24(FP)
	VZEROUPPER
	RET

// func attentionGradientAVX2(p, dp unsafe.Pointer, n int, scale, shift, delta float32)
TEXT ·attentionGradientAVX2(SB), NOSPLIT, $0-36
	MOVQ         p+0(FP), SI
	MOVQ         dp+8(FP), DI
	MOVQ         n+16(FP), CX
	VBROADCASTSS scale+24(FP), Y8
	VBROADCASTSS shift+28(FP), Y9
	VBROADCASTSS delta+32(FP), Y6
	LOAD_CONSTANTS
	MOVQ         CX, DX
	SHRQ         $3, DX
	JEQ          tail

loop:
	VMOVUPS (SI), Y0
	EXP
	VMOVUPS (DI), Y5
	VMOVUPS Y1, (SI)
	VSUBPS  Y6, Y5, Y5
	VMULPS  Y8, Y1, Y1
	VMULPS  Y1, Y5, Y5
	VMOVUPS Y5, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	DECQ    DX
	JNZ     loop

tail:
	TAIL(CX, Y7, done)
	VMASKMOVPS (SI), Y7, Y0
	EXP
	VMASKMOVPS (DI), Y7, Y5
	VMASKMOVPS Y1, Y7, (SI)
	VSUBPS     Y6, Y5, Y5
	VMULPS     Y8, Y1, Y1
	VMULPS     Y1, Y5, Y5
	VMASKMOVPS Y5, Y7, (DI)

done:
	VZEROUPPER
	RET

// func attentionMaximumAVX2(x unsafe.Pointer, n int) float32
//
// VMAXPS gives its last operand, the maximum so far, where the other is NaN.
TEXT ·attentionMaximumAVX2(SB), NOSPLIT, $0-20
	MOVQ    x+0(FP), SI
	MOVQ    n+8(FP), CX
	VMOVUPS minusInfinity<>(SB), Y6
	VMOVAPS Y6, Y5
	VMOVAPS Y6, Y4
	MOVQ    CX, DX
	SHRQ    $4, DX
	JEQ     eight

loop:
	VMOVUPS (SI), Y0
	VMOVUPS 32(SI), Y1
	VMAXPS  Y6, Y0, Y6
	VMAXPS  Y5, Y1, Y5
	ADDQ    $64, SI
	DECQ    DX
	JNZ     loop

eight:
	TESTQ   $8, CX
	JEQ     tail
	VMOVUPS (SI), Y0
	VMAXPS  Y6, Y0, Y6
	ADDQ    $32, SI

tail:
	TAIL(CX, Y7, done)
	VMASKMOVPS (SI), Y7, Y0
	VBLENDVPS  Y7, Y0, Y4, Y0
	VMAXPS     Y6, Y0, Y6

done:
	VMAXPS       Y5, Y6, Y6
	VEXTRACTF128 $1, Y6, X0
	VMAXPS       X0, X6, X6
	VPERMILPS    $0x4E, X6, X0
	VMAXPS       X0, X6, X6
	VPERMILPS    $0xB1, X6, X0
	VMAXPS       X0, X6, X6
	VMOVSS       X6, ret+16(FP)
	VZEROUPPER
	RET
