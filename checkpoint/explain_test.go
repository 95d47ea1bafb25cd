package checkpoint_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// pair is an op with two outputs, of which its gradient reads the second.
type pair struct{ fake }

func (pair) Outputs(in []device.Spec) ([]device.Spec, error) {
	return []device.Spec{in[0], device.NewSpec(device.Float32, 16)}, nil
}

func (p pair) Gradient(b *graph.Builder, in, out, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(fake{kind: "pair_gradient", out: in[0].Spec()}, grad[0], out[1])}
}

// x → a → pair → view → last → sum, where the gradient of last reads nothing of
// the forward pass. The gradient of the pair reads 64 bytes; that of a reads x.
func explained(t *testing.T, p checkpoint.Policy) checkpoint.Report {
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value {
		checkpoint.Region(b, p, func() {
			x = op(b, "a", x)
			x = b.ApplyAll(pair{fake{kind: "pair", flops: 3e6}}, x)[0]
			x = op(b, "view", x)
			x = b.Apply(fake{kind: "last", flops: 4e6, final: true}, x)
		})
		return x
	})
	return checkpoint.Explain(g, resolve(t, g, checkpoint.Options{}))
}

func TestExplain(t *testing.T) {
	check := func(what string, got, want []string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	r := explained(t, checkpoint.None())
	check("kept", r.With(checkpoint.Kept), []string{"pair:0"})
	check("views", r.With(checkpoint.Shared), []string{"view:0"})
	check("not needed", r.With(checkpoint.NotNeeded), []string{"a:0", "last:0", "sum:0"})
	if r.SavedBytes() != 64 || r.RerunFLOPs() != 0 {
		t.Errorf("saved %d bytes, rerun %v FLOPs; want only the second output, and none", r.SavedBytes(), r.RerunFLOPs())
	}

	// The pair is read by no forward op outside, so it may be rerun, and needs a.
	r = explained(t, checkpoint.Full())
	check("rerun", r.With(checkpoint.Rerun), []string{"a:0", "pair:0"})
	if r.SavedBytes() != 0 || r.RerunFLOPs() != 3e6+1 {
		t.Errorf("saved %d bytes, rerun %v FLOPs; want none, and those of a and the pair", r.SavedBytes(), r.RerunFLOPs())
	}

	// With a saved, the rerun of the pair starts there.
	r = explained(t, checkpoint.SaveKinds("a"))
	check("kept", r.With(checkpoint.Kept), []string{"a:0"})
	check("rerun", r.With(checkpoint.Rerun), []string{"pair:0"})
}

func TestReportText(t *testing.T) {
	r := explained(t, checkpoint.Full())
	want := []string{
		"node    kind  fate        bytes  MFLOPs  decided by",
		"a:0     a     rerun       1024   1e-06   policy of region (explain_test.go:",
		"pair:0  pair  rerun       64     3       policy of region (explain_test.go:",
		"view:0  view  view        0      1e-06   rule: a view follows pair:0",
		"last:0  last  not needed  0      4       rule: it is read outside its region by sum:0",
		"sum:0   sum   not needed  0      0       no region",
		"0 kept, 0 bytes; 2 rerun, 3 MFLOPs; 2 not needed; 1 views",
	}
	lines := strings.Split(strings.TrimSuffix(r.String(), "\n"), "\n")
	if len(lines) != len(want) {
		t.Fatalf("report\n%v\nwant %d lines", r, len(want))
	}
	for i, line := range lines {
		if !strings.HasPrefix(line, want[i]) {
			t.Errorf("line %d\n%s\nwant\n%s", i, line, want[i])
		}
	}
	if f := r.Filter("pair"); len(f.Lines) != 1 || f.Lines[0].Node.Name != "pair:0" {
		t.Errorf("filter: %v", f)
	}
	if f := r.Filter(""); len(f.Lines) != 0 {
		t.Errorf("malformed filter: %v", f)
	}
}

// A plan of another graph, or none, is no reason to panic.
func TestExplainWithoutPlan(t *testing.T) {
	g := build(t, func(b *graph.Builder, x graph.Value) graph.Value { return chain(b, x, "a", "b", "c") })
	for _, p := range []*graph.Plan{nil, {}} {
		if got := checkpoint.Explain(g, p).With(checkpoint.Kept); len(got) != 2 {
			t.Errorf("kept %v, want a and b", got)
		}
	}
}
