//go:build amd64 && !noasm

#include "textflag.h"

// ROW adds one element of a times the columns in Z30 and Z31.
#define ROW(address, broadcast, low, high) \
	BROADCAST address, broadcast;          \
	FMA Z30, broadcast, low;               \
	FMA Z31, broadcast, high

// ADD adds three rows of the old c, from p on.
#define ADD(p, low0, high0, low1, high1, low2, high2) \
	PLUS (p), low0, low0;            \
	PLUS 64(p), high0, high0;        \
	PLUS (p)(R12*1), low1, low1;     \
	PLUS 64(p)(R12*1), high1, high1; \
	PLUS (p)(R12*2), low2, low2;     \
	PLUS 64(p)(R12*2), high2, high2

// STORE writes three rows of c, from p on.
#define STORE(p, low0, high0, low1, high1, low2, high2) \
	VMOVUPS low0, (p);            \
	VMOVUPS high0, 64(p);         \
	VMOVUPS low1, (p)(R12*1);     \
	VMOVUPS high1, 64(p)(R12*1);  \
	VMOVUPS low2, (p)(R12*2);     \
	VMOVUPS high2, 64(p)(R12*2)

// PREFETCH asks for three rows of c, from p on.
#define PREFETCH(p) \
	PREFETCHT0 (p);           \
	PREFETCHT0 64(p);         \
	PREFETCHT0 (p)(R12*1);    \
	PREFETCHT0 64(p)(R12*1);  \
	PREFETCHT0 (p)(R12*2);    \
	PREFETCHT0 64(p)(R12*2)

// THREE makes q point three rows of r bytes after p.
#define THREE(p, r, q) \
	LEAQ (p)(r*2), q; \
	ADDQ r, q

#define ZERO(low, high) \
	VPXORQ low, low, low;   \
	VPXORQ high, high, high

// func gemmAVX512(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmAVX512(SB), NOSPLIT, $8-89
#define BROADCAST VBROADCASTSS
#define FMA VFMADD231PS
#define PLUS VADDPS
#include "gemm_avx512_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmAVX512Double(strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int, b unsafe.Pointer, bStep, bNext int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmAVX512Double(SB), NOSPLIT, $8-89
#define BROADCAST VBROADCASTSD
#define FMA VFMADD231PD
#define PLUS VADDPD
#include "gemm_avx512_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmShortAVX512(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmShortAVX512(SB), NOSPLIT, $0-65
#define BROADCAST VBROADCASTSS
#define FMA VFMADD231PS
#define PLUS VADDPS
#include "gemm_short_avx512_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmShortAVX512Double(k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool)
TEXT ·gemmShortAVX512Double(SB), NOSPLIT, $0-65
#define BROADCAST VBROADCASTSD
#define FMA VFMADD231PD
#define PLUS VADDPD
#include "gemm_short_avx512_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmNarrowAVX512(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)
TEXT ·gemmNarrowAVX512(SB), NOSPLIT, $0-49
#define BROADCAST VBROADCASTSS
#define FMA VFMADD231PS
#define PLUS VADDPS
#include "gemm_narrow_avx512_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS

// func gemmNarrowAVX512Double(k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool)
TEXT ·gemmNarrowAVX512Double(SB), NOSPLIT, $0-49
#define BROADCAST VBROADCASTSD
#define FMA VFMADD231PD
#define PLUS VADDPD
#include "gemm_narrow_avx512_amd64.h"
#undef BROADCAST
#undef FMA
#undef PLUS
