package graph

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/philox"
	"gorgonia.org/gorgonia"
)

// Builder adds nodes to one expression graph under one scope. Builders of
// different scopes share the graph, the Store and the first error.
type Builder struct {
	core  *core
	scope string
}

// core is what all Builders of a graph share.
type core struct {
	g       *gorgonia.ExprGraph
	store   *Store
	err     error
	metas   map[int64]*meta
	calls   map[string]int // how often a name was used, for call indices
	applies uint64         // unique id of the next apply

	regions   []*Region
	region    *Region // the innermost region whose callback is running
	phase     Phase
	origin    *gorgonia.Node // forward node whose gradient is being built
	tables    map[string]Value
	replace   func(parameter *Variable) *Variable // see Builder.Replace
	rows      []rowCount
	inputs    []*gorgonia.Node
	losses    []named
	outputs   []named
	effects   []*gorgonia.Node
	warnings  []string
	graph     *Graph
	stockFrom int64 // first node id not yet attributed
}

type named struct {
	name string
	node *gorgonia.Node
}

type rowCount struct {
	name  string
	bound int
}

// meta is what the graph knows about a node beyond Gorgonia.
type meta struct {
	scope   string
	name    string
	spec    device.Spec
	specs   []device.Spec // of all outputs, for a node with several
	region  *Region
	phase   Phase
	origin  *gorgonia.Node
	source  string
	tags    []string
	part    Part
	binding *Variable // parameter or state
	input   bool
	commit  bool // runs after the losses were found finite
}

// Phase says when in a step a node belongs.
type Phase uint8

const (
	// Forward nodes were built before Backward was called.
	Forward Phase = iota
	// Backward nodes are gradients.
	Backward
	// After nodes were built after Backward: accumulation, updates, metrics.
	After
)

func (p Phase) String() string { return [...]string{"forward", "backward", "after"}[p] }

// New returns a Builder for a new graph whose parameters and states live in store.
func New(store *Store) *Builder {
	return &Builder{core: &core{
		g: gorgonia.NewGraph(), store: store,
		metas: map[int64]*meta{}, calls: map[string]int{}, tables: map[string]Value{},
		rows: []rowCount{{}},
	}}
}

// NewUpdate returns a Builder for a graph without a forward pass, which works with what the
// backward pass of another has left in store: its nodes belong to the phase After.
func NewUpdate(store *Store) *Builder {
	b := New(store)
	b.core.phase = After
	return b
}

// Adopt returns a Builder around a graph that stock Gorgonia functions have built.
// Its inputs are fed by name; one that is bound to a value (gorgonia.Let) begins
// with that value.
func Adopt(store *Store, g *gorgonia.ExprGraph) *Builder {
	b := New(store)
	b.core.g = g
	b.core.adopt()
	return b
}

// ExprGraph is the expression graph that b adds to. Nodes made in it with stock
// Gorgonia functions become Values through [Builder.Wrap].
func (b *Builder) ExprGraph() *gorgonia.ExprGraph { return b.core.g }

// Store that parameters and states live in.
func (b *Builder) Store() *Store { return b.core.store }

// Err is the first error of the graph, or nil.
func (b *Builder) Err() error { return b.core.err }

// Warnings are the doubts that are not errors, such as a parameter that reaches
// no loss.
func (b *Builder) Warnings() []string { return b.core.warnings }

// Scope returns a Builder for the scope named by the parts, joined by dots,
// under b's scope: b.Scope("layers", 3) names things "layers.3.…".
func (b *Builder) Scope(parts ...any) *Builder {
	scope := b.scope
	for _, p := range parts {
		scope = join(scope, fmt.Sprint(p))
	}
	return &Builder{core: b.core, scope: scope}
}

// Name is the fully qualified name of b's scope.
func (b *Builder) Name() string { return b.scope }

func join(scope, name string) string {
	if scope == "" {
		return name
	}
	if name == "" {
		return scope
	}
	return scope + "." + name
}

// Fail records an error at b's scope, unless one was recorded before, and
// returns a poisoned Value. Modules use it to refuse a configuration.
func (b *Builder) Fail(format string, args ...any) Value {
	return b.core.fail(b.scope, fmt.Sprintf(format, args...))
}

func (c *core) fail(scope, message string) Value {
	if c.err == nil {
		place := ""
		if scope != "" {
			place = scope + ": "
		}
		c.err = fmt.Errorf("graph: %s%s (%s)", place, message, callSite())
	}
	return Value{core: c}
}

// poisoned returns a poisoned Value if there was an error, or if one of in is
// poisoned, absent or of another graph.
func (b *Builder) poisoned(what string, in []Value) (Value, bool) {
	if b.core.err != nil {
		return Value{core: b.core}, true
	}
	for i, v := range in {
		switch {
		case v.core == nil:
			return b.Fail("%s: input %d is absent (graph.None)", what, i), true
		case v.core != b.core:
			return b.Fail("%s: input %d belongs to another graph: %s", what, i, v.Name()), true
		case v.node == nil:
			return b.Fail("%s: input %d is poisoned", what, i), true
		}
	}
	return Value{}, false
}

