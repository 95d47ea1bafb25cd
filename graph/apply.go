package graph

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/fnv"
	"math/bits"
	"reflect"
	"slices"

	"github.com/chewxy/hm"
	"github.com/lethe-go/lethe/device"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Apply adds an op with one output and returns it.
func (b *Builder) Apply(op Op, in ...Value) Value {
	out := b.ApplyAll(op, in...)
	if len(out) != 1 && b.core.err == nil {
		return b.Fail("%s: has %d outputs: use ApplyAll", op.Kind(), len(out))
	}
	return out[0]
}

// ApplyAll adds an op and returns its outputs, at least one even if poisoned.
func (b *Builder) ApplyAll(op Op, in ...Value) []Value {
	if v, bad := b.poisoned(op.Kind(), in); bad {
		return []Value{v, v, v, v}
	}
	a := &applied{op: op, in: make([]device.Spec, len(in))}
	kids := make(gorgonia.Nodes, len(in))
	for i, v := range in {
		kids[i], a.in[i] = v.node, v.Spec()
	}
	out, err := op.Outputs(a.in)
	if err == nil && len(out) == 0 {
		err = fmt.Errorf("no outputs")
	}
	for i := 0; err == nil && i < len(out); i++ {
		err = out[i].Validate()
	}
	if err != nil {
		v := b.Fail("%s: %v", op.Kind(), err)
		return []Value{v, v, v, v}
	}
	a.out = out
	parts := b.carried(in, out)
	node, err := b.core.add(a, kids)
	if err != nil {
		v := b.Fail("%s: %v", op.Kind(), err)
		return []Value{v, v, v, v}
	}
	m := b.core.newMeta(b.scope, b.callName(op.Kind()))
	m.spec, m.specs = out[0], out
	m.part = parts[0]
	b.core.metas[node.ID()] = m
	if op.Effects().Has(SideEffect) || isMutator(op) {
		b.core.effects = append(b.core.effects, node)
	}
	if len(out) == 1 {
		return []Value{{b.core, node}}
	}
	return b.selectAll(node, m, parts)
}

// carried gives for each output the part that it holds of what the first input is a part of.
func (b *Builder) carried(in []Value, out []device.Spec) []Part {
	parts := make([]Part, len(out))
	if len(in) == 0 || b.core.phase != Forward {
		return parts
	}
	for i := range out {
		parts[i] = in[0].Part().carries(in[0].Spec(), out[i])
	}
	return parts
}

func isMutator(op Op) bool {
	_, ok := op.(Mutator)
	return ok
}

// callName is the fully qualified name of the next op of a kind in b's scope.
// Backward ops are counted apart, so that they never rename forward ones.
func (b *Builder) callName(kind string) string {
	name := join(b.scope, kind)
	if b.core.phase == Backward {
		name = join(b.scope, "backward."+kind)
	}
	n := b.core.calls[name]
	b.core.calls[name]++
	return fmt.Sprintf("%s:%d", name, n)
}

func (b *Builder) selectAll(node *gorgonia.Node, m *meta, parts []Part) []Value {
	values := make([]Value, len(m.specs))
	for i, s := range m.specs {
		n, err := b.core.add(&selected{index: i, spec: s}, gorgonia.Nodes{node})
		if err != nil {
			values[i] = b.Fail("select %d of %s: %v", i, m.name, err)
			continue
		}
		sm := *m
		sm.spec, sm.specs, sm.tags, sm.part = s, nil, nil, parts[i]
		b.core.metas[n.ID()] = &sm
		values[i] = Value{b.core, n}
	}
	return values
}

// identified is an op that carries the unique id that keeps Gorgonia from
// merging two applications.
type identified interface {
	gorgonia.Op
	setID(id uint64)
}

// add applies op with a fresh id. Gorgonia finds equal nodes by a 32-bit hash
// that ignores which children they have, so a collision could return another
// node: that is seen by its children, and another id tried.
func (c *core) add(op identified, kids gorgonia.Nodes) (*gorgonia.Node, error) {
	for {
		c.applies++
		op.setID(c.applies)
		n, err := c.applyOp(op, kids)
		if err != nil {
			return nil, err
		}
		if n.Op() == gorgonia.Op(op) && slices.Equal(children(n), kids) {
			return n, nil
		}
	}
}

// applyOp is gorgonia.ApplyOp, which cannot tell the graph of an op without inputs.
func (c *core) applyOp(op gorgonia.Op, kids gorgonia.Nodes) (*gorgonia.Node, error) {
	if len(kids) > 0 {
		return gorgonia.ApplyOp(op, kids...)
	}
	spec := op.(*applied).out[0]
	return gorgonia.NewUniqueNode(gorgonia.WithType(typeOf(spec)), gorgonia.WithOp(op), gorgonia.In(c.g),
		gorgonia.WithShape(shapeOf(spec)...)), nil
}

// children of n in order, duplicates kept.
func children(n *gorgonia.Node) gorgonia.Nodes {
	if n.Op() == nil || n.Graph() == nil {
		return nil
	}
	it := n.Graph().From(n.ID())
	if it == nil {
		return nil
	}
	out := make(gorgonia.Nodes, 0, it.Len())
	for it.Next() {
		out = append(out, it.Node().(*gorgonia.Node))
	}
	return out
}

// applied is one application of an Op, as a gorgonia.Op. Differentiation goes
// through Builder.Backward, which calls Op.Gradient itself.
type applied struct {
	op      Op
	id      uint64
	in, out []device.Spec
}

