package graph

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/philox"
)

// Store owns parameters and persistent state by fully qualified name: their
// specs, their initial values and their buffers. Several Programs bind to one
// Store; they share its variables and its arena, and so run one at a time.
type Store struct {
	dev    device.Device
	seed   uint64
	layout Layout
	spill  device.Spill

	mu        sync.Mutex
	variables []*Variable // in order of declaration
	byName    map[string]*Variable
	arena     device.Buffer
	scratch   []*Variable // of finished graphs, in the order of the arena
}

// StoreOptions of a Store; the zero value works.
type StoreOptions struct {
	// Seed of every random number: initial values and dropout.
	Seed uint64
	// Layout of parameters over ranks; nil keeps them whole.
	Layout Layout
}

// NewStore returns an empty Store on a device. Nothing is allocated until a
// Machine is made, so models of any size can be built and planned.
func NewStore(dev device.Device, o StoreOptions) *Store {
	return &Store{dev: dev, seed: o.Seed, layout: o.Layout, byName: map[string]*Variable{}}
}

// Device that the Store's buffers live on.
func (s *Store) Device() device.Device { return s.dev }

// Seed of every random number drawn for this Store.
func (s *Store) Seed() uint64 { return s.seed }

// VariableKind tells parameters from other state.
type VariableKind uint8

const (
	// Parameter is trained.
	Parameter VariableKind = iota
	// State persists but is not trained: moments, counters, averages.
	State
	// Scratch is handed from one Program of a step to the next and belongs to no saved state:
	// gradients, the clip factor. It lives in the arena, so that a Program that does not touch
	// it may take its memory: one that reads it then refuses to run.
	Scratch
	// Cache persists from run to run and belongs to no saved state: keys and values of the
	// tokens before.
	Cache
	// Fixed is computed once and never changes: tables of angles, masks. It
	// belongs to no saved state.
	Fixed
)

func (k VariableKind) String() string {
	return [...]string{"parameter", "state", "scratch", "cache", "constant"}[k]
}

// Variable is a parameter or a persistent state.
type Variable struct {
	Name string
	Kind VariableKind
	Spec device.Spec // of this rank's part
	Init Initializer
	// Global is the shape of the whole, and Offset where this rank's part begins. The last
	// rows of the part may be padding, see Padding.
	Global, Offset []int

	padding int
	tensor  device.Tensor
	// Of scratch: the offset in the arena, and whether other values have taken its memory.
	place int64
	lost  bool
}

// Tensor is the variable's memory, the zero Tensor before Allocate. That of scratch is there
// when a Machine is that touches it, and moves when the arena grows.
func (v *Variable) Tensor() device.Tensor { return v.tensor }

// Initializer gives the first value of a variable.
type Initializer interface {
	// Initialize fills dst; draw identifies the variable's random numbers.
	Initialize(k device.Kernels, dst device.Tensor, draw device.Draw)
}

// Constant fills with one value.
type Constant float64

func (c Constant) Initialize(k device.Kernels, dst device.Tensor, _ device.Draw) {
	k.Fill(dst, float64(c))
}

// Zeros is the initial value of moments, gradients and counters.
const Zeros = Constant(0)

// Normal draws from a normal distribution.
type Normal struct{ Mean, Std float64 }

func (n Normal) Initialize(k device.Kernels, dst device.Tensor, draw device.Draw) {
	k.Random(dst, device.Distribution{Kind: device.Normal, Mean: n.Mean, Std: n.Std}, draw)
}

// TruncatedNormal draws from a normal distribution cut at Low and High, as
// torch.nn.init.trunc_normal_ does.
type TruncatedNormal struct{ Mean, Std, Low, High float64 }

func (n TruncatedNormal) Initialize(k device.Kernels, dst device.Tensor, draw device.Draw) {
	k.Random(dst, device.Distribution{Kind: device.TruncatedNormal, Mean: n.Mean, Std: n.Std, Low: n.Low, High: n.High}, draw)
}

// Uniform draws from [Low, High).
type Uniform struct{ Low, High float64 }

func (u Uniform) Initialize(k device.Kernels, dst device.Tensor, draw device.Draw) {
	k.Random(dst, device.Distribution{Kind: device.Uniform, Low: u.Low, High: u.High}, draw)
}

// Computed writes values that Go code computes to a contiguous tensor in memory
// the host can reach, of the variable's dtype and shape. The Store brings them to
// the device.
type Computed func(host device.Tensor)

func (c Computed) Initialize(_ device.Kernels, dst device.Tensor, _ device.Draw) { c(dst) }

