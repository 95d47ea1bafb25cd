package cpu

import (
	"fmt"
	"math"

	"github.com/lethe-go/lethe/device"
)

func (q *queue) CrossEntropy(loss, logits, labels device.Tensor, ignore int32, grad bool) {
	if isFloat32(logits) {
		crossEntropy[float32](q, loss, logits, labels, ignore, grad)
	} else {
		crossEntropy[float64](q, loss, logits, labels, ignore, grad)
	}
}

type crossEntropyTask[T float] struct {
	level        level
	loss, logits []T
	labels       []int32
	ignore       int32
	grad         bool
	width, block int // columns; rows per task
}

func crossEntropy[T float](q *queue, loss, logits, labels device.Tensor, ignore int32, grad bool) {
	t := &blocks[T](q).crossEntropy
	t.level = q.dev.level
	t.loss, t.logits, t.labels = elements[T](loss), elements[T](logits), elements[int32](labels)
	t.ignore, t.grad, t.width = ignore, grad, logits.Last()
	rows := len(t.labels)
	if len(t.loss) != rows || len(t.logits) != rows*t.width {
		panic("cpu: cross-entropy of unequal shapes")
	}
	for i, label := range t.labels {
		if label != ignore && (label < 0 || int(label) >= t.width) {
			q.fail(fmt.Errorf("cross-entropy: label %d at index %d is outside [0, %d)", label, i, t.width))
			return
		}
	}
	t.block = max(1, grain/4/max(1, t.width))
	q.run((rows+t.block-1)/t.block, t)
}

func (t *crossEntropyTask[T]) do(_, i int) {
	for row := i * t.block; row < min((i+1)*t.block, len(t.labels)); row++ {
		logits := t.logits[row*t.width : (row+1)*t.width]
		label := t.labels[row]
		switch {
		case label == t.ignore:
			t.loss[row] = 0
			if t.grad {
				clear(logits)
			}
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

// rowLoss is log Σ exp(x) − x[label] for a sum of exp(x − peak).
func rowLoss[T float](peak, own T, sum float64) T {
	return T(math.Log(sum) + (float64(peak) - float64(own)))
}

// onlyLoss keeps the exponentials of a few columns at a time.
func (t *crossEntropyTask[T]) onlyLoss(logits []T, own T) T {
	var staging [stagingLen]T
	peak, sum := rowMaximum(t.level, logits), 0.0
	for rest := logits; len(rest) > 0; {
		n := min(stagingLen, len(rest))
		expRow(t.level, staging[:n], rest[:n], 1, -peak)
		sum += sumRow(t.level, staging[:n])
		rest = rest[n:]
	}
	return rowLoss(peak, own, sum)
}
