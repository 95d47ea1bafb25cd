package graph

import (
	"context"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/instrument"
)

func TestDynamicRows(t *testing.T) {
	d, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	store := NewStore(instrument.Wrap(d), StoreOptions{})
	defer store.Close()
	b := New(store)
	rows := b.Rows("tokens", 10)
	x := b.RowsInput("x", rows, device.Float32, 10, 3)
	y := b.ApplyAll(mix{}, x, x)[0]
	b.AddLoss("loss", Sum(Reshape(y, 10, 3, 1)))
	b.Output("dx", b.Backward(x)[0])
	m := newMachine(t, b)
	for i := range device.Elements[float32](m.Input("x")) {
		device.Elements[float32](m.Input("x"))[i] = 2
	}
	bound := m.Program().Bound().Peak
	for _, n := range []int{10, 4, 1, 0} {
		if err := m.SetRows(rows, n); err != nil {
			t.Fatal(err)
		}
		seen, err := Measure(context.Background(), m, RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if want := float64(n * 3 * 6); m.Scalar("loss") != want {
			t.Errorf("%d rows: loss %v, want %v: dead rows must not count", n, m.Scalar("loss"), want)
		}
		if planned := m.Program().Memory(m.Counts()).Peak; seen.Peak != planned || planned > bound {
			t.Errorf("%d rows: measured peak %d, planned %d, bound %d", n, seen.Peak, planned, bound)
		}
		if got := m.Output("dx"); got.Rank() != 2 {
			t.Errorf("dx is %v", got)
		}
	}
	if err := m.SetRows(rows, 11); err == nil || !strings.Contains(err.Error(), `"tokens": 11 is outside [0, 10]`) {
		t.Errorf("error %v for too many rows", err)
	}
}
