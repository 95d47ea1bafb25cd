package cpu

import (
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

// vectorTasks are the argument blocks of all kernels but matrix products and attention.
type vectorTasks[T float] struct {
	unary           unaryTask[T]
	binary          binaryTask[T]
	addScaled       addScaledTask[T]
	sum             sumTask[T]
	sumSquares      sumSquaresTask[T]
	rmsNorm         rmsNormTask[T]
	rmsNormBackward rmsNormBackwardTask[T]
	swiGLU          swiGLUTask[T]
	swiGLUBackward  swiGLUBackwardTask[T]
	softmax         softmaxTask[T]
	softmaxBackward softmaxBackwardTask[T]
	rope            ropeTask[T]
	embeddingGrad   embeddingGradTask[T]
	crossEntropy    crossEntropyTask[T]
	logSumExp       logSumExpTask[T]
	dropout         dropoutTask[T]
	random          randomTask[T]
	adamW           adamWTask[T]
	sgd             sgdTask[T]
	lerp            lerpTask[T]
}

// byteTasks are the argument blocks of kernels that move elements of any dtype.
type byteTasks struct {
	fill       fillTask
	copy       copyTask
	embedding  embeddingTask
	gatherRows gatherRowsTask
	nonFinite  nonFiniteTask
}

// blocks returns the argument blocks for T.
func blocks[T float](q *queue) *tasks[T] {
	if single[T]() {
		return (*tasks[T])(unsafe.Pointer(&q.f32))
	}
	return (*tasks[T])(unsafe.Pointer(&q.f64))
}

// single reports whether T is float32. It is a constant in every instance, so
// that the compiler drops the other branch.
func single[T float]() bool { return unsafe.Sizeof(*new(T)) == 4 }

// isFloat32 picks the instance of a kernel and panics where there is none.
func isFloat32(t device.Tensor) bool {
	switch t.DType() {
	case device.Float32:
		return true
	case device.Float64:
		return false
	}
	panic("cpu: kernel over a dtype other than float32 and float64")
}

// same panics unless both tensors have one dtype.
func same(a, b device.Tensor) {
	if a.DType() != b.DType() {
		panic("cpu: operands of unequal dtypes")
	}
}

// slice returns the n elements from an offset, counted in elements, on.
func slice[T any](base unsafe.Pointer, offset, n int) []T {
	return unsafe.Slice((*T)(unsafe.Add(base, offset*int(unsafe.Sizeof(*new(T))))), n)
}

// item returns one element at an offset counted in elements.
func item[T any](base unsafe.Pointer, offset int) *T {
	return (*T)(unsafe.Add(base, offset*int(unsafe.Sizeof(*new(T)))))
}

// stagingLen is how many elements of a strided operand are worked on at a time.
const stagingLen = 256

// gather returns n ≤ stagingLen elements that lie step apart, in place if they
// are neighbours and else copied to staging.
func gather[T any](staging *[stagingLen]T, base unsafe.Pointer, offset, step, n int) []T {
	if step == 1 {
		return slice[T](base, offset, n)
	}
	s := staging[:n]
	for i := range s {
		s[i] = *item[T](base, offset+i*step)
	}
	return s
}

// scatter is the inverse of gather: it stores what gather returned and a kernel changed.
func scatter[T any](s []T, base unsafe.Pointer, offset, step int) {
	if step == 1 {
		return
	}
	for i, x := range s {
		*item[T](base, offset+i*step) = x
	}
}

// target is gather for an operand that is only written.
func target[T any](staging *[stagingLen]T, base unsafe.Pointer, offset, step, n int) []T {
	if step == 1 {
		return slice[T](base, offset, n)
	}
	return staging[:n]
}
