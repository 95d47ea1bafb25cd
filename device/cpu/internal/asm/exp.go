package main

import (
	"math"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var expKernels = []kernel{
	{name: "exp", doc: "is expRow.", signature: "(dst, x []float32, scale, shift float32)", write: func(w *writer) {
		dst, x, n := w.pointer("dst"), w.pointer("x"), w.length("dst")
		scale, shift := w.spread("scale"), w.spread("shift")
		e := w.newExp()
		w.each(n, 1, func(at at) {
			w.store(e.of(w.add(w.mul(scale, w.load(at(x))), shift)), at(dst))
		})
		w.end()
	}},
	{name: "sigmoid", doc: "is sigmoidRow.", signature: "(dst, x []float32)", write: func(w *writer) {
		dst, x, n := w.pointer("dst"), w.pointer("x"), w.length("dst")
		s := w.newSigmoid()
		w.each(n, 1, func(at at) { w.store(s.of(w.load(at(x))), at(dst)) })
		w.end()
	}},
	{name: "tanh", doc: "is tanhRow.", signature: "(dst, x []float32)", write: writeTanh},
	{name: "swiGLU", doc: "is swiGLURow.", signature: "(dst, gate, up []float32)", write: func(w *writer) {
		dst, gate, up, n := w.pointer("dst"), w.pointer("gate"), w.pointer("up"), w.length("dst")
		s := w.newSigmoid()
		w.each(n, 1, func(at at) {
			g := w.load(at(gate))
			w.store(w.mul(w.mul(g, s.of(g)), w.load(at(up))), at(dst))
		})
		w.end()
	}},
	{name: "swiGLUBackward", doc: "is swiGLUBackwardRow.", signature: "(dgate, dup, gate, up, dy []float32)", write: writeSwiGLUBackward},
}

// exponential is exp32 of cpu/exp.go, operation for operation.
type exponential struct {
	w               *writer
	low, high, bias reg.Register
}

// newExp keeps in registers what memory cannot give.
func (w *writer) newExp() exponential {
	return exponential{w, w.register(w.float("expLow", -104)), w.register(w.float("expHigh", 89)), w.register(w.integer("exponentOne", 127))}
}

// of leaves the rare case, that an element's result may be no normal number, to code
// behind the function.
func (e exponential) of(x reg.Register) reg.Register {
	w, result := e.w, e.w.vector()
	rare, done := w.label("rare"), w.label("exp")
	w.jumpBeyond(x, w.float("expNormal", 86.5), rare)
	y, t := e.reduced(x)
	w.VPSLLD(operand.Imm(23), t, t)
	w.VPADDD(t, y, result)
	w.Label(done)
	w.behind = append(w.behind, func() {
		w.Label(rare)
		y, t := e.reduced(w.least(e.high, w.greatest(e.low, x)))
		k := w.subInt(t, w.integer("roundToIntegerBits", int32(math.Float32bits(3<<22))))
		half := w.shiftRight(k, 1)
		y = w.mul(y, w.shiftLeft(w.addInt(half, e.bias), 23))
		w.VMULPS(w.shiftLeft(w.addInt(w.subInt(k, half), e.bias), 23), y, result)
		w.JMP(operand.LabelRef(done))
	})
	return result
}

// reduced is p(r), and n in the low bits of a register. The parts of the polynomial
// do not wait for each other: the processor looks ahead over three or four rounds,
// so that latency counts more than the number of operations.
func (e exponential) reduced(x reg.Register) (y, t reg.Register) {
	w := e.w
	t = w.add(w.mul(x, w.float("log2E", math.Log2E)), w.float("roundToInteger", 3<<22))
	n := w.sub(t, w.float("roundToInteger", 3<<22))
	r := w.sub(x, w.mul(n, w.float("ln2High", 355.0/512)))
	r = w.sub(r, w.mul(n, w.float("ln2Low", -2.12194440e-4)))

	pair := func(low, high string, lowValue, highValue float32) reg.Register {
		return w.add(w.mul(r, w.float(high, highValue)), w.float(low, lowValue))
	}
	r2 := w.mul(r, r)
	r4 := w.mul(r2, r2)
	p := w.add(pair("expC2", "expC3", 5.0000001201e-1, 1.6666665459e-1),
		w.mul(r2, pair("expC4", "expC5", 4.1665795894e-2, 8.3334519073e-3)))
	p = w.add(p, w.mul(r4, pair("expC6", "expC7", 1.3981999507e-3, 1.9875691500e-4)))
	return w.add(w.mul(p, r2), w.add(r, w.float("one", 1))), t
}

// jumpBeyond jumps where an element is not in [−limit, limit].
func (w *writer) jumpBeyond(x reg.Register, limit operand.Mem, label string) {
	const notLessEqual = 6
	size := w.three(w.VANDPS, x, w.integer("absolute", math.MaxInt32))
	if w.wide {
		k := w.K()
		w.VCMPPS(operand.Imm(notLessEqual), limit, size, k)
		w.KORTESTW(k, k)
	} else {
		beyond, bits := w.vector(), w.GP32()
		w.VCMPPS(operand.Imm(notLessEqual), limit, size, beyond)
		w.VMOVMSKPS(beyond, bits)
		w.TESTL(bits, bits)
	}
	w.JNE(operand.LabelRef(label))
}

// logistic is sigmoidRow.
type logistic struct {
	exponential
	zero, one reg.Register
}

func (w *writer) newSigmoid() logistic {
	return logistic{w.newExp(), w.zero(), w.register(w.float("one", 1))}
}

func (s logistic) of(x reg.Register) reg.Register {
	w := s.w
	return w.div(s.one, w.add(s.one, s.exponential.of(w.sub(s.zero, x))))
}

func writeTanh(w *writer) {
	dst, x, n := w.pointer("dst"), w.pointer("x"), w.length("dst")
	e := w.newExp()
	w.each(n, 1, func(at at) {
		x := w.load(at(x))
		z := w.mul(x, x)
		p := w.mul(z, w.float("tanhC4", -5.70498872745e-3))
		p = w.mul(w.add(p, w.float("tanhC3", 2.06390887954e-2)), z)
		p = w.mul(w.add(p, w.float("tanhC2", -5.37397155531e-2)), z)
		p = w.mul(w.add(p, w.float("tanhC1", 1.33314422036e-1)), z)
		p = w.add(p, w.float("tanhC0", -3.33332819422e-1))
		near := w.add(w.mul(w.mul(p, z), x), x)
		two, one := w.register(w.float("two", 2)), w.register(w.float("one", 1))
		far := w.sub(one, w.div(two, w.add(e.of(w.add(x, x)), one)))
		w.store(w.whereLess(z, w.float("tanhNear", 0.625*0.625), near, far), at(dst))
	})
	w.end()
}

func writeSwiGLUBackward(w *writer) {
	dgate, dup := w.pointer("dgate"), w.pointer("dup")
	gate, up, dy, n := w.pointer("gate"), w.pointer("up"), w.pointer("dy"), w.length("dgate")
	s := w.newSigmoid()
	w.each(n, 1, func(at at) {
		g := w.load(at(gate))
		sigmoid := s.of(g)
		slope := w.mul(sigmoid, w.add(w.mul(g, w.sub(s.one, sigmoid)), s.one))
		d, u := w.load(at(dy)), w.load(at(up))
		w.store(w.mul(d, w.mul(g, sigmoid)), at(dup))
		w.store(w.mul(w.mul(d, u), slope), at(dgate))
	})
	w.end()
}
