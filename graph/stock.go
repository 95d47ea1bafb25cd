package graph

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/device"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// stockKinds are the stock Gorgonia ops that may run, by their Go type, with the
// kind that policies see. An op that is not here is refused by name: it keeps
// state inside itself, draws numbers from a clock, is merged with unequal ops or
// has never been checked.
var stockKinds = map[string]string{
	"elemUnaryOp":       "elementwise",
	"elemBinOp":         "elementwise",
	"linAlgBinOp":       "matmul",
	"tensordotOp":       "matmul",
	"repeatOp":          "repeat",
	"sumOp":             "sum",
	"maxOp":             "max",
	"reshapeOp":         "reshape",
	"transposeOp":       "transpose",
	"sliceOp":           "slice",
	"sliceIncrOp":       "slice_increment",
	"concatOp":          "concat",
	"byIndicesOp":       "embedding",
	"byIndicesOpDiffOp": "embedding_backward",
	"sizeOp":            "size",
	"constantScalar":    "constant",
	"constantTensor":    "constant",
}

// stockAdvice says what to use in place of refused ops.
var stockAdvice = map[string]string{
	"dropoutOp":     "it draws from the clock and two of them are merged: use nn.Dropout",
	"dropoutDiffOp": "it draws from the clock and two of them are merged: use nn.Dropout",
	"randomOp":      "it draws from the clock and two of them are merged: feed an input, or use nn.Dropout",
	"softmaxOp":     "Gorgonia merges SoftMax with LogSoftMax of the same input: use nn.Softmax, or compose exp, sum and division",
	"softmaxDiffOp": "Gorgonia merges SoftMax with LogSoftMax of the same input: use nn.Softmax, or compose exp, sum and division",
	"BatchNormOp":   "it keeps state inside the op, which a rerun would change: use nn.RMSNorm",
}

