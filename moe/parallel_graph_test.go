package moe_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/ranktest"
	"github.com/lethe-go/lethe/moe"
)

const (
	trialTokens  = 11 // of each rank
	trialWidth   = 6
	trialExperts = 8
	trialTopK    = 3
)

// uneven is a trial with loads that differ much between experts.
func uneven(ranks int) trial {
	r := moe.Router{Experts: trialExperts, TopK: trialTopK, Score: moe.Sigmoid, Normalize: true, Bias: true, Init: wide}
	return trial{
		layer:  moe.Layer{Router: r, Hidden: 5, Shared: 1, Count: true, Init: graph.Normal{Std: 0.5}, OutputInit: graph.Normal{Std: 0.5}},
		tokens: trialTokens * ranks, width: trialWidth, dtype: device.Float32,
		bias: []float64{0.3, 0, 0, 0.2, 0, 0, 0, 0},
	}
}

// policies that a layer is run under; communicate is the one that exchanges again.
var policies = []struct {
	name    string
	policy  graph.Policy
	options checkpoint.Options
}{
	{"none", checkpoint.None(), checkpoint.Options{}},
	{"full", checkpoint.Full(), checkpoint.Options{}},
	{"selective", checkpoint.Selective(), checkpoint.Options{}},
	{"communicate", checkpoint.Full(), communicate},
}

var communicate = checkpoint.Options{Rerun: []string{"all_to_all", "to_host"}}

// TestMeasuredPeakOverRanks: whatever the policy, every rank's measured peak is the
// planned one for the rows that it received, and poisoned memory changes nothing.
func TestMeasuredPeakOverRanks(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		var want map[string][]float64
		for _, p := range policies {
			c := uneven(ranks)
			c.policy, c.options, c.measured, c.more = p.policy, p.options, true, 2
			members := c.start(t, ranks)
			for _, bias := range [][]float64{c.bias, favour(trialExperts, 0, 1), c.bias} {
				for _, m := range members {
					for e, v := range bias {
						devicetest.SetFloat(m.store.Variable("layer.router.expert_bias").Tensor(), e, v)
					}
				}
				for r, err := range together(members, func(m *member) error {
					seen, err := graph.Measure(context.Background(), m.machine, graph.RunOptions{Step: 1})
					if err != nil {
						return err
					}
					if planned := m.program.Memory(m.machine.Counts()); seen.Peak != planned.Peak || seen.UnwrittenReads != 0 {
						return fmt.Errorf("%d rows: measured peak %d, planned %d; %d bytes read before they were written", received(m), seen.Peak, planned.Peak, seen.UnwrittenReads)
					}
					return nil
				}) {
					if err != nil {
						t.Fatalf("%s: rank %d of %d: %v", p.name, r, ranks, err)
					}
				}
				clean := results(members)
				runAll(t, members)
				if !reflect.DeepEqual(results(members), clean) {
					t.Fatalf("%s, %d ranks: results change when dead memory is poisoned", p.name, ranks)
				}
			}
			if got := results(members); want == nil {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, %d ranks: other bits than under %s", p.name, ranks, policies[0].name)
			}
		}
	}
}

