// The micro-kernel for four rows, for float32 and float64: FMA, BROADCAST and PLUS are the
// instructions of the type.
//
// Z0 to Z7 hold a tile of 4 rows × 128 bytes of c.
	MOVQ k+0(FP), CX
	MOVQ a+8(FP), BX
	MOVQ aRow+16(FP), R8
	MOVQ aStep+24(FP), R9
	MOVQ b+32(FP), DI
	MOVQ bStep+40(FP), AX
	MOVQ c+48(FP), DX
	MOVQ cRow+56(FP), R12
	THREE(BX, R8, R10)
	THREE(DX, R12, R11)
	ZERO(Z0, Z1)
	ZERO(Z2, Z3)
	ZERO(Z4, Z5)
	ZERO(Z6, Z7)

step:
	VMOVUPS (DI), Z30
	VMOVUPS 64(DI), Z31
	ROW((BX), Z28, Z0, Z1)
	ROW((BX)(R8*1), Z29, Z2, Z3)
	ROW((BX)(R8*2), Z28, Z4, Z5)
	ROW((R10), Z29, Z6, Z7)
	ADDQ R9, BX
	ADDQ R9, R10
	ADDQ AX, DI
	DECQ CX
	JNZ  step

	CMPB accumulate+64(FP), $0
	JEQ  store
	ADD(DX, Z0, Z1, Z2, Z3, Z4, Z5)
	PLUS (R11), Z6, Z6
	PLUS 64(R11), Z7, Z7

store:
	STORE(DX, Z0, Z1, Z2, Z3, Z4, Z5)
	VMOVUPS Z6, (R11)
	VMOVUPS Z7, 64(R11)
	VZEROUPPER
	RET
