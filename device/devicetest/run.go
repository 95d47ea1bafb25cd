package devicetest

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/lethe-go/lethe/device"
	"pgregory.net/rapid"
)

// kernelTest makes operands in c and returns a call and a check of its outputs.
type kernelTest struct {
	name  string
	build func(c *scene) (call func(k device.Kernels), check func())
}

// Run tests the device that open opens with a number of workers.
func Run(t *testing.T, open func(workers int) (device.Device, error)) {
	d := opened(t, open, 2)
	for _, k := range kernelTests() {
		t.Run(k.name, func(t *testing.T) {
			for _, dtype := range []device.DType{device.Float32, device.Float64} {
				t.Run(dtype.String(), func(t *testing.T) {
					t.Run("small", func(t *testing.T) { testSmall(t, d, dtype, k) })
					t.Run("large", func(t *testing.T) { testLarge(t, d, dtype, k) })
					t.Run("workers", func(t *testing.T) { testWorkers(t, open, dtype, k) })
				})
			}
		})
	}
	t.Run("gradients", func(t *testing.T) { testGradients(t, d) })
	t.Run("conversions", func(t *testing.T) { testConversions(t, d) })
	t.Run("draws", func(t *testing.T) { testDraws(t, d) })
	t.Run("errors", func(t *testing.T) { testErrors(t, d) })
	t.Run("special values", func(t *testing.T) { testSpecialValues(t, d) })
}

func opened(t *testing.T, open func(workers int) (device.Device, error), workers int) device.Device {
	d, err := open(workers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func testSmall(t *testing.T, d device.Device, dtype device.DType, k kernelTest) {
	q := d.NewQueue()
	defer q.Close()
	rapid.Check(t, func(rt *rapid.T) {
		c := newScene(rt, d, q, dtype, rapid.Uint64().Draw(rt, "seed"))
		c.small = rt
		defer c.free()
		call, check := k.build(c)
		c.commit()
		call(q)
		c.verify()
		check()
	})
}

// seed makes the large calls' operands, the same in every way of running them.
const seed = 12345

func testLarge(t *testing.T, d device.Device, dtype device.DType, k kernelTest) {
	q := d.NewQueue()
	defer q.Close()
	c := newScene(t, d, q, dtype, seed)
	defer c.free()
	call, check := k.build(c)
	c.commit()
	call(q)
	c.verify()
	check()
	n := testing.AllocsPerRun(2, func() {
		call(q)
		c.sync()
	})
	if n != 0 {
		t.Errorf("%v allocations a call", n)
	}
}

func testWorkers(t *testing.T, open func(workers int) (device.Device, error), dtype device.DType, k kernelTest) {
	var want []byte
	for _, workers := range []int{1, 2, 3, 7} {
		d, err := open(workers)
		if err != nil {
			t.Fatal(err)
		}
		q := d.NewQueue()
		c := newScene(t, d, q, dtype, seed)
		call, _ := k.build(c)
		c.commit()
		call(q)
		c.sync()
		got := c.outputBytes()
		if want == nil {
			want = got
		} else if !bytes.Equal(got, want) {
			t.Errorf("%d workers give other bits than 1", workers)
		}
		c.free()
		q.Close()
		d.Close()
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
