package train

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
)

// programs are the Programs of a run, on one Store. An optimizer step is first
// (more for each further microbatch), norm, update. What could stop a step, a
// loss or a norm that is not finite, is known before update writes anything.
type programs struct {
	// first runs forward and backward on a microbatch and writes the gradients;
	// more adds to them, and is nil without accumulation.
	first, more *graph.Program
	// norm computes the global norm of the gradients and the clip factor.
	norm *graph.Program
	// update changes parameters and moments.
	update *graph.Program
	// evaluate is the forward pass alone; nil without validation.
	evaluate *graph.Program
}

// all lists the Programs that are there, in the order in which a step runs them.
func (p *programs) all() []*graph.Program {
	var all []*graph.Program
	for _, q := range []*graph.Program{p.first, p.more, p.norm, p.update, p.evaluate} {
		if q != nil {
			all = append(all, q)
		}
	}
	return all
}

// stepCount is how often each Program runs in one optimizer step.
func (p *programs) stepCount(q *graph.Program, microbatches int) int {
	switch q {
	case p.more:
		return microbatches - 1
	case p.evaluate:
		return 0
	}
	return 1
}

// compiler builds and compiles the Programs of one rank.
type compiler struct {
	config Config
	model  Model
	dtype  device.DType
	store  *graph.Store
	group  collective.Group // nil for a rank alone
}

func (c *compiler) compile() (*programs, []string, error) {
	p := &programs{}
	var warnings []string
	var parameters []*graph.Variable
	var err error
	if p.first, parameters, warnings, err = c.accumulate(false); err != nil {
		return nil, nil, err
	}
	if c.config.Training.Microbatches() > 1 {
		if p.more, _, _, err = c.accumulate(true); err != nil {
			return nil, nil, err
		}
	}
	if p.norm, err = c.norm(parameters); err != nil {
		return nil, nil, err
	}
	if p.update, err = c.update(parameters); err != nil {
		return nil, nil, err
	}
	if c.config.Validation.Enable {
		if p.evaluate, err = c.evaluate(); err != nil {
			return nil, nil, err
		}
	}
	return p, warnings, nil
}

// accumulate is forward and backward of one microbatch. The first of a step
// overwrites the gradients, which the compiler then computes right where they
// belong; further ones add.
func (c *compiler) accumulate(add bool) (*graph.Program, []*graph.Variable, []string, error) {
	b := graph.New(c.store)
	c.model.Build(b, c.inputs(b, true), policies(c.config.ActivationCheckpoint))
	values := b.Parameters()
	grads := b.Backward(values...)
	var parameters []*graph.Variable
	for i, v := range values {
		name, spec := v.Name(), v.Spec()
		gradient := b.Scratch(gradientPrefix+name, spec.DType, spec.Shape...)
		if add {
			b.Accumulate(gradient, grads[i])
		} else {
			b.Assign(gradient, grads[i])
		}
		parameters = append(parameters, c.store.Variable(name))
	}
	g, err := b.Graph()
	if err != nil {
		return nil, nil, nil, err
	}
	plan, err := resolve(g, c.config.ActivationCheckpoint)
	if err != nil {
		return nil, nil, nil, err
	}
	p, err := graph.Compile(g, graph.CompileOptions{Plan: plan})
	return p, parameters, b.Warnings(), err
}

func (c *compiler) inputs(b *graph.Builder, training bool) Inputs {
	rows, columns := c.config.Training.LocalBatchSize, c.config.Training.SeqLen
	return Inputs{
		Tokens:        b.Input("tokens", device.Int32, rows, columns),
		Labels:        b.Input("labels", device.Int32, rows, columns),
		Positions:     b.Input("positions", device.Int32, rows, columns),
		DocumentStart: b.Input("document_start", device.Int32, rows, columns),
		Scale:         b.Input("scale", c.dtype),
		Experts:       c.group,
		Training:      training,
	}
}

