package devicetest

import (
	"math"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/philox"
)

func randomTests() []kernelTest {
	return []kernelTest{
		{"Random/Uniform", randomTest(device.Distribution{Kind: device.Uniform, Low: -2, High: 3})},
		{"Random/Normal", randomTest(device.Distribution{Kind: device.Normal, Mean: 1, Std: 0.02})},
		{"Random/TruncatedNormal", randomTest(device.Distribution{Kind: device.TruncatedNormal, Mean: 0.01, Std: 0.02, Low: -0.04, High: 0.06})},
		{"Dropout", dropoutTest},
	}
}

// shard draws the place of a tensor inside a larger one.
func (c *scene) shard(shape []int) device.Draw {
	whole := append([]int(nil), shape...)
	var offset [device.MaxRank]int
	for i := range whole {
		offset[i] = c.rand.IntN(4)
		whole[i] += offset[i] + c.rand.IntN(3)
	}
	d := device.WholeDraw(philox.Key(c.rand.Uint64(), "layers.0", 1), whole...)
	d.Offset, d.Step, d.Microbatch = offset, c.rand.Uint32(), c.rand.Uint32()
	return d
}

// drawsOf returns the draws of all elements of a tensor.
func drawsOf(t device.Tensor, d *device.Draw) []uint64 {
	draws := make([]uint64, t.Len())
	for i := range draws {
		index, rest := 0, i
		for dim := t.Rank() - 1; dim >= 0; dim-- {
			index += (rest%t.Dim(dim) + d.Offset[dim]) * d.Stride[dim]
			rest /= t.Dim(dim)
		}
		draws[i] = philox.Uint64(d.Key, uint64(index), d.Step, d.Microbatch)
	}
	return draws
}

func randomTest(d device.Distribution) func(c *scene) (func(device.Kernels), func()) {
	return func(c *scene) (func(device.Kernels), func()) {
		dst := c.output(anyStrides, c.shape()...)
		draw := c.shard(dst.Shape())
		return func(k device.Kernels) { k.Random(dst.Tensor, d, draw) },
			func() {
				want := make([]float64, dst.Len())
				for i, w := range drawsOf(dst.Tensor, &draw) {
					switch d.Kind {
					case device.Uniform:
						want[i] = d.Low + (d.High-d.Low)*philox.Float64(w)
					case device.Normal:
						want[i] = d.Mean + d.Std*philox.Normal(w)
					case device.TruncatedNormal:
						want[i] = d.Mean + d.Std*philox.TruncatedNormal(w, (d.Low-d.Mean)/d.Std, (d.High-d.Mean)/d.Std)
					}
					want[i] = roundTo(c.dtype, want[i])
				}
				// Equal, but for the last bit of another inverse error function.
				c.close(dst, want, nil, 1)
			}
	}
}

func dropoutTest(c *scene) (func(device.Kernels), func()) {
	x := c.input(anyStrides, c.shape()...)
	dst := c.outputOrInPlace(x)
	draw, p := c.shard(x.Shape()), c.rand.Float64()
	return func(k device.Kernels) { k.Dropout(dst.Tensor, x.Tensor, p, draw) },
		func() {
			want := make([]float64, dst.Len())
			for i, w := range drawsOf(dst.Tensor, &draw) {
				if philox.Float64(w) >= p {
					want[i] = x.values[i] / (1 - p)
				}
			}
			c.close(dst, want, nil, 2)
		}
}

// testDraws tests what the numbers of several calls have to do with each other.
func testDraws(t *testing.T, d device.Device) {
	q := d.NewQueue()
	defer q.Close()
	t.Run("a shard draws what the whole draws", func(t *testing.T) {
		c := newScene(t, d, q, device.Float32, seed)
		defer c.free()
		whole, shard := c.output(contiguous, 6, 8, 10), c.output(contiguous, 3, 8, 5)
		c.commit()
		draw := device.WholeDraw(7, 6, 8, 10)
		normal := device.Distribution{Kind: device.Normal, Std: 1}
		q.Random(whole.Tensor, normal, draw)
		draw.Offset[0], draw.Offset[2] = 2, 5
		q.Random(shard.Tensor, normal, draw)
		c.verify()
		part := *whole
		part.Tensor = whole.Slice(0, 2, 5).Slice(2, 5, 10)
		c.close(shard, c.read(&part), nil, 0)
	})
	t.Run("dropout", func(t *testing.T) {
		const n, p = 100_000, 0.3
		c := newScene(t, d, q, device.Float32, seed)
		defer c.free()
		x := c.inputWith(contiguous, func() float64 { return 1 }, n)
		first, again, other := c.output(contiguous, n), c.output(contiguous, n), c.output(contiguous, n)
		c.commit()
		draw := device.WholeDraw(7, n)
		q.Dropout(first.Tensor, x.Tensor, p, draw)
		q.Dropout(again.Tensor, x.Tensor, p, draw)
		draw.Step++
		q.Dropout(other.Tensor, x.Tensor, p, draw)
		c.verify()
		c.close(again, c.read(first), nil, 0)
		kept, differ := 0, 0
		a, b := c.read(first), c.read(other)
		for i := range a {
			if a[i] != 0 {
				kept++
			}
			if a[i] != b[i] {
				differ++
			}
		}
		within := func(what string, got int, rate float64) {
			if deviation := math.Sqrt(n * rate * (1 - rate)); math.Abs(float64(got)-n*rate) > 5*deviation {
				t.Errorf("%s: %d of %d, want %v ± %v", what, got, n, n*rate, 5*deviation)
			}
		}
		within("kept", kept, 1-p)
		within("different in another step", differ, 2*p*(1-p))
	})
}
