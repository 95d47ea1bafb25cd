package train

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/page"
)

// decision is what became of the values of one region, operation, fate and decider.
type decision struct {
	kind, fate, by string
	values         int
	bytes          int64
	flops          float64
}

// decided are the decisions about a region, in the order of its values.
type decided struct {
	region    string
	decisions []decision
}

// decisionTable sums the explanation, layer by layer; layers about which all was decided
// alike are told once.
func decisionTable(r checkpoint.Report) page.Table {
	t := page.Table{Caption: "What becomes of forward values, and who decided", Columns: []string{"region", "operation", "values", "fate", "bytes", "one run", "decided by"}}
	type alike struct {
		first, last *decided
		count       int
	}
	var order []string
	groups := map[string]*alike{}
	all := decisionsOf(r)
	for i := range all {
		d := &all[i]
		key := d.anyLayer()
		if groups[key] == nil {
			groups[key] = &alike{first: d}
			order = append(order, key)
		}
		groups[key].last = d
		groups[key].count++
	}
	for _, key := range order {
		g := groups[key]
		region := g.first.region
		if g.count > 1 {
			region = fmt.Sprintf("%s to %s, %d alike, each", region, g.last.region, g.count)
		}
		for _, d := range g.first.decisions {
			t.Rows = append(t.Rows, []string{region, d.kind, fmt.Sprint(d.values), d.fate, formatBytes(d.bytes), formatFLOPs(d.flops), d.by})
		}
	}
	return t
}

func decisionsOf(r checkpoint.Report) []decided {
	var all []decided
	places := map[string]int{}
	for _, l := range r.Lines {
		if l.Fate == checkpoint.Shared {
			continue
		}
		region := regionOf(l.Node)
		at, ok := places[region]
		if !ok {
			at = len(all)
			places[region] = at
			all = append(all, decided{region: region})
		}
		by, _, _ := strings.Cut(l.Entry.Why, " by ") // whom a rule names is another in each layer
		all[at].add(decision{kind: l.Node.Kind, fate: l.Fate.String(), by: by, values: 1, bytes: l.Bytes, flops: l.FLOPs})
	}
	return all
}

func (d *decided) add(n decision) {
	for i := range d.decisions {
		if o := &d.decisions[i]; o.kind == n.kind && o.fate == n.fate && o.by == n.by {
			o.values, o.bytes, o.flops = o.values+1, o.bytes+n.bytes, o.flops+n.flops
			return
		}
	}
	d.decisions = append(d.decisions, n)
}

// anyLayer is the same for regions whose names and decisions differ in numbers of layers
// alone.
func (d *decided) anyLayer() string {
	parts := strings.Split(d.region, ".")
	for i, p := range parts {
		if _, err := strconv.Atoi(p); err == nil {
			parts[i] = "*"
		}
	}
	name := strings.Join(parts, ".")
	var b strings.Builder
	b.WriteString(name)
	for _, x := range d.decisions {
		x.by = strings.ReplaceAll(x.by, d.region, name)
		fmt.Fprintf(&b, "\n%+v", x)
	}
	return b.String()
}

// trafficTable sums what a rank hands over to others in one microbatch.
func trafficTable(p *graph.Program) page.Table {
	t := page.Table{Caption: "What a rank hands over in one microbatch at most, by operation and pass", Columns: []string{"operation", "pass", "calls", "bytes", "the largest", "of it"}}
	type key struct {
		kind string
		pass graph.Pass
	}
	type sum struct {
		calls   int
		bytes   int64
		largest int64
		node    *graph.Node
	}
	var order []key
	sums := map[key]*sum{}
	for _, s := range p.Steps {
		if !s.Computes() || !s.Node.Effects.Has(graph.Collective) {
			continue
		}
		k := key{s.Node.Kind, s.Pass()}
		if sums[k] == nil {
			sums[k] = &sum{}
			order = append(order, k)
		}
		n := int64(s.Node.Cost.BytesRead)
		x := sums[k]
		x.calls, x.bytes = x.calls+1, x.bytes+n
		if n >= x.largest {
			x.largest, x.node = n, s.Node
		}
	}
	for _, k := range order {
		x := sums[k]
		t.Rows = append(t.Rows, []string{k.kind, k.pass.String(), fmt.Sprint(x.calls), formatBytes(x.bytes), formatBytes(x.largest), x.node.Name + " " + joinSpecs(x.node.Out)})
	}
	return t
}
