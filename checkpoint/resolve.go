package checkpoint

import (
	"errors"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/graph"
)

// Resolve asks the policies of the graph's regions, applies the options and the
// rules (see the package documentation), and returns a plan with an entry for
// every computed forward node. The order of asking is the order of construction,
// so equal graphs give equal plans on every rank.
//
// Errors name the node and the region: a policy that panics or answers what
// cannot be done, two answers of the same rank that contradict each other, a
// name in the options that changes nothing.
func Resolve(g *graph.Graph, o Options) (*graph.Plan, error) {
	names, err := parseNames(o)
	if err != nil {
		return nil, err
	}
	r := &resolver{forward: newForward(g), names: names, index: map[place]int{}}
	plan := &graph.Plan{Pace: o.Pace, Entries: make([]graph.Entry, len(g.Nodes))}
	for _, n := range r.nodes {
		if l := r.leader[n.ID]; l != n {
			r.names.follow(n)
			plan.Entries[n.ID] = graph.Entry{Choice: plan.Entries[l.ID].Choice, By: graph.Leader, Why: "rule: " + follower(n) + l.Name}
			continue
		}
		verdict, err := r.decide(n)
		if err != nil {
			return nil, err
		}
		plan.Entries[n.ID] = verdict.Entry
	}
	if err := r.names.check(r.nodes); err != nil {
		return nil, err
	}
	return plan, nil
}

func follower(n *graph.Node) string {
	if _, ok := n.Op.(graph.Waiter); ok {
		return "a wait follows "
	}
	return "a view follows "
}

// resolver makes one plan.
type resolver struct {
	*forward
	names *names
	index map[place]int
}

// place is what Candidate.Index counts in.
type place struct {
	region *graph.Region
	kind   string
}

// verdict is an entry in the making.
type verdict struct {
	graph.Entry
	region *graph.Region // that a reader must be in for the border rule to hold
	meant  bool          // a rerun that default rules give way to
}

func (r *resolver) decide(n *graph.Node) (verdict, error) {
	c := graph.Candidate{Node: r.withTags(n)}
	v, err := r.asked(c)
	if err == nil && v.Choice == graph.Offload {
		against := r.staysPut(n)
		r.names.settle(c.Node, against)
		v.refuse(against)
		return v, nil
	}
	if err != nil || v.Choice == graph.Save && runsOnce(n).none() {
		r.names.settle(c.Node, refusal{})
		return v, err
	}
	against := runsOnce(n)
	if against.none() && !v.meant {
		against = r.savedByDefault(n)
	}
	r.names.settle(c.Node, against)
	if against.none() {
		// Not a refusal of the name: inside the region the value may be dropped.
		against = r.readOutside(n, v.region)
	}
	v.refuse(against)
	return v, nil
}

// refuse saves what a rule speaks against rerunning or offloading.
func (v *verdict) refuse(against refusal) {
	if !against.none() {
		v.Choice, v.By, v.Why = graph.Save, against.by, against.why
	}
}

// asked is what patterns, lists and policies say about a node, before the rules.
func (r *resolver) asked(c graph.Candidate) (verdict, error) {
	pattern, kind := r.names.forced(c.Node)
	c.Forced = pattern != nil
	listed, err := r.names.listed(c.Node)
	if err != nil {
		return verdict{}, err
	}
	v, err := r.askRegions(c)
	if err != nil {
		return verdict{}, err
	}
	v.meant = v.meant || kind || listed != nil && listed.list == "rerun"
	switch {
	case pattern != nil:
		v.Choice, v.By, v.Why, v.region = graph.Rerun, graph.Pattern, pattern.String(), c.Region
	case listed != nil:
		v.Choice, v.By, v.Why, v.region = listed.choice(), graph.List, listed.String(), c.Region
	}
	return v, nil
}

// askRegions asks the node's regions from the inside out until one has an
// answer.
func (r *resolver) askRegions(c graph.Candidate) (verdict, error) {
	for region := c.Region; region != nil; region = region.Parent {
		at := place{region, c.Kind}
		c.Index = r.index[at]
		d, err := ask(region, c)
		if err != nil {
			return verdict{}, err
		}
		if !c.Forced {
			r.index[at]++
		}
		if d != Auto {
			v := verdict{region: region, meant: d == MustRecompute}
			v.Decision, v.By, v.Why = d, graph.PolicyAnswer, "policy of "+describe(region)
			switch arm(d) {
			case MustRecompute:
				v.Choice = graph.Rerun
			case MustOffload:
				v.Choice = graph.Offload
			}
			return v, nil
		}
	}
	why := "no region"
	if c.Region != nil {
		why = "no policy decided"
	}
	return verdict{Entry: graph.Entry{Why: why}, region: c.Region}, nil
}

// ask calls a region's policy, which is the user's code.
func ask(region *graph.Region, c graph.Candidate) (d graph.Decision, err error) {
	defer func() {
		problem := recover()
		if problem == nil {
			return
		}
		if e, ok := problem.(error); ok && errors.As(e, &conflict{}) {
			err = fmt.Errorf("checkpoint: %s: conflict in the policy of %s: %w", c.Name, describe(region), e)
			return
		}
		err = fmt.Errorf("checkpoint: %s: the policy of %s panicked: %v", c.Name, describe(region), problem)
	}()
	if region.Policy == nil {
		return Auto, fmt.Errorf("checkpoint: %s has no policy: nil; use checkpoint.None() to save everything", describe(region))
	}
	switch d = region.Policy(c); d {
	case Auto, MustSave, PreferSave, MustRecompute, PreferRecompute, MustOffload, PreferOffload:
		return d, nil
	}
	return Auto, fmt.Errorf("checkpoint: %s: the policy of %s answers Decision(%d), which does not exist; answer one of checkpoint's constants",
		c.Name, describe(region), uint8(d))
}

// describe names a region by the scope and the line that opened it.
func describe(r *graph.Region) string {
	scope := "region"
	if r.Scope != "" {
		scope = "region " + r.Scope
	}
	if r.Source == "" {
		return scope
	}
	return scope + " (" + r.Source + ")"
}

// withTags returns n with the tags of its views and waits, which name the same
// value. The graph's own node is left as it is.
func (r *resolver) withTags(n *graph.Node) *graph.Node {
	more := r.tags[n.ID]
	if len(more) == 0 {
		return n
	}
	tagged := *n
	tagged.Tags = slices.Concat(n.Tags, more)
	return &tagged
}
