package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) SGD(param, momentum, grad, factor device.Tensor, s device.SGD) {
	if isFloat32(param) {
		sgd[float32](q, param, momentum, grad, factor, &s)
	} else {
		sgd[float64](q, param, momentum, grad, factor, &s)
	}
}

// sgdTask computes in float64, as adamWTask does.
type sgdTask[T float] struct {
	loop
	level                 level
	param, momentum, grad unsafe.Pointer // momentum is nil without one
	sgdScalars
}

type sgdScalars struct {
	factor, l2, momentum, rate float64
	nesterov                   bool
}

func sgd[T float](q *queue, param, momentum, grad, factor device.Tensor, s *device.SGD) {
	same(param, grad)
	t := &blocks[T](q).sgd
	t.level = q.dev.level
	t.param, t.grad, t.momentum = param.Pointer(), grad.Pointer(), nil
	t.sgdScalars = sgdScalars{factor: 1, l2: s.L2, momentum: s.Momentum, rate: s.LearningRate, nesterov: s.Nesterov}
	if momentum.IsZero() {
		t.overElements(grain/2, param, grad)
	} else {
		same(param, momentum)
		t.overElements(grain/2, param, grad, momentum)
		t.momentum = momentum.Pointer()
	}
	if !factor.IsZero() {
		t.factor = loadScalar(factor)
	}
	q.run(t.chunks(), t)
}

func (t *sgdTask[T]) do(_, i int) {
	var paramStaging, gradStaging, momentumStaging [stagingLen]T
	limit := t.segment
	if !t.dense() {
		limit = stagingLen
	}
	for c := t.pieces(i, limit); c.next(); {
		param := t.row(&paramStaging, t.param, &c, 0)
		grad := t.row(&gradStaging, t.grad, &c, 1)
		if t.momentum == nil {
			sgdRow(t.level, param, grad, &t.sgdScalars)
		} else {
			momentum := t.row(&momentumStaging, t.momentum, &c, 2)
			momentumRow(t.level, param, grad, momentum, &t.sgdScalars)
			scatter(momentum, t.momentum, c.at[2], t.step(2))
		}
		scatter(param, t.param, c.at[0], t.step(0))
	}
}

// row returns what c is at of an operand.
func (t *sgdTask[T]) row(staging *[stagingLen]T, base unsafe.Pointer, c *cursor, operand int) []T {
	return gather(staging, base, c.at[operand], t.step(operand), c.n)
}

func sgdRow[T float](l level, param, grad []T, s *sgdScalars) {
	if vectorized[T](l) {
		sgdVector(l, asFloat32(param), asFloat32(grad), s.factor, s.l2, s.rate)
		return
	}
	param = param[:len(grad)]
	for i, x := range grad {
		p := float64(param[i])
		param[i] = T(p - float64(s.rate*s.gradient(float64(x), p)))
	}
}

func momentumRow[T float](l level, param, grad, momentum []T, s *sgdScalars) {
	switch {
	case vectorized[T](l) && s.nesterov:
		nesterovVector(l, asFloat32(param), asFloat32(grad), asFloat32(momentum), s.factor, s.l2, s.momentum, s.rate)
		return
	case vectorized[T](l):
		momentumVector(l, asFloat32(param), asFloat32(grad), asFloat32(momentum), s.factor, s.l2, s.momentum, s.rate)
		return
	}
	param, momentum = param[:len(grad)], momentum[:len(grad)]
	for i, x := range grad {
		p := float64(param[i])
		g := s.gradient(float64(x), p)
		m := float64(s.momentum*float64(momentum[i])) + g
		momentum[i] = T(m)
		if s.nesterov {
			m = g + float64(s.momentum*m)
		}
		param[i] = T(p - float64(s.rate*m))
	}
}

// gradient is that of the clipped loss and of l2/2·p².
func (s *sgdScalars) gradient(g, p float64) float64 { return float64(s.factor*g) + float64(s.l2*p) }