// declare returns the variable of that name, or makes it.
func (s *Store) declare(name string, kind VariableKind, d device.DType, global []int, init Initializer) (*Variable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.byName[name]; v != nil {
		if v.Kind != kind || v.Spec.DType != d || !slices.Equal(v.Global, global) {
			return nil, fmt.Errorf("%q is a %v %v%v in the store: wanted a %v %v%v", name, v.Kind, v.Spec.DType, v.Global, kind, d, global)
		}
		return v, nil
	}
	v := &Variable{Name: name, Kind: kind, Spec: device.NewSpec(d, global...), Init: init,
		Global: slices.Clone(global), Offset: make([]int, len(global))}
	if err := v.Spec.Validate(); err != nil {
		return nil, fmt.Errorf("%q: %w", name, err)
	}
	if s.layout != nil && kind == Parameter {
		shape, offset, padding := s.layout.Place(name, global)
		if err := checkPlace(name, global, shape, offset, padding); err != nil {
			return nil, err
		}
		v.Spec, v.Offset, v.padding = device.NewSpec(d, shape...), offset, padding
	}
	s.variables = append(s.variables, v)
	s.byName[name] = v
	return v, nil
}

// declareLike returns the state of that name, or makes it, with the dtype, shape and
// placement of p.
func (s *Store) declareLike(p *Variable, name string, init Initializer) (*Variable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.byName[name]; v != nil {
		if v.Kind != State || !v.Spec.Equal(p.Spec) || !slices.Equal(v.Global, p.Global) {
			return nil, fmt.Errorf("%q is a %v %v%v in the store: wanted a %v like %q, %v%v", name, v.Kind, v.Spec.DType, v.Global, State, p.Name, p.Spec.DType, p.Global)
		}
		return v, nil
	}
	v := &Variable{Name: name, Kind: State, Spec: p.Spec, Init: init, Global: p.Global, Offset: p.Offset, padding: p.padding}
	s.variables = append(s.variables, v)
	s.byName[name] = v
	return v, nil
}

// Variables returns all variables in the order they were declared.
func (s *Store) Variables() []*Variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.variables)
}

// Variable returns the variable of that name, or nil.
func (s *Store) Variable(name string) *Variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// Bytes is the size of all variables but scratch, which lives in the arena, allocated or not.
func (s *Store) Bytes() int64 {
	var sum int64
	for _, v := range s.Variables() {
		if v.Kind != Scratch {
			sum += v.Spec.Bytes()
		}
	}
	return sum
}

// Allocate gives every variable but scratch that has none its memory and initial value.
// Machines call it; calling it earlier lets values be set before the first run.
func (s *Store) Allocate() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.dev.NewQueue()
	defer q.Close()
	var staged []device.Buffer
	defer func() {
		for _, b := range staged {
			b.Free()
		}
	}()
	for _, v := range s.variables {
		if !v.tensor.IsZero() || v.Kind == Scratch {
			continue
		}
		b, err := s.dev.Alloc(v.Spec.Place, v.Spec.Bytes())
		if err != nil {
			return fmt.Errorf("graph: %s %q of %d bytes: %w", v.Kind, v.Name, v.Spec.Bytes(), err)
		}
		v.tensor = device.NewTensor(b, 0, v.Spec.DType, v.Spec.Shape...)
		host, err := s.initialize(q, v)
		if err != nil {
			return err
		}
		if host != nil {
			staged = append(staged, host)
		}
		if n := v.Padding(); n > 0 {
			rows := v.Spec.Shape[0]
			q.Fill(v.tensor.Slice(0, rows-n, rows), 0)
		}
	}
	if err := q.Sync(); err != nil {
		return fmt.Errorf("graph: initial values: %w", err)
	}
	return nil
}

// initialize enqueues the initial value. It returns the host memory that must live
// until then, or nil.
func (s *Store) initialize(q device.Queue, v *Variable) (device.Buffer, error) {
	c, ok := v.Init.(Computed)
	if !ok || v.Spec.Place == device.OnHost || s.dev.HostAccessible() {
		v.Init.Initialize(q, v.tensor, v.draw(s.seed))
		return nil, nil
	}
	host, err := s.dev.Alloc(device.OnHost, v.Spec.Bytes())
	if err != nil {
		return nil, fmt.Errorf("graph: %s %q of %d bytes on the host: %w", v.Kind, v.Name, v.Spec.Bytes(), err)
	}
	values := device.NewTensor(host, 0, v.Spec.DType, v.Spec.Shape...)
	c(values)
	q.Copy(v.tensor, values)
	return host, nil
}

// draw identifies the initial values: the element's index in the whole.
func (v *Variable) draw(seed uint64) device.Draw {
	d := device.WholeDraw(philox.Key(seed, v.Name, 0), v.Global...)
	copy(d.Offset[:], v.Offset)
	return d
}

