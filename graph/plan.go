package graph

import (
	"fmt"
	"hash/fnv"
)

// Choice is what a plan does with the results of a forward node that backward
// needs.
type Choice uint8

const (
	// Save keeps the results in memory from forward to backward.
	Save Choice = iota
	// Rerun drops them after forward and runs the node again before backward.
	Rerun
	// Offload copies them out of the arena after their last use in forward, and back
	// before their first use in backward. Results on the host are saved, and so is an
	// asynchronous one that nobody waits for in forward.
	Offload
)

func (c Choice) String() string { return [...]string{"save", "rerun", "offload"}[c] }

// Plan says for every forward node whether its results are saved, rerun or offloaded.
// What backward does not need is none of these, whatever the plan says.
type Plan struct {
	// Pace places the copies of what is offloaded; with nil each is waited for where it
	// sets out.
	Pace Pace

	// Entries are indexed by Node.ID; nodes that are not computed in forward have
	// the zero Entry.
	Entries []Entry
}

// Entry is the plan for one node, and who decided it.
type Entry struct {
	Choice Choice
	By     Decider
	// Why names the rule or policy that decided, such as "policy of region layers.0"
	// or "rule: a side effect happens once".
	Why string
	// Decision is the answer of the policy, Auto if none was asked.
	Decision Decision
}

// Decider is who made a choice.
type Decider uint8

const (
	// Nobody was asked, or had an answer: the value is saved, as in plain
	// differentiation.
	Nobody Decider = iota
	// Pattern, List and PolicyAnswer are the user's: forced patterns, lists of names,
	// policies of regions.
	Pattern
	List
	PolicyAnswer
	// Rule is what no answer can change, Default a rule that gives way to a name.
	Rule
	Default
	// Leader decides for the views and waits that follow it.
	Leader
	// Budget of memory: a planner decided.
	Budget
)

// SaveAll is the plan without any checkpointing.
func SaveAll(g *Graph) *Plan {
	p := &Plan{Entries: make([]Entry, len(g.Nodes))}
	for _, n := range g.Nodes {
		if n.IsOp() && n.Phase == Forward {
			p.Entries[n.ID].Why = "no plan"
		}
	}
	return p
}

// Hash identifies the decisions; ranks compare it before the first step.
func (p *Plan) Hash() uint64 {
	h := fnv.New64a()
	for i, e := range p.Entries {
		fmt.Fprintf(h, "%d:%d;", i, e.Choice)
	}
	return h.Sum64()
}

// check reports what no plan may do.
func (p *Plan) check(g *Graph) error {
	if len(p.Entries) != len(g.Nodes) {
		return fmt.Errorf("graph: the plan has %d entries for a graph of %d nodes: it was made for another graph", len(p.Entries), len(g.Nodes))
	}
	for _, n := range g.Nodes {
		if p.Entries[n.ID].Choice == Rerun && (n.Effects.Has(SideEffect) || n.Effects.Has(Discrete) || n.Phase != Forward || !n.IsOp()) {
			return fmt.Errorf("graph: %s: the plan reruns a node that must run once (%s, %v)", n.Name, n.Kind, n.Phase)
		}
	}
	return nil
}