// TestBackwardDoesNotCommunicateAgain counts what a rerun of everything repeats by
// default, and what it repeats when told to, and the memory that this saves.
func TestBackwardDoesNotCommunicateAgain(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		c := uneven(ranks)
		c.policy = checkpoint.Full()
		kept := c.start(t, ranks)
		c.options = communicate
		again := c.start(t, ranks)
		runAll(t, kept)
		runAll(t, again)
		if !reflect.DeepEqual(results(kept), results(again)) {
			t.Errorf("%d ranks: other bits when the exchanges are repeated", ranks)
		}
		for r := range kept {
			// Counts, rows there, rows back; and the gradients of both.
			if n, m := kept[r].group.exchanges.Load(), again[r].group.exchanges.Load(); n != 5 || m != 8 {
				t.Errorf("rank %d takes part in %d exchanges, and in %d when told to repeat them: want 5 and 8", r, n, m)
			}
			if n, m := reruns(kept[r].program), reruns(again[r].program); n != [2]int{0, 0} || m != [2]int{3, 2} {
				t.Errorf("rank %d reruns %v all-to-alls and host syncs, and %v when told to: want [0 0] and [3 2]", r, n, m)
			}
			if len(kept[r].program.Reruns()) < 10 {
				t.Errorf("only %d ops are rerun", len(kept[r].program.Reruns()))
			}
		}
		var difference int64
		for r := range kept {
			difference += kept[r].program.Memory(kept[r].machine.Counts()).Saved - again[r].program.Memory(again[r].machine.Counts()).Saved
		}
		// What arrives on all ranks, there and back. And int32 counts of each pair of
		// ranks: kept are those received, and both on the host; to repeat the exchange
		// takes those to send.
		rows := int64(2 * trialTokens * ranks * trialTopK * trialWidth * device.Float32.Size())
		counts := int64((3 - 1) * ranks * trialExperts * device.Int32.Size())
		if difference != rows+counts {
			t.Errorf("%d ranks: keeping the exchanges takes %d bytes, want %d of rows and %d of counts", ranks, difference, rows, counts)
		}
	}
}

// TestSavedBytesAreMeasured holds what the exchanges' results add to the memory between
// forward and backward against what an instrument sees there: over all ranks and layers
// exactly 2·layers·T·K·D·element size, and the counts.
func TestSavedBytesAreMeasured(t *testing.T) {
	const ranks, layers = 2, 3
	carried := func(o checkpoint.Options) (measured, planned int64) {
		c := uneven(ranks)
		c.policy, c.options, c.measured, c.more = checkpoint.Full(), o, true, layers-1
		members := c.start(t, ranks)
		runAll(t, members)
		seen := make([]int64, ranks)
		for r, err := range together(members, func(m *member) error {
			s, err := graph.Measure(context.Background(), m.machine, graph.RunOptions{Step: 1})
			seen[m.group.Rank()] = s.Across(m.program.Boundary())
			return err
		}) {
			if err != nil {
				t.Fatalf("rank %d: %v", r, err)
			}
		}
		for r, m := range members {
			memory := m.program.Memory(m.machine.Counts())
			measured += seen[r]
			planned += memory.Saved - memory.SavedOnHost
		}
		return measured, planned
	}
	kept, plannedKept := carried(checkpoint.Options{})
	again, plannedAgain := carried(communicate)
	if kept-again != plannedKept-plannedAgain {
		t.Errorf("keeping the exchanges takes %d bytes as measured, %d as planned", kept-again, plannedKept-plannedAgain)
	}
	// On the device the received counts are kept in place of those to send: equal sizes.
	if want := int64(2 * layers * trialTokens * ranks * trialTopK * trialWidth * device.Float32.Size()); kept-again != want {
		t.Errorf("keeping the exchanges takes %d bytes, want %d", kept-again, want)
	}
}

// reruns counts those of all-to-alls and of host syncs.
func reruns(p *graph.Program) (n [2]int) {
	for _, node := range p.Reruns() {
		if node.Kind == "all_to_all" {
			n[0]++
		}
		if node.Effects.Has(graph.HostSync) {
			n[1]++
		}
	}
	return n
}

// TestSharedExpertsOverlapTheExchange: between an exchange and the wait for it stands
// what was built in between, forward and backward.
func TestSharedExpertsOverlapTheExchange(t *testing.T) {
	m := uneven(2).start(t, 2)[0]
	inFlight := map[string][]string{} // by asynchronous node, what is built beside it
	found := 0
	for _, s := range m.program.Steps {
		switch {
		case s.Lane != graph.Compute:
			inFlight[s.Node.Name] = []string{}
		case s.Kind == graph.Wait:
			name := s.Node.In[0].Node.Name
			shared := slices.ContainsFunc(inFlight[name], func(name string) bool { return strings.HasPrefix(name, "layer.shared_experts.") })
			if rows := name == "layer.all_to_all:1" || name == "layer.backward.all_to_all:1"; rows {
				found++
				if !shared {
					t.Errorf("%s travels beside %v, without shared experts", name, inFlight[name])
				}
			}
			delete(inFlight, name)
		default:
			for name := range inFlight {
				inFlight[name] = append(inFlight[name], s.Node.Name)
			}
		}
	}
	if found != 2 || len(inFlight) != 0 {
		t.Errorf("waited for %d exchanges of rows, and never for %v", found, inFlight)
	}
}