func (a *applied) setID(id uint64)      { a.id = id }
func (a *applied) Arity() int           { return len(a.in) }
func (a *applied) ReturnsPtr() bool     { return false }
func (a *applied) CallsExtern() bool    { return false }
func (a *applied) OverwritesInput() int { return -1 }
func (a *applied) String() string       { return a.op.Kind() }

func (a *applied) Type() hm.Type {
	types := make([]hm.Type, 0, len(a.in)+1)
	for _, s := range a.in {
		types = append(types, typeOf(s))
	}
	if len(a.out) == 1 {
		return hm.NewFnType(append(types, typeOf(a.out[0]))...)
	}
	return hm.NewFnType(append(types, tupleType)...)
}

func (a *applied) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	if len(a.out) == 1 {
		return shapeOf(a.out[0]), nil
	}
	return tensor.Shape{len(a.out)}, nil
}

func (a *applied) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return nil, fmt.Errorf("graph: %s runs on a graph.Machine, not on a Gorgonia VM", a.op.Kind())
}

func (a *applied) WriteHash(h hash.Hash) { writeID(h, "lethe", a.id) }
func (a *applied) Hashcode() uint32      { return hashID("lethe", a.id) }

func (a *applied) DiffWRT(n int) []bool {
	wrt := make([]bool, n)
	if _, ok := a.op.(Differentiable); ok {
		for i := range wrt {
			wrt[i] = a.in[i].DType.IsFloat()
		}
	}
	return wrt
}

func (a *applied) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("graph: %s is differentiated by Builder.Backward, not by gorgonia.Grad", a.op.Kind())
}

// selected is one output of an op with several.
type selected struct {
	id    uint64
	index int
	spec  device.Spec
}

func (s *selected) setID(id uint64)       { s.id = id }
func (s *selected) Arity() int            { return 1 }
func (s *selected) ReturnsPtr() bool      { return true }
func (s *selected) CallsExtern() bool     { return false }
func (s *selected) OverwritesInput() int  { return -1 }
func (s *selected) String() string        { return fmt.Sprintf("select %d", s.index) }
func (s *selected) Type() hm.Type         { return hm.NewFnType(tupleType, typeOf(s.spec)) }
func (s *selected) WriteHash(h hash.Hash) { writeID(h, "select", s.id) }
func (s *selected) Hashcode() uint32      { return hashID("select", s.id) }
func (s *selected) DiffWRT(int) []bool    { return []bool{s.spec.DType.IsFloat()} }

func (s *selected) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return shapeOf(s.spec), nil
}

func (s *selected) Do(...gorgonia.Value) (gorgonia.Value, error) {
	return nil, fmt.Errorf("graph: a Lethe op runs on a graph.Machine, not on a Gorgonia VM")
}

func (s *selected) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("graph: a Lethe op is differentiated by Builder.Backward, not by gorgonia.Grad")
}

func writeID(h hash.Hash, kind string, id uint64) {
	h.Write([]byte(kind))
	binary.Write(h, binary.LittleEndian, id)
}

func hashID(kind string, id uint64) uint32 {
	h := fnv.New32a()
	writeID(h, kind, id)
	return h.Sum32()
}

// tupleTag is the element type of the pretended tensor that stands for several
// outputs: Gorgonia's inference accepts nothing but tensor types.
type tupleTag struct{ _ uintptr }

var tupleType hm.Type = gorgonia.TensorType{Dims: 1, Of: tensor.Dtype{Type: reflect.TypeFor[tupleTag]()}}

// Gorgonia has no 16-bit floats; these carry the dtype through its inference.
type (
	bfloat16 uint16
	float16  uint16
)

var gorgoniaTypes = map[device.DType]tensor.Dtype{
	device.Float32:  tensor.Float32,
	device.Float64:  tensor.Float64,
	device.BFloat16: {Type: reflect.TypeFor[bfloat16]()},
	device.Float16:  {Type: reflect.TypeFor[float16]()},
	device.Int32:    tensor.Int32,
	device.Int64:    tensor.Int64,
	device.Uint8:    tensor.Uint8,
}

func typeOf(s device.Spec) hm.Type {
	if len(s.Shape) == 0 {
		return gorgoniaTypes[s.DType]
	}
	return gorgonia.TensorType{Dims: len(s.Shape), Of: gorgoniaTypes[s.DType]}
}

func shapeOf(s device.Spec) tensor.Shape {
	if len(s.Shape) == 0 {
		return tensor.ScalarShape()
	}
	return tensor.Shape(slices.Clone(s.Shape))
}

// specOf describes a stock Gorgonia node.
func specOf(n *gorgonia.Node) (device.Spec, error) {
	for d, t := range gorgoniaTypes {
		if n.Dtype() == t {
			return device.NewSpec(d, n.Shape()...), nil
		}
	}
	if n.Dtype() == tensor.Int && bits.UintSize == 64 {
		return device.NewSpec(device.Int64, n.Shape()...), nil
	}
	return device.Spec{}, fmt.Errorf("no device dtype for Gorgonia's %v", n.Dtype())
}

func newLeaf(g *gorgonia.ExprGraph, name string, s device.Spec) *gorgonia.Node {
	d := gorgoniaTypes[s.DType]
	if len(s.Shape) == 0 {
		return gorgonia.NewScalar(g, d, gorgonia.WithName(name))
	}
	return gorgonia.NewTensor(g, d, len(s.Shape), gorgonia.WithShape(s.Shape...), gorgonia.WithName(name))
}
