package parallel_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/devicetest"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/ranktest"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/parallel"
)

// network is an embedding, a feed-forward and an output over a vocabulary.
type network struct{ batch, tokens, vocab int }

const (
	dim    = 6
	hidden = 8
)

func (n network) build(b *graph.Builder) {
	tokens, labels := b.Input("tokens", device.Int32, n.batch, n.tokens), b.Input("labels", device.Int32, n.batch, n.tokens)
	x := nn.Embedding(b.Scope("tok_embeddings"), tokens, nn.EmbeddingConfig{Vocab: n.vocab, Dim: dim, DType: device.Float64})
	h := nn.Dropout(b.Scope("feed_forward"), nn.RMSNorm(b.Scope("ffn_norm"), x, 0), 0.25)
	x = nn.Add(x, nn.FeedForward{Hidden: hidden, Init: graph.Normal{Std: 1}, OutputInit: graph.Normal{Std: 1}}.Build(b.Scope("feed_forward"), h))
	config := nn.OutputLossConfig{Vocab: n.vocab, Init: graph.Normal{Std: 1}}
	b.AddLoss("loss", nn.OutputLoss(b.Scope("output"), nn.RMSNorm(b.Scope("norm"), x, 0), labels, b.Full(0.5, device.Float64), config))
}

// member is one of the ranks that compute a network together.
type member struct {
	store   *graph.Store
	machine *graph.Machine
}

func (n network) start(t *testing.T, ranks int) []member {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	t.Cleanup(func() { dev.Close() })
	groups, err := local.New(ranks, local.Options{Timeout: 30 * time.Second})
	check(t, err)
	members := make([]member, ranks)
	for r := range members {
		o := graph.StoreOptions{Seed: 3}
		if ranks > 1 {
			o.Layout = parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}, Tensor: groups[r]}
		}
		store := graph.NewStore(dev, o)
		t.Cleanup(func() { store.Close() })
		members[r] = member{store, n.compile(t, store)}
	}
	return members
}

func (n network) compile(t *testing.T, store *graph.Store) *graph.Machine {
	t.Helper()
	b := graph.New(store)
	n.build(b)
	wrt := b.Parameters()
	for i, g := range b.Backward(wrt...) {
		b.Output(wrt[i].Name(), g)
	}
	g, err := b.Graph()
	check(t, err)
	p, err := graph.Compile(g, graph.CompileOptions{})
	check(t, err)
	m, err := graph.NewMachine(p)
	check(t, err)
	t.Cleanup(func() { m.Close() })
	ids, labels := make([]int32, n.batch*n.tokens), make([]int32, n.batch*n.tokens)
	for i := range ids {
		ids[i], labels[i] = int32(i*5%n.vocab), int32(i*3%n.vocab)
		if i%4 == 1 {
			labels[i] = nn.DefaultIgnore
		}
	}
	check(t, graph.Feed(m, "tokens", ids))
	check(t, graph.Feed(m, "labels", labels))
	return m
}

// run runs all members once.
func run(t *testing.T, members []member) {
	t.Helper()
	var running sync.WaitGroup
	errs := make([]error, len(members))
	for r, m := range members {
		running.Go(func() { errs[r] = m.run() })
	}
	running.Wait()
	for _, err := range errs {
		check(t, err)
	}
}

func (m member) run() error { return m.machine.Run(context.Background(), graph.RunOptions{Step: 1}) }

// results are the loss and the gradients, added up and put together over ranks.
func results(t *testing.T, members []member) (loss float64, gradients map[string][]float64) {
	t.Helper()
	gradients = map[string][]float64{}
	for _, m := range members {
		loss += m.machine.Scalar("loss")
		for _, v := range m.store.Variables() {
			if v.Kind != graph.Parameter {
				continue
			}
			if gradients[v.Name] == nil {
				gradients[v.Name] = make([]float64, device.NewSpec(v.Spec.DType, v.Global...).Len())
			}
			shape := slices.Clone(v.Spec.Shape)
			shape[0] -= v.Padding()
			live := device.NewSpec(v.Spec.DType, shape...).Len()
			for i, g := range devicetest.Floats(m.machine.Output(v.Name)) {
				if i < live {
					gradients[v.Name][ranktest.Place(v.Global, shape, v.Offset, i)] += g
				} else if g != 0 {
					t.Errorf("%s: padding has the gradient %v", v.Name, g)
				}
			}
		}
	}
	return loss, gradients
}

// Ranks that compute together have the loss and the gradients of one, also where some of them
// have no token and no class, or blocks of tokens are several.
func TestTensorGroupIsOneRank(t *testing.T) {
	for _, n := range []network{{1, 3, 5}, {2, 3, 7}, {3, 5, 2}, {1, 1, 9}, {2, 259, 33}} {
		alone := n.start(t, 1)
		run(t, alone)
		loss, gradients := results(t, alone)
		for _, ranks := range []int{2, 4} {
			members := n.start(t, ranks)
			run(t, members)
			gotLoss, got := results(t, members)
			near(t, fmt.Sprintf("%v on %d ranks: loss", n, ranks), []float64{gotLoss}, []float64{loss})
			for name, want := range gradients {
				near(t, fmt.Sprintf("%v on %d ranks: %s", n, ranks, name), got[name], want)
			}
		}
	}
}

func TestWarmTensorGroupAllocatesNothing(t *testing.T) {
	members := network{2, 37, 33}.start(t, 2)
	run(t, members)
	var runs []func() error
	for _, m := range members {
		runs = append(runs, m.run)
	}
	if n := ranktest.AllocationsPerRun(t, runs...); n != 0 {
		t.Errorf("%v allocations in a warm run", n)
	}
}

// What is not divided cannot be gathered: that would be another model, silently.
func TestEnterRefusesWholeActivations(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	defer dev.Close()
	groups, err := local.New(2, local.Options{})
	check(t, err)
	store := graph.NewStore(dev, graph.StoreOptions{Layout: parallel.Layout{Tensor: groups[0]}})
	defer store.Close()
	b := graph.New(store)
	x := b.Input("x", device.Float32, 4, dim)
	nn.FeedForward{Hidden: hidden}.Build(b.Scope("layers", 0, "feed_forward"), x)
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), "layers.0.feed_forward: tensor parallel: x is not divided among ranks") {
		t.Errorf("error %v", err)
	}
}

// What ranks cannot divide evenly, and padding cannot mend, is refused where it is declared.
func TestUnevenColumnsAreRefused(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	defer dev.Close()
	store := graph.NewStore(dev, graph.StoreOptions{Layout: parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}, Tensor: collective.Seat("tensor", 1, 2)}})
	defer store.Close()
	b := graph.New(store)
	b.Scope("layers", 0, "attention", "wo").Parameter("weight", device.Float32, graph.Zeros, 24, 25)
	want := `"layers.0.attention.wo.weight": the layout gives a part [24 13] from [0 13] on of [24 25], beyond the 25 of dimension 1: divide it over a number of ranks that divides them`
	if err := b.Err(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

func near(t *testing.T, name string, got, want []float64) {
	t.Helper()
	largest := 0.0
	for _, x := range want {
		largest = max(largest, math.Abs(x))
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d values, want %d", name, len(got), len(want))
		return
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= 1e-12*largest) {
			t.Errorf("%s is %v, want %v (element %d)", name, got[i], want[i], i)
			return
		}
	}
}
