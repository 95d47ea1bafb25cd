package devicetest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/lethe-go/lethe/device"
	"pgregory.net/rapid"
)

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// scene holds the operands of one call.
type scene struct {
	t      failer
	device device.Device
	queue  device.Queue
	dtype  device.DType
	rand   *rand.Rand
	small  *rapid.T // draws small shapes; nil for the large ones

	operands []*operand
}

// operand is a tensor inside a buffer of its own.
type operand struct {
	device.Tensor
	values []float64 // of an input, row-major, as rounded to the dtype
	bytes  []byte    // what the buffer held before the call
	output bool
}

func newScene(t failer, d device.Device, q device.Queue, dtype device.DType, seed uint64) *scene {
	return &scene{t: t, device: d, queue: q, dtype: dtype, rand: newRand(seed)}
}

func (c *scene) free() {
	for _, o := range c.operands {
		o.Buffer().Free()
	}
}

// extent draws from [lo, hi], or is large where shapes are to be split.
func (c *scene) extent(name string, lo, hi, large int) int {
	if c.small == nil {
		return large
	}
	return rapid.IntRange(lo, hi).Draw(c.small, name)
}

func (c *scene) flag(name string) bool {
	if c.small == nil {
		return c.rand.IntN(2) == 0
	}
	return rapid.Bool().Draw(c.small, name)
}

// layout is what a kernel demands of strides.
type layout int

const (
	contiguous layout = iota
	lastContiguous
	anyStrides
)

// canary is each byte of the buffers outside of inputs: NaN in every float dtype.
const canary = 0xFF

// place returns a tensor somewhere in a buffer of canaries, with gaps between
// its elements and its dimensions in any order as far as the layout allows.
func (c *scene) place(d device.DType, l layout, shape ...int) *operand {
	rank := len(shape)
	order := c.rand.Perm(rank)
	outer := make([]int, rank) // extents in memory order
	front := make([]int, rank)
	if l == contiguous {
		for i := range order {
			order[i] = i
		}
	} else if l == lastContiguous && rank > 0 {
		order = append(c.rand.Perm(rank-1), rank-1)
	}
	for i, dim := range order {
		outer[i] = shape[dim]
		if (l != contiguous || i == 0) && c.rand.IntN(2) == 0 {
			front[i] = c.rand.IntN(3)
			outer[i] += front[i] + c.rand.IntN(3)
		}
	}
	n := int64(d.Size())
	for _, e := range outer {
		n *= int64(e)
	}
	const guard = 2 * device.Alignment
	b, err := c.device.Alloc(device.OnDevice, n+2*guard)
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	t := device.NewTensor(b, guard, d, outer...)
	for i, dim := range order {
		t = t.Slice(i, front[i], front[i]+shape[dim])
	}
	o := &operand{Tensor: permuted(t, order), bytes: make([]byte, b.Size())}
	for i := range o.bytes {
		o.bytes[i] = canary
	}
	c.operands = append(c.operands, o)
	return o
}

// permuted gives dimension i of t the place order[i].
func permuted(t device.Tensor, order []int) device.Tensor {
	order = append([]int(nil), order...)
	for i := range order {
		for order[i] != i {
			j := order[i]
			t = t.Transpose(i, j)
			order[i], order[j] = order[j], order[i]
		}
	}
	return t
}

// output returns a tensor of canaries.
func (c *scene) output(l layout, shape ...int) *operand {
	return c.outputOf(c.dtype, l, shape...)
}

func (c *scene) outputOf(d device.DType, l layout, shape ...int) *operand {
	o := c.place(d, l, shape...)
	o.output = true
	return o
}

// input returns a tensor of standard normal numbers.
func (c *scene) input(l layout, shape ...int) *operand {
	return c.inputWith(l, c.rand.NormFloat64, shape...)
}

func (c *scene) inputWith(l layout, next func() float64, shape ...int) *operand {
	values := make([]float64, product(shape))
	for i := range values {
		values[i] = next()
	}
	return c.inputOf(c.dtype, l, values, shape...)
}

// inputOf returns a tensor of the given numbers, as rounded to the dtype.
func (c *scene) inputOf(d device.DType, l layout, values []float64, shape ...int) *operand {
	o := c.place(d, l, shape...)
	o.values = make([]float64, len(values))
	each(o.Tensor, func(i int, at int64) {
		o.values[i] = putNumber(d, o.bytes[at:], values[i])
	})
	return o
}

