package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/pattern"
)

// assignment is what changes one parameter, and its peak learning rate.
type assignment struct {
	optimizer Optimizer
	lr        float64
}

// assign gives each parameter its optimizer, with the values of the first group that
// its name belongs to.
func (c OptimizerConfig) assign(parameters []*graph.Variable, of roles) ([]assignment, error) {
	groups, err := parseGroups(c.Groups)
	if err != nil {
		return nil, err
	}
	list := make([]assignment, len(parameters))
	for i, p := range parameters {
		own, r := c, of[p.Name]
		matrix := len(p.Global) == 2 || len(p.Global) == 3
		muon := matrix && !r.embedding && !r.output
		if c.NoDecayNormEmbedding && (len(p.Global) < 2 || r.embedding) {
			own.WeightDecay = 0
		}
		if g := groups.find(p.Name); g != nil {
			own.set(g.values)
			muon = muon || matrix && g.values.Name != ""
		}
		if own.Name == muonName && !muon {
			own.Name = adamWName
		}
		list[i] = assignment{own.optimizer(), own.LR}
	}
	return list, groups.check(parameters)
}

// set takes over what a group sets.
func (c *OptimizerConfig) set(g OptimizerGroup) {
	if g.Name != "" {
		c.Name = g.Name
	}
	for _, x := range []struct {
		to   *float64
		from *float64
	}{
		{&c.LR, g.LR}, {&c.Beta1, g.Beta1}, {&c.Beta2, g.Beta2}, {&c.Eps, g.Eps},
		{&c.WeightDecay, g.WeightDecay}, {&c.Momentum, g.Momentum},
	} {
		if x.from != nil {
			*x.to = *x.from
		}
	}
}

const (
	adamWName = "AdamW"
	adamName  = "Adam"
	sgdName   = "SGD"
	muonName  = "Muon"
)

// optimizer is the one that c names.
func (c OptimizerConfig) optimizer() Optimizer {
	switch c.Name {
	case adamName:
		return Adam{Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps, WeightDecay: c.WeightDecay}
	case sgdName:
		return SGD{Momentum: c.Momentum, WeightDecay: c.WeightDecay, Nesterov: c.Nesterov}
	case muonName:
		return Muon{Momentum: c.Momentum, WeightDecay: c.WeightDecay, Nesterov: c.Nesterov, AdjustLR: c.MuonAdjustLR}
	}
	return AdamW{Beta1: c.Beta1, Beta2: c.Beta2, Eps: c.Eps, WeightDecay: c.WeightDecay}
}

// roles tell what a graph uses parameters for, by name.
type roles map[string]role

// role of a parameter; a tied one has both.
type role struct {
	embedding bool // rows of it are looked up
	output    bool // it makes the logits
}

func rolesOf(g *graph.Graph) roles {
	of := roles{}
	for _, n := range g.Nodes {
		for _, e := range n.In {
			base := e.Base().Node
			if base.Kind == "all_gather" {
				base = base.In[0].Base().Node // a parameter of which each rank has a part
			}
			v := base.Variable
			if v == nil || v.Kind != graph.Parameter {
				continue
			}
			r := of[v.Name]
			r.embedding = r.embedding || n.Kind == "embedding"
			r.output = r.output || n.Kind == "output_loss"
			of[v.Name] = r
		}
	}
	return of
}

// group is an OptimizerGroup and what has come of it.
type group struct {
	values  OptimizerGroup
	index   int
	pattern pattern.Pattern
	taken   bool // a parameter belongs to it
}

type groups []*group

func parseGroups(list []OptimizerGroup) (groups, error) {
	var gs groups
	for i, values := range list {
		p, err := pattern.Parse(values.Pattern)
		if err != nil {
			return nil, fmt.Errorf("optimizer.groups[%d].pattern: %w", i, err)
		}
		gs = append(gs, &group{values: values, index: i, pattern: p})
	}
	return gs, nil
}

func (g *group) matches(name string) bool {
	matched, _ := g.pattern.Match(name)
	return matched
}

// find returns the group that a parameter belongs to, or nil.
func (gs groups) find(name string) *group {
	for _, g := range gs {
		if g.matches(name) {
			g.taken = true
			return g
		}
	}
	return nil
}

// check reports the first group without parameters.
func (gs groups) check(parameters []*graph.Variable) error {
	names := make([]string, len(parameters))
	for i, p := range parameters {
		names[i] = p.Name
	}
	for _, g := range gs {
		if g.taken {
			continue
		}
		key := fmt.Sprintf("optimizer.groups[%d].pattern: %q", g.index, g.values.Pattern)
		if i := slices.IndexFunc(names, g.matches); i >= 0 {
			earlier := gs.find(names[i])
			return fmt.Errorf("%s matches only parameters of earlier groups, such as %s of %q: the first match wins; put it before that", key, names[i], earlier.values.Pattern)
		}
		near := g.pattern.Near(names)
		if len(near) == 0 {
			return fmt.Errorf("%s matches no parameter; parameters are called like %s", key, names[0])
		}
		return fmt.Errorf("%s matches no parameter; near names: %s", key, strings.Join(near, ", "))
	}
	return nil
}

// rate is a learning rate of the update Program: the input that is fed with it, and its
// peak.
type rate struct {
	input string
	peak  float64
}

// rates are the different learning rates of a Program that is being built.
type rates struct {
	b      *graph.Builder
	list   []rate
	values []graph.Value
}

// newRates begins with that of [optimizer], even if groups leave nothing to it.
func newRates(b *graph.Builder, lr float64) *rates {
	r := &rates{b: b}
	r.value(lr)
	return r
}

// value is the input for a peak.
func (r *rates) value(peak float64) graph.Value {
	if i := slices.IndexFunc(r.list, func(x rate) bool { return x.peak == peak }); i >= 0 {
		return r.values[i]
	}
	name := "lr"
	if n := len(r.list); n > 0 {
		name = fmt.Sprintf("lr.%d", n)
	}
	r.list = append(r.list, rate{name, peak})
	r.values = append(r.values, r.b.HostInput(name, device.Float64))
	return r.values[len(r.values)-1]
}
