package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) CrossEntropy(loss, logits, labels device.Tensor, ignore int32, grad bool) {
	if isFloat32(logits) {
		crossEntropy[float32](q, loss, logits, labels, nil, device.Part{}, ignore, grad)
	} else {
		crossEntropy[float64](q, loss, logits, labels, nil, device.Part{}, ignore, grad)
	}
}

func (q *queue) CrossEntropyPart(loss, logits, labels, lse device.Tensor, part device.Part, ignore int32, grad bool) {
	if isFloat32(logits) {
		crossEntropy(q, loss, logits, labels, elements[float32](lse), part, ignore, grad)
	} else {
		crossEntropy(q, loss, logits, labels, elements[float64](lse), part, ignore, grad)
	}
}

type crossEntropyTask[T float] struct {
	level         level
	loss          []T
	logits        unsafe.Pointer
	labels        []int32
	lse           []T // nil if logits are whole
	ignore        int32
	grad          bool
	width, stride int // columns, and the way to the next row
	block         int // rows per task
	first         int // column of the whole
}

func crossEntropy[T float](q *queue, loss, logits, labels device.Tensor, lse []T, part device.Part, ignore int32, grad bool) {
	t := &blocks[T](q).crossEntropy
	t.level = q.dev.level
	t.loss, t.logits, t.labels, t.lse = elements[T](loss), logits.Pointer(), elements[int32](labels), lse
	t.ignore, t.grad, t.width, t.stride, t.first = ignore, grad, logits.Dim(1), logits.Stride(0), part.First
	rows := len(t.labels)
	if len(t.loss) != rows || logits.Dim(0) != rows || lse != nil && len(lse) != rows {
		panic("cpu: cross-entropy of unequal shapes")
	}
	if t.width > 1 && logits.Stride(1) != 1 {
		panic("cpu: last dimension is not contiguous")
	}
	for i, label := range t.labels {
		if label != ignore && (label < 0 || int(label) >= part.Of(t.width)) {
			q.fail(fmt.Errorf("cross-entropy: label %d at index %d is outside [0, %d)", label, i, part.Of(t.width)))
			return
		}
	}
	t.block = max(1, grain/4/max(1, t.width))
	q.run((rows+t.block-1)/t.block, t)
}

func (t *crossEntropyTask[T]) do(_, i int) {
	for row := i * t.block; row < min((i+1)*t.block, len(t.labels)); row++ {
		logits := slice[T](t.logits, row*t.stride, t.width)
		label := t.labels[row]
		switch {
		case label == t.ignore:
			t.loss[row] = 0
			if t.grad {
				clear(logits)
			}
		case t.lse != nil:
			t.part(row, logits, int(label)-t.first)
		case t.grad:
			peak, own := rowMaximum(t.level, logits), logits[label]
			sum := expSum(t.level, logits, logits)
			t.loss[row] = rowLoss(peak, own, sum)
			scaledRow(t.level, logits, logits, T(1/sum))
			logits[label]--
		default:
			t.loss[row] = t.onlyLoss(logits, logits[label])
		}
	}
}

// part is what some columns contribute to a row with the label in a column of theirs, which
// may lie outside of them.
func (t *crossEntropyTask[T]) part(row int, logits []T, column int) {
	lse, inside := t.lse[row], uint(column) < uint(len(logits))
	t.loss[row] = 0
	if inside {
		t.loss[row] = lse - logits[column]
	}
	if t.grad {
		expRow(t.level, logits, logits, 1, -lse)
		if inside {
			logits[column]--
		}
	}
}

// rowLoss is log Σ exp(x) − x[label] for a sum of exp(x − peak).
func rowLoss[T float](peak, own T, sum float64) T {
	return T(math.Log(sum) + (float64(peak) - float64(own)))
}

// onlyLoss leaves the logits as they are.
func (t *crossEntropyTask[T]) onlyLoss(logits []T, own T) T {
	peak, sum := peakSum(t.level, logits)
	return rowLoss(peak, own, sum)
}

// peakSum is the largest element of x and Σ exp(x − that). It keeps the exponentials of a few
// columns at a time.
func peakSum[T float](l level, x []T) (peak T, sum float64) {
	var staging [stagingLen]T
	peak = rowMaximum(l, x)
	for len(x) > 0 {
		n := min(stagingLen, len(x))
		expRow(l, staging[:n], x[:n], 1, -peak)
		sum += sumRow(l, staging[:n])
		x = x[n:]
	}
	return peak, sum
}
