package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var reduceKernels = []kernel{
	{name: "sum", doc: "is sumRow.", signature: "(x []float32) float64", write: func(w *writer) {
		x, n := w.pointer("x"), w.length("x")
		w.sum(n, func(sum reg.Register, at at) { w.VADDPD(w.loadDouble(at(x)), sum, sum) })
	}},
	// Products of float32 are exact in float64, so that fusing changes nothing.
	{name: "dot", doc: "is dotRow.", signature: "(a, b []float32) float64", write: func(w *writer) {
		a, b, n := w.pointer("a"), w.pointer("b"), w.length("a")
		w.sum(n, func(sum reg.Register, at at) { w.VFMADD231PD(w.loadDouble(at(a)), w.loadDouble(at(b)), sum) })
	}},
	{name: "dot3", doc: "is dot3Row.", signature: "(a, b, c []float32) float64", write: func(w *writer) {
		a, b, c, n := w.pointer("a"), w.pointer("b"), w.pointer("c"), w.length("a")
		w.sum(n, func(sum reg.Register, at at) {
			x, y := w.half(), w.half()
			w.move(at(a), x)
			w.move(at(b), y)
			w.VMULPS(x, y, x)
			product := w.vector()
			w.VCVTPS2PD(x, product)
			w.VFMADD231PD(product, w.loadDouble(at(c)), sum)
		})
	}},
	{name: "addColumns", doc: "is addColumnsRow.", signature: "(sums []float64, x []float32)", write: func(w *writer) {
		sums, x, n := w.pointer("sums"), w.pointer("x"), w.length("sums")
		w.eachDouble(n, func(at at) {
			m := at(sums)
			m.Scale = 8
			w.storePairs(w.addDouble(w.loadPairs(m), w.loadDouble(at(x))), m)
		})
		w.end()
	}},
	{name: "maximum", doc: "is rowMaximum.", signature: "(x []float32) float32", write: writeMaximum},
}

// sumLanes is the number of running sums of a row.
const sumLanes = 16

// sum writes a reduction to the float64 that it returns: element i goes to lane
// i mod 16.
func (w *writer) sum(n reg.Register, accumulate func(sum reg.Register, at at)) {
	width := w.lanes() / 2
	sums := make([]reg.Register, sumLanes/width)
	for j := range sums {
		sums[j] = w.zero()
	}
	w.sixteens(n, width, func(j int, at at) { accumulate(sums[j], at) })
	total := w.fold(sums, w.VADDPD)
	high := w.XMM()
	w.VUNPCKHPD(total, total, high)
	w.VADDSD(high, total, total)
	w.result(total)
}

func (w *writer) zero() reg.VecVirtual {
	v := w.vector()
	w.VXORPS(v, v, v)
	return v
}

// sixteens visits sixteen elements at a time, width of them with body(j), and the
// rest under a mask.
func (w *writer) sixteens(n reg.Register, width int, body func(j int, at at)) {
	i, last, rest := w.GP64(), w.GP64(), w.GP64()
	loop, tail, done := w.label("sixteen"), w.label("tail"), w.label("done")
	parts := func() {
		for j := range sumLanes / width {
			if w.mask != nil {
				w.maskPart(rest, j, width)
			}
			body(j, func(base reg.Register) operand.Mem {
				return operand.Mem{Base: base, Index: i, Scale: 4, Disp: 4 * width * j}
			})
		}
	}
	w.XORQ(i, i)
	w.MOVQ(n, last)
	w.SUBQ(operand.Imm(sumLanes), last)
	w.Label(loop)
	w.CMPQ(i, last)
	w.JGT(operand.LabelRef(tail))
	parts()
	w.ADDQ(operand.Imm(sumLanes), i)
	w.JMP(operand.LabelRef(loop))
	w.Label(tail)
	w.MOVQ(n, rest)
	w.SUBQ(i, rest)
	w.JEQ(operand.LabelRef(done))
	w.startMask(rest)
	parts()
	w.mask = nil
	w.Label(done)
}

// startMask turns a number of elements below sixteen into what maskPart reads.
func (w *writer) startMask(rest reg.Register) {
	w.mask = rest
	if w.wide {
		bits := w.GP32()
		w.MOVL(operand.U32(0xFFFF), bits)
		w.BZHIL(rest.(reg.GP).As32(), bits, rest.(reg.GP).As32())
		return
	}
	table := w.GP64()
	w.LEAQ(w.constant(tailMasks, operand.U64(0), 8), table)
	w.SHLQ(operand.Imm(2), rest)
	w.SUBQ(rest, table)
	w.MOVQ(table, rest)
}

// maskPart sets the mask of elements [width·j, width·(j+1)).
func (w *writer) maskPart(rest reg.Register, j, width int) {
	if w.wide {
		k := w.K()
		w.KMOVW(rest.(reg.GP).As32(), k)
		if j > 0 {
			w.KSHIFTRW(operand.Imm(uint64(j*width)), k, k)
		}
		w.mask = k
		return
	}
	var m reg.Register = w.YMM()
	if width == 4 {
		m = w.XMM()
	}
	w.VMOVUPS(operand.Mem{Base: rest, Disp: 64 + 4*j*width}, m)
	w.mask = m
}

// fold adds lane k+n/2 of n lanes to lane k until 16 bytes of lanes are left.
func (w *writer) fold(sums []reg.Register, add func(...operand.Op)) reg.Register {
	for n := len(sums) / 2; n > 0; n /= 2 {
		for j := range n {
			add(sums[j+n], sums[j], sums[j])
		}
	}
	total := sums[0].(reg.Vec)
	if w.wide {
		high := w.YMM()
		w.VEXTRACTF64X4(operand.Imm(1), total.AsZ(), high)
		add(high, total.AsY(), total.AsY())
	}
	high := w.XMM()
	w.VEXTRACTF128(operand.Imm(1), total.AsY(), high)
	add(high, total.AsX(), total.AsX())
	return total.AsX()
}

// foldFloats is fold down to one float32.
func (w *writer) foldFloats(sums []reg.Register, add func(...operand.Op)) reg.Register {
	total, high := w.fold(sums, add), w.XMM()
	w.VPERMILPS(operand.Imm(0x4E), total, high)
	add(high, total, total)
	w.VPERMILPS(operand.Imm(0xB1), total, high)
	add(high, total, total)
	return total
}

// writeMaximum keeps a maximum where the element is NaN.
func writeMaximum(w *writer) {
	x, n := w.pointer("x"), w.length("x")
	least := w.register(w.float("minusInfinity", float32(math.Inf(-1))))
	maxima := make([]reg.Register, sumLanes/w.lanes())
	for j := range maxima {
		maxima[j] = w.vector()
		w.VMOVAPS(least, maxima[j])
	}
	w.sixteens(n, w.lanes(), func(j int, at at) {
		v, m := w.load(at(x)), maxima[j]
		switch {
		case w.mask == nil:
			w.VMAXPS(m, v, m)
		case w.wide:
			w.VMAXPS(m, v, w.mask, m)
		default:
			w.VBLENDVPS(w.mask, v, least, v)
			w.VMAXPS(m, v, m)
		}
	})
	w.result(w.foldFloats(maxima, w.VMAXPS))
}
