package main

var rmsNormKernels = []kernel{
	{name: "normalize", doc: "is normalizeRow.", signature: "(dst, x, weight []float32, r float32)", write: func(w *writer) {
		dst, x, weight, n := w.pointer("dst"), w.pointer("x"), w.pointer("weight"), w.length("dst")
		r := w.spread("r")
		w.each(n, 4, func(at at) { w.store(w.mul(w.mul(w.load(at(x)), r), w.load(at(weight))), at(dst)) })
		w.end()
	}},
	{name: "addProduct", doc: "is addProductRow.", signature: "(sum, a, b []float32, r float32)", write: func(w *writer) {
		sum, a, b, n := w.pointer("sum"), w.pointer("a"), w.pointer("b"), w.length("sum")
		r := w.spread("r")
		w.each(n, 4, func(at at) {
			product := w.mul(w.load(at(a)), w.mul(w.load(at(b)), r))
			w.store(w.add(w.load(at(sum)), product), at(sum))
		})
		w.end()
	}},
	{name: "rmsNormBackward", doc: "is rmsNormBackwardRow.", signature: "(dx, x, weight, dy []float32, r, s float32)", write: func(w *writer) {
		dx, x, weight, dy, n := w.pointer("dx"), w.pointer("x"), w.pointer("weight"), w.pointer("dy"), w.length("dx")
		r, s := w.spread("r"), w.spread("s")
		w.each(n, 1, func(at at) {
			straight := w.mul(r, w.mul(w.load(at(weight)), w.load(at(dy))))
			w.store(w.sub(straight, w.mul(s, w.load(at(x)))), at(dx))
		})
		w.end()
	}},
	{name: "softmaxBackward", doc: "is softmaxBackwardRow.", signature: "(dx, y, dy []float32, dot float32)", write: func(w *writer) {
		dx, y, dy, n := w.pointer("dx"), w.pointer("y"), w.pointer("dy"), w.length("dx")
		dot := w.spread("dot")
		w.each(n, 1, func(at at) { w.store(w.mul(w.load(at(y)), w.sub(w.load(at(dy)), dot)), at(dx)) })
		w.end()
	}},
}
