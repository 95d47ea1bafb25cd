// The micro-kernel for four rows, for float32 and float64: FMA, BROADCAST and PLUS are the
// instructions of the type.
//
// Y4 to Y11 hold a tile of 4 rows × 64 bytes of c.
	MOVQ k+0(FP), CX
	MOVQ a+8(FP), SI
	MOVQ aRow+16(FP), R8
	MOVQ aStep+24(FP), R9
	MOVQ b+32(FP), DI
	MOVQ bStep+40(FP), R11
	MOVQ c+48(FP), DX
	MOVQ cRow+56(FP), R12
	LEAQ (SI)(R8*2), R10
	ADDQ R8, R10             // row 3 of a
	LEAQ (DX)(R12*2), R13
	ADDQ R12, R13            // row 3 of c
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11

step:
	VMOVUPS (DI), Y0
	VMOVUPS 32(DI), Y1
	ROW((SI), Y2, Y4, Y5)
	ROW((SI)(R8*1), Y3, Y6, Y7)
	ROW((SI)(R8*2), Y2, Y8, Y9)
	ROW((R10), Y3, Y10, Y11)
	ADDQ R9, SI
	ADDQ R9, R10
	ADDQ R11, DI
	DECQ CX
	JNZ  step

	CMPB accumulate+64(FP), $0
	JEQ  store
	ADD((DX), 32(DX), Y4, Y5)
	ADD((DX)(R12*1), 32(DX)(R12*1), Y6, Y7)
	ADD((DX)(R12*2), 32(DX)(R12*2), Y8, Y9)
	ADD((R13), 32(R13), Y10, Y11)

store:
	STORE((DX), 32(DX), Y4, Y5)
	STORE((DX)(R12*1), 32(DX)(R12*1), Y6, Y7)
	STORE((DX)(R12*2), 32(DX)(R12*2), Y8, Y9)
	STORE((R13), 32(R13), Y10, Y11)
	VZEROUPPER
	RET
