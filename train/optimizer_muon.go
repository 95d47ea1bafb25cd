package train

import (
	"math"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// Muon moves a matrix along its momentum made orthogonal by five Newton–Schulz
// iterations, computed as torch.optim.Muon does but in the trained dtype throughout,
// where PyTorch rounds the iterations to bfloat16 (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon). A parameter is a matrix [out, in] or a stack of
// matrices [experts, out, in], each made orthogonal by itself. Of each parameter it
// keeps momentum_buffer.
type Muon struct {
	Momentum, WeightDecay float64
	Nesterov              bool
	// AdjustLR scales the learning rate to the shape of the matrix: "original" by
	// √max(1, out/in) (Jordan), "match_rms_adamw" by 0.2·√max(out, in), which makes
	// steps as large as AdamW's (Liu et al. 2025, arXiv:2502.16982).
	AdjustLR string
}

// Name is "Muon".
func (Muon) Name() string { return "Muon" }

// Apply implements [Optimizer].
func (o Muon) Apply(b *graph.Builder, u Update) {
	shape := u.Parameter.Spec.Shape
	if len(shape) != 2 && len(shape) != 3 {
		b.Fail("Muon changes matrices and stacks of matrices, %s is %v; give it another optimizer by a group of optimizer.groups", u.Parameter.Name, u.Parameter.Spec)
		return
	}
	if global := u.Parameter.Global; !slices.Equal(shape[len(shape)-2:], global[len(global)-2:]) {
		b.Fail("Muon changes whole matrices, of %s %v this rank has %v; set parallelism.data_parallel_shard_degree=1 and tensor_parallel_degree=1, or give it another optimizer by a group of optimizer.groups", u.Parameter.Name, global, shape)
		return
	}
	rows, columns := float64(shape[len(shape)-2]), float64(shape[len(shape)-1])
	op := muon{momentum: o.Momentum, weightDecay: o.WeightDecay, nesterov: o.Nesterov}
	switch o.AdjustLR {
	case "original":
		op.scale = math.Sqrt(max(1, rows/columns))
	case "match_rms_adamw":
		op.scale = 0.2 * math.Sqrt(max(rows, columns))
	default:
		b.Fail("Muon: AdjustLR is %q; set %s", o.AdjustLR, quote(adjustNames...))
		return
	}
	u.apply(b, op, u.State(b, momentumKind))
}

// The quintic iteration X ← aX + (bA + cA²)X with A = XXᵀ brings singular values near
// 1; its coefficients make the slope at 0 steep (Jordan et al. 2024).
const (
	muonA, muonB, muonC = 3.4445, -4.7750, 2.0315
	muonSteps           = 5
	// muonFloor is the least Frobenius norm that a matrix is divided by.
	muonFloor = 1e-7
)

// muon updates parameter and momentum.
type muon struct {
	momentum, weightDecay, scale float64
	nesterov                     bool
}

func (muon) Kind() string           { return "muon" }
func (muon) Effects() graph.Effects { return 0 }
func (muon) Mutates() []int         { return []int{0, 1} }

func (muon) Outputs(in []device.Spec) ([]device.Spec, error) { return updateOutputs(in, 1) }

// Workspace holds, for one matrix at a time, the update and its successor, A and A²,
// the norm and its floor in float64, and the norm in the dtype.
func (muon) Workspace(in []device.Spec, _ int) int64 {
	rows, columns := matrixOf(in[0])
	if rows*columns == 0 {
		return 0
	}
	side := int64(min(rows, columns))
	size := int64(in[0].DType.Size())
	return size*2*(int64(rows)*int64(columns)+side*side) + 2*int64(device.Float64.Size()) + size
}

// matrixOf is the shape of the matrices of a parameter.
func matrixOf(s device.Spec) (rows, columns int) {
	n := len(s.Shape)
	return s.Shape[n-2], s.Shape[n-1]
}

func (muon) Cost(in []device.Spec) graph.Cost {
	rows, columns := matrixOf(in[0])
	elements := float64(in[0].Len())
	side := float64(min(rows, columns))
	// X·Xᵀ, (bA + cA²)·X and what is elementwise in X; A² and what is in A.
	iteration := elements*(4*side+2) + matrices(in[0])*(2*side*side*side+4*side*side)
	return updateCost(elements*14+muonSteps*iteration, in, 1)
}

func matrices(s device.Spec) float64 {
	if len(s.Shape) == 2 {
		return 1
	}
	return float64(s.Shape[0])
}

func (o muon) Run(x *graph.Exec, _, in []device.Tensor) error {
	u := inputsOfUpdate(in, 1)
	if u.param.Len() == 0 {
		return nil
	}
	if u.param.Rank() == 2 {
		o.matrix(x, u, u.param, u.states[0], u.gradient)
		return nil
	}
	for i := range u.param.Dim(0) {
		o.matrix(x, u, u.param.Index(i), u.states[0].Index(i), u.gradient.Index(i))
	}
	return nil
}

// matrix updates one matrix.
func (o muon) matrix(x *graph.Exec, u updateInputs, param, momentum, gradient device.Tensor) {
	update := x.ScratchLike(0, param)
	if u.factor.IsZero() {
		x.Copy(update, gradient)
	} else {
		x.Binary(device.Mul, update, gradient, u.factor.BroadcastTo(gradient))
	}
	x.Lerp(momentum, momentum, update, 1-o.momentum)
	if o.nesterov {
		x.Lerp(update, update, momentum, o.momentum)
	} else {
		x.Copy(update, momentum)
	}
	update = orthogonalize(x, update)
	if o.weightDecay != 0 {
		x.AddScaled(param, param, param, -u.rate*o.weightDecay)
	}
	x.AddScaled(param, param, update, -u.rate*o.scale)
}

// orthogonalize brings the singular values of the matrix at the start of the workspace
// near 1 and returns where the result is. A matrix taller than wide is worked on from
// the right: its A = XᵀX is the smaller square.
func orthogonalize(x *graph.Exec, update device.Tensor) device.Tensor {
	rows, columns, d := update.Dim(0), update.Dim(1), update.DType()
	side := min(rows, columns)
	next := x.ScratchLike(update.Bytes(), update)
	offset := 2 * update.Bytes()
	square := x.Scratch(offset, d, side, side)
	polynomial := x.Scratch(offset+square.Bytes(), d, side, side)
	normalize(x, update, offset+2*square.Bytes())
	for range muonSteps {
		turned := update.Transpose(0, 1)
		if rows <= columns {
			x.MatMul(square, update, turned, false)
		} else {
			x.MatMul(square, turned, update, false)
		}
		scaled := device.NewTensor(next.Buffer(), next.Offset(), d, side, side) // until next is written
		x.AddScaled(scaled, square, square, muonC-1)
		x.MatMul(polynomial, scaled, square, false)
		x.AddScaled(polynomial, polynomial, square, muonB)
		x.AddScaled(next, update, update, muonA-1)
		if rows <= columns {
			x.MatMul(next, polynomial, update, true)
		} else {
			x.MatMul(next, update, polynomial, true)
		}
		update, next = next, update
	}
	return update
}

// normalize divides a matrix by its Frobenius norm, so that no singular value is above
// 1. The workspace from offset on is free.
func normalize(x *graph.Exec, m device.Tensor, offset int64) {
	const size = 8 // of a float64
	norm, floor := x.Scratch(offset, device.Float64), x.Scratch(offset+size, device.Float64)
	x.SumSquares(norm, m)
	x.Unary(device.Sqrt, norm, norm)
	x.Fill(floor, muonFloor)
	x.Binary(device.Maximum, norm, norm, floor)
	divisor := x.Scratch(offset+2*size, m.DType())
	x.Copy(divisor, norm)
	x.Binary(device.Div, m, m, divisor.BroadcastTo(m))
}
