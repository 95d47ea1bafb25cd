package checkpoint_test

import (
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

func TestPrecedence(t *testing.T) {
	// Two layers; in each an inner region holds the two ops b and c. The op z
	// closes each region, so that no other value crosses a border.
	model := func(outer, inner checkpoint.Policy) func(*graph.Builder, graph.Value) graph.Value {
		return func(b *graph.Builder, x graph.Value) graph.Value {
			for i := range 2 {
				b := b.Scope("layers", i)
				checkpoint.Region(b, outer, func() {
					x = op(b, "a", x)
					checkpoint.Region(b.Scope("inner"), inner, func() {
						x = chain(b.Scope("inner"), x, "b", "c", "z")
					})
					x = chain(b, x, "d", "z")
				})
			}
			return x
		}
	}
	full, none, auto := checkpoint.Full(), checkpoint.None(), always(checkpoint.Auto)
	bThenAuto := checkpoint.Override(auto, map[string]checkpoint.Decision{"b": checkpoint.MustSave})
	for _, test := range []struct {
		name         string
		outer, inner checkpoint.Policy
		options      checkpoint.Options
		want         string // of layer 0; layer 1 is the same
	}{
		{"both recompute", full, full, checkpoint.Options{}, "a inner.b inner.c d"},
		{"both save", none, none, checkpoint.Options{}, ""},
		{"inner beats outer: save", full, none, checkpoint.Options{}, "a d"},
		{"inner beats outer: recompute", none, full, checkpoint.Options{}, "inner.b inner.c"},
		{"auto asks the outer", full, auto, checkpoint.Options{}, "a inner.b inner.c inner.z d"},
		{"auto asks node by node", full, bThenAuto, checkpoint.Options{}, "a inner.c inner.z d"},
		{"all auto saves", auto, auto, checkpoint.Options{}, ""},
		{"auto outside of a recomputing region", auto, full, checkpoint.Options{}, "inner.b inner.c"},
		{"a pattern beats all", none, none, checkpoint.Options{ForceRecompute: []string{"inner.b"}}, "inner.b"},
		{"a pattern means a scope", none, none, checkpoint.Options{ForceRecompute: []string{"inner"}}, "inner.b inner.c"},
		{"rerun beats policies", none, none, checkpoint.Options{Rerun: []string{"d"}}, "d"},
		{"save beats policies", full, full, checkpoint.Options{Save: []string{"b", "d"}}, "a inner.c"},
		{"a pattern beats the lists", full, full, checkpoint.Options{Save: []string{"b"}, ForceRecompute: []string{"b"}}, "a inner.b inner.c d"},
		{"both lists", none, none, checkpoint.Options{Save: []string{"a"}, Rerun: []string{"c"}}, "inner.c"},
		{"first answer wins", checkpoint.First(auto, none, full), checkpoint.First(auto, full, none), checkpoint.Options{}, "inner.b inner.c"},
		{"save kinds", checkpoint.SaveKinds("a", "b"), auto, checkpoint.Options{}, "inner.c inner.z d"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := build(t, model(test.outer, test.inner))
			got := reruns(g, resolve(t, g, test.options))
			var want []string
			for _, layer := range []string{"layers.0.", "layers.1."} {
				for _, name := range strings.Fields(test.want) {
					want = append(want, layer+name)
				}
			}
			if got != strings.Join(want, " ") {
				t.Errorf("reruns\n%v\nwant\n%v", got, strings.Join(want, " "))
			}
		})
	}
}

func TestNames(t *testing.T) {
	model := func(p checkpoint.Policy) func(*graph.Builder, graph.Value) graph.Value {
		return func(b *graph.Builder, x graph.Value) graph.Value {
			checkpoint.Region(b, p, func() {
				x = checkpoint.Name(op(b, "a", x), "attn_out")
				x = op(b, "b", x)
				x = checkpoint.Name(op(b, "view", x), "reshaped")
				x = chain(b, x, "c", "z")
			})
			return x
		}
	}
	override := func(byName map[string]checkpoint.Decision) checkpoint.Policy {
		return checkpoint.Override(checkpoint.Full(), byName)
	}
	for _, test := range []struct {
		name    string
		policy  checkpoint.Policy
		options checkpoint.Options
		want    string
	}{
		{"save a name", checkpoint.SaveNames("attn_out"), checkpoint.Options{}, "b view c"},
		{"the name of a view is its base's", checkpoint.SaveNames("reshaped"), checkpoint.Options{}, "a c"},
		{"two names", checkpoint.SaveNames("attn_out", "reshaped"), checkpoint.Options{}, "c"},
		{"the save list knows names", checkpoint.Full(), checkpoint.Options{Save: []string{"reshaped"}}, "a c"},
		{"the rerun list knows names", checkpoint.None(), checkpoint.Options{Rerun: []string{"attn_out"}}, "a"},
		{"override by name and kind", override(map[string]checkpoint.Decision{"attn_out": checkpoint.MustSave, "c": checkpoint.PreferSave}), checkpoint.Options{}, "b view"},
		{"names that agree", override(map[string]checkpoint.Decision{"attn_out": checkpoint.MustSave, "a": checkpoint.PreferSave}), checkpoint.Options{}, "b view c"},
		{"an auto override asks the policy", override(map[string]checkpoint.Decision{"a": checkpoint.Auto}), checkpoint.Options{}, "a b view c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := build(t, model(test.policy))
			if got := reruns(g, resolve(t, g, test.options)); got != test.want {
				t.Errorf("reruns %q, want %q", got, test.want)
			}
		})
	}
}

