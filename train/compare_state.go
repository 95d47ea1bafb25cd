package train

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/lethe-go/lethe/device"
)

func (r *Report) compareStates() error {
	folderA, stepsA, err := runStates(r.RunA)
	if err != nil {
		return err
	}
	folderB, stepsB, err := runStates(r.RunB)
	if err != nil {
		return err
	}
	r.StatesA, r.StatesB = len(stepsA), len(stepsB)
	for _, step := range slices.Backward(stepsA) {
		if slices.Contains(stepsB, step) {
			r.StateStep = step
			break
		}
	}
	if r.StateStep < 0 {
		return nil
	}
	a, err := folderA.Load(r.StateStep)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := folderB.Load(r.StateStep)
	if err != nil {
		return err
	}
	defer b.Close()
	r.KernelLevelA, r.KernelLevelB = a.KernelLevel, b.KernelLevel
	return r.compareTensors(a, b)
}

// runStates finds the states of a run where its config says they are.
func runStates(run string) (StateFolder, []int, error) {
	c := DefaultConfig()
	path := filepath.Join(run, ConfigFile)
	text, err := os.ReadFile(path)
	if err == nil {
		c, err = ParseConfig(path, text)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return StateFolder{}, nil, err
	}
	// The run may have been moved or be named by another path than it was.
	c.Job.DumpFolder = run
	folder := StateFolder{Path: c.StatePath()}
	steps, err := folder.Steps()
	return folder, steps, err
}

func (r *Report) compareTensors(a, b *State) error {
	for _, in := range a.Tensors() {
		other, ok := b.Lookup(in.Name)
		if !ok {
			r.OnlyTensorsA = append(r.OnlyTensorsA, in.Name)
			continue
		}
		r.Tensors++
		if r.FirstTensor != nil {
			continue
		}
		var err error
		if r.FirstTensor, err = compareTensor(a, b, in, other); err != nil {
			return err
		}
	}
	for _, in := range b.Tensors() {
		if _, ok := a.Lookup(in.Name); !ok {
			r.OnlyTensorsB = append(r.OnlyTensorsB, in.Name)
		}
	}
	return nil
}

// compareTensor returns nil if the tensor is the same in both states.
func compareTensor(a, b *State, inA, inB TensorInfo) (*TensorDifference, error) {
	d := &TensorDifference{
		Name:  inA.Name,
		SpecA: fmt.Sprintf("%v%v", inA.DType, inA.Shape),
		SpecB: fmt.Sprintf("%v%v", inB.DType, inB.Shape),
	}
	if d.SpecA != d.SpecB {
		return d, nil
	}
	var data [2][]byte
	for i, s := range []*State{a, b} {
		data[i] = make([]byte, inA.Bytes)
		if err := s.ReadTensor(Tensor{inA.Name, inA.DType, inA.Shape, data[i]}); err != nil {
			return nil, err
		}
	}
	if bytes.Equal(data[0], data[1]) {
		return nil, nil
	}
	d.measure(inA, data[0], data[1])
	return d, nil
}

func (d *TensorDifference) measure(in TensorInfo, a, b []byte) {
	size := in.DType.Size()
	d.Elements = len(a) / size
	for i := range d.Elements {
		x, y := a[i*size:(i+1)*size], b[i*size:(i+1)*size]
		if bytes.Equal(x, y) {
			continue
		}
		d.Different++
		u, v := element(in.DType, x), element(in.DType, y)
		abs := math.Abs(u - v)
		// A NaN is worse than any number, and the first one stays.
		if d.Different == 1 || !math.IsNaN(d.MaxAbs) && !(abs <= d.MaxAbs) {
			d.MaxAbs, d.A, d.B = abs, u, v
			d.Index = position(i, in.Shape)
		}
	}
}

// position is the index of the i-th element in row-major order.
func position(i int, shape []int) []int {
	index := make([]int, len(shape))
	for axis := len(shape) - 1; axis >= 0; axis-- {
		index[axis] = i % shape[axis]
		i /= shape[axis]
	}
	return index
}

// element is the value of one element.
func element(dtype device.DType, b []byte) float64 {
	switch dtype {
	case device.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case device.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case device.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case device.Float16:
		return float16(binary.LittleEndian.Uint16(b))
	case device.Int32:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case device.Int64:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case device.Uint8:
		return float64(b[0])
	}
	return math.NaN()
}

// float16 is the value of an IEEE 754 half.
func float16(bits uint16) float64 {
	exponent, fraction := int(bits>>10&31), float64(bits&1023)
	var x float64
	switch {
	case exponent == 31 && fraction > 0:
		x = math.NaN()
	case exponent == 31:
		x = math.Inf(1)
	case exponent == 0:
		x = math.Ldexp(fraction, -24)
	default:
		x = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits>>15 == 1 {
		x = -x
	}
	return x
}

// sameBits compares numbers of metrics.jsonl, which has only one NaN.
func sameBits(a, b float64) bool {
	return math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b)
}
