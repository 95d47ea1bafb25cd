// The micro-kernel for half the columns, for float32 and float64: FMA, BROADCAST and PLUS
// are the instructions of the type.
//
// Y4 to Y9 hold a tile of 6 rows × 32 bytes of c.
	MOVQ k+0(FP), CX
	MOVQ a+8(FP), SI
	MOVQ aRow+16(FP), R8
	MOVQ aStep+24(FP), R9
	MOVQ b+32(FP), DI
	MOVQ c+40(FP), DX
	LEAQ (SI)(R8*2), R10
	ADDQ R8, R10             // rows 3, 4, 5 of a
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9

step:
	VMOVUPS (DI), Y0
	BROADCAST (SI), Y2
	FMA Y0, Y2, Y4
	BROADCAST (SI)(R8*1), Y3
	FMA Y0, Y3, Y5
	BROADCAST (SI)(R8*2), Y2
	FMA Y0, Y2, Y6
	BROADCAST (R10), Y3
	FMA Y0, Y3, Y7
	BROADCAST (R10)(R8*1), Y2
	FMA Y0, Y2, Y8
	BROADCAST (R10)(R8*2), Y3
	FMA Y0, Y3, Y9
	ADDQ R9, SI
	ADDQ R9, R10
	ADDQ $32, DI
	DECQ CX
	JNZ  step

	CMPB accumulate+48(FP), $0
	JEQ  store
	PLUS (DX), Y4, Y4
	PLUS 32(DX), Y5, Y5
	PLUS 64(DX), Y6, Y6
	PLUS 96(DX), Y7, Y7
	PLUS 128(DX), Y8, Y8
	PLUS 160(DX), Y9, Y9

store:
	VMOVUPS Y4, (DX)
	VMOVUPS Y5, 32(DX)
	VMOVUPS Y6, 64(DX)
	VMOVUPS Y7, 96(DX)
	VMOVUPS Y8, 128(DX)
	VMOVUPS Y9, 160(DX)
	VZEROUPPER
	RET