// reserveArena grows the shared arena to at least the given size. Growing replaces it, so it
// happens only while Machines are made.
func (s *Store) reserveArena(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arena != nil && s.arena.Size() >= bytes {
		return s.placeScratch(s.arena)
	}
	b, err := s.dev.Alloc(device.OnDevice, bytes)
	if err != nil {
		return fmt.Errorf("graph: arena of %d bytes: %w", bytes, err)
	}
	if err := s.placeScratch(b); err != nil {
		b.Free()
		return fmt.Errorf("graph: scratch in the arena: %w", err)
	}
	if s.arena != nil {
		s.arena.Free()
	}
	s.arena = b
	return nil
}

// OffloadTo says where plans offload values to. Call it before Machines are made; the Store
// does not close it.
func (s *Store) OffloadTo(place device.Spill) { s.spill = place }

// reserveSpill makes room for what a Program offloads.
func (s *Store) reserveSpill(bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if s.spill == nil {
		return fmt.Errorf("graph: the plan offloads %d bytes, and the Store has no place for them: call Store.OffloadTo", bytes)
	}
	return s.spill.Reserve(bytes)
}

// Close frees all memory of the Store. Machines over it may not run any more.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.variables {
		if !v.tensor.IsZero() && v.Kind != Scratch {
			v.tensor.Buffer().Free()
		}
		v.tensor = device.Tensor{}
	}
	if s.arena != nil {
		s.arena.Free()
		s.arena = nil
	}
	return nil
}

// Parameter declares a trained value under b's scope, with the shape of the
// whole; the Store's Layout says which part of it this rank holds.
func (b *Builder) Parameter(name string, d device.DType, init Initializer, shape ...int) Value {
	return b.variable(name, Parameter, d, init, shape)
}

// State declares a persistent value that is not trained.
func (b *Builder) State(name string, d device.DType, init Initializer, shape ...int) Value {
	return b.variable(name, State, d, init, shape)
}

// StateLike declares a State with the dtype and shape of p, placed on ranks as p is: a
// moment or an average of a parameter. It is called prefix followed by p's name.
func (b *Builder) StateLike(prefix string, p *Variable, init Initializer) Value {
	name := prefix + p.Name
	if v, bad := b.poisoned(name, nil); bad {
		return v
	}
	v, err := b.core.store.declareLike(p, name, init)
	if err != nil {
		return b.Fail("%v", err)
	}
	return b.Variable(v)
}

// Scratch declares a value that one Program of a step leaves to the next; before the first
// it is zero.
func (b *Builder) Scratch(name string, d device.DType, shape ...int) Value {
	return b.variable(name, Scratch, d, Zeros, shape)
}

// Cache declares a value that persists from run to run and belongs to no saved state; before
// the first it is zero.
func (b *Builder) Cache(name string, d device.DType, shape ...int) Value {
	return b.variable(name, Cache, d, Zeros, shape)
}

// Constant declares a value that is computed once, when memory is allocated, and
// never changes. Its name must tell constants of different contents apart, since
// graphs on one Store share them.
func (b *Builder) Constant(name string, d device.DType, init Initializer, shape ...int) Value {
	return b.variable(name, Fixed, d, init, shape)
}

func (b *Builder) variable(name string, kind VariableKind, d device.DType, init Initializer, shape []int) Value {
	full := join(b.scope, name)
	if v, bad := b.poisoned(full, nil); bad {
		return v
	}
	variable, err := b.core.store.declare(full, kind, d, shape, init)
	if err != nil {
		return b.Fail("%v", err)
	}
	if kind == Parameter && b.core.replace != nil {
		with := b.core.replace(variable)
		if with == nil || !with.Spec.Equal(variable.Spec) {
			return b.Fail("%s: its replacement must be a variable like it, %v", full, variable.Spec)
		}
		variable = with
	}
	value := b.Variable(variable)
	if a, ok := b.core.store.layout.(Assembler); ok && kind == Parameter {
		return a.Assemble(b, variable, value)
	}
	return value
}

// Replace makes every later [Builder.Parameter] of b's graph stand for another
// variable of the same spec: averages of the parameters in their place.
func (b *Builder) Replace(with func(parameter *Variable) *Variable) { b.core.replace = with }

// Variable returns the Value that stands for a variable of the Store.
func (b *Builder) Variable(v *Variable) Value {
	if w, bad := b.poisoned(v.Name, nil); bad {
		return w
	}
	out := (&Builder{core: b.core, scope: ""}).leaf(v.Name, v.Spec)
	if out.node == nil {
		return out
	}
	m := b.core.metas[out.node.ID()]
	if m.input {
		return b.Fail("%q is both an input and a %v", v.Name, v.Kind)
	}
	m.binding = v
	m.region = nil
	return out
}

// Parameters returns the parameters that this graph uses, in the order in which
// they were first used.
func (b *Builder) Parameters() []Value {
	var out []Value
	for _, n := range b.core.g.AllNodes() {
		if m := b.core.metas[n.ID()]; m != nil && m.binding != nil && m.binding.Kind == Parameter {
			out = append(out, Value{b.core, n})
		}
	}
	return out
}
