package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const ropeSignature = "(cos, sin, dst, x []float32, heads, dstHead, xHead int, sign float32)"

var ropeKernels = []kernel{
	{name: "ropeAdjacent", doc: "is rotateAdjacent for all heads of a token.", signature: ropeSignature, free: []string{"dst", "x"}, write: func(w *writer) {
		cos, sin, sign := w.pointer("cos"), w.pointer("sin"), w.spread("sign")
		// A pair (a, b) turns into (a, b)·cos + (b, a)·(−sin, sin).
		sign = w.mul(sign, w.constant("alternating", operand.U64(0x3F800000_BF800000), 8))
		w.heads(func(n, dst, x reg.Register) {
			w.eachDouble(n, func(at at) {
				pairs := func(base reg.Register) operand.Mem {
					m := at(base)
					m.Scale = 8
					return m
				}
				c, s := w.twice(at(cos)), w.mul(sign, w.twice(at(sin)))
				v := w.loadPairs(pairs(x))
				swapped := w.vector()
				w.VPERMILPS(operand.Imm(0xB1), v, swapped)
				w.storePairs(w.add(w.mul(v, c), w.mul(swapped, s)), pairs(dst))
			})
		})
	}},
	{name: "ropeHalves", doc: "is rotateHalves for all heads of a token.", signature: ropeSignature, free: []string{"dst", "x"}, write: func(w *writer) {
		cos, sin, sign := w.pointer("cos"), w.pointer("sin"), w.spread("sign")
		w.heads(func(n, dst, x reg.Register) {
			dst1, x1 := w.GP64(), w.GP64()
			w.LEAQ(operand.Mem{Base: dst, Index: n, Scale: 4}, dst1)
			w.LEAQ(operand.Mem{Base: x, Index: n, Scale: 4}, x1)
			w.each(n, 1, func(at at) {
				c, s := w.load(at(cos)), w.mul(sign, w.load(at(sin)))
				a, b := w.load(at(x)), w.load(at(x1))
				w.store(w.sub(w.mul(a, c), w.mul(b, s)), at(dst))
				w.store(w.add(w.mul(a, s), w.mul(b, c)), at(dst1))
			})
		})
	}},
}

// heads writes a loop over at least one head of n pairs.
func (w *writer) heads(body func(n, dst, x reg.Register)) {
	dst, x, n := w.pointer("dst"), w.pointer("x"), w.length("cos")
	heads := w.Load(w.Param("heads"), w.GP64())
	dstHead, xHead := w.Load(w.Param("dstHead"), w.GP64()), w.Load(w.Param("xHead"), w.GP64())
	loop := w.label("head")
	w.Label(loop)
	body(n, dst, x)
	w.LEAQ(operand.Mem{Base: dst, Index: dstHead, Scale: 4}, dst)
	w.LEAQ(operand.Mem{Base: x, Index: xHead, Scale: 4}, x)
	w.DECQ(heads)
	w.JNE(operand.LabelRef(loop))
	w.end()
}

// twice reads half a register of float32 and has each two times.
func (w *writer) twice(m operand.Mem) reg.Register {
	wide, v := w.vector(), w.vector()
	if w.mask == nil {
		w.VPMOVZXDQ(m, wide)
	} else {
		h := w.half()
		w.move(m, h)
		w.VPMOVZXDQ(h, wide)
	}
	w.VMOVSLDUP(wide, v)
	return v
}