// callSite is the first caller outside this module's library code, as
// "file.go:line": where the user wrote what went wrong.
func callSite() string {
	var pcs [64]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	first := ""
	for {
		f, more := frames.Next()
		place := fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		if first == "" {
			first = place
		}
		library := strings.HasPrefix(f.Function, modulePath+"/graph.") || strings.HasPrefix(f.Function, modulePath+"/nn.") ||
			strings.HasPrefix(f.Function, modulePath+"/attention.") || strings.HasPrefix(f.Function, modulePath+"/checkpoint.")
		if !library || strings.HasSuffix(f.File, "_test.go") {
			return place
		}
		if !more {
			return first
		}
	}
}

const modulePath = "github.com/lethe-go/lethe"

// Input declares a value that is fed before every run, under its fully
// qualified name.
func (b *Builder) Input(name string, d device.DType, shape ...int) Value {
	return b.input(name, device.NewSpec(d, shape...))
}

// HostInput declares an input that stays on the host, where ops may read it
// while they are enqueued: learning rates, split sizes.
func (b *Builder) HostInput(name string, d device.DType, shape ...int) Value {
	s := device.NewSpec(d, shape...)
	s.Place = device.OnHost
	return b.input(name, s)
}

// RowsInput declares an input whose first extent is the live count named by
// rows, up to the bound given to [Builder.Rows].
func (b *Builder) RowsInput(name string, rows device.Rows, d device.DType, shape ...int) Value {
	s := device.NewSpec(d, shape...)
	s.Rows = rows
	return b.input(name, s)
}

// Rows declares a number of rows that is known only at run time, at most bound.
func (b *Builder) Rows(name string, bound int) device.Rows {
	b.core.rows = append(b.core.rows, rowCount{join(b.scope, name), bound})
	return device.Rows(len(b.core.rows) - 1)
}

func (b *Builder) input(name string, s device.Spec) Value {
	full := join(b.scope, name)
	if v, bad := b.poisoned("input "+full, nil); bad {
		return v
	}
	v := b.leaf(full, s)
	if v.node == nil {
		return v
	}
	m := b.core.metas[v.node.ID()]
	if m.input {
		return b.Fail("input %q is declared twice", full)
	}
	m.input = true
	b.core.inputs = append(b.core.inputs, v.node)
	return v
}

// leaf adds a node without children.
func (b *Builder) leaf(full string, s device.Spec) Value {
	if err := s.Validate(); err != nil {
		return b.Fail("%s: %v", full, err)
	}
	n := newLeaf(b.core.g, full, s)
	if b.core.metas[n.ID()] == nil {
		m := b.core.newMeta(b.scope, full)
		m.spec = s
		m.specs = []device.Spec{s}
		b.core.metas[n.ID()] = m
	}
	return Value{b.core, n}
}

func (c *core) newMeta(scope, name string) *meta {
	return &meta{scope: scope, name: name, region: c.region, phase: c.phase, origin: c.origin, source: callSite()}
}

// AddLoss adds a scalar to the sum that Backward differentiates. The value is an
// output of the program under the given name.
func (b *Builder) AddLoss(name string, v Value) {
	if _, bad := b.poisoned("loss "+name, []Value{v}); bad {
		return
	}
	if s := v.Spec(); s.Len() != 1 || len(s.Shape) != 0 || !s.DType.IsFloat() {
		b.Fail("loss %q: want a float scalar, have %v", name, s)
		return
	}
	b.core.losses = append(b.core.losses, named{name, v.node})
	b.Output(name, v)
}

// Output makes v readable after a run under the given name.
func (b *Builder) Output(name string, v Value) {
	if _, bad := b.poisoned("output "+name, []Value{v}); bad {
		return
	}
	for _, o := range b.core.outputs {
		if o.name == name {
			b.Fail("output %q is declared twice", name)
			return
		}
	}
	b.core.outputs = append(b.core.outputs, named{name, v.node})
}

// Effect makes v a root: it runs even if no output needs it.
func (b *Builder) Effect(v Value) {
	if _, bad := b.poisoned("effect", []Value{v}); bad {
		return
	}
	b.core.effects = append(b.core.effects, v.node)
}

// Tag gives v a name that policies can ask for, and returns v.
func (b *Builder) Tag(v Value, tag string) Value {
	if v.core == nil || v.node == nil {
		return v
	}
	m := v.core.metaOf(v.node)
	m.tags = append(m.tags, tag)
	return v
}

// Table returns the value cached under a name in this graph, building it on the
// first call outside of any region: RoPE tables and masks are shared by layers.
func (b *Builder) Table(name string, build func(b *Builder) Value) Value {
	if v, ok := b.core.tables[name]; ok {
		return v
	}
	region := b.core.region
	b.core.region = nil
	v := build(&Builder{core: b.core, scope: name})
	b.core.region = region
	b.core.tables[name] = v
	return v
}

// RandomKey returns the key of the next random op in b's scope: a hash of the
// Store's seed, the fully qualified name and the call index.
func (b *Builder) RandomKey(name string) uint64 {
	full := join(b.scope, name)
	call := b.core.calls["random "+full]
	b.core.calls["random "+full]++
	return philox.Key(b.core.store.Seed(), full, call)
}

// Region runs f and makes every node built in it part of one region with the
// given policy. Regions nest; a node belongs to the innermost.
func (b *Builder) Region(policy Policy, f func()) {
	c := b.core
	r := &Region{ID: len(c.regions), Parent: c.region, Policy: policy, Scope: b.scope, Source: callSite()}
	c.adopt()
	c.regions = append(c.regions, r)
	c.region = r
	f()
	c.adopt()
	c.region = r.Parent
}
