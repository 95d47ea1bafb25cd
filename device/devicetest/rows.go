package devicetest

import (
	"math"

	"github.com/lethe-go/lethe/device"
)

func rowTests() []kernelTest {
	return []kernelTest{
		{"RMSNorm", rmsNormTest},
		{"RMSNormBackward", rmsNormBackwardTest},
		{"Softmax", softmaxTest},
		{"SoftmaxBackward", softmaxBackwardTest},
		{"CrossEntropy", crossEntropyTest},
		{"CrossEntropyPart", crossEntropyPartTest},
		{"LogSumExp", logSumExpTest},
	}
}

const eps = 1e-5

func rmsNormTest(c *scene) (func(device.Kernels), func()) {
	width := c.extent("width", 1, 20, 67)
	x, weight := c.input(lastContiguous, c.rows(width)...), c.input(contiguous, width)
	dst := c.output(lastContiguous, x.Shape()...)
	return func(k device.Kernels) { k.RMSNorm(dst.Tensor, x.Tensor, weight.Tensor, eps) },
		func() {
			want := make([]float64, x.Len())
			for i, v := range x.values {
				want[i] = v * rsqrtMean(rowOf(x, i)) * weight.values[i%width]
			}
			c.close(dst, want, nil, 4)
		}
}

// rowOf returns the row that element i lies in.
func rowOf(x *operand, i int) []float64 {
	first := i - i%x.Last()
	return x.values[first : first+x.Last()]
}

func rsqrtMean(x []float64) float64 { return 1 / math.Sqrt(dot(x, x)/float64(len(x))+eps) }

