package modeltest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device/philox"
)

// Golden is what a generator in testdata writes; C is the model's configuration.
type Golden[C any] struct {
	Seed       uint64
	Batch, Seq int
	Config     C

	// BatchCall counts the batches that were drawn before this one.
	BatchCall         int `json:"batch_call"`
	Labels, Documents int
	Loss              float64
	LossFloat32       float64 `json:"loss_float32"`
	GradNorm          float64 `json:"grad_norm"`
	Parameters        map[string]Parameter
	Optimizer         Optimizer
	Steps             []Step
	// Margin of the narrowest choice of experts, and the tokens that each expert of
	// a layer received.
	Margin float64
	Loads  map[string][]float64
}

// Parameter is what is known of one.
type Parameter struct {
	Shape          []int
	Initial        []float64
	GradNorm       float64   `json:"grad_norm"`
	GradProjection float64   `json:"grad_projection"`
	GradSamples    []float64 `json:"grad_samples"`
	Float32Error   float64   `json:"float32_error"`
}

// Optimizer is an AdamW with clipping.
type Optimizer struct {
	LR, Beta1, Beta2, Eps float64
	WeightDecay           float64 `json:"weight_decay"`
	MaxNorm               float64 `json:"max_norm"`
}

// Step is an update on the same batch.
type Step struct {
	Loss       float64
	GradNorm   float64 `json:"grad_norm"`
	Parameters map[string]struct {
		Norm    float64
		Samples []float64
	}
}

// Read returns the golden values of testdata/name.json.
func Read[C any](t *testing.T, name string) *Golden[C] {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	g := new(Golden[C])
	if err := d.Decode(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// Draw draws what golden.py's batch draws.
func (g *Golden[C]) Draw(vocab int) data.Batch {
	b := data.Batch{Rows: g.Batch, SeqLen: g.Seq}
	draw := func(name string, width, row, column int) uint64 {
		return philox.Uint64(philox.Key(g.Seed, "golden."+name, g.BatchCall), uint64(row*width+column), 0, 0)
	}
	token := func(row, column int) int32 {
		return int32(draw("tokens", g.Seq+1, row, column) % uint64(vocab))
	}
	begins := func(row, column int) bool {
		return column == 0 || draw("documents", g.Seq+1, row, column)%10 == 0
	}
	for row := range g.Batch {
		start := 0
		for column := range g.Seq {
			if begins(row, column) {
				start = column
			}
			label := token(row, column+1)
			if begins(row, column+1) || draw("ignored", g.Seq, row, column)%8 == 0 {
				label = data.Ignore
			} else {
				b.Valid++
			}
			b.Tokens = append(b.Tokens, token(row, column))
			b.Labels = append(b.Labels, label)
			b.Positions = append(b.Positions, int32(column-start))
			b.DocumentStart = append(b.DocumentStart, int32(start))
		}
	}
	return b
}

// Samples are the entries of values that the golden stores for a parameter.
func (g *Golden[C]) Samples(name string, values []float64, count int) []float64 {
	out := make([]float64, count)
	for i := range out {
		draw := philox.Uint64(philox.Key(g.Seed, "golden.sample."+name, 0), uint64(i), 0, 0)
		out[i] = values[draw%uint64(len(values))]
	}
	return out
}

// projection is golden.py's: a sum that every entry and its place changes.
func (g *Golden[C]) projection(name string, values []float64) float64 {
	key := philox.Key(g.Seed, "golden.projection."+name, 0)
	sum := 0.0
	for i, v := range values {
		sum += v * (2*philox.Float64(philox.Uint64(key, uint64(i), 0, 0)) - 1)
	}
	return sum
}
