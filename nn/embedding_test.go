package nn_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

func newEmbedding(t *testing.T) (*graph.Store, *graph.Machine) {
	t.Helper()
	store := newStore(t, 2)
	b := graph.New(store)
	ids := b.Input("ids", device.Int32, 2, 2)
	x := nn.Embedding(b.Scope("embed"), ids, nn.EmbeddingConfig{Vocab: 4, Dim: 2, DType: device.Float64})
	b.Output("x", x)
	b.AddLoss("loss", graph.Sum(x))
	b.Output("dtable", b.Backward(b.Parameters()...)[0])
	return store, newMachine(t, b)
}

func TestEmbedding(t *testing.T) {
	store, m := newEmbedding(t)
	check(t, graph.Feed(m, "ids", []int32{3, 0, 3, 3}))
	copy(values(store, "embed.weight"), []float64{0, 1, 2, 3, 4, 5, 6, 7})
	run(t, m, 1)
	if got, want := floats(m, "x"), []float64{6, 7, 0, 1, 6, 7, 6, 7}; !slices.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
	if got, want := floats(m, "dtable"), []float64{1, 1, 0, 0, 0, 0, 3, 3}; !slices.Equal(got, want) {
		t.Errorf("gradient %v, want %v", got, want)
	}
}

func TestEmbeddingRefusesIds(t *testing.T) {
	for _, id := range []int32{-1, 4} {
		_, m := newEmbedding(t)
		check(t, graph.Feed(m, "ids", []int32{0, 1, id, 2}))
		wantRunError(t, m, "embed.embedding:0", "id", "at index 2 is outside [0, 4)")
	}
}

func wantRunError(t *testing.T, m *graph.Machine, parts ...string) {
	t.Helper()
	err := m.Run(context.Background(), graph.RunOptions{Step: 1})
	if err == nil {
		t.Fatal("the run succeeded")
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}
