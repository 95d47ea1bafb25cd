package local_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/collectivetest"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
)

func floats(shape ...int) device.Tensor {
	return collectivetest.Tensor(device.Float64, shape...)
}

// TestLink runs collectives of 3 ranks by a clock that moves only while all sleep. The
// link carries one float64 in 8 ms, and its latency is a second.
func TestLink(t *testing.T) {
	const floatTime = 8 * time.Millisecond
	rows := func(n ...int32) device.Tensor {
		counts := collectivetest.Tensor(device.Int32, 3, 1)
		copy(device.Elements[int32](counts), n)
		return counts
	}
	ctx := context.Background()
	for name, c := range map[string]struct {
		want time.Duration
		call func(g collective.Group) error
	}{
		"barrier":    {time.Second, func(g collective.Group) error { return g.Barrier(ctx) }},
		"all_reduce": {2*time.Second + 4*4*floatTime, func(g collective.Group) error { return g.AllReduce(ctx, floats(12)) }},
		"all_gather": {time.Second + 2*5*floatTime, func(g collective.Group) error { return g.AllGather(ctx, floats(15), floats(5)) }},
		"reduce_scatter": {time.Second + 2*5*floatTime, func(g collective.Group) error {
			return g.ReduceScatter(ctx, floats(5), floats(15))
		}},
		"broadcast": {time.Second + 2*7*floatTime, func(g collective.Group) error { return g.Broadcast(ctx, floats(7), 1) }},
		// Rank 0 sends one row to itself, two to each other one; they send nothing.
		"all_to_all": {time.Second + 4*floatTime, func(g collective.Group) error {
			if g.Rank() == 0 {
				return g.AllToAll(ctx, floats(1), floats(5), rows(1, 0, 0), rows(1, 2, 2))
			}
			return g.AllToAll(ctx, floats(2), floats(0), rows(2, 0, 0), rows(0, 0, 0))
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			groups, err := local.New(3, local.Options{Link: local.Link{Latency: time.Second, Bandwidth: 1000}})
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			var running sync.WaitGroup
			for r, g := range groups {
				running.Go(func() {
					for range 2 {
						if err := c.call(g); err != nil {
							t.Errorf("%s: rank %d: %v", name, r, err)
						}
					}
				})
			}
			running.Wait()
			if took := time.Since(begin); took != 2*c.want {
				t.Errorf("%s twice takes %v, want %v", name, took, 2*c.want)
			}
		})
	}
}

// TestLinkEnds: a rank whose context ends in the middle of a transfer sleeps no longer.
func TestLinkEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		groups, err := local.New(2, local.Options{Link: local.Link{Latency: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		begin := time.Now()
		var running sync.WaitGroup
		for _, g := range groups {
			running.Go(func() {
				if g.Barrier(ctx) == nil && g.Barrier(ctx) == nil {
					t.Error("no error")
				}
			})
		}
		running.Wait()
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the ranks stopped after %v, want a minute", took)
		}
	})
}

func TestLinkOptions(t *testing.T) {
	for _, l := range []local.Link{{Latency: -1}, {Bandwidth: -1}} {
		if _, err := local.New(2, local.Options{Link: l}); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}
