package parallel_test

import (
	"context"
	"fmt"
	"slices"
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
	"pgregory.net/rapid"
)

// A name decides what divides a parameter: all ranks of a replica its rows, those of an
// expert group the experts, and what is left of these those of one place in their groups; but
// first those of a tensor group what they share.
func TestPlace(t *testing.T) {
	// Rank 6 of 8 shards in expert groups of 4: the third of its group, the second of its place.
	l := parallel.Layout{
		Experts:     moe.ExpertLayout{Rank: 2, Ranks: 4},
		Shard:       collective.Seat("shard", 6, 8),
		ExpertShard: collective.Seat("expert_shard", 1, 2),
	}
	// The second of two ranks that compute together, the third of eight shards.
	tensor := parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}, Tensor: collective.Seat("tensor", 1, 2), Shard: collective.Seat("shard", 2, 8)}
	whole := parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}}
	for _, test := range []struct {
		layout                parallel.Layout
		name                  string
		global, shape, offset []int
		padding               int
	}{
		{l, "layers.0.attention.wq.weight", []int{64, 32}, []int{8, 32}, []int{48, 0}, 0},
		{l, "norm.weight", []int{24}, []int{3}, []int{18}, 0},
		{l, "output.weight", []int{50, 4}, []int{7, 4}, []int{42, 0}, 0}, // rows 42 … 48, of 56 with padding
		{l, "odd.weight", []int{41, 4}, []int{6, 4}, []int{36, 0}, 1},
		{l, "small.weight", []int{9, 4}, []int{2, 4}, []int{12, 0}, 2}, // nothing but padding
		{l, "tiny.weight", []int{7, 4}, []int{7, 4}, []int{0, 0}, 0},   // fewer rows than ranks
		{l, "scalar", []int{}, []int{}, []int{}, 0},                    // no rows
		{l, "layers.1.moe.experts.w1", []int{16, 6, 5}, []int{2, 6, 5}, []int{10, 0, 0}, 0},
		{l, "layers.1.moe.experts.w1", []int{4, 6, 5}, []int{1, 6, 5}, []int{2, 0, 0}, 0}, // one expert, which is not divided further
		{l, "layers.1.moe.shared_experts.w1.weight", []int{16, 5}, []int{2, 5}, []int{12, 0}, 0},
		{l, "layers.1.moe.router.gate.weight", []int{16, 5}, []int{2, 5}, []int{12, 0}, 0},
		{tensor, "layers.0.attention.wq.weight", []int{64, 32}, []int{4, 32}, []int{40, 0}, 0}, // 32 … 63, of which this has the third part of eight
		{tensor, "layers.0.attention.wo.weight", []int{64, 32}, []int{8, 16}, []int{16, 16}, 0},
		{tensor, "layers.1.moe.experts.w2", []int{16, 6, 10}, []int{16, 6, 5}, []int{0, 0, 5}, 0},
		{tensor, "output.weight", []int{57, 4}, []int{4, 4}, []int{37, 0}, 0}, // 29 … 57, padded to 61
		{tensor, "output.weight", []int{33, 4}, []int{3, 4}, []int{23, 0}, 0}, // 17 … 33
		{tensor, "norm.weight", []int{24}, []int{3}, []int{6}, 0},
		{whole, "layers.0.attention.wq.weight", []int{64, 32}, []int{64, 32}, []int{0, 0}, 0},
		{whole, "layers.1.moe.experts.w1", []int{16, 6, 5}, []int{16, 6, 5}, []int{0, 0, 0}, 0},
	} {
		shape, offset, padding := test.layout.Place(test.name, test.global)
		if !slices.Equal(shape, test.shape) || !slices.Equal(offset, test.offset) || padding != test.padding {
			t.Errorf("%s %v: %v from %v on, %d padding, want %v from %v on, %d", test.name, test.global, shape, offset, padding, test.shape, test.offset, test.padding)
		}
	}
}

// The parts of all ranks are equally large, and without their padding they are the whole: each
// element of it is in as many parts as any other.
func TestPlacesCoverTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string, most int) int { return rapid.IntRange(1, most).Draw(t, what) }
		experts, tensors, groups := draw("expert ranks", 3), draw("tensor ranks", 4), draw("expert groups", 4)
		name := rapid.SampledFrom([]string{
			"tok_embeddings.weight", "layers.0.attention.wq.weight", "layers.0.attention.wo.weight",
			"layers.1.moe.experts.w1", "layers.1.moe.experts.w2", "layers.1.moe.router.gate.weight",
		}).Draw(t, "name")
		global := []int{draw("rows", 40), tensors * draw("columns", 3)}
		if moe.IsExpert(name) { // each rank has as many
			global = []int{experts * groups * draw("experts", 2), tensors * draw("hidden", 3), tensors * draw("width", 3)}
		}
		held := make([]int, device.NewSpec(device.Uint8, global...).Len()) // by how many ranks
		var shapes []string
		for rank := range experts * groups * tensors {
			shard := rank / tensors
			l := parallel.Layout{Experts: moe.ExpertLayout{Rank: shard % experts, Ranks: experts}}
			if tensors > 1 {
				l.Tensor = collective.Seat("tensor", rank%tensors, tensors)
			}
			if experts*groups > 1 {
				l.Shard = collective.Seat("shard", shard, experts*groups)
			}
			if groups > 1 {
				l.ExpertShard = collective.Seat("expert_shard", shard/experts, groups)
			}
			shape, offset, padding := l.Place(name, global)
			shapes = append(shapes, fmt.Sprint(shape))
			shape[0] -= padding
			for i := range device.NewSpec(device.Uint8, shape...).Len() {
				held[ranktest.Place(global, shape, offset, i)]++
			}
		}
		if len(slices.Compact(shapes)) != 1 {
			t.Fatalf("parts of %v", shapes)
		}
		if n := slices.Compact(held); len(n) != 1 || n[0] == 0 {
			t.Fatalf("elements are held by %v ranks", n)
		}
	})
}

