// The kernels over tiles of scores, for AVX2 and AVX-512. V0 to V15 are registers of
// BYTES bytes, LANES float32; the names of the functions are defined by the level.
// Addresses of rows advance by stride bytes. Sums and products are fused.

// Each constant fills a register.
#define CONSTANT(name, bits) \
	DATA name<>+0(SB)/4, bits;  \
	DATA name<>+4(SB)/4, bits;  \
	DATA name<>+8(SB)/4, bits;  \
	DATA name<>+12(SB)/4, bits; \
	DATA name<>+16(SB)/4, bits; \
	DATA name<>+20(SB)/4, bits; \
	DATA name<>+24(SB)/4, bits; \
	DATA name<>+28(SB)/4, bits; \
	DATA name<>+32(SB)/4, bits; \
	DATA name<>+36(SB)/4, bits; \
	DATA name<>+40(SB)/4, bits; \
	DATA name<>+44(SB)/4, bits; \
	DATA name<>+48(SB)/4, bits; \
	DATA name<>+52(SB)/4, bits; \
	DATA name<>+56(SB)/4, bits; \
	DATA name<>+60(SB)/4, bits; \
	GLOBL name<>(SB), RODATA|NOPTR, $64

// roundBiased is 3<<22 + 127: in a sum with it, an integer n stands as the exponent of
// 2ⁿ in the low bits.
CONSTANT(roundBiased, $0x4B40007F)
CONSTANT(minusInfinity, $0xFF800000)
CONSTANT(oneInteger, $1)

// The polynomial 2ʳ ≈ 1 + r·(exp2C1 + r·(exp2C2 + …)) for |r| ≤ ½, of the least
// largest relative error, 2e-9.
CONSTANT(exp2C1, $0x3F317218)
CONSTANT(exp2C2, $0x3E75FDEE)
CONSTANT(exp2C3, $0x3D635774)
CONSTANT(exp2C4, $0x3C1D96A6)
CONSTANT(exp2C5, $0x3AAF9F2A)
CONSTANT(exp2C6, $0x3920FDDE)

// LOAD_EXP2 sets up EXP2: V15 the factor, V14 −127/factor, V13, V12.
#define LOAD_EXP2(factor, floor) \
	VBROADCASTSS factor, V15;       \
	VBROADCASTSS floor, V14;        \
	VMOVUPS      roundBiased<>(SB), V13; \
	VMOVUPS      exp2C6<>(SB), V12

// EXP2 computes t = 2^(factor·x). Where factor·x ≤ −127, x is the floor, 2ⁿ has the
// bits of 0 and t is 0. NaN is the operand that VMAXPS gives, and comes through.
#define EXP2(x, t, n) \
	VMAXPS      x, V14, x;             \
	VMOVAPS     V13, t;                \
	VFMADD231PS V15, x, t;             \
	VSUBPS      V13, t, n;             \
	VFMSUB213PS n, V15, x;             \
	VPSLLD      $23, t, t;             \
	VMOVAPS     V12, n;                \
	VFMADD213PS exp2C5<>(SB), x, n;    \
	VFMADD213PS exp2C4<>(SB), x, n;    \
	VFMADD213PS exp2C3<>(SB), x, n;    \
	VFMADD213PS exp2C2<>(SB), x, n;    \
	VFMADD213PS exp2C1<>(SB), x, n;    \
	VMULPS      t, x, x;               \
	VFMADD231PS n, x, t

// func attentionMaximum(s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer)
//
// VMAXPS gives its last operand, the maximum so far, where the other is NaN.
TEXT MAXIMUM(SB), NOSPLIT, $0-32
	MOVQ    s+0(FP), SI
	MOVQ    rows+8(FP), CX
	MOVQ    stride+16(FP), R8
	MOVQ    maximum+24(FP), DI
	VMOVUPS (DI), V0
	VMOVUPS BYTES(DI), V1

row:
	VMOVUPS (SI), V2
	VMOVUPS BYTES(SI), V3
	VMAXPS  V0, V2, V0
	VMAXPS  V1, V3, V1
	ADDQ    R8, SI
	DECQ    CX
	JNZ     row
	VMOVUPS V0, (DI)
	VMOVUPS V1, BYTES(DI)
	VZEROUPPER
	RET

// HIDE replaces x by −Inf unless lo ≤ V8 < hi: one of V8 − lo and last − V8 is
// negative, which its sign spreads over the element.
#define HIDE(x, lo, last, a, b) \
	VPSUBD  lo, V8, a;      \
	VPSUBD  V8, last, b;    \
	VORPS   a, b, a;        \
	VPSRAD  $31, a, a;      \
	VANDNPS x, a, x;        \
	VANDPS  V9, a, a;       \
	VORPS   a, x, x

