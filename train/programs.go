package train

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
)

// programs are the Programs of a run, on one Store. An optimizer step is first
// (more for each further microbatch, last for the last), norm, update. What could stop a step, a
// loss or a norm that is not finite, is known before update writes anything.
type programs struct {
	// first runs forward and backward on a microbatch and writes the gradients; more
	// adds to them, and so does last, which is there only with several ranks: the
	// Program of the last microbatch brings the gradients of all ranks together. Each
	// is nil where no microbatch is its.
	first, more, last *graph.Program
	// norm computes the global norm of the gradients and the clip factor.
	norm *graph.Program
	// update changes parameters and moments, with learning rates of its groups.
	update *graph.Program
	rates  []rate
	// evaluate is the forward pass alone; nil without validation.
	evaluate *graph.Program
	// check is how closely reruns are compared.
	check graph.CheckLevel
	// bounds are what no plan of a Program within its budget undercuts, in nanoseconds of
	// reruns; empty without a budget.
	bounds map[*graph.Program]int64
}

// all lists the Programs that are there, in the order in which a step runs them.
func (p *programs) all() []*graph.Program {
	var all []*graph.Program
	for _, q := range []*graph.Program{p.first, p.more, p.last, p.norm, p.update, p.evaluate} {
		if q != nil {
			all = append(all, q)
		}
	}
	return all
}

// name of a Program.
func (p *programs) name(q *graph.Program) string {
	switch q {
	case p.first:
		return "first"
	case p.more:
		return "more"
	case p.last:
		return "last"
	case p.norm:
		return "norm"
	case p.update:
		return "update"
	}
	return "evaluate"
}

// largestOf Programs is the one with the highest peak, with the given live rows of each.
func largestOf(list []*graph.Program, counts func(*graph.Graph) graph.Counts) *graph.Program {
	peak := func(p *graph.Program) int64 { return p.Memory(counts(p.Graph)).Peak }
	return slices.MaxFunc(list, func(a, b *graph.Program) int { return cmp.Compare(peak(a), peak(b)) })
}

// atBounds are no live rows, which stands for as many as could come.
func atBounds(*graph.Graph) graph.Counts { return nil }

// stepCount is how often each Program runs in one optimizer step.
func (p *programs) stepCount(q *graph.Program, microbatches int) int {
	switch q {
	case p.more:
		n := microbatches - 1
		if p.last != nil {
			n--
		}
		return n
	case p.evaluate:
		return 0
	}
	return 1
}

// trains reports whether a Program runs forward and backward.
func (p *programs) trains(q *graph.Program) bool { return q == p.first || q == p.more || q == p.last }

// compiler builds and compiles the Programs of one rank.
type compiler struct {
	config Config
	layout layout
	model  Model
	dtype  device.DType
	store  *graph.Store
	ends   ends
	// loss in place of cross-entropy, or nil.
	loss Loss
	// optimizer of every parameter in place of those the config names, or nil.
	optimizer Optimizer
	// budget to plan within; nil unless that is the mode.
	budget *budget
	// copyCosts are Options.copyCosts.
	copyCosts checkpoint.Costs
}

func (c *compiler) compile() (*programs, []string, error) {
	p := &programs{bounds: map[*graph.Program]int64{}}
	var warnings []string
	var parameters []*graph.Variable
	var err error
	if p.check, err = graph.ParseCheckLevel(c.config.ActivationCheckpoint.Check); err != nil {
		return nil, nil, err
	}
	n := c.config.Training.Microbatches()
	ranks := c.ends.data != nil
	graphs, into := make([]*graph.Graph, 1), []**graph.Program{&p.first}
	if graphs[0], parameters, warnings, err = c.accumulate(false, ranks && n == 1); err != nil {
		return nil, nil, err
	}
	further := func(program **graph.Program, reduce bool) {
		var g *graph.Graph
		if g, _, _, err = c.accumulate(true, reduce); err == nil {
			graphs, into = append(graphs, g), append(into, program)
		}
	}
	if n > 2 || n == 2 && !ranks {
		if further(&p.more, false); err != nil {
			return nil, nil, err
		}
	}
	if n > 1 && ranks {
		if further(&p.last, true); err != nil {
			return nil, nil, err
		}
	}
	if p.norm, err = c.norm(parameters); err != nil {
		return nil, nil, err
	}
	if p.update, p.rates, err = c.update(parameters, graphs[0]); err != nil {
		return nil, nil, err
	}
	if c.config.Validation.Enable {
		if p.evaluate, err = c.evaluate(); err != nil {
			return nil, nil, err
		}
	}
	// What is left of a budget is known now that every variable is.
	planned, bounds, err := c.plan(graphs, p.all())
	if err != nil {
		return nil, nil, err
	}
	for i, q := range planned {
		*into[i] = q
		if c.budget != nil {
			p.bounds[q] = bounds[i]
		}
	}
	return p, warnings, nil
}

// accumulate is forward and backward of one microbatch. The first of a step
// overwrites the gradients, which the compiler then computes right where they
// belong, lending their memory to activations until then; further ones add. With
// reduce the gradients are summed over the ranks.
func (c *compiler) accumulate(add, reduce bool) (*graph.Graph, []*graph.Variable, []string, error) {
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
	if reduce {
		c.reduce(b, parameters)
	}
	g, err := b.Graph()
	return g, parameters, b.Warnings(), err
}