func TestWarmRanksAllocateNothing(t *testing.T) {
	for _, p := range policies {
		c := uneven(2)
		c.policy, c.options = p.policy, p.options
		members := c.start(t, 2)
		runAll(t, members)
		var runs []func() error
		for _, m := range members {
			runs = append(runs, m.run)
		}
		if n := ranktest.AllocationsPerRun(t, runs...); n != 0 {
			t.Errorf("%s: a warm run of two ranks allocates %v times", p.name, n)
		}
	}
}

// late sleeps before every exchange.
type late struct {
	collective.Group
	mu  sync.Mutex
	nap *rand.Rand
}

func (l *late) AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error {
	l.mu.Lock()
	d := time.Duration(l.nap.IntN(500)) * time.Microsecond
	l.mu.Unlock()
	time.Sleep(d)
	return l.Group.AllToAll(ctx, out, in, receive, send)
}

func TestSlowRanksChangeNothing(t *testing.T) {
	c := uneven(4)
	c.policy, c.options = checkpoint.Full(), communicate
	prompt := c.start(t, 4)
	c.wrap = func(g collective.Group) collective.Group {
		return &late{Group: g, nap: rand.New(rand.NewPCG(uint64(g.Rank()), 1))}
	}
	slow := c.start(t, 4)
	runAll(t, prompt)
	for range 10 {
		runAll(t, slow)
		if !reflect.DeepEqual(results(slow), results(prompt)) {
			t.Fatal("results depend on when ranks arrive")
		}
	}
}

// broken fails in the exchange with a number.
type broken struct {
	collective.Group
	at, calls int
	cancel    context.CancelFunc // instead of failing
}

var errCable = errors.New("the cable is out")

func (b *broken) AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error {
	b.calls++
	if b.calls == b.at {
		if b.cancel == nil {
			return errCable
		}
		b.cancel()
	}
	return b.Group.AllToAll(ctx, out, in, receive, send)
}

// TestFailureOfOneRankEndsAll fails or cancels rank 1 at each of its exchanges.
func TestFailureOfOneRankEndsAll(t *testing.T) {
	for at := 1; at <= 5; at++ {
		for _, cancelled := range []bool{false, true} {
			ctx, cancel := context.WithCancel(context.Background())
			c := uneven(3)
			c.layer.Router.Experts, c.bias = 9, nil
			c.wrap = func(g collective.Group) collective.Group {
				if g.Rank() != 1 {
					return g
				}
				b := &broken{Group: g, at: at}
				if cancelled {
					b.cancel = cancel
				}
				return b
			}
			members := c.start(t, 3)
			begin := time.Now()
			errs := together(members, func(m *member) error {
				own := context.Background()
				if m.group.Rank() == 1 {
					own = ctx
				}
				return m.machine.Run(own, graph.RunOptions{Step: 1})
			})
			cancel()
			if d := time.Since(begin); d > 10*time.Second {
				t.Errorf("exchange %d: it took the ranks %v to end", at, d)
			}
			want := errCable
			if cancelled {
				want = context.Canceled
			}
			for r, err := range errs {
				if r == 1 && !errors.Is(err, want) || r != 1 && (!errors.Is(err, collective.ErrAborted) || !errors.Is(err, want)) {
					t.Errorf("exchange %d, cancelled %v: rank %d: %v", at, cancelled, r, err)
				}
			}
		}
	}
}
