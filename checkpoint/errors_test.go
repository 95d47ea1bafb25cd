package checkpoint_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

func TestErrors(t *testing.T) {
	region := func(p checkpoint.Policy) func(*graph.Builder, graph.Value) graph.Value {
		return func(b *graph.Builder, x graph.Value) graph.Value {
			b = b.Scope("layers", 3)
			checkpoint.Region(b, p, func() {
				x = checkpoint.Name(op(b.Scope("attention"), "matmul", x), "attn_out")
				x = chain(b.Scope("moe.router.gate"), x, "matmul", "topk_like")
				x = op(b, "add", x, op(b.Scope("moe"), "route", op(b, "topk", x)))
				x = chain(b.Scope("moe.dispatch"), x, "all_to_all", "wait")
			})
			return x
		}
	}
	broken := errors.New("index 7 of 4")
	for _, test := range []struct {
		name    string
		policy  checkpoint.Policy
		options checkpoint.Options
		want    []string
	}{
		{"save and offload", always(checkpoint.MustSave), checkpoint.Options{Save: []string{"matmul"}, Offload: []string{"matmul"}},
			[]string{"layers.3.attention.matmul:0", "conflict", `save "matmul"`, `offload "matmul"`}},
		{"invalid decision", always(77), checkpoint.Options{},
			[]string{"layers.3.attention.matmul:0", "region layers.3", "Decision(77)"}},
		{"panic", func(c checkpoint.Candidate) checkpoint.Decision { panic(broken) }, checkpoint.Options{},
			[]string{"layers.3.attention.matmul:0", "region layers.3", "panicked: index 7 of 4"}},
		{"nil policy", nil, checkpoint.Options{}, []string{"region layers.3", "nil; use checkpoint.None()"}},
		{"conflict in a policy", checkpoint.Override(checkpoint.Full(), map[string]checkpoint.Decision{
			"attn_out": checkpoint.MustSave, "matmul": checkpoint.MustRecompute}), checkpoint.Options{},
			[]string{"layers.3.attention.matmul:0", "conflict in the policy of region layers.3", `"attn_out" says must_save`, `"matmul" says must_recompute`}},
		{"conflict of the lists", checkpoint.Full(), checkpoint.Options{Save: []string{"attn_out"}, Rerun: []string{"matmul"}},
			[]string{"layers.3.attention.matmul:0: conflict", `save "attn_out" names it (a tag)`, `rerun "matmul" (a kind)`}},
		{"the same in both lists", checkpoint.Full(), checkpoint.Options{Save: []string{"matmul"}, Rerun: []string{"matmul"}},
			[]string{`save "matmul"`, `rerun "matmul"`}},
		{"unknown pattern", checkpoint.Full(), checkpoint.Options{ForceRecompute: []string{"moe.ruoter.gate"}},
			[]string{`force_recompute "moe.ruoter.gate" matches nothing`, "near names: moe.router.gate"}},
		{"unknown pattern with a star", checkpoint.Full(), checkpoint.Options{ForceRecompute: []string{"layer.*.attention"}},
			[]string{"near names: layers.*.attention"}},
		{"a segment left out", checkpoint.Full(), checkpoint.Options{ForceRecompute: []string{"moe.gate"}},
			[]string{"near names: moe.router.gate"}},
		{"unknown kind", checkpoint.Full(), checkpoint.Options{Save: []string{"matmull"}}, []string{`save "matmull" matches nothing`, "near names: matmul"}},
		{"unknown tag", checkpoint.Full(), checkpoint.Options{Rerun: []string{"attn_ou"}}, []string{"near names: attn_out"}},
		{"nothing near", checkpoint.Full(), checkpoint.Options{Rerun: []string{"convolution"}}, []string{`rerun "convolution" matches nothing`, "remove it"}},
		{"empty pattern", checkpoint.Full(), checkpoint.Options{ForceRecompute: []string{"moe..gate"}}, []string{`force_recompute: `, `"moe..gate"`}},
		{"empty entry", checkpoint.Full(), checkpoint.Options{Save: []string{""}}, []string{"save: an entry is empty"}},
		{"rerun of a choice", checkpoint.Full(), checkpoint.Options{Rerun: []string{"topk"}},
			[]string{"layers.3.topk:0", `rerun "topk" has no effect`, "a discrete choice is made once"}},
		{"pattern of a choice", checkpoint.Full(), checkpoint.Options{ForceRecompute: []string{"topk"}},
			[]string{`force_recompute "topk" has no effect`, "a discrete choice is made once"}},
		{"pattern of collectives by scope", checkpoint.Full(), checkpoint.Options{ForceRecompute: []string{"moe.dispatch"}},
			[]string{`force_recompute "moe.dispatch" has no effect`, "collectives are not rerun", `name the kind: "moe.dispatch.all_to_all"`}},
		{"only a wait", checkpoint.Full(), checkpoint.Options{Save: []string{"wait"}}, []string{`save "wait" has no effect`, "only views and waits"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, err := checkpoint.Resolve(build(t, region(test.policy)), test.options)
			if err == nil || plan != nil {
				t.Fatalf("plan %v, error %v: want an error", plan, err)
			}
			if !strings.HasPrefix(err.Error(), "checkpoint: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q: want one line of package checkpoint", err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error\n%v\ndoes not say %q", err, want)
				}
			}
		})
	}
}
