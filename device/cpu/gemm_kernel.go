package cpu

import "unsafe"

// The tile of the Go micro-kernel, as large as the registers allow.
const gemmRowsGo, gemmColumnsGo = 4, 4

// gemmShortRows is the height of the tile that rows at the end get, when they are fewer
// than the tile of their level has: it is that of the Go micro-kernel.
const gemmShortRows = gemmRowsGo

// gemmPanelGo is the micro-kernel: it multiplies strips of rows of a with one
// panel of columns of b, each strip on top of the next in c. A tile of c stays
// in registers while k runs. Strides are in bytes; the columns of b and c are
// contiguous. With R×C the size of the tile it is
//
//	for s := range strips {
//		for i := range R {
//			for j := range C {
//				sum := 0
//				for p := range k {
//					sum += a[s*aStrip+i*aRow+p*aStep] * b[p*bStep+j] // fused
//				}
//				if accumulate {
//					sum = c[(s*R+i)*cRow+j] + sum
//				}
//				c[(s*R+i)*cRow+j] = sum
//			}
//		}
//	}
//
// k is at least 1. This version does not fuse.
func gemmPanelGo[T float](strips, k int, a unsafe.Pointer, aStrip, aRow, aStep int,
	b unsafe.Pointer, bStep int, c unsafe.Pointer, cRow int, accumulate bool) {
	for s := range strips {
		for i := 0; i < gemmRowsGo; i += 2 {
			gemmRowPairGo[T](k, unsafe.Add(a, s*aStrip+i*aRow), aRow, aStep, b, bStep,
				unsafe.Add(c, (s*gemmRowsGo+i)*cRow), cRow, accumulate)
		}
	}
}

// gemmRowPairGo does two rows: eight sums are what sixteen registers hold beside
// the operands.
func gemmRowPairGo[T float](k int, a unsafe.Pointer, aRow, aStep int, b unsafe.Pointer, bStep int,
	c unsafe.Pointer, cRow int, accumulate bool) {
	var x0, x1, x2, x3, y0, y1, y2, y3 T
	for p := range k {
		x, y := *(*T)(unsafe.Add(a, p*aStep)), *(*T)(unsafe.Add(a, p*aStep+aRow))
		v := (*[gemmColumnsGo]T)(unsafe.Add(b, p*bStep))
		x0 += x * v[0]
		x1 += x * v[1]
		x2 += x * v[2]
		x3 += x * v[3]
		y0 += y * v[0]
		y1 += y * v[1]
		y2 += y * v[2]
		y3 += y * v[3]
	}
	cx, cy := (*[gemmColumnsGo]T)(c), (*[gemmColumnsGo]T)(unsafe.Add(c, cRow))
	if accumulate {
		x0, x1, x2, x3 = cx[0]+x0, cx[1]+x1, cx[2]+x2, cx[3]+x3
		y0, y1, y2, y3 = cy[0]+y0, cy[1]+y1, cy[2]+y2, cy[3]+y3
	}
	*cx = [gemmColumnsGo]T{x0, x1, x2, x3}
	*cy = [gemmColumnsGo]T{y0, y1, y2, y3}
}

// gemmNarrowGo is the micro-kernel for an operand b of few columns: it multiplies one strip
// of a, read in place or packed, with a packed panel of b of half the width. Both b and c
// are dense. With R×C the size of the tile it is
//
//	for i := range R {
//		for j := range C / 2 {
//			sum := 0
//			for p := range k {
//				sum += a[i*aRow+p*aStep] * b[p*C/2+j] // fused
//			}
//			if accumulate {
//				sum = c[i*C/2+j] + sum
//			}
//			c[i*C/2+j] = sum
//		}
//	}
func gemmNarrowGo[T float](k int, a unsafe.Pointer, aRow, aStep int, b, c unsafe.Pointer, accumulate bool) {
	for i := range gemmRowsGo {
		var x0, x1 T
		for p := range k {
			x, v := *(*T)(unsafe.Add(a, i*aRow+p*aStep)), (*[gemmColumnsGo / 2]T)(slot[T](b, p))
			x0 += x * v[0]
			x1 += x * v[1]
		}
		to := (*[gemmColumnsGo / 2]T)(slot[T](c, i))
		if accumulate {
			x0, x1 = to[0]+x0, to[1]+x1
		}
		*to = [gemmColumnsGo / 2]T{x0, x1}
	}
}

// slot is the place of the i-th row of a dense matrix of half the width.
func slot[T float](m unsafe.Pointer, i int) unsafe.Pointer {
	return unsafe.Add(m, i*gemmColumnsGo/2*int(unsafe.Sizeof(*new(T))))
}
