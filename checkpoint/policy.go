package checkpoint

import (
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/graph"
)

// Policy decides about one node of a region. It is called in construction
// order, once for each forward op that no region inside has decided about.
// Views and waits are not asked about: they follow what they read.
type Policy = graph.Policy

// Candidate is what a Policy may know about a node: its name, scope, kind, specs,
// cost, bytes and tags. Index counts the nodes of the same kind that the region
// was asked about before, without the forced ones: in an outer region, those
// that an inner one decided are not counted either.
type Candidate = graph.Candidate

// Decision is what a policy says about a node.
type Decision = graph.Decision

// Plan is what Resolve makes and graph.Compile takes.
type Plan = graph.Plan

// The decisions. Without a byte budget, Prefer differs from Must in one thing:
// PreferRecompute does not rerun collectives and host results. What is offloaded waits
// outside the arena, in a device.Spill, from its last use in forward to its first in backward.
const (
	Auto            = graph.Auto
	MustSave        = graph.MustSave
	PreferSave      = graph.PreferSave
	MustRecompute   = graph.MustRecompute
	PreferRecompute = graph.PreferRecompute
	MustOffload     = graph.MustOffload
	PreferOffload   = graph.PreferOffload
)

// Region runs f; every node built in it belongs to a region with the given
// policy.
func Region(b *graph.Builder, policy Policy, f func()) { b.Region(policy, f) }

// Name tags v for SaveNames, Override, Options.Save and Options.Rerun, and
// returns v. Tags belong to an op: they count for all of its outputs.
func Name(v graph.Value, tag string) graph.Value {
	return graph.At(v).Tag(v, tag)
}

// None saves everything, also inside a region that would recompute. What
// backward reads is kept, as in plain differentiation.
func None() Policy {
	return func(Candidate) Decision { return MustSave }
}

// Full recomputes everything: only what enters the region is kept, and what the
// rules protect.
func Full() Policy {
	return func(Candidate) Decision { return PreferRecompute }
}

// Budget leaves every node to the Planner, which finds what is best to rerun within a
// number of bytes. Without a Planner everything is saved.
func Budget() Policy {
	return func(Candidate) Decision { return Auto }
}

// SaveKinds saves the ops of the given kinds, such as "attention", and
// recomputes all others.
func SaveKinds(kinds ...string) Policy {
	kinds = slices.Clone(kinds)
	return func(c Candidate) Decision {
		if slices.Contains(kinds, c.Kind) {
			return MustSave
		}
		return PreferRecompute
	}
}

// SaveNames saves the values that carry one of the given tags (see Name) and
// recomputes all others.
func SaveNames(tags ...string) Policy {
	tags = slices.Clone(tags)
	return func(c Candidate) Decision {
		if slices.ContainsFunc(tags, c.Tagged) {
			return MustSave
		}
		return PreferRecompute
	}
}

// Offload moves away what p would keep: offloading in place of saving, with the same
// force, and the same reruns.
func Offload(p Policy) Policy {
	return func(c Candidate) Decision {
		switch d := p(c); d {
		case MustSave:
			return MustOffload
		case PreferSave:
			return PreferOffload
		default:
			return d
		}
	}
}

// First asks the policies in turn and returns the first answer that is not
// Auto.
func First(policies ...Policy) Policy {
	policies = slices.Clone(policies)
	return func(c Candidate) Decision {
		for _, p := range policies {
			if d := p(c); d != Auto {
				return d
			}
		}
		return Auto
	}
}

// Override decides by name, and asks p about the rest. The keys are kinds and
// tags. If two of them name the same node, their decisions must agree on saving,
// recomputing or offloading it: Resolve returns an error that names both otherwise.
//
//	checkpoint.Override(checkpoint.Selective(), map[string]checkpoint.Decision{
//		"matmul":     checkpoint.MustSave,      // all of them, not every second
//		"all_to_all": checkpoint.MustRecompute, // communicate again
//	})
func Override(p Policy, byName map[string]Decision) Policy {
	names := make([]string, 0, len(byName))
	for name := range byName {
		names = append(names, name)
	}
	slices.Sort(names)
	decisions := make([]Decision, len(names))
	for i, name := range names {
		decisions[i] = byName[name]
	}
	return func(c Candidate) Decision {
		first := -1
		for i, name := range names {
			if name != c.Kind && !c.Tagged(name) {
				continue
			}
			if first >= 0 && opposed(decisions[first], decisions[i]) {
				// A Decision has no room for an error; Resolve catches this.
				panic(conflict{names[first], name, decisions[first], decisions[i]})
			}
			if first < 0 || stronger(decisions[i], decisions[first]) {
				first = i
			}
		}
		if first < 0 || decisions[first] == Auto {
			return p(c)
		}
		return decisions[first]
	}
}

// conflict is two names that give one node opposite decisions.
type conflict struct {
	a, b   string
	da, db Decision
}

func (c conflict) Error() string {
	return fmt.Sprintf("%q says %v, %q says %v; remove one, or let them agree", c.a, c.da, c.b, c.db)
}

// opposed reports whether no plan could follow both.
func opposed(a, b Decision) bool { return a != Auto && b != Auto && arm(a) != arm(b) }

// stronger reports whether a says the same as b with more force.
func stronger(a, b Decision) bool { return b == Auto && a != Auto || must(a) && !must(b) }

func must(d Decision) bool { return d == MustSave || d == MustRecompute || d == MustOffload }

// arm is d with the strength of a Must.
func arm(d Decision) Decision {
	switch d {
	case PreferSave:
		return MustSave
	case PreferRecompute:
		return MustRecompute
	case PreferOffload:
		return MustOffload
	}
	return d
}