// norm leaves the clip factor in a scratch variable for update. The norm itself
// is the output grad_norm, before clipping. With several ranks it first adds up the
// gradients of what all of them hold; those of experts are whole where they are.
func (c *compiler) norm(parameters []*graph.Variable) (*graph.Program, error) {
	b := graph.New(c.store)
	var shared, own []graph.Value
	for _, p := range parameters {
		gradient := b.Variable(c.store.Variable(gradientPrefix + p.Name))
		switch {
		case c.group == nil:
			shared = append(shared, gradient)
		case slices.Equal(p.Spec.Shape, p.Global):
			collective.AllReduceState(b, c.group, gradient)
			shared = append(shared, gradient)
		default:
			own = append(own, gradient)
		}
	}
	scope := b.Scope("optimizer")
	squares := []graph.Value{scope.Apply(sumSquares{}, shared...)}
	if len(own) > 0 {
		squares = append(squares, collective.AllReduce(scope, c.group, scope.Apply(sumSquares{}, own...)).Wait())
	}
	norm := scope.Apply(rootSum{dtype: c.dtype}, squares...)
	b.Output("grad_norm", norm)
	if most := c.config.Training.MaxNorm; most > 0 {
		factor := scope.Apply(clipFactor{max: most}, norm)
		b.Assign(b.Scratch(clipVariable, c.dtype), factor)
	}
	return compileBuilt(b)
}

// update runs AdamW on every parameter. Weight decay applies to all of them, as
// in torchtitan.
func (c *compiler) update(parameters []*graph.Variable) (*graph.Program, error) {
	b := graph.New(c.store)
	lr := b.HostInput("lr", device.Float64)
	o := c.config.Optimizer
	op := adamW{beta1: o.Beta1, beta2: o.Beta2, eps: o.Eps, weightDecay: o.WeightDecay}
	for _, p := range parameters {
		d, shape := p.Spec.DType, p.Spec.Shape
		in := []graph.Value{
			b.Variable(p),
			b.State(meanPrefix+p.Name, d, graph.Zeros, shape...),
			b.State(squarePrefix+p.Name, d, graph.Zeros, shape...),
			b.Variable(c.store.Variable(gradientPrefix + p.Name)),
			lr,
		}
		if c.config.Training.MaxNorm > 0 {
			in = append(in, b.Variable(c.store.Variable(clipVariable)))
		}
		b.Scope("optimizer", p.Name).Apply(op, in...)
	}
	if m, ok := c.model.(Balanced); ok {
		moe.Balance(b, c.group, m.BalanceStep())
	}
	return compileBuilt(b)
}

// evaluate is the forward pass on held-out data.
func (c *compiler) evaluate() (*graph.Program, error) {
	b := graph.New(c.store)
	c.model.Build(b, c.inputs(b, false), policies(c.config.ActivationCheckpoint))
	return compileBuilt(b)
}

func compileBuilt(b *graph.Builder) (*graph.Program, error) {
	g, err := b.Graph()
	if err != nil {
		return nil, err
	}
	return graph.Compile(g, graph.CompileOptions{})
}

// newCompiler makes the parts that a config names and checks that they fit.
func newCompiler(c Config, m Model, store *graph.Store, group collective.Group) (*compiler, error) {
	dtype, err := device.ParseDType(c.Training.DType)
	if err != nil {
		return nil, fmt.Errorf("train: config: training.dtype: %w", err)
	}
	if m == nil {
		if m, err = newModel(c, dtype); err != nil {
			return nil, err
		}
	}
	if ranks := c.Parallelism.ExpertParallelDegree; ranks > 1 {
		b, ok := m.(Balanced)
		if !ok {
			return nil, fmt.Errorf("train: config: parallelism.expert_parallel_degree: must be 1 for %s, which has no experts: %d; set 1", m.Name(), ranks)
		}
		if b.Experts()%ranks != 0 {
			return nil, fmt.Errorf("train: config: parallelism.expert_parallel_degree: must divide the %d experts of %s: %d; set a divisor", b.Experts(), m.Name(), ranks)
		}
	}
	return &compiler{config: c, model: m, dtype: dtype, store: store, group: group}, nil
}
