// The micro-kernel, for float32 and float64: FMA, BROADCAST and PLUS are the instructions
// of the type.
//
// Z0 to Z23 hold a tile of 12 rows × 128 bytes of c. DX, AX, BX and CX point to
// three rows of c each, and in the loop over k, BX, R10, R11 and R13 to three of a.
	MOVQ strips+0(FP), BX
	MOVQ BX, left-8(SP)
	MOVQ a+16(FP), SI
	MOVQ aRow+32(FP), R8
	MOVQ aStep+40(FP), R9
	MOVQ bNext+64(FP), R15
	MOVQ c+72(FP), DX
	MOVQ cRow+80(FP), R12

strip:
	THREE(DX, R12, AX)
	THREE(AX, R12, BX)
	THREE(BX, R12, CX)
	PREFETCH(DX)
	PREFETCH(AX)
	PREFETCH(BX)
	PREFETCH(CX)
	THREE(SI, R8, R10)
	THREE(R10, R8, R11)
	THREE(R11, R8, R13)
	MOVQ b+48(FP), DI
	MOVQ bStep+56(FP), AX
	MOVQ k+8(FP), CX
	MOVQ SI, BX
	ZERO(Z0, Z1)
	ZERO(Z2, Z3)
	ZERO(Z4, Z5)
	ZERO(Z6, Z7)
	ZERO(Z8, Z9)
	ZERO(Z10, Z11)
	ZERO(Z12, Z13)
	ZERO(Z14, Z15)
	ZERO(Z16, Z17)
	ZERO(Z18, Z19)
	ZERO(Z20, Z21)
	ZERO(Z22, Z23)

step:
	VMOVUPS (DI), Z30
	VMOVUPS 64(DI), Z31
	PREFETCHT1 (DI)(R15*1)
	PREFETCHT1 64(DI)(R15*1)
	ROW((BX), Z28, Z0, Z1)
	ROW((BX)(R8*1), Z29, Z2, Z3)
	ROW((BX)(R8*2), Z28, Z4, Z5)
	ROW((R10), Z29, Z6, Z7)
	ROW((R10)(R8*1), Z28, Z8, Z9)
	ROW((R10)(R8*2), Z29, Z10, Z11)
	ROW((R11), Z28, Z12, Z13)
	ROW((R11)(R8*1), Z29, Z14, Z15)
	ROW((R11)(R8*2), Z28, Z16, Z17)
	ROW((R13), Z29, Z18, Z19)
	ROW((R13)(R8*1), Z28, Z20, Z21)
	ROW((R13)(R8*2), Z29, Z22, Z23)
	ADDQ R9, BX
	ADDQ R9, R10
	ADDQ R9, R11
	ADDQ R9, R13
	ADDQ AX, DI
	DECQ CX
	JNZ  step

	THREE(DX, R12, AX)
	THREE(AX, R12, BX)
	THREE(BX, R12, CX)
	CMPB accumulate+88(FP), $0
	JEQ  store
	ADD(DX, Z0, Z1, Z2, Z3, Z4, Z5)
	ADD(AX, Z6, Z7, Z8, Z9, Z10, Z11)
	ADD(BX, Z12, Z13, Z14, Z15, Z16, Z17)
	ADD(CX, Z18, Z19, Z20, Z21, Z22, Z23)

store:
	STORE(DX, Z0, Z1, Z2, Z3, Z4, Z5)
	STORE(AX, Z6, Z7, Z8, Z9, Z10, Z11)
	STORE(BX, Z12, Z13, Z14, Z15, Z16, Z17)
	STORE(CX, Z18, Z19, Z20, Z21, Z22, Z23)
	THREE(CX, R12, DX)
	ADDQ aStrip+24(FP), SI
	XORL R15, R15            // the next panel is on its way
	DECQ left-8(SP)
	JNZ  strip
	VZEROUPPER
	RET
