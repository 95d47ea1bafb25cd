// The micro-kernel, for float32 and float64: FMA, BROADCAST and PLUS are the instructions
// of the type, SIZE its bytes.
//
// Y4 to Y15 hold a tile of 6 rows × 64 bytes of c. Four steps at a time are known by their
// offsets, where the steps of a are neighbours, packed or in place: what else the loop over k
// does costs a thread that shares its core a tenth of its speed.
	MOVQ strips+0(FP), BX
	MOVQ a+16(FP), AX
	MOVQ aRow+32(FP), R8
	MOVQ aStep+40(FP), R9
	MOVQ bStep+56(FP), R11
	MOVQ b+48(FP), R15
	ADDQ bNext+64(FP), R15   // the next panel of b
	MOVQ c+72(FP), DX
	MOVQ cRow+80(FP), R12

strip:
	MOVQ AX, SI              // rows 0, 1, 2 of a
	LEAQ (AX)(R8*2), R10
	ADDQ R8, R10             // rows 3, 4, 5 of a
	MOVQ b+48(FP), DI
	MOVQ k+8(FP), CX
	LEAQ (DX)(R12*2), R13
	ADDQ R12, R13            // row 3 of c
	PREFETCHT0 (DX)
	PREFETCHT0 (DX)(R12*1)
	PREFETCHT0 (DX)(R12*2)
	PREFETCHT0 (R13)
	PREFETCHT0 (R13)(R12*1)
	PREFETCHT0 (R13)(R12*2)
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	VXORPS Y8, Y8, Y8
	VXORPS Y9, Y9, Y9
	VXORPS Y10, Y10, Y10
	VXORPS Y11, Y11, Y11
	VXORPS Y12, Y12, Y12
	VXORPS Y13, Y13, Y13
	VXORPS Y14, Y14, Y14
	VXORPS Y15, Y15, Y15

	SUBQ $4, CX
	JLT  last
	CMPQ R9, $(6*SIZE)
	JEQ  packed
	CMPQ R9, $SIZE
	JEQ  placed

any:
	STEP(0, (DI), 32(DI), (R15))
	ADDQ R9, SI
	ADDQ R9, R10
	STEP(0, (DI)(R11*1), 32(DI)(R11*1), (R15)(R11*1))
	ADDQ R9, SI
	ADDQ R9, R10
	LEAQ (DI)(R11*2), DI
	LEAQ (R15)(R11*2), R15
	STEP(0, (DI), 32(DI), (R15))
	ADDQ R9, SI
	ADDQ R9, R10
	STEP(0, (DI)(R11*1), 32(DI)(R11*1), (R15)(R11*1))
	ADDQ R9, SI
	ADDQ R9, R10
	LEAQ (DI)(R11*2), DI
	LEAQ (R15)(R11*2), R15
	SUBQ $4, CX
	JGE  any
	JMP  last

packed:
	FOUR(6*SIZE)
	SUBQ $4, CX
	JGE  packed
	JMP  last

placed:
	FOUR(SIZE)
	SUBQ $4, CX
	JGE  placed

last:
	ADDQ $4, CX
	JEQ  done

step:
	STEP(0, (DI), 32(DI), (R15))
	ADDQ R9, SI
	ADDQ R9, R10
	ADDQ R11, DI
	ADDQ R11, R15
	DECQ CX
	JNZ  step

done:
	CMPB accumulate+88(FP), $0
	JEQ  store
	ADD((DX), 32(DX), Y4, Y5)
	ADD((DX)(R12*1), 32(DX)(R12*1), Y6, Y7)
	ADD((DX)(R12*2), 32(DX)(R12*2), Y8, Y9)
	ADD((R13), 32(R13), Y10, Y11)
	ADD((R13)(R12*1), 32(R13)(R12*1), Y12, Y13)
	ADD((R13)(R12*2), 32(R13)(R12*2), Y14, Y15)

store:
	STORE((DX), 32(DX), Y4, Y5)
	STORE((DX)(R12*1), 32(DX)(R12*1), Y6, Y7)
	STORE((DX)(R12*2), 32(DX)(R12*2), Y8, Y9)
	STORE((R13), 32(R13), Y10, Y11)
	STORE((R13)(R12*1), 32(R13)(R12*1), Y12, Y13)
	STORE((R13)(R12*2), 32(R13)(R12*2), Y14, Y15)
	ADDQ aStrip+24(FP), AX
	LEAQ (R13)(R12*2), DX
	ADDQ R12, DX
	MOVQ b+48(FP), R15       // the next panel is on its way
	DECQ BX
	JNZ  strip
	VZEROUPPER
	RET