func stockType(op gorgonia.Op) string {
	t := reflect.TypeOf(op)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

func stockKind(n *gorgonia.Node) string {
	if n.Op() == nil {
		return "input"
	}
	if kind, ok := stockKinds[stockType(n.Op())]; ok {
		return kind
	}
	return stockType(n.Op())
}

// adaptStock makes an Op of a stock Gorgonia node, or refuses it.
func adaptStock(n *gorgonia.Node, x *Node) (Op, error) {
	op := n.Op()
	name := stockType(op)
	kind, ok := stockKinds[name]
	if !ok {
		advice := stockAdvice[name]
		if advice == "" {
			advice = "it is not among the ops that were checked"
		}
		return nil, fmt.Errorf("Gorgonia's %s (%v) is refused: %s", name, op, advice)
	}
	s := &stockOp{op: op, kind: kind, out: x.Out[0], dtype: n.Dtype()}
	for _, k := range children(n) {
		s.dtypes = append(s.dtypes, k.Dtype())
	}
	switch name {
	case "constantScalar", "constantTensor":
		return stockConstant(s)
	case "sizeOp":
		// Its input is there only for its shape: reading that now frees the value.
		return stockSize(s, x)
	case "byIndicesOp":
		if !strings.Contains(op.String(), "axis=0") {
			return nil, fmt.Errorf("Gorgonia's ByIndices along %v is refused: its gradient is wrong except along axis 0", op)
		}
	}
	return s, nil
}

// stockConstant makes an op of a constant. Gorgonia finds equal constants by a
// printed name that leaves out most elements of a tensor, so two different ones
// may have become one; only scalars are safe.
func stockConstant(s *stockOp) (Op, error) {
	v := s.op.(interface{ Value() gorgonia.Value }).Value()
	if s.out.Len() != 1 || len(s.out.Shape) != 0 {
		return nil, fmt.Errorf("a constant tensor %v is refused: Gorgonia merges different ones that print alike: feed it as an input", s.out)
	}
	value, err := scalarOf(v)
	if err != nil {
		return nil, err
	}
	return full{value: value, spec: s.out}, nil
}

// stockSize folds Gorgonia's SizeOf, which reads a whole value for its shape.
func stockSize(s *stockOp, x *Node) (Op, error) {
	var value gorgonia.Value
	in := x.In[0].Spec()
	if len(in.Shape) == 0 {
		value = gorgonia.NewF64(1)
	} else {
		shaped := tensor.New(tensor.Of(tensor.Float64), tensor.WithShape(in.Shape...))
		var err error
		if value, err = s.op.Do(shaped); err != nil {
			return nil, err
		}
	}
	size, err := scalarOf(value)
	if err != nil {
		return nil, err
	}
	x.In = nil
	return full{value: size, spec: s.out}, nil
}

func scalarOf(v gorgonia.Value) (float64, error) {
	switch x := v.Data().(type) {
	case float32:
		return float64(x), nil
	case float64:
		return x, nil
	case int:
		return float64(x), nil
	case int32:
		return float64(x), nil
	case int64:
		return float64(x), nil
	}
	return 0, fmt.Errorf("no scalar of Gorgonia's %v", v.Dtype())
}

// stockOp runs a stock Gorgonia op on memory of the arena. Every run gives it
// fresh tensor headers, because some ops change those of their inputs; and it
// allocates, as stock ops do.
type stockOp struct {
	Pure
	op     gorgonia.Op
	kind   string
	out    device.Spec
	dtype  tensor.Dtype
	dtypes []tensor.Dtype
}

func (s *stockOp) Kind() string                                 { return s.kind }
func (s *stockOp) Outputs([]device.Spec) ([]device.Spec, error) { return []device.Spec{s.out}, nil }

// Cost counts a multiply-add for every term of a product, one operation for
// every element of the rest.
func (s *stockOp) Cost(in []device.Spec) Cost {
	c := Traffic(float64(s.out.Len()), in, []device.Spec{s.out})
	if s.kind == "matmul" && len(in) == 2 {
		// Elements of a × elements of b ÷ elements of the result is the square of the
		// contracted extent, times that of the batch.
		batch := 1.0
		if len(s.out.Shape) > 2 {
			for _, d := range s.out.Shape[:len(s.out.Shape)-2] {
				batch *= float64(d)
			}
		}
		out := float64(max(s.out.Len(), 1))
		inner := float64(in[0].Len()) * float64(in[1].Len()) / out / batch
		c.ExecutedFLOPs = 2 * out * math.Sqrt(inner)
		c.ModelFLOPs = c.ExecutedFLOPs
	}
	return c
}

func (s *stockOp) Run(x *Exec, out, in []device.Tensor) error {
	x.Call(s, out, in)
	return nil
}

// Call implements device.Function.
func (s *stockOp) Call(out, in []device.Tensor) error {
	values := make([]gorgonia.Value, len(in))
	for i, t := range in {
		values[i] = stockValue(t, s.dtypes[i])
	}
	if stockType(s.op) == "byIndicesOp" {
		if err := checkIndices(in[0], in[1]); err != nil {
			return err
		}
	}
	if p, ok := s.op.(gorgonia.UsePreallocDoer); ok && out[0].Rank() > 0 {
		place := stockValue(out[0], s.dtype)
		if v, err := p.UsePreallocDo(place, values...); err == nil {
			return copyValue(out[0], v)
		}
		for i, t := range in { // a failed attempt may have changed the headers
			values[i] = stockValue(t, s.dtypes[i])
		}
	}
	v, err := s.op.Do(values...)
	if err != nil {
		return fmt.Errorf("Gorgonia's %v: %w", s.op, err)
	}
	return copyValue(out[0], v)
}

// checkIndices does what Gorgonia's ByIndices does not: an id beyond the table
// would silently give another row.
func checkIndices(table, ids device.Tensor) error {
	for i, id := range device.Elements[int64](ids) {
		if id < 0 || int(id) >= table.Dim(0) {
			return fmt.Errorf("embedding: id %d at index %d is outside [0, %d)", id, i, table.Dim(0))
		}
	}
	return nil
}

// stockValue is a Gorgonia value over a tensor's memory.
func stockValue(t device.Tensor, d tensor.Dtype) gorgonia.Value {
	if t.Rank() == 0 {
		switch t.DType() {
		case device.Float32:
			return gorgonia.NewF32(device.Elements[float32](t)[0])
		case device.Float64:
			return gorgonia.NewF64(device.Elements[float64](t)[0])
		case device.Int32:
			return gorgonia.NewI32(device.Elements[int32](t)[0])
		case device.Int64:
			if d == tensor.Int {
				return gorgonia.NewI(int(device.Elements[int64](t)[0]))
			}
			return gorgonia.NewI64(device.Elements[int64](t)[0])
		}
	}
	return tensor.New(tensor.Of(d), tensor.WithShape(t.Shape()...), tensor.FromMemory(uintptr(t.Pointer()), uintptr(t.Bytes())))
}

// copyValue brings a result to its place, unless it is there.
func copyValue(dst device.Tensor, v gorgonia.Value) error {
	if v.Uintptr() == uintptr(dst.Pointer()) {
		return nil
	}
	if d, ok := v.(*tensor.Dense); ok && d.RequiresIterator() {
		m := d.Materialize().(*tensor.Dense)
		v = m
	}
	switch data := v.Data().(type) {
	case float32:
		device.Elements[float32](dst)[0] = data
	case float64:
		device.Elements[float64](dst)[0] = data
	case []float32:
		return copyElements(dst, data)
	case []float64:
		return copyElements(dst, data)
	case []int32:
		return copyElements(dst, data)
	case []int64:
		return copyElements(dst, data)
	default:
		return fmt.Errorf("no way to bring Gorgonia's %v to %v", v.Dtype(), dst)
	}
	return nil
}

func copyElements[T device.Number](dst device.Tensor, data []T) error {
	if dst.Len() != len(data) {
		return fmt.Errorf("a stock op returned %d elements for %v", len(data), dst)
	}
	copy(device.Elements[T](dst), data)
	return nil
}

// stockGradient is SymDiff of a stock op, corrected where Gorgonia's is wrong.
func stockGradient(c *core, n *gorgonia.Node, kids gorgonia.Nodes, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	op := n.Op().(gorgonia.SDOp)
	switch name := stockType(op); {
	case name == "elemUnaryOp" && op.String() == "invSqrt":
		return inverseSqrtGradient(n, grad)
	case name == "linAlgBinOp" && strings.Contains(op.String(), "⊗"):
		return nil, fmt.Errorf("Gorgonia's outer product is refused: its gradient fails: use a product of a column and a row")
	case stockKinds[name] == "":
		_, err := adaptStock(n, &Node{Out: c.metaOf(n).specs})
		return nil, err
	}
	grads, err := op.SymDiff(kids, n, grad)
	if err == nil && len(grads) != len(kids) {
		err = fmt.Errorf("Gorgonia's %v returned %d gradients for %d inputs", op, len(grads), len(kids))
	}
	return slices.Clone(grads), err
}

// inverseSqrtGradient is −g·y³/2, where Gorgonia divides instead of multiplying.
func inverseSqrtGradient(y, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	half := gorgonia.NewConstant(float32(-0.5))
	if y.Dtype() == tensor.Float64 {
		half = gorgonia.NewConstant(-0.5)
	}
	cube, err := gorgonia.Cube(y)
	if err != nil {
		return nil, err
	}
	scaled, err := gorgonia.HadamardProd(cube, grad)
	if err != nil {
		return nil, err
	}
	g, err := gorgonia.HadamardProd(half, scaled)
	return gorgonia.Nodes{g}, err
}
