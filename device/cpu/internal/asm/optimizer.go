package main

import "github.com/mmcloughlin/avo/reg"

var optimizerKernels = []kernel{
	{name: "adamW", doc: "is adamWRow.", write: writeAdamW,
		signature: "(param, m, v, grad []float32, factor, l2, shrink, beta1, rest1, beta2, rest2, rate, unbias2, eps float64)"},
	{name: "sgd", doc: "is sgdRow.", signature: "(param, grad []float32, factor, l2, rate float64)", write: func(w *writer) {
		param, grad, n := w.pointer("param"), w.pointer("grad"), w.length("param")
		factor, l2, rate := w.spreadDouble("factor"), w.spreadDouble("l2"), w.spreadDouble("rate")
		w.eachDouble(n, func(at at) {
			p := w.loadDouble(at(param))
			g := w.gradient(factor, w.loadDouble(at(grad)), l2, p)
			w.storeDouble(w.subDouble(p, w.mulDouble(rate, g)), at(param))
		})
		w.end()
	}},
	{name: "momentum", doc: "is momentumRow without Nesterov's.", signature: "(param, grad, velocity []float32, factor, l2, momentum, rate float64)", write: func(w *writer) {
		writeMomentum(w, false)
	}},
	{name: "nesterov", doc: "is momentumRow with Nesterov's.", signature: "(param, grad, velocity []float32, factor, l2, momentum, rate float64)", write: func(w *writer) {
		writeMomentum(w, true)
	}},
	{name: "lerp", doc: "is lerpRow.", signature: "(dst, a, b []float32, weight float64)", write: func(w *writer) {
		dst, a, b, n := w.pointer("dst"), w.pointer("a"), w.pointer("b"), w.length("dst")
		weight := w.spreadDouble("weight")
		w.eachDouble(n, func(at at) {
			x := w.loadDouble(at(a))
			step := w.mulDouble(weight, w.subDouble(w.loadDouble(at(b)), x))
			w.storeDouble(w.addDouble(x, step), at(dst))
		})
		w.end()
	}},
}

// gradient is factor·g + l2·p.
func (w *writer) gradient(factor, g, l2, p reg.Register) reg.Register {
	return w.addDouble(w.mulDouble(factor, g), w.mulDouble(l2, p))
}

// writeAdamW keeps in registers the scalars it has room for, and loads the others where it uses them.
func writeAdamW(w *writer) {
	param, mean, square := w.pointer("param"), w.pointer("m"), w.pointer("v")
	grad, n := w.pointer("grad"), w.length("param")
	factor, beta1, rest1 := w.spreadDouble("factor"), w.spreadDouble("beta1"), w.spreadDouble("rest1")
	beta2, rest2, rate := w.spreadDouble("beta2"), w.spreadDouble("rest2"), w.spreadDouble("rate")
	w.eachDouble(n, func(at at) {
		p := w.loadDouble(at(param))
		g := w.gradient(factor, w.loadDouble(at(grad)), w.spreadDouble("l2"), p)
		m := w.addDouble(w.mulDouble(beta1, w.loadDouble(at(mean))), w.mulDouble(rest1, g))
		v := w.addDouble(w.mulDouble(beta2, w.loadDouble(at(square))), w.mulDouble(w.mulDouble(rest2, g), g))
		w.storeDouble(m, at(mean))
		w.storeDouble(v, at(square))
		root := w.addDouble(w.sqrtDouble(w.mulDouble(v, w.spreadDouble("unbias2"))), w.spreadDouble("eps"))
		step := w.divDouble(w.mulDouble(rate, m), root)
		w.storeDouble(w.subDouble(w.mulDouble(w.spreadDouble("shrink"), p), step), at(param))
	})
	w.end()
}

func writeMomentum(w *writer, nesterov bool) {
	param, grad, velocity, n := w.pointer("param"), w.pointer("grad"), w.pointer("velocity"), w.length("param")
	factor, l2 := w.spreadDouble("factor"), w.spreadDouble("l2")
	momentum, rate := w.spreadDouble("momentum"), w.spreadDouble("rate")
	w.eachDouble(n, func(at at) {
		p := w.loadDouble(at(param))
		g := w.gradient(factor, w.loadDouble(at(grad)), l2, p)
		v := w.addDouble(w.mulDouble(momentum, w.loadDouble(at(velocity))), g)
		w.storeDouble(v, at(velocity))
		if nesterov {
			v = w.addDouble(g, w.mulDouble(momentum, v))
		}
		w.storeDouble(w.subDouble(p, w.mulDouble(rate, v)), at(param))
	})
	w.end()
}
