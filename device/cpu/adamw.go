package cpu

import (
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) AdamW(param, m, v, grad, factor device.Tensor, a device.AdamW) {
	if isFloat32(param) {
		adamW[float32](q, param, m, v, grad, factor, &a)
	} else {
		adamW[float64](q, param, m, v, grad, factor, &a)
	}
}

// adamWTask computes in float64, which costs little beside the memory traffic:
// lr·decay may be below the precision of float32 where it meets the parameter.
type adamWTask[T float] struct {
	loop
	level             level
	param, m, v, grad unsafe.Pointer
	adamWScalars
}

type adamWScalars struct {
	factor, l2, shrink         float64 // 1 − lr·decay
	beta1, rest1, beta2, rest2 float64 // β and 1 − β
	rate, unbias2, eps         float64 // lr / (1−β1ᵗ), 1 / (1−β2ᵗ)
}

func adamW[T float](q *queue, param, m, v, grad, factor device.Tensor, a *device.AdamW) {
	same(param, m)
	same(param, v)
	same(param, grad)
	t := &blocks[T](q).adamW
	t.overElements(grain/4, param, m, v, grad)
	t.level = q.dev.level
	t.param, t.m, t.v, t.grad = param.Pointer(), m.Pointer(), v.Pointer(), grad.Pointer()
	step := float64(a.Step)
	t.adamWScalars = adamWScalars{
		factor: 1, l2: a.L2,
		shrink: 1 - a.LearningRate*a.WeightDecay,
		beta1:  a.Beta1, rest1: 1 - a.Beta1,
		beta2: a.Beta2, rest2: 1 - a.Beta2,
		rate:    a.LearningRate / (1 - math.Pow(a.Beta1, step)),
		unbias2: 1 / (1 - math.Pow(a.Beta2, step)),
		eps:     a.Epsilon,
	}
	if !factor.IsZero() {
		t.factor = loadScalar(factor)
	}
	q.run(t.chunks(), t)
}

func (t *adamWTask[T]) do(_, i int) {
	if !t.dense() {
		t.strided(i)
		return
	}
	for c := t.chunk(i); c.next(); {
		adamWRow(t.level, slice[T](t.param, c.at[0], c.n), slice[T](t.m, c.at[1], c.n), slice[T](t.v, c.at[2], c.n), slice[T](t.grad, c.at[3], c.n), &t.adamWScalars)
	}
}

func (t *adamWTask[T]) strided(i int) {
	var paramStaging, mStaging, vStaging, gradStaging [stagingLen]T
	for c := t.pieces(i, stagingLen); c.next(); {
		param := gather(&paramStaging, t.param, c.at[0], t.step(0), c.n)
		m := gather(&mStaging, t.m, c.at[1], t.step(1), c.n)
		v := gather(&vStaging, t.v, c.at[2], t.step(2), c.n)
		adamWRow(t.level, param, m, v, gather(&gradStaging, t.grad, c.at[3], t.step(3), c.n), &t.adamWScalars)
		scatter(param, t.param, c.at[0], t.step(0))
		scatter(m, t.m, c.at[1], t.step(1))
		scatter(v, t.v, c.at[2], t.step(2))
	}
}

func adamWRow[T float](l level, param, m, v, grad []T, s *adamWScalars) {
	if vectorized[T](l) {
		adamWVector(l, asFloat32(param), asFloat32(m), asFloat32(v), asFloat32(grad),
			s.factor, s.l2, s.shrink, s.beta1, s.rest1, s.beta2, s.rest2, s.rate, s.unbias2, s.eps)
		return
	}
	n := len(grad)
	param, m, v = param[:n], m[:n], v[:n]
	k := *s
	for i, x := range grad {
		p := float64(param[i])
		g := float64(k.factor*float64(x)) + float64(k.l2*p)
		mean := float64(k.beta1*float64(m[i])) + float64(k.rest1*g)
		square := float64(k.beta2*float64(v[i])) + float64(k.rest2*g*g)
		m[i], v[i] = T(mean), T(square)
		root := math.Sqrt(square*k.unbias2) + k.eps
		param[i] = T(float64(k.shrink*p) - k.rate*mean/root)
	}
}
