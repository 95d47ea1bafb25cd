package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// What computes in float64 keeps half as many numbers in a register.

// loadDouble reads float32.
func (w *writer) loadDouble(m operand.Mem) reg.VecVirtual {
	v := w.vector()
	if w.mask == nil {
		w.VCVTPS2PD(m, v)
		return v
	}
	h := w.half()
	w.move(m, h)
	w.VCVTPS2PD(h, v)
	return v
}

// storeDouble rounds to float32.
func (w *writer) storeDouble(v reg.Register, m operand.Mem) {
	h := w.half()
	if w.wide {
		w.VCVTPD2PS(v, h)
	} else {
		w.VCVTPD2PSY(v, h)
	}
	w.store(h, m)
}

// spreadDouble is a float64 parameter in all lanes.
func (w *writer) spreadDouble(name string) reg.VecVirtual {
	m, err := w.Param(name).Resolve()
	if err != nil {
		panic(err)
	}
	v := w.vector()
	w.VBROADCASTSD(m.Addr, v)
	return v
}

func (w *writer) addDouble(a reg.Register, b operand.Op) reg.VecVirtual {
	return w.three(w.VADDPD, a, b)
}

func (w *writer) subDouble(a reg.Register, b operand.Op) reg.VecVirtual {
	return w.three(w.VSUBPD, a, b)
}

func (w *writer) mulDouble(a reg.Register, b operand.Op) reg.VecVirtual {
	return w.three(w.VMULPD, a, b)
}

func (w *writer) divDouble(a reg.Register, b operand.Op) reg.VecVirtual {
	return w.three(w.VDIVPD, a, b)
}

func (w *writer) sqrtDouble(a reg.Register) reg.VecVirtual {
	v := w.vector()
	w.VSQRTPD(a, v)
	return v
}

// loadPairs reads numbers of eight bytes: pairs of float32, or float64.
func (w *writer) loadPairs(m operand.Mem) reg.VecVirtual {
	v := w.vector()
	switch {
	case w.mask == nil:
		w.VMOVUPD(m, v)
	case w.wide:
		w.VMOVUPD_Z(m, w.mask, v)
	default:
		w.VMASKMOVPD(m, w.pairMask(), v)
	}
	return v
}

func (w *writer) storePairs(v reg.Register, m operand.Mem) {
	switch {
	case w.mask == nil:
		w.VMOVUPD(v, m)
	case w.wide:
		w.VMOVUPD(v, w.mask, m)
	default:
		w.VMASKMOVPD(v, w.pairMask(), m)
	}
}

// pairMask is the mask with eight bytes to an element.
func (w *writer) pairMask() reg.Register {
	m := w.YMM()
	w.VPMOVSXDQ(w.mask, m)
	return m
}
