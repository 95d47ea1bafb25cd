package checkpoint_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

func plannedModel(t *testing.T) *graph.Graph {
	b := graph.New(newStore(t, 2))
	x := b.Input("x", device.Float32, 24, 32)
	y := x
	for i := range 4 {
		b := b.Scope("layers", i)
		checkpoint.Region(b, always(checkpoint.Auto), func() {
			h := nn.RMSNorm(b.Scope("norm"), y, 1e-5)
			h = nn.FeedForward{Hidden: 96}.Build(b.Scope("feed_forward"), h)
			y = nn.Add(y, nn.Dropout(b.Scope("dropout"), h, 0.3))
		})
	}
	b.AddLoss("loss", graph.Sum(nn.Mul(y, nn.RMSNorm(b.Scope("norm"), y, 1e-5))))
	for i, grad := range b.Backward(b.Parameters()...) {
		b.Assign(b.Scratch(fmt.Sprint("gradient.", i), device.Float32, grad.Spec().Shape...), grad)
	}
	g, err := b.Graph()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Every budget is kept by the compiled program, the bound is below the plan, a
// second planner decides alike, and less than the smallest peak is refused.
func TestPlannerKeepsBudgets(t *testing.T) {
	g := plannedModel(t)
	p, err := checkpoint.NewPlanner(g, checkpoint.Options{}, checkpoint.DefaultCosts())
	if err != nil {
		t.Fatal(err)
	}
	smallest, err := p.Smallest()
	if err != nil {
		t.Fatal(err)
	}
	all, err := graph.Rehearse(g, graph.SaveAll(g), nil)
	if err != nil || all <= smallest.PeakBytes {
		t.Fatalf("saving all peaks at %d, the smallest plan at %d: %v", all, smallest.PeakBytes, err)
	}
	for i := range int64(11) {
		budget := smallest.PeakBytes + (all-smallest.PeakBytes)*i/10
		q, err := p.Plan(budget)
		if err != nil {
			t.Fatal(err)
		}
		c, err := graph.Compile(g, graph.CompileOptions{Plan: q.Plan})
		if err != nil {
			t.Fatal(err)
		}
		if peak := c.Bound().Peak; peak != q.PeakBytes || peak > budget {
			t.Errorf("budget %d: compiled peak %d, planned %d", budget, peak, q.PeakBytes)
		}
		if q.BoundNanoseconds > q.RerunNanoseconds || i == 10 && q.RerunNanoseconds != 0 {
			t.Errorf("budget %d: reruns of %d ns, bound %d ns", budget, q.RerunNanoseconds, q.BoundNanoseconds)
		}
		again, _ := checkpoint.NewPlanner(g, checkpoint.Options{}, checkpoint.DefaultCosts())
		if r, err := again.Plan(budget); err != nil || r.Plan.Hash() != q.Plan.Hash() {
			t.Errorf("budget %d: another plan the second time: %v", budget, err)
		}
	}
	var infeasible *checkpoint.InfeasibleError
	if _, err := p.Plan(smallest.PeakBytes - 1); !errors.As(err, &infeasible) || infeasible.SmallestBytes != smallest.PeakBytes {
		t.Fatalf("below the smallest peak: %v", err)
	}
	// All that lives at the named step is the peak; the three largest of it are named.
	c, err := graph.Compile(g, graph.CompileOptions{Plan: smallest.Plan})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(c.Steps, func(s *graph.Step) bool {
		return s.Node.Name == infeasible.At && c.LiveBytes(nil)[s.Index] == smallest.PeakBytes
	})
	if at < 0 {
		t.Fatalf("%d bytes do not live at %s", smallest.PeakBytes, infeasible.At)
	}
	for i, h := range infeasible.Largest {
		larger := 0
		for _, s := range c.Storages {
			if alive := s.Begin <= c.Steps[at].Index && c.Steps[at].Index <= s.End; alive && s.BytesAt(nil) > h.Bytes {
				larger++
			}
		}
		if larger > i || !strings.Contains(infeasible.Error(), fmt.Sprintf("%s (%d bytes)", h.Node, h.Bytes)) {
			t.Errorf("%+v is number %d, %d are larger: %v", h, i+1, larger, infeasible)
		}
	}
	if len(infeasible.Largest) != 3 {
		t.Errorf("%d are named", len(infeasible.Largest))
	}
}
