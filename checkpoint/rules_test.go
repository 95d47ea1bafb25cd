package checkpoint_test

import (
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// In these models the op z ends a region: its value crosses the border and is
// saved.
func TestRules(t *testing.T) {
	inRegion := func(p checkpoint.Policy, kinds ...string) func(*graph.Builder, graph.Value) graph.Value {
		return func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b.Scope("r"), p, func() { x = chain(b.Scope("r"), x, kinds...) })
			return x
		}
	}
	full, must := checkpoint.Full(), always(checkpoint.MustRecompute)
	routed := func(p checkpoint.Policy) func(*graph.Builder, graph.Value) graph.Value {
		return func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b.Scope("r"), p, func() {
				b := b.Scope("r")
				ids := op(b, "topk", x)
				counts := op(b, "count", ids)
				local := op(b, "offsets", counts)
				splits := op(b, "to_host", op(b, "view", counts))
				x = chain(b, op(b, "dispatch", x, splits, local), "z")
			})
			return x
		}
	}
	for _, test := range []struct {
		name    string
		model   func(*graph.Builder, graph.Value) graph.Value
		options checkpoint.Options
		want    string
		why     map[string]string // node → what decided, or its beginning
	}{
		{"random ops may be rerun", inRegion(full, "dropout", "z"), checkpoint.Options{}, "r.dropout", nil},
		{"a choice is made once", routed(must), checkpoint.Options{}, "r.count r.offsets r.view r.to_host r.dispatch",
			map[string]string{"r.topk:0": "rule: a discrete choice"}},
		{"a choice is not for patterns", routed(full), checkpoint.Options{ForceRecompute: []string{"r"}}, "r.offsets r.dispatch",
			map[string]string{"r.topk:0": "rule: a discrete choice", "r.to_host:0": "default: host results"}},
		{"a saved choice names the rule", routed(checkpoint.None()), checkpoint.Options{}, "",
			map[string]string{"r.topk:0": "rule: a discrete choice"}},
		{"host results and counts are saved", routed(full), checkpoint.Options{}, "r.offsets r.dispatch",
			map[string]string{"r.to_host:0": "default: host results", "r.count:0": "default: routing counts",
				"r.view:0": "rule: a view follows r.count:0"}},
		{"unless a list names the kind", routed(full), checkpoint.Options{Rerun: []string{"to_host"}}, "r.offsets r.to_host r.dispatch",
			map[string]string{"r.to_host:0": `rerun "to_host"`}},
		{"or a pattern", routed(full), checkpoint.Options{ForceRecompute: []string{"r.count"}}, "r.count r.offsets r.view r.dispatch",
			map[string]string{"r.count:0": `force_recompute "r.count"`}},
		{"collectives are saved, waits follow", inRegion(full, "a", "all_to_all", "wait", "b", "z"), checkpoint.Options{}, "r.a r.b",
			map[string]string{"r.all_to_all:0": "default: collectives", "r.wait:0": "rule: a wait follows r.all_to_all:0"}},
		{"every kind of them", inRegion(full, "all_gather", "wait", "reduce_scatter", "wait", "broadcast", "wait", "all_reduce", "wait", "b", "z"), checkpoint.Options{}, "r.b",
			map[string]string{"r.all_gather:0": "default: collectives", "r.reduce_scatter:0": "default: collectives",
				"r.broadcast:0": "default: collectives", "r.all_reduce:0": "default: collectives"}},
		{"unless the kind is named", inRegion(full, "all_to_all", "wait", "all_gather", "wait", "b", "z"), checkpoint.Options{Rerun: []string{"all_gather"}},
			"r.all_gather r.wait:1 r.b", nil},
		{"by a policy", inRegion(checkpoint.Override(full, map[string]checkpoint.Decision{"all_gather": checkpoint.MustRecompute}),
			"all_to_all", "wait", "all_gather", "wait", "b", "z"), checkpoint.Options{}, "r.all_gather r.wait:1 r.b", nil},
		{"a scope is not the kind", inRegion(full, "all_to_all", "wait", "b", "z"), checkpoint.Options{ForceRecompute: []string{"r"}}, "r.b", nil},
		{"a scope leaves the list its say", inRegion(full, "all_to_all", "wait", "b", "z"),
			checkpoint.Options{ForceRecompute: []string{"r"}, Rerun: []string{"all_to_all"}}, "r.all_to_all r.wait r.b", nil},
		{"views follow their base", inRegion(full, "a", "view", "view", "b", "z"), checkpoint.Options{}, "r.a r.view r.view:1 r.b",
			map[string]string{"r.view:1": "rule: a view follows r.a:0"}},
		{"views of a saved base", inRegion(checkpoint.SaveKinds("a"), "a", "view", "b", "z"), checkpoint.Options{}, "r.b", nil},
		{"a view of an input", inRegion(full, "view", "a", "z"), checkpoint.Options{}, "r.a",
			map[string]string{"r.view:0": "rule: a view follows x"}},
		{"views cross the border for their base", inRegion(must, "a", "b", "view"), checkpoint.Options{}, "r.a",
			map[string]string{"r.b:0": "rule: it is read outside its region by sum:0"}},
		{"waits cross it for their collective", inRegion(must, "a", "all_to_all", "wait"), checkpoint.Options{}, "r.a",
			map[string]string{"r.all_to_all:0": "rule: it is read outside its region by sum:0"}},
		{"a pattern does not cross it either", inRegion(checkpoint.None(), "a", "z"), checkpoint.Options{ForceRecompute: []string{"r"}}, "r.a", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := build(t, test.model)
			plan := resolve(t, g, test.options)
			if got := reruns(g, plan); got != test.want {
				t.Errorf("reruns %q, want %q", got, test.want)
			}
			for name, why := range test.why {
				if e := entry(t, g, plan, name); !strings.HasPrefix(e.Why, why) {
					t.Errorf("%s: %q, want %q…", name, e.Why, why)
				}
			}
		})
	}
}

