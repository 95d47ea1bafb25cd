package checkpoint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/pattern"
)

// Options are the decisions a user makes by name, in the configuration, and how fast
// copies are. The zero value leaves all to the regions' policies. A name that changes
// nothing is an error, so that a misspelt one is noticed.
type Options struct {
	// ForceRecompute are patterns of fully qualified names whose values are
	// computed again. A pattern is split at the dots and matches where consecutive
	// segments of a name equal its own, one for one. "*" equals any one segment.
	// The last segment of a name, such as "matmul:1", is equalled with or without
	// its index. "moe.router.gate" therefore names every op in a scope
	// moe.router.gate, at any depth.
	ForceRecompute []string
	// Save are kinds of ops, or tags of values, that are kept.
	Save []string
	// Rerun are kinds of ops, or tags of values, that are computed again.
	Rerun []string
	// Offload are kinds of ops, or tags of values, that wait outside the arena: always under
	// Resolve, and where that pays under a Planner that knows the Pace. In this list and the
	// two before "*" names all that none of them names otherwise.
	Offload []string
	// Pace places the copies of what is offloaded; see graph.Plan.
	Pace graph.Pace
	// Counts are live rows of the graph at which a Planner counts bytes and costs: a plan
	// is within its budget with as many. Missing ones are the bounds.
	Counts graph.Counts
}

// name is one entry of Options, and what has come of it.
type name struct {
	list string // key of the configuration
	text string
	segs pattern.Pattern // of a force_recompute entry

	follower *graph.Node // a view or wait it names
	refused  *graph.Node // an op it names and does not decide about
	refusal  refusal     // rule that did
	obeyed   bool
}

func (e *name) String() string { return fmt.Sprintf("%s %q", e.list, e.text) }

// names are all entries of Options.
type names struct{ force, save, rerun, offload []*name }

func parseNames(o Options) (*names, error) {
	ns := &names{}
	for _, text := range o.ForceRecompute {
		p, err := pattern.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: force_recompute: %w", err)
		}
		ns.force = append(ns.force, &name{list: "force_recompute", text: text, segs: p})
	}
	for _, l := range []struct {
		key   string
		texts []string
		to    *[]*name
	}{{"save", o.Save, &ns.save}, {"rerun", o.Rerun, &ns.rerun}, {"offload", o.Offload, &ns.offload}} {
		for _, text := range l.texts {
			if text == "" {
				return nil, fmt.Errorf("checkpoint: %s: an entry is empty; write a kind such as %q, or a tag", l.key, "attention")
			}
			*l.to = append(*l.to, &name{list: l.key, text: text})
		}
	}
	return ns, nil
}

func (ns *names) all() []*name { return slices.Concat(ns.force, ns.save, ns.rerun, ns.offload) }

// forced returns the pattern that names n, or nil, and whether it names the kind
// too. Of several it is one that does, if there is one.
func (ns *names) forced(n *graph.Node) (by *name, kind bool) {
	for _, e := range ns.force {
		m, k := e.segs.Match(n.Name)
		if m && (by == nil || k && !kind) {
			by, kind = e, k
		}
	}
	return by, kind
}

// everything is an entry that names all that no other entry names.
const everything = "*"

// listed returns the entry of the lists that names n by kind or tag, or else the one that
// names everything, or nil.
func (ns *names) listed(n *graph.Node) (*name, error) {
	by, err := ns.find(n, func(e *name) bool { return e.text != everything && e.names(n) })
	if by == nil && err == nil {
		by, err = ns.find(n, func(e *name) bool { return e.text == everything })
	}
	return by, err
}

func (ns *names) find(n *graph.Node, means func(*name) bool) (*name, error) {
	var by *name
	for _, list := range [][]*name{ns.save, ns.rerun, ns.offload} {
		i := slices.IndexFunc(list, means)
		if i < 0 {
			continue
		}
		e := list[i]
		if by != nil {
			return nil, fmt.Errorf("checkpoint: %s: conflict: %v names it (%s), and so does %v (%s); remove one of the two",
				n.Name, by, how(by, n), e, how(e, n))
		}
		by = e
	}
	return by, nil
}

// choice that an entry of a list makes.
func (e *name) choice() graph.Choice {
	switch e.list {
	case "rerun":
		return graph.Rerun
	case "offload":
		return graph.Offload
	}
	return graph.Save
}

// names reports whether the entry means n.
func (e *name) names(n *graph.Node) bool {
	if e.segs != nil {
		m, _ := e.segs.Match(n.Name)
		return m
	}
	return e.text == everything || e.text == n.Kind || n.Tagged(e.text)
}

func how(e *name, n *graph.Node) string {
	switch e.text {
	case everything:
		return "everything"
	case n.Kind:
		return "a kind"
	}
	return "a tag"
}

// settle notes for every entry that names n whether it was followed; why is
// the rule that stood against rerunning or offloading n, if any.
func (ns *names) settle(n *graph.Node, why refusal) {
	for _, e := range ns.all() {
		if !e.names(n) {
			continue
		}
		if why.none() || e.list == "save" {
			e.obeyed = true
		} else if e.refused == nil {
			e.refused, e.refusal = n, why
		}
	}
}

// follow notes that the entries mean a view or wait.
func (ns *names) follow(n *graph.Node) {
	for _, e := range ns.all() {
		if e.names(n) && e.follower == nil {
			e.follower = n
		}
	}
}

// check reports the first entry that changed nothing.
func (ns *names) check(nodes []*graph.Node) error {
	for _, e := range ns.all() {
		switch {
		case e.obeyed:
		case e.refused != nil:
			return fmt.Errorf("checkpoint: %s: %v has no effect: %s (%s); remove it%s",
				e.refused.Name, e, e.refusal.why, e.refused.Kind, e.hint())
		case e.follower != nil:
			return fmt.Errorf("checkpoint: %s: %v has no effect: it names only views and waits (%s), which follow the value they read; name that value",
				e.follower.Name, e, e.follower.Kind)
		default:
			return fmt.Errorf("checkpoint: %v matches nothing in the forward graph%s", e, e.suggest(nodes))
		}
	}
	return nil
}

// hint says how a pattern could name a kind.
func (e *name) hint() string {
	if e.segs == nil || e.refusal.by != graph.Default {
		return ""
	}
	return fmt.Sprintf(", or name the kind: %q", e.text+"."+e.refused.Kind)
}

func (e *name) suggest(nodes []*graph.Node) string {
	var close []string
	if e.segs != nil {
		close = e.segs.Near(nodeNames(nodes))
	} else {
		known := map[string]bool{}
		for _, n := range nodes {
			known[n.Kind] = true
			for _, t := range n.Tags {
				known[t] = true
			}
		}
		close = pattern.Nearest(e.text, known)
	}
	if len(close) == 0 {
		return "; remove it, or see the names in the plan's report"
	}
	return "; near names: " + strings.Join(close, ", ")
}

func nodeNames(nodes []*graph.Node) []string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = n.Name
	}
	return names
}
