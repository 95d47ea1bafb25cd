package cpu

import (
	"testing"

	"github.com/lethe-go/lethe/device"
)

// BenchmarkVector runs kernels over [2048, 1024] float32: MB/s counts one tensor.
func BenchmarkVector(b *testing.B) {
	const rows, width = 2048, 1024
	d, err := New(Options{Workers: 1})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	q := d.NewQueue()
	defer q.Close()
	tensor := func(t device.DType, shape ...int) device.Tensor {
		buffer, err := d.Alloc(device.OnDevice, device.NewSpec(t, shape...).Bytes())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(buffer.Free)
		return device.NewTensor(buffer, 0, t, shape...)
	}
	full := func() device.Tensor { return tensor(device.Float32, rows, width) }
	x, y, z, u, v := full(), full(), full(), full(), full()
	weight, dweight := tensor(device.Float32, width), tensor(device.Float32, width)
	ws := tensor(device.Uint8, int(device.RMSNormWorkspace(device.Float32, rows, width)))
	half, loss, labels := tensor(device.BFloat16, rows, width), tensor(device.Float32, rows), tensor(device.Int32, rows)
	norm := tensor(device.Float64)
	draw, normal := device.WholeDraw(1, rows, width), device.Distribution{Kind: device.Normal, Std: 1}
	for _, t := range []device.Tensor{x, y, z, weight} {
		q.Random(t, normal, draw)
	}
	for _, k := range []struct {
		name string
		call func()
	}{
		{"Copy", func() { q.Copy(u, x) }},
		{"CopyRows", func() {
			q.Copy(u.Reshape(rows*4, width/4).Slice(1, 0, 128), x.Reshape(rows*4, width/4).Slice(1, 128, 256))
		}},
		{"Transpose", func() { q.Copy(u.Reshape(width, rows), x.Transpose(0, 1)) }},
		{"ToBFloat16", func() { q.Copy(half, x) }},
		{"FromBFloat16", func() { q.Copy(u, half) }},
		{"Add", func() { q.Binary(device.Add, u, x, y) }},
		{"AddBias", func() { q.Binary(device.Add, u, x, weight.Broadcast(rows, width)) }},
		{"Exp", func() { q.Unary(device.Exp, u, x) }},
		{"SumColumns", func() { q.Sum(dweight.Reshape(1, width), x) }},
		{"SumSquares", func() { q.SumSquares(norm, x) }},
		{"RMSNorm", func() { q.RMSNorm(u, x, weight, 1e-5) }},
		{"RMSNormBackward", func() { q.RMSNormBackward(u, dweight, x, weight, y, 1e-5, ws) }},
		{"SwiGLU", func() { q.SwiGLU(u, x, y) }},
		{"SwiGLUBackward", func() { q.SwiGLUBackward(u, v, x, y, z) }},
		{"Softmax", func() { q.Softmax(u, x) }},
		{"CrossEntropy", func() { q.CrossEntropy(loss, u, labels, -1, true) }},
		{"Dropout", func() { q.Dropout(u, x, 0.1, draw) }},
		{"Normal", func() { q.Random(u, normal, draw) }},
		{"AdamW", func() {
			q.AdamW(u, v, z, x, device.Tensor{}, device.AdamW{LearningRate: 1e-3, Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, Step: 3})
		}},
	} {
		b.Run(k.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(x.Bytes())
			for b.Loop() {
				k.call()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(rows*width), "ns/element")
		})
	}
}
