package graph_test

import (
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// What is computed of a part row by row is a part too, of as many rows and its own columns.
func TestPartIsCarried(t *testing.T) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	b := graph.New(graph.NewStore(dev, graph.StoreOptions{}))
	part := graph.Part{Whole: []int{2, 5, 4}, First: 6}
	x := b.WithPart(b.Input("x", device.Float32, 6, 4), part) // rows 6 … 9, and two of padding
	whole := b.Input("whole", device.Float32, 6, 4)
	for _, test := range []struct {
		name    string
		value   graph.Value
		columns int // of the whole that it is a part of; 0 if it is whole
	}{
		{"itself", x, 4},
		{"norm", nn.RMSNorm(b.Scope("norm"), x, 0), 4},
		{"sum", nn.Add(x, whole), 4},
		{"linear", nn.Linear(b.Scope("linear"), x, 7, nil), 7},
		{"another shape", graph.Reshape(x, 2, 3, 4), 0},
		{"fewer rows", graph.Reshape(x, 3, 8), 0},
		{"whole", nn.RMSNorm(b.Scope("other"), whole, 0), 0},
	} {
		got := test.value.Part()
		if test.columns == 0 {
			if !got.IsWhole() || got.Live(6) != 6 || got.Device() != (device.Part{}) {
				t.Errorf("%s: %+v, want the whole", test.name, got)
			}
			continue
		}
		if !slices.Equal(got.Whole, []int{2, 5, test.columns}) || got.First != 6 {
			t.Errorf("%s: %+v", test.name, got)
		}
		if got.Live(6) != 4 || got.Device() != (device.Part{First: 6, Whole: 10}) {
			t.Errorf("%s: %d live rows, %+v", test.name, got.Live(6), got.Device())
		}
	}
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
}