// Selective as torchtitan traces it for a block of DeepSeek-V3: wq S, wkv_a R,
// wkv_b S, wo R, the gate forced and so not counted, shared w1 S, w3 R, w2 S.
// Unlike there, the grouped matmuls are saved.
func TestSelectiveBlock(t *testing.T) {
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value {
		for i := range 2 {
			b := b.Scope("layers", i)
			checkpoint.Region(b, checkpoint.Selective(), func() {
				x = op(b.Scope("attention_norm"), "rms_norm", x)
				for _, linear := range []string{"wq", "wkv_a", "wkv_b"} {
					x = op(b.Scope(linear), "matmul", x)
				}
				x = op(b.Scope("wo"), "matmul", op(b, "attention", x))
				m := b.Scope("moe")
				scores := op(m.Scope("router.gate"), "matmul", x)
				ids := op(m.Scope("router"), "topk", scores)
				counts := op(m, "count", ids)
				splits := op(m, "to_host", chain(m, counts, "all_to_all", "wait"))
				tokens := chain(m, op(m, "dispatch", x, splits), "all_to_all", "wait")
				for range 3 {
					tokens = op(m.Scope("experts"), "grouped_matmul", tokens)
				}
				tokens = chain(m, tokens, "silu", "all_to_all", "wait")
				for _, linear := range []string{"w1", "w3", "w2"} {
					x = op(m.Scope("shared", linear), "matmul", x)
				}
				x = op(b, "add", x, tokens)
			})
		}
		return x
	})
	got := reruns(g, resolve(t, g, checkpoint.Options{ForceRecompute: []string{"moe.router.gate"}}))
	// The ops of kind count are routing counts: saved by default.
	layer := "attention_norm.rms_norm wkv_a.matmul wo.matmul moe.router.gate.matmul moe.dispatch moe.silu moe.shared.w3.matmul"
	var want []string
	for _, l := range []string{"layers.0.", "layers.1."} {
		for _, n := range strings.Fields(layer) {
			want = append(want, l+n)
		}
	}
	if got != strings.Join(want, " ") {
		t.Errorf("reruns\n%v\nwant\n%v", got, strings.Join(want, " "))
	}
}

func TestIndex(t *testing.T) {
	type call struct {
		name   string
		index  int
		forced bool
	}
	var outer, inner []call
	record := func(to *[]call, d checkpoint.Decision, own string) checkpoint.Policy {
		return func(c checkpoint.Candidate) checkpoint.Decision {
			*to = append(*to, call{strings.TrimSuffix(c.Name, ":0"), c.Index, c.Forced})
			if own != "" && !strings.HasPrefix(c.Scope, own) {
				return checkpoint.Auto
			}
			return d
		}
	}
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value {
		checkpoint.Region(b, record(&outer, checkpoint.PreferRecompute, ""), func() {
			x = op(b.Scope("wq"), "matmul", x)
			x = op(b.Scope("gate"), "matmul", x)
			checkpoint.Region(b, record(&inner, checkpoint.MustSave, "mine"), func() {
				x = op(b.Scope("mine"), "matmul", x)
				x = op(b.Scope("shared"), "matmul", op(b, "view", x))
			})
			x = op(b.Scope("wo"), "matmul", x)
		})
		return x
	})
	resolve(t, g, checkpoint.Options{ForceRecompute: []string{"gate"}})
	check := func(what string, got, want []call) {
		if len(got) != len(want) {
			t.Fatalf("%s: asked %v, want %v", what, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s, call %d: %v, want %v", what, i, got[i], want[i])
			}
		}
	}
	check("inner", inner, []call{{"mine.matmul", 0, false}, {"shared.matmul", 1, false}})
	check("outer", outer, []call{{"wq.matmul", 0, false}, {"gate.matmul", 1, true}, {"shared.matmul", 1, false}, {"wo.matmul", 2, false}})
}
