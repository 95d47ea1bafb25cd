package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// These give new registers. Only the last operand may be in memory.

func (w *writer) add(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VADDPS, a, b) }
func (w *writer) sub(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VSUBPS, a, b) }
func (w *writer) mul(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VMULPS, a, b) }
func (w *writer) div(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VDIVPS, a, b) }

// least and greatest give b where either is NaN.
func (w *writer) least(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VMINPS, a, b) }
func (w *writer) greatest(a reg.Register, b operand.Op) reg.VecVirtual {
	return w.three(w.VMAXPS, a, b)
}

func (w *writer) three(f func(...operand.Op), a reg.Register, b operand.Op) reg.VecVirtual {
	v := w.vector()
	f(b, a, v)
	return v
}

// addInt and subInt are those of int32.
func (w *writer) addInt(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VPADDD, a, b) }
func (w *writer) subInt(a reg.Register, b operand.Op) reg.VecVirtual { return w.three(w.VPSUBD, a, b) }

// shiftLeft and shiftRight shift int32, the latter with its sign.
func (w *writer) shiftLeft(a reg.Register, n uint64) reg.VecVirtual {
	v := w.vector()
	w.VPSLLD(operand.Imm(n), a, v)
	return v
}

func (w *writer) shiftRight(a reg.Register, n uint64) reg.VecVirtual {
	v := w.vector()
	w.VPSRAD(operand.Imm(n), a, v)
	return v
}

// whereLess is x where a < b, and y elsewhere and where either is NaN.
func (w *writer) whereLess(a reg.Register, b operand.Op, x, y reg.Register) reg.VecVirtual {
	const lessThanQuiet = 0x11
	return w.where(lessThanQuiet, a, b, x, y)
}

// where is x where a and b compare as a predicate of VCMPPS says, and else y.
func (w *writer) where(predicate uint64, a reg.Register, b operand.Op, x, y reg.Register) reg.VecVirtual {
	v := w.vector()
	if w.wide {
		k := w.K()
		w.VCMPPS(operand.Imm(predicate), b, a, k)
		w.VBLENDMPS(x, y, k, v)
		return v
	}
	mask := w.YMM()
	w.VCMPPS(operand.Imm(predicate), b, a, mask)
	w.VBLENDVPS(mask, x, y, v)
	return v
}
