package train

import (
	"reflect"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/graph"
)

// movedAway has what its layers would keep wait outside the arena.
type movedAway struct{ Balanced }

func (m movedAway) Build(b *graph.Builder, in Inputs, p Policies) {
	p.Layer = checkpoint.Offload(p.Layer)
	m.Balanced.Build(b, in, p)
}

// A copy out of the arena or back is no run of its node: neither its time nor, if that is a
// collective, its traffic.
func TestCopiesAreNoRuns(t *testing.T) {
	c, o := replicated(t, 1)
	compile := func(m Model) *programs {
		o.Model = m
		seats := newLayout(c.Parallelism).seats(0)
		d, closeDevice, err := openDevice(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		defer closeDevice()
		of, err := newCompiler(c, o, newStore(d, c, 0, seats), seats)
		if err != nil {
			t.Fatal(err)
		}
		p, _, err := of.compile()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	kept, moved := compile(o.Model), compile(movedAway{o.Model.(Balanced)})
	if moved.first.Bound().Offloaded == 0 {
		t.Fatal("nothing is offloaded")
	}
	costs := checkpoint.DefaultCosts()
	if got, want := moved.times(1, costs), kept.times(1, costs); got != want {
		t.Errorf("times %+v, want %+v", got, want)
	}
	if got, want := trafficTable(moved.first), trafficTable(kept.first); !reflect.DeepEqual(got, want) || len(want.Rows) == 0 {
		t.Errorf("traffic %v, want %v", got.Rows, want.Rows)
	}
}