func dot(a, b []float64) float64 {
	s := 0.0
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

func rmsNormBackwardTest(c *scene) (func(device.Kernels), func()) {
	width := c.extent("width", 1, 20, 67)
	x, weight := c.input(lastContiguous, c.rows(width)...), c.input(contiguous, width)
	dy := c.input(lastContiguous, x.Shape()...)
	var dx, dweight, ws operand
	if !c.flag("without dx") {
		dx = *c.output(lastContiguous, x.Shape()...)
	}
	if !c.flag("without dweight") {
		dweight = *c.output(contiguous, width)
		ws = *c.outputOf(device.Uint8, contiguous, 2*device.Alignment+int(device.RMSNormWorkspace(c.dtype, x.Len()/width, width)))
		ws.Tensor = aligned(ws.Tensor)
	}
	return func(k device.Kernels) {
			k.RMSNormBackward(dx.Tensor, dweight.Tensor, x.Tensor, weight.Tensor, dy.Tensor, eps, ws.Tensor)
		},
		func() {
			wantX, scaleX := make([]float64, x.Len()), make([]float64, x.Len())
			wantWeight, scaleWeight := make([]float64, width), make([]float64, width)
			for i, v := range x.values {
				j := i % width
				row, r := rowOf(x, i), rsqrtMean(rowOf(x, i))
				sum, magnitude := 0.0, 0.0
				for k, d := range rowOf(dy, i) {
					sum += d * weight.values[k] * row[k]
					magnitude += math.Abs(d * weight.values[k] * row[k])
				}
				own := r * dy.values[i] * weight.values[j]
				wantX[i] = own - v*r*r*r/float64(width)*sum
				scaleX[i] = math.Abs(own) + math.Abs(v*r*r*r/float64(width)*magnitude)
				wantWeight[j] += dy.values[i] * v * r
				scaleWeight[j] += math.Abs(dy.values[i] * v * r)
			}
			if !dx.IsZero() {
				c.close(&dx, wantX, scaleX, 6)
			}
			if !dweight.IsZero() {
				c.close(&dweight, wantWeight, scaleWeight, 8)
			}
		}
}

// aligned narrows bytes to where an arena would have put them.
func aligned(t device.Tensor) device.Tensor {
	skip := int(-t.Offset() & (device.Alignment - 1))
	return t.Slice(0, skip, t.Dim(0)-device.Alignment)
}

func softmaxTest(c *scene) (func(device.Kernels), func()) {
	width := c.extent("width", 1, 20, 301)
	x := c.inputWith(lastContiguous, func() float64 { return 5 * c.rand.NormFloat64() }, c.rows(width)...)
	dst := c.output(lastContiguous, x.Shape()...)
	return func(k device.Kernels) { k.Softmax(dst.Tensor, x.Tensor) },
		func() {
			want := make([]float64, x.Len())
			lse := 0.0
			for i, v := range x.values {
				if i%width == 0 {
					lse = logSumExp(rowOf(x, i))
				}
				want[i] = math.Exp(v - lse)
			}
			// The difference to the largest element is rounded before the exponential.
			c.close(dst, want, nil, 40)
		}
}

func logSumExp(x []float64) float64 {
	peak, sum := math.Inf(-1), 0.0
	for _, v := range x {
		peak = max(peak, v)
	}
	for _, v := range x {
		sum += math.Exp(v - peak)
	}
	return peak + math.Log(sum)
}

func softmaxBackwardTest(c *scene) (func(device.Kernels), func()) {
	width := c.extent("width", 1, 20, 301)
	y := c.inputWith(lastContiguous, func() float64 { return c.rand.Float64() / float64(width) }, c.rows(width)...)
	dy := c.input(lastContiguous, y.Shape()...)
	dx := c.output(lastContiguous, y.Shape()...)
	return func(k device.Kernels) { k.SoftmaxBackward(dx.Tensor, y.Tensor, dy.Tensor) },
		func() {
			want, scale := make([]float64, y.Len()), make([]float64, y.Len())
			sum, magnitude := 0.0, 0.0
			for i, p := range y.values {
				if i%width == 0 {
					sum, magnitude = 0, 0
					for k, p := range rowOf(y, i) {
						sum += p * rowOf(dy, i)[k]
						magnitude += p * math.Abs(rowOf(dy, i)[k])
					}
				}
				want[i] = p * (dy.values[i] - sum)
				scale[i] = p * (math.Abs(dy.values[i]) + magnitude)
			}
			c.close(dx, want, scale, 4)
		}
}

// labels are columns, some of them to ignore.
func (c *scene) labels(rows, vocabulary int, ignore float64) *operand {
	labels := make([]float64, rows)
	for i := range labels {
		if labels[i] = float64(c.rand.IntN(vocabulary)); c.rand.IntN(4) == 0 {
			labels[i] = ignore
		}
	}
	return c.inputOf(device.Int32, contiguous, labels, rows)
}

func crossEntropyTest(c *scene) (func(device.Kernels), func()) {
	rows, vocabulary := c.extent("rows", 0, 9, 70), c.extent("vocabulary", 1, 20, 601)
	logits := c.inputWith(contiguous, func() float64 { return 3 * c.rand.NormFloat64() }, rows, vocabulary)
	const ignore = -100
	label := c.labels(rows, vocabulary, ignore)
	loss := c.output(contiguous, rows)
	grad := c.flag("gradient")
	if grad {
		inPlace(logits)
	}
	return func(k device.Kernels) { k.CrossEntropy(loss.Tensor, logits.Tensor, label.Tensor, ignore, grad) },
		func() {
			want, scale := make([]float64, rows), make([]float64, rows)
			gradient, gradientScale := make([]float64, logits.Len()), make([]float64, logits.Len())
			for i, label := range label.values {
				if label == ignore {
					continue
				}
				row := rowOf(logits, i*vocabulary)
				lse := logSumExp(row)
				want[i] = lse - row[int(label)]
				scale[i] = 1 + math.Abs(lse) + math.Abs(row[int(label)])
				for j, v := range row {
					p := math.Exp(v - lse)
					gradient[i*vocabulary+j], gradientScale[i*vocabulary+j] = p, p
				}
				gradient[i*vocabulary+int(label)]--
				gradientScale[i*vocabulary+int(label)]++
			}
			c.close(loss, want, scale, 2)
			if grad {
				c.close(logits, gradient, gradientScale, 30)
			}
		}
}

func crossEntropyPartTest(c *scene) (func(device.Kernels), func()) {
	rows, vocabulary := c.extent("rows", 0, 9, 70), c.extent("vocabulary", 1, 20, 601)
	part, columns := c.part(vocabulary)
	logits := c.inputWith(lastContiguous, func() float64 { return 3 * c.rand.NormFloat64() }, rows, columns)
	// The columns elsewhere are as if they had added up to that.
	lse := c.inputWith(contiguous, func() float64 { return 5 + c.rand.NormFloat64() }, rows)
	const ignore = -100
	label := c.labels(rows, vocabulary, ignore)
	loss := c.output(contiguous, rows)
	grad := c.flag("gradient")
	if grad {
		inPlace(logits)
	}
	return func(k device.Kernels) {
			k.CrossEntropyPart(loss.Tensor, logits.Tensor, label.Tensor, lse.Tensor, part, ignore, grad)
		},
		func() {
			want, scale := make([]float64, rows), make([]float64, rows)
			gradient, gradientScale := make([]float64, logits.Len()), make([]float64, logits.Len())
			for i, label := range label.values {
				if label == ignore {
					continue
				}
				for j := range columns {
					p := math.Exp(logits.values[i*columns+j] - lse.values[i])
					gradient[i*columns+j], gradientScale[i*columns+j] = p, p*(1+math.Abs(lse.values[i]))
				}
				if at := int(label) - part.First; at >= 0 && at < columns {
					own := logits.values[i*columns+at]
					want[i], scale[i] = lse.values[i]-own, math.Abs(lse.values[i])+math.Abs(own)
					gradient[i*columns+at]--
					gradientScale[i*columns+at]++
				}
			}
			c.close(loss, want, scale, 2)
			if grad {
				c.close(logits, gradient, gradientScale, 30)
			}
		}
}

func logSumExpTest(c *scene) (func(device.Kernels), func()) {
	rows, width := c.extent("rows", 0, 9, 70), c.extent("width", 0, 20, 601)
	x := c.inputWith(lastContiguous, func() float64 { return 5 * c.rand.NormFloat64() }, rows, width)
	dst := c.output(contiguous, rows)
	return func(k device.Kernels) { k.LogSumExp(dst.Tensor, x.Tensor) },
		func() {
			want, scale := make([]float64, rows), make([]float64, rows)
			for i := range want {
				want[i] = logSumExp(x.values[i*width : (i+1)*width])
				scale[i] = 1 + math.Abs(want[i])
			}
			c.close(dst, want, scale, 4)
		}
}