func (c *scene) ids(l layout, limit int, shape ...int) *operand {
	values := make([]float64, product(shape))
	for i := range values {
		values[i] = float64(c.rand.IntN(limit))
	}
	return c.inputOf(device.Int32, l, values, shape...)
}

// inPlace returns x itself as an output.
func inPlace(x *operand) *operand {
	x.output = true
	return x
}

// commit writes all operands to the device.
func (c *scene) commit() {
	for _, o := range c.operands {
		c.transfer(o, func(onDevice []byte) { copy(onDevice, o.bytes) }, true)
	}
}

// sync waits for the call.
func (c *scene) sync() {
	c.t.Helper()
	if err := c.queue.Sync(); err != nil {
		c.t.Fatalf("unexpected error: %v", err)
	}
}

// verify waits for the call and fails where bytes outside of outputs changed.
func (c *scene) verify() {
	c.t.Helper()
	c.sync()
	for i, o := range c.operands {
		after := c.bytesOf(o)
		if o.output {
			size := int64(o.DType().Size())
			each(o.Tensor, func(_ int, at int64) { copy(after[at:at+size], o.bytes[at:at+size]) })
		}
		if !bytes.Equal(after, o.bytes) {
			c.t.Errorf("operand %d, %v: the kernel wrote outside of its outputs", i, o.Tensor)
		}
	}
}

// outputBytes returns the buffers of all outputs.
func (c *scene) outputBytes() []byte {
	var all []byte
	for _, o := range c.operands {
		if o.output {
			all = append(all, c.bytesOf(o)...)
		}
	}
	return all
}

func (c *scene) bytesOf(o *operand) (b []byte) {
	c.transfer(o, func(onDevice []byte) { b = bytes.Clone(onDevice) }, false)
	return b
}

// transfer gives access to the bytes of a buffer, through host memory where Go
// code cannot reach the device.
func (c *scene) transfer(o *operand, access func(onDevice []byte), write bool) {
	b := o.Buffer()
	if c.device.HostAccessible() {
		access(unsafe.Slice((*byte)(b.Pointer()), b.Size()))
		return
	}
	host, err := c.device.Alloc(device.OnHost, b.Size())
	if err != nil {
		c.t.Fatalf("%v", err)
	}
	defer host.Free()
	staged := device.NewTensor(host, 0, device.Uint8, int(b.Size()))
	whole := device.NewTensor(b, 0, device.Uint8, int(b.Size()))
	if !write {
		c.queue.Copy(staged, whole)
		c.sync()
	}
	access(device.Elements[byte](staged))
	if write {
		c.queue.Copy(whole, staged)
		c.sync()
	}
}

// read returns the elements, row-major.
func (c *scene) read(o *operand) []float64 {
	b := c.bytesOf(o)
	values := make([]float64, o.Len())
	each(o.Tensor, func(i int, at int64) { values[i] = getNumber(o.DType(), b[at:]) })
	return values
}

// close fails unless every element of o lies within ulps units in the last
// place of its scale (nil for that of want) of want.
func (c *scene) close(o *operand, want, scale []float64, ulps float64) {
	c.t.Helper()
	unit, tiny := 0x1p-23, 0x1p-126
	if o.DType() == device.Float64 {
		unit, tiny = 0x1p-52, 0x1p-1022
	}
	if scale == nil {
		scale = want
	}
	got := c.read(o)
	if len(got) != len(want) {
		c.t.Fatalf("%d elements, want %d", len(got), len(want))
	}
	for i, g := range got {
		w := want[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		// tiny lets a device flush subnormal numbers.
		if bound := ulps*unit*math.Abs(scale[i]) + tiny; !(math.Abs(g-w) <= bound) {
			c.t.Errorf("element %d of %v is %v, want %v ± %v", i, o.Tensor, g, w, bound)
			return
		}
	}
}

// each calls f for every element in row-major order with its index and its byte
// offset in the buffer.
func each(t device.Tensor, f func(i int, at int64)) {
	var index, dims, steps [device.MaxRank]int
	rank := t.Rank()
	for d := range rank {
		dims[d], steps[d] = t.Dim(d), t.Stride(d)*t.DType().Size()
	}
	at := int(t.Offset())
	for i := range t.Len() {
		f(i, int64(at))
		for d := rank - 1; d >= 0; d-- {
			index[d]++
			at += steps[d]
			if index[d] < dims[d] {
				break
			}
			at -= dims[d] * steps[d]
			index[d] = 0
		}
	}
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
