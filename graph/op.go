package graph

import (
	"context"

	"github.com/lethe-go/lethe/device"
)

// Op is an operation: what it makes of its inputs, what that costs, and how a
// device does it. [Builder.Apply] wraps an Op as a gorgonia.SDOp, so that type
// and shape inference, the graph itself and differentiation are Gorgonia's.
//
// An Op is immutable and must not remember anything between runs: the same
// node may run twice in a step, and several programs may share it.
type Op interface {
	// Kind is the operation's standard name, such as "matmul" or "rms_norm". It
	// is what policies and reports speak of.
	Kind() string

	// Outputs gives the specs of the results, or says what is wrong with the
	// inputs, with their shapes.
	Outputs(in []device.Spec) ([]device.Spec, error)

	// Workspace is the scratch memory, in bytes, that Run takes from
	// [Exec.Scratch]. It is part of the planned peak.
	Workspace(in []device.Spec, workers int) int64

	// Cost of one run.
	Cost(in []device.Spec) Cost

	// Effects that a second run would repeat.
	Effects() Effects

	// Run enqueues kernels on x. It allocates nothing and looks at no tensor's
	// contents, except inputs whose Spec says OnHost. Tensors are narrowed to
	// their live rows. An output that Optional allows and nobody reads is the
	// zero Tensor. Run may be called from different goroutines, one at a time.
	Run(x *Exec, out, in []device.Tensor) error
}

// Differentiable is an Op with a gradient. An Op without this method stops it.
type Differentiable interface {
	Op

	// Gradient builds the gradients of the losses with respect to the inputs from
	// those with respect to the outputs; grad[i] is None where output i does not
	// reach a loss, and at least one is there. It returns one Value per input,
	// None for inputs that have no gradient (ids, masks). What is not asked for
	// is removed later, so Gradient need not look at who asks.
	Gradient(b *Builder, in, out, grad []Value) []Value
}

// Viewer is an Op whose only output shares the memory of its first input. It is
// never run, kept or rerun: its base is.
type Viewer interface {
	Op

	// View gives the output for the live tensor of the first input.
	View(in device.Tensor) device.Tensor
}

// Mutator is an Op that overwrites some of its inputs, which must be parameters
// or states. It runs once, after every other reader of them. One that is Asynchronous
// too begins right behind the last node that was built before it and touches them;
// whatever touches them later has to be built after the Wait.
type Mutator interface {
	Op

	// Mutates lists the inputs that Run writes.
	Mutates() []int
}

// OptionalOutputs is an Op that can leave out some outputs: Run finds the zero
// Tensor in place of those nobody reads. Other ops always get every output.
type OptionalOutputs interface {
	Op

	// Optional reports whether output i may be left out.
	Optional(i int) bool
}

// Asynchronous is an Op that runs on a lane of its own. Its outputs may be read
// only through a Wait; until then its inputs and outputs stay in memory.
type Asynchronous interface {
	Op

	// Lane on which Run enqueues.
	Lane() Lane
}

// RowsOp is an Op that decides a live row count at run time: that of the outputs
// whose Rows no input has.
type RowsOp interface {
	Op

	// LiveRows is the count, from inputs on the host. It is asked before Run.
	LiveRows(in []device.Tensor) (int, error)
}

// Lane is a sequence of steps that run in order, beside other lanes.
type Lane string

// Compute is the lane of every op that is not Asynchronous.
const Compute Lane = "compute"

// Cost of one run of a node.
type Cost struct {
	// ExecutedFLOPs counts the floating-point operations that run; a
	// multiply-add counts two.
	ExecutedFLOPs float64
	// ModelFLOPs counts what the model's definition asks for: no recompute, no
	// discount for masked attention. It is what MFU is made of.
	ModelFLOPs float64
	// BytesRead and BytesWritten count device memory traffic of operands.
	BytesRead, BytesWritten int64
}

// Add returns the sum of both costs.
func (c Cost) Add(d Cost) Cost {
	return Cost{c.ExecutedFLOPs + d.ExecutedFLOPs, c.ModelFLOPs + d.ModelFLOPs,
		c.BytesRead + d.BytesRead, c.BytesWritten + d.BytesWritten}
}

// Traffic returns the cost of an op that reads all of in and writes all of out
// once, with a number of floating-point operations that all count as executed.
func Traffic(flops float64, in, out []device.Spec) Cost {
	c := Cost{ExecutedFLOPs: flops}
	for _, s := range in {
		c.BytesRead += s.Bytes()
	}
	for _, s := range out {
		c.BytesWritten += s.Bytes()
	}
	return c
}

// Effects are what makes running a node twice different from running it once.
type Effects uint8

const (
	// Random draws numbers. They are keyed by name, so a rerun draws the same.
	Random Effects = 1 << iota
	// Collective takes part in communication between ranks.
	Collective
	// HostSync makes the host wait for the device.
	HostSync
	// SideEffect changes something outside the graph's values; such a node runs
	// exactly once, in its own phase.
	SideEffect
	// Discrete makes a choice that a rerun must not make differently (top-k).
	Discrete
)

// Has reports whether all of f are set.
func (e Effects) Has(f Effects) bool { return e&f == f }

// Pure provides Workspace and Effects of an Op that has neither. Embed it.
type Pure struct{}

func (Pure) Workspace([]device.Spec, int) int64 { return 0 }
func (Pure) Effects() Effects                   { return 0 }

// Exec is what a running Op works with: the kernels of its lane, scratch memory
// and the numbers that identify random draws.
type Exec struct {
	device.Kernels

	// Context of the run: what blocks, such as a collective, ends with it.
	Context context.Context

	// Step is the optimizer step, counted from 1; Microbatch counts from 0.
	Step, Microbatch uint32

	// Running is the step that is run.
	Running *Step

	workspace device.Tensor // bytes
}

// Uses declares what an op touches other than through kernels, in place of a
// kernel call: in is read and out written.
func (x *Exec) Uses(out, in []device.Tensor) { x.Call(nothing{}, out, in) }

// nothing is a function that does nothing.
type nothing struct{}

func (nothing) Call(out, in []device.Tensor) error { return nil }

// Scratch returns a contiguous tensor in the node's workspace, at the given
// byte offset. The contents are undefined.
func (x *Exec) Scratch(offset int64, d device.DType, shape ...int) device.Tensor {
	return device.NewTensor(x.workspace.Buffer(), x.workspace.Offset()+offset, d, shape...)
}

// ScratchLike is Scratch with the dtype and shape of another tensor.
func (x *Exec) ScratchLike(offset int64, like device.Tensor) device.Tensor {
	return like.In(x.workspace.Buffer(), x.workspace.Offset()+offset)
}

// Draw returns the random numbers of this run of the node for a tensor with the
// given shape; key comes from [Builder.RandomKey].
func (x *Exec) Draw(key uint64, shape ...int) device.Draw {
	d := device.WholeDraw(key, shape...)
	d.Step, d.Microbatch = x.Step, x.Microbatch
	return d
}