func (c *compiler) inputs(b *graph.Builder, training bool) Inputs {
	rows, columns := c.config.Training.LocalBatchSize, c.config.Training.SeqLen
	return Inputs{
		Tokens:        b.Input("tokens", device.Int32, rows, columns),
		Labels:        b.Input("labels", device.Int32, rows, columns),
		Positions:     b.Input("positions", device.Int32, rows, columns),
		DocumentStart: b.Input("document_start", device.Int32, rows, columns),
		Scale:         b.Input("scale", c.dtype),
		Loss:          c.loss,
		Experts:       c.ends.expert,
		Training:      training,
	}
}

// norm leaves the clip factor in a scratch variable for update. The norm itself
// is the output grad_norm, before clipping. Parts of parameters are counted on the ranks
// that hold them, whole ones once.
func (c *compiler) norm(parameters []*graph.Variable) (*graph.Program, error) {
	b := graph.NewUpdate(c.store)
	gradients := map[division][]graph.Value{}
	for _, p := range parameters {
		d := c.layout.divisionOf(p)
		gradients[d] = append(gradients[d], b.Variable(c.store.Variable(gradientPrefix+p.Name)))
	}
	scope := b.Scope("optimizer")
	var squares []graph.Value
	if whole := gradients[division{}]; len(whole) > 0 {
		squares = append(squares, scope.Apply(sumSquares{}, whole...))
	}
	for _, d := range divisions {
		if own := gradients[d]; len(own) > 0 {
			squares = append(squares, collective.AllReduce(scope, c.ends.parts(d), scope.Apply(sumSquares{}, own...)).Wait())
		}
	}
	norm := scope.Apply(rootSum{dtype: c.dtype}, squares...)
	b.Output("grad_norm", norm)
	if most := c.config.Training.MaxNorm; most > 0 {
		factor := scope.Apply(clipFactor{max: most}, norm)
		b.Assign(b.Scratch(clipVariable, c.dtype), factor)
	}
	return compileBuilt(b)
}

// update changes every parameter by its optimizer, then its moving average. Of first it
// takes what parameters are used for.
func (c *compiler) update(parameters []*graph.Variable, first *graph.Graph) (*graph.Program, []rate, error) {
	assigned, err := c.assign(parameters, rolesOf(first))
	if err != nil {
		return nil, nil, fmt.Errorf("train: config: %w", err)
	}
	b := graph.NewUpdate(c.store)
	rates := newRates(b, c.config.Optimizer.LR)
	clip := graph.None
	if c.config.Training.MaxNorm > 0 {
		clip = b.Variable(c.store.Variable(clipVariable))
	}
	for i, p := range parameters {
		scope := b.Scope("optimizer", p.Name)
		assigned[i].optimizer.Apply(scope, Update{
			Parameter:    p,
			Value:        b.Variable(p),
			Gradient:     b.Variable(c.store.Variable(gradientPrefix + p.Name)),
			ClipFactor:   clip,
			LearningRate: rates.value(assigned[i].lr),
		})
		if decay := c.config.Optimizer.EMADecay; decay > 0 {
			scope.Apply(movingAverage{decay: decay}, b.Variable(p), b.StateLike(averagePrefix, p, graph.Zeros))
		}
	}
	if m, ok := c.model.(Balanced); ok {
		moe.Balance(b, c.ends.sameSequences(), m.BalanceStep())
	}
	update, err := compileBuilt(b)
	return update, rates.list, err
}

// assign gives each parameter its optimizer.
func (c *compiler) assign(parameters []*graph.Variable, of roles) ([]assignment, error) {
	if c.optimizer == nil {
		return c.config.Optimizer.assign(parameters, of)
	}
	if len(c.config.Optimizer.Groups) > 0 {
		return nil, fmt.Errorf("optimizer.groups: the program that trains brings an optimizer of its own, %s; remove the groups", c.optimizer.Name())
	}
	return slices.Repeat([]assignment{{c.optimizer, c.config.Optimizer.LR}}, len(parameters)), nil
}

// evaluate is the forward pass on held-out data.
func (c *compiler) evaluate() (*graph.Program, error) {
	b := graph.New(c.store)
	if c.config.Validation.UseEMA {
		b.Replace(func(p *graph.Variable) *graph.Variable { return c.store.Variable(averagePrefix + p.Name) })
	}
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
func newCompiler(c Config, o Options, store *graph.Store, e ends) (*compiler, error) {
	dtype, err := device.ParseDType(c.Training.DType)
	if err != nil {
		return nil, fmt.Errorf("train: config: training.dtype: %w", err)
	}
	m := o.Model
	if m == nil {
		if m, err = newModel(c, dtype); err != nil {
			return nil, err
		}
	}
	l := newLayout(c.Parallelism)
	if err := errors.Join(l.checkExperts(m), l.checkTensors(m, o.Loss)); err != nil {
		return nil, err
	}
	return &compiler{config: c, layout: l, model: m, dtype: dtype, store: store, ends: e, loss: o.Loss, optimizer: o.Optimizer, copyCosts: o.copyCosts()}, nil
}
