package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// at makes the address of the element that a loop is at, of a slice's base.
type at func(base reg.Register) operand.Mem

// each writes a loop over n float32, unrolled so many times, and its tail.
func (w *writer) each(n reg.Register, unroll int, body func(at at)) {
	w.loop(n, w.lanes(), unroll, body)
}

// eachDouble is each for bodies that compute in float64, on half as many elements.
func (w *writer) eachDouble(n reg.Register, body func(at at)) {
	w.loop(n, w.lanes()/2, 1, body)
}

func (w *writer) loop(n reg.Register, lanes, unroll int, body func(at at)) {
	i := w.GP64()
	w.XORQ(i, i)
	for ; unroll > 0; unroll /= 4 {
		w.whole(n, i, lanes, unroll, body)
	}
	w.tail(n, i, lanes, body)
}

// whole visits elements while a round of registers has as many.
func (w *writer) whole(n, i reg.Register, lanes, unroll int, body func(at at)) {
	loop, done, last := w.label("whole"), w.label("wholeDone"), w.GP64()
	w.MOVQ(n, last)
	w.SUBQ(operand.Imm(uint64(lanes*unroll)), last)
	w.Label(loop)
	w.CMPQ(i, last)
	w.JGT(operand.LabelRef(done))
	for u := range unroll {
		body(func(base reg.Register) operand.Mem {
			return operand.Mem{Base: base, Index: i, Scale: 4, Disp: 4 * lanes * u}
		})
	}
	w.ADDQ(operand.Imm(uint64(lanes*unroll)), i)
	w.JMP(operand.LabelRef(loop))
	w.Label(done)
}

// tail visits the elements that fill no register.
func (w *writer) tail(n, i reg.Register, lanes int, body func(at at)) {
	done, rest := w.label("tailDone"), w.GP64()
	w.MOVQ(n, rest)
	w.SUBQ(i, rest)
	w.JEQ(operand.LabelRef(done))
	w.setMask(rest, lanes)
	body(func(base reg.Register) operand.Mem {
		return operand.Mem{Base: base, Index: i, Scale: 4}
	})
	w.mask = nil
	w.Label(done)
}

// end returns to Go.
func (w *writer) end() {
	w.VZEROUPPER()
	w.RET()
	w.finish()
}

// result returns a number to Go.
func (w *writer) result(v reg.Register) {
	w.VZEROUPPER()
	w.Store(v, w.ReturnIndex(0))
	w.RET()
	w.finish()
}

func (w *writer) finish() {
	for _, write := range w.behind {
		write()
	}
	w.behind = nil
}
