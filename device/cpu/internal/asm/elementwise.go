package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	unarySignature  = "(dst, x []float32)"
	binarySignature = "(dst, a, b []float32)"
)

var elementwiseKernels = []kernel{
	{name: "addScaled", doc: "is addScaledRow.", signature: "(dst, a, b []float32, alpha float32)", write: func(w *writer) {
		alpha := w.spread("alpha")
		w.binary(func(a, b reg.Register) reg.Register { return w.add(a, w.mul(alpha, b)) })
	}},
	{name: "scaled", doc: "is scaledRow.", signature: "(dst, x []float32, alpha float32)", write: func(w *writer) {
		alpha := w.spread("alpha")
		w.unary(func(x reg.Register) reg.Register { return w.mul(alpha, x) })
	}},
	{name: "mul", doc: "is dst = a·b.", signature: binarySignature, write: func(w *writer) {
		w.binary(func(a, b reg.Register) reg.Register { return w.mul(a, b) })
	}},
	{name: "div", doc: "is dst = a/b.", signature: binarySignature, write: func(w *writer) {
		w.binary(func(a, b reg.Register) reg.Register { return w.div(a, b) })
	}},
	{name: "greater", doc: "is dst = max(a, b), NaN where either is.", signature: binarySignature, write: func(w *writer) {
		// The instruction gives its last operand for two zeros and for NaN: both ways
		// together have +0 if either has, and a sum has NaN.
		w.binary(func(a, b reg.Register) reg.Register {
			m := w.three(w.VANDPS, w.greatest(a, b), w.greatest(b, a))
			return w.whereOrdered(a, b, m, w.add(a, b))
		})
	}},
	{name: "square", doc: "is dst = x².", signature: unarySignature, write: func(w *writer) {
		w.unary(func(x reg.Register) reg.Register { return w.mul(x, x) })
	}},
	{name: "sqrt", doc: "is dst = √x.", signature: unarySignature, write: func(w *writer) {
		w.unary(func(x reg.Register) reg.Register {
			v := w.vector()
			w.VSQRTPS(x, v)
			return v
		})
	}},
	{name: "inverse", doc: "is dst = 1/x.", signature: unarySignature, write: func(w *writer) {
		one := w.register(w.float("one", 1))
		w.unary(func(x reg.Register) reg.Register { return w.div(one, x) })
	}},
}

func (w *writer) unary(f func(x reg.Register) reg.Register) {
	dst, x, n := w.pointer("dst"), w.pointer("x"), w.length("dst")
	w.each(n, 4, func(at at) { w.store(f(w.load(at(x))), at(dst)) })
	w.end()
}

func (w *writer) binary(f func(a, b reg.Register) reg.Register) {
	dst, a, b, n := w.pointer("dst"), w.pointer("a"), w.pointer("b"), w.length("dst")
	w.each(n, 4, func(at at) { w.store(f(w.load(at(a)), w.load(at(b))), at(dst)) })
	w.end()
}

// whereOrdered is x where neither of a and b is NaN, and else y.
func (w *writer) whereOrdered(a reg.Register, b operand.Op, x, y reg.Register) reg.VecVirtual {
	const orderedQuiet = 7
	return w.where(orderedQuiet, a, b, x, y)
}
