package moe_test

import (
	"fmt"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
)

// favour is a router's bias with which every token chooses the given experts.
func favour(experts int, chosen ...int) []float64 {
	bias := make([]float64, experts)
	for i, e := range chosen {
		bias[e] = 100 - float64(i)
	}
	return bias
}

// received is how many rows the experts of a rank had in the last run.
func received(m *member) int {
	for _, n := range m.machine.Counts() {
		return n
	}
	return -1
}

// TestExpertParallel compares experts spread over ranks with all of them on one rank
// that has all tokens. Each expert gets the same rows in the same order, so that its
// gradient has the same bits; the replicated parameters' are summed rank by rank.
func TestExpertParallel(t *testing.T) {
	sigmoid := moe.Router{Experts: 8, TopK: 3, Score: moe.Sigmoid, Normalize: true, Scale: 2.5, Bias: true, Init: wide}
	one := sigmoid
	one.TopK = 1
	equal := sigmoid
	equal.Init = graph.Zeros
	all := moe.Router{Experts: 4, TopK: 4, Init: wide}
	for _, c := range []struct {
		name   string
		router moe.Router
		tokens int // of each rank
		shared int
		bias   []float64
		idle   string // rank that receives nothing: first, last or none
	}{
		{"softmax", moe.Router{Experts: 8, TopK: 2, Init: wide}, 6, 0, nil, ""},
		{"sigmoid, shared", sigmoid, 16, 2, nil, ""},
		{"odd tokens", sigmoid, 7, 1, nil, ""},
		{"one token", sigmoid, 1, 1, nil, ""},
		{"many tokens", sigmoid, 131, 1, nil, ""},
		{"all tokens to one expert", one, 5, 1, favour(8, 5), "first"},
		{"ranks that receive nothing", sigmoid, 5, 0, favour(8, 1, 0, 2), "last"},
		{"the first rank receives nothing", sigmoid, 5, 0, favour(8, 6, 7, 4), "first"},
		{"equal scores", equal, 9, 1, nil, "last"},
		{"every expert", all, 3, 1, nil, ""},
		{"forced balance", moe.Router{Experts: 8, TopK: 2, ForceBalance: true, Init: wide}, 8, 1, nil, ""},
		{"groups", moe.Router{Experts: 8, TopK: 2, Score: moe.Sigmoid, Groups: 4, LimitedGroups: 2, Init: wide}, 6, 1, nil, ""},
	} {
		for _, ranks := range []int{2, 4} {
			for dtype, tolerance := range map[device.DType]float64{device.Float64: 1e-10, device.Float32: 1e-5} {
				t.Run(fmt.Sprintf("%s/%d ranks/%v", c.name, ranks, dtype), func(t *testing.T) {
					trial := trial{
						layer:  moe.Layer{Router: c.router, Hidden: 5, Shared: c.shared, Init: graph.Normal{Std: 0.5}, OutputInit: graph.Normal{Std: 0.5}},
						tokens: c.tokens * ranks, width: 6, dtype: dtype, bias: c.bias,
					}
					alone, spread := trial.start(t, 1), trial.start(t, ranks)
					for range 2 {
						runAll(t, alone)
						runAll(t, spread)
						compare(t, results(spread), results(alone), tolerance)
						for r, m := range spread {
							idle := c.idle == "first" && r == 0 || c.idle == "last" && r == ranks-1
							if n := received(m); n == 0 && c.idle == "" && c.tokens > 1 || n != 0 && idle {
								t.Errorf("rank %d has received %d rows", r, n)
							}
						}
					}
				})
			}
		}
	}
}