func TestSharedDimension(t *testing.T) {
	for name, want := range map[string]int{
		"output.weight":                                  0,
		"layers.10.attention.wkv_b.weight":               0,
		"optimizer.exp_avg.layers.1.attention.wo.weight": 1,
		"layers.1.moe.shared_experts.w2.weight":          1,
		"layers.1.moe.experts.w2":                        2,
		"layers.1.attention.wkv_a.weight":                -1,
		"layers.1.moe.router.gate.weight":                -1,
		"norm.weight":                                    -1,
		"my_output.weight":                               -1,
		"weight":                                         -1,
	} {
		got, ok := parallel.SharedDimension(name)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%s: dimension %d, want %d", name, got, want)
		}
	}
}

// What a model computes with is the whole, bit for bit what a rank alone has, and the
// gradient that reaches a part is the sum of what all ranks made of it; that of padding is 0.
func TestAssemble(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	t.Cleanup(func() { dev.Close() })
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 5).Draw(t, "ranks")
		rows, width := rapid.IntRange(1, 12).Draw(t, "rows"), rapid.IntRange(1, 3).Draw(t, "width")
		init := graph.Normal{Std: 1}
		alone := graph.NewStore(dev, graph.StoreOptions{Seed: 3})
		defer alone.Close()
		graph.New(alone).Parameter("x", device.Float64, init, rows, width)
		check(t, alone.Allocate())
		want := devicetest.Floats(alone.Variable("x").Tensor())

		weight := make([][]float64, ranks) // of the sum that is a rank's loss
		sum := make([]float64, rows*width)
		for r := range weight {
			for i := range sum {
				weight[r] = append(weight[r], float64(rapid.IntRange(-9, 9).Draw(t, "weight")))
				sum[i] += weight[r][i]
			}
		}
		groups, err := local.New(ranks, local.Options{Timeout: 10 * time.Second})
		check(t, err)
		machines := make([]*graph.Machine, ranks)
		for r, g := range groups {
			store := graph.NewStore(dev, graph.StoreOptions{Seed: 3, Layout: parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}, Shard: g}})
			defer store.Close()
			b := graph.New(store)
			x := b.Parameter("x", device.Float64, init, rows, width)
			b.AddLoss("loss", graph.Sum(nn.Mul(x, b.Input("weight", device.Float64, rows, width))))
			b.Output("x", x)
			b.Output("dx", b.Backward(b.Parameters()...)[0])
			built, err := b.Graph()
			check(t, err)
			p, err := graph.Compile(built, graph.CompileOptions{})
			check(t, err)
			machines[r], err = graph.NewMachine(p)
			check(t, err)
			defer machines[r].Close()
			check(t, graph.Feed(machines[r], "weight", weight[r]))
		}
		errs := make([]error, ranks)
		var running sync.WaitGroup
		for r, m := range machines {
			running.Go(func() { errs[r] = m.Run(context.Background(), graph.RunOptions{Step: 1}) })
		}
		running.Wait()
		part := (rows + ranks - 1) / ranks * width
		for r, m := range machines {
			check(t, errs[r])
			if got := devicetest.Floats(m.Output("x")); !slices.Equal(got, want) {
				t.Fatalf("rank %d computes with %v, want %v", r, got, want)
			}
			gradient := weight[r] // of its own alone, if the parameter is not divided
			if rows >= ranks {
				padded := append(slices.Clone(sum), make([]float64, part*ranks-len(sum))...)
				gradient = padded[r*part : (r+1)*part]
			}
			if got := devicetest.Floats(m.Output("dx")); !slices.Equal(got, gradient) {
				t.Fatalf("rank %d of %d, %d rows: the gradient is %v, want %v", r, ranks, rows, got, gradient)
			}
		}
	})
}

// A gathered parameter can be asked for by its tag.
func TestGatheredTag(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	defer dev.Close()
	store := graph.NewStore(dev, graph.StoreOptions{Layout: parallel.Layout{Experts: moe.ExpertLayout{Ranks: 1}, Shard: collective.Seat("shard", 1, 2)}})
	b := graph.New(store)
	b.Output("x", b.Parameter("x", device.Float32, graph.Zeros, 4))
	g, err := b.Graph()
	check(t, err)
	if !slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Kind == "wait" && n.Tagged(parallel.GatheredTag) }) {
		t.Error("no node is tagged")
	}
}

func check(t interface {
	Helper()
	Fatal(...any)
}, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
