package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

var randomKernels = []kernel{
	{name: "draws", doc: "is the loop of draws.fill for a multiple of 16 draws. The starts are the first\n// counters, at least 8; the keys those of the rounds.",
		signature: "(draws, starts, keys []uint64, step, word2, word3 uint64)", free: []string{"starts", "keys"}, write: writeDraws},
	{name: "dropout", doc: "is dropoutRow.", signature: "(dst, x []float32, draws []uint64, keep float32, threshold uint64)", write: writeDropout},
}

// philoxState is the words of as many counters as a register has places of eight
// bytes; what is above 32 bits of a word does not matter.
type philoxState [4]reg.Register

// writeDraws runs two registers of counters side by side, whose multiplications overlap.
func writeDraws(w *writer) {
	draws, starts, keys, n := w.pointer("draws"), w.pointer("starts"), w.pointer("keys"), w.length("draws")
	stride := w.spreadDouble("step")
	places := w.lanes() / 2
	index := w.vector()
	w.VMOVUPD(operand.Mem{Base: starts}, index)
	for doubled := 1; doubled < places; doubled *= 2 {
		w.VPADDQ(stride, stride, stride)
	}
	i := w.GP64()
	loop := w.label("loop")
	w.XORQ(i, i)
	w.Label(loop)
	var states [2]philoxState
	for s := range states {
		high := w.vector()
		w.VPSRLQ(operand.Imm(32), index, high)
		low := w.vector()
		w.VMOVAPD(index, low)
		states[s] = philoxState{low, high, w.spreadDouble("word2"), w.spreadDouble("word3")}
		w.VPADDQ(stride, index, index)
	}
	for round := range 10 {
		for s := range states {
			states[s] = w.philoxRound(states[s], operand.Mem{Base: keys, Disp: 16 * round})
		}
	}
	for s, words := range states {
		high, low := w.vector(), w.vector()
		w.VPSLLQ(operand.Imm(32), words[1], high)
		w.VANDPD(w.constant("lowWord", operand.U64(0xFFFFFFFF), 8), words[0], low)
		w.VORPD(high, low, low)
		w.VMOVUPD(low, operand.Mem{Base: draws, Index: i, Scale: 8, Disp: 8 * places * s})
	}
	w.ADDQ(operand.Imm(uint64(2*places)), i)
	w.CMPQ(i, n)
	w.JLT(operand.LabelRef(loop))
	w.end()
}

func (w *writer) philoxRound(x philoxState, keys operand.Mem) philoxState {
	product := func(a reg.Register, name string, factor uint64) (high, low reg.Register) {
		low, high = w.vector(), w.vector()
		w.VPMULUDQ(w.constant(name, operand.U64(factor), 8), a, low)
		w.VPSRLQ(operand.Imm(32), low, high)
		return high, low
	}
	mix := func(high, a reg.Register, key operand.Mem) reg.Register {
		k := w.vector()
		w.VBROADCASTSD(key, k)
		return w.three(w.VXORPD, w.three(w.VXORPD, high, a), k)
	}
	p, pLow := product(x[0], "philoxM0", 0xD2511F53)
	q, qLow := product(x[2], "philoxM1", 0xCD9E8D57)
	return philoxState{mix(q, x[1], keys), qLow, mix(p, x[3], keys.Offset(8)), pLow}
}

func writeDropout(w *writer) {
	dst, x, draws, n := w.pointer("dst"), w.pointer("x"), w.pointer("draws"), w.length("dst")
	threshold := w.spreadDouble("threshold")
	keep := w.half()
	m, err := w.Param("keep").Resolve()
	if err != nil {
		panic(err)
	}
	w.VBROADCASTSS(m.Addr, keep)
	w.eachDouble(n, func(at at) {
		words := at(draws)
		words.Scale = 8
		draw, v := w.vector(), w.half()
		w.VPSRLQ(operand.Imm(11), w.loadPairs(words), draw)
		w.move(at(x), v)
		if w.wide {
			const notLess = 5
			k := w.K()
			w.VPCMPUQ(operand.Imm(notLess), threshold, draw, k)
			w.VDIVPS_Z(keep, v, k, v)
		} else {
			dropped, high := w.YMM(), w.XMM()
			w.VPCMPGTQ(draw, threshold, dropped)
			w.VEXTRACTF128(operand.Imm(1), dropped, high)
			w.VSHUFPS(operand.Imm(0x88), high, dropped.AsX(), high)
			w.VDIVPS(keep, v, v)
			w.VANDNPS(v, high, v)
		}
		w.store(v, at(dst))
	})
	w.end()
}