func TestBorder(t *testing.T) {
	full := checkpoint.Full()
	for _, test := range []struct {
		name  string
		model func(b *graph.Builder, x graph.Value) graph.Value
		want  string
	}{
		{"between consecutive regions", func(b *graph.Builder, x graph.Value) graph.Value {
			for i := range 2 {
				checkpoint.Region(b, full, func() { x = chain(b.Scope(i), x, "a", "b") })
			}
			return x
		}, "0.a 1.a"},
		{"out of an inner region", func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, full, func() {
				checkpoint.Region(b, full, func() { x = chain(b, x, "a", "b") })
				x = chain(b, x, "c", "d")
			})
			return x
		}, "a c"},
		{"into an inner region there is none", func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, full, func() {
				x = op(b, "a", x)
				checkpoint.Region(b, full, func() { x = op(b, "b", x) })
			})
			return x
		}, "a"},
		{"a region that has no opinion has no border", func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, full, func() {
				checkpoint.Region(b, always(checkpoint.Auto), func() { x = op(b, "a", x) })
				x = op(b, "b", x)
			})
			return x
		}, "a"},
		{"a wait in another region", func(b *graph.Builder, x graph.Value) graph.Value {
			var pending graph.Value
			checkpoint.Region(b, always(checkpoint.MustRecompute), func() { pending = chain(b, x, "a", "all_to_all") })
			checkpoint.Region(b, full, func() { x = chain(b, pending, "wait", "b", "c") })
			return x
		}, "a b"},
		{"an output of the program", func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, full, func() {
				x = op(b, "a", x)
				b.Output("hidden", op(b, "view", x))
				x = chain(b, x, "b", "c")
			})
			return x
		}, "b"},
		{"a reader that nobody needs does not count", func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, full, func() { x = op(b, "a", x) })
			op(b, "unused", x)
			checkpoint.Region(b, full, func() { x = op(b, "b", x) })
			return x
		}, ""},
		{"a side effect reads it in the region", func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, always(checkpoint.MustRecompute), func() {
				x = op(b, "a", x)
				op(b, "metric", x)
				x = op(b, "b", x)
			})
			return x
		}, "a"},
		{"a side effect reads it outside", func(b *graph.Builder, x graph.Value) graph.Value {
			var y graph.Value
			checkpoint.Region(b, always(checkpoint.MustRecompute), func() {
				y = op(b, "a", x)
				x = chain(b, y, "b", "c")
			})
			op(b, "metric", y)
			return x
		}, "b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := build(t, test.model)
			if got := reruns(g, resolve(t, g, checkpoint.Options{})); got != test.want {
				t.Errorf("reruns %q, want %q", got, test.want)
			}
		})
	}
}

// An op built after Backward reads the value when its region is long over.
func TestBorderAfterBackward(t *testing.T) {
	b := graph.New(newStore(t, 1))
	x := b.Input("x", device.Float32, 256)
	var y, z graph.Value
	checkpoint.Region(b, checkpoint.Full(), func() {
		y = op(b, "a", x)
		z = op(b, "b", op(b, "c", y))
	})
	b.AddLoss("loss", b.Apply(fake{kind: "sum", out: device.NewSpec(device.Float32)}, z))
	b.Output("dx", b.Backward(x)[0])
	b.Output("late", op(b, "late", y))
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	if got := reruns(g, resolve(t, g, checkpoint.Options{})); got != "c" {
		t.Errorf("reruns %q, want only c", got)
	}
}

// Mutators run once, whatever is said about them.
func TestStateIsUpdatedOnce(t *testing.T) {
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value {
		load := b.State("load", device.Float32, graph.Zeros, 256)
		checkpoint.Region(b, always(checkpoint.MustRecompute), func() {
			x = op(b, "a", x)
			b.Accumulate(load, x)
			x = chain(b, x, "b", "c")
		})
		return x
	})
	plan := resolve(t, g, checkpoint.Options{})
	if got := reruns(g, plan); got != "a b" {
		t.Errorf("reruns %q, want a and b", got)
	}
	if e := entry(t, g, plan, "accumulate:0"); !strings.HasPrefix(e.Why, "rule: a side effect") {
		t.Errorf("accumulate: decided by %q", e.Why)
	}
}