// func attentionMaximumHidden(s unsafe.Pointer, rows, stride int, maximum unsafe.Pointer, key int32, lo, hi unsafe.Pointer)
TEXT HIDDEN(SB), NOSPLIT, $0-56
	MOVQ         s+0(FP), SI
	MOVQ         rows+8(FP), CX
	MOVQ         stride+16(FP), R8
	MOVQ         maximum+24(FP), DI
	VPBROADCASTD key+32(FP), V8
	MOVQ         lo+40(FP), R9
	MOVQ         hi+48(FP), R10
	VMOVUPS      minusInfinity<>(SB), V9
	VMOVUPS      oneInteger<>(SB), V10
	VMOVUPS      (R9), V4
	VMOVUPS      BYTES(R9), V5
	VMOVUPS      (R10), V6
	VMOVUPS      BYTES(R10), V7
	VPSUBD       V10, V6, V6
	VPSUBD       V10, V7, V7
	VMOVUPS      (DI), V0
	VMOVUPS      BYTES(DI), V1

hiddenRow:
	VMOVUPS (SI), V2
	VMOVUPS BYTES(SI), V3
	HIDE(V2, V4, V6, V11, V12)
	HIDE(V3, V5, V7, V13, V14)
	VMOVUPS V2, (SI)
	VMOVUPS V3, BYTES(SI)
	VMAXPS  V0, V2, V0
	VMAXPS  V1, V3, V1
	VPADDD  V10, V8, V8
	ADDQ    R8, SI
	DECQ    CX
	JNZ     hiddenRow
	VMOVUPS V0, (DI)
	VMOVUPS V1, BYTES(DI)
	VZEROUPPER
	RET

// func attentionExp(s unsafe.Pointer, rows, stride int, shift, sum unsafe.Pointer, factor, floor float32)
TEXT EXPONENTIALS(SB), NOSPLIT, $0-48
	MOVQ    s+0(FP), SI
	MOVQ    rows+8(FP), CX
	MOVQ    stride+16(FP), R8
	MOVQ    shift+24(FP), R9
	MOVQ    sum+32(FP), DI
	LOAD_EXP2(factor+40(FP), floor+44(FP))
	VMOVUPS (R9), V0
	VMOVUPS BYTES(R9), V1
	VXORPS  V2, V2, V2
	VXORPS  V3, V3, V3

expRow:
	VMOVUPS (SI), V4
	VMOVUPS BYTES(SI), V7
	VSUBPS  V0, V4, V4
	VSUBPS  V1, V7, V7
	EXP2(V4, V5, V6)
	EXP2(V7, V8, V9)
	VMOVUPS V5, (SI)
	VMOVUPS V8, BYTES(SI)
	VADDPS  V5, V2, V2
	VADDPS  V8, V3, V3
	ADDQ    R8, SI
	DECQ    CX
	JNZ     expRow
	VADDPS  (DI), V2, V2
	VADDPS  BYTES(DI), V3, V3
	VMOVUPS V2, (DI)
	VMOVUPS V3, BYTES(DI)
	VZEROUPPER
	RET

// func attentionGradient(p, dp unsafe.Pointer, rows, blocks, stride int, shift, delta unsafe.Pointer, factor, floor float32)
TEXT GRADIENT(SB), NOSPLIT, $0-64
	MOVQ   p+0(FP), SI
	MOVQ   dp+8(FP), DI
	MOVQ   rows+16(FP), BX
	MOVQ   stride+32(FP), R8
	MOVQ   shift+40(FP), R9
	MOVQ   delta+48(FP), R10
	LOAD_EXP2(factor+56(FP), floor+60(FP))
	VXORPS V11, V11, V11

gradientRow:
	VBROADCASTSS (R9), V0
	VBROADCASTSS (R10), V1
	MOVQ         blocks+24(FP), CX
	XORL         DX, DX

gradientBlock:
	VMOVUPS (SI)(DX*1), V2
	VMOVUPS BYTES(SI)(DX*1), V5
	VSUBPS  V0, V2, V2
	VSUBPS  V0, V5, V5
	VMINPS  V2, V11, V2
	VMINPS  V5, V11, V5
	EXP2(V2, V3, V4)
	EXP2(V5, V6, V7)
	VMOVUPS (DI)(DX*1), V8
	VMOVUPS BYTES(DI)(DX*1), V9
	VMOVUPS V3, (SI)(DX*1)
	VMOVUPS V6, BYTES(SI)(DX*1)
	VSUBPS  V1, V8, V8
	VSUBPS  V1, V9, V9
	VMULPS  V3, V8, V8
	VMULPS  V6, V9, V9
	VMOVUPS V8, (DI)(DX*1)
	VMOVUPS V9, BYTES(DI)(DX*1)
	ADDQ    $(2*BYTES), DX
	DECQ    CX
	JNZ     gradientBlock
	ADDQ    R8, SI
	ADDQ    R8, DI
	ADDQ    $4, R9
	ADDQ    $4, R10
	DECQ    BX
	JNZ     gradientRow
	VZEROUPPER
	RET
