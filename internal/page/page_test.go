package page

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

func TestTicks(t *testing.T) {
	for _, x := range []struct {
		values []float64
		log    bool
		want   []float64
	}{
		{[]float64{0, 10}, false, []float64{0, 2, 4, 6, 8, 10}},
		{[]float64{3, 9, math.NaN(), math.Inf(1)}, false, []float64{4, 6, 8}},
		{[]float64{1, 1000}, true, []float64{1, 10, 100, 1000}},
		{[]float64{0, 1000}, true, []float64{0, 200, 400, 600, 800, 1000}},
		{nil, true, []float64{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}},
	} {
		if got := newScale(x.values, x.log).ticks(5); fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("%v: %v, want %v", x.values, got, x.want)
		}
	}
	if s := newScale([]float64{7}, true); s.at(7) != 0.5 {
		t.Errorf("a value alone is at %v", s.at(7))
	}
}

// The path goes up as values do, and gaps split it.
func TestPath(t *testing.T) {
	s := Series{X: []float64{0, 1, 2, 3, 4}, Y: []float64{0, 10, math.NaN(), 10, 5}}
	got := s.path(newScale(s.X, false), newScale(s.Y, false))
	if want := "M0.0 300.0h.1L250.0 0.0M750.0 0.0h.1L1000.0 150.0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Thinning loses no extreme and nothing that is not finite.
func TestThin(t *testing.T) {
	s := Series{}
	for i := range 100_000 {
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, math.Sin(float64(i)))
	}
	s.Y[4321], s.Y[54321], s.Y[99999] = 50, -60, math.NaN()
	got := s.thin(mostPoints)
	if len(got.X) > mostPoints || len(got.X) != len(got.Y) || !slices.IsSorted(got.X) {
		t.Fatalf("%d and %d points", len(got.X), len(got.Y))
	}
	if !slices.Contains(got.Y, 50) || !slices.Contains(got.Y, -60) || !slices.ContainsFunc(got.Y, math.IsNaN) {
		t.Error("an extreme is lost")
	}
}

func TestHeatThinsToTheLargest(t *testing.T) {
	h := Heat{Rows: []HeatRow{{Name: "a"}}}
	for i := range 1000 {
		h.Columns, h.Rows[0].Values = append(h.Columns, float64(i)), append(h.Rows[0].Values, math.NaN())
	}
	h.Rows[0].Values[500], h.Rows[0].Values[501] = 2, 3
	m := h.Map()
	if m.Width > mostColumns || len(m.Cells) != 1 || len(m.Cursor.Text) != m.Width {
		t.Errorf("%d columns, %d cells, %d texts", m.Width, len(m.Cells), len(m.Cursor.Text))
	}
	if row := m.Table.Rows[0]; row[3] != "3" {
		t.Errorf("%v", row)
	}
}

// Ticks of a map are round, at the columns nearest to them, also where columns were thinned.
func TestHeatTicks(t *testing.T) {
	h := Heat{Columns: []float64{1, 4, 7, 10, 13}}
	if got, want := fmt.Sprint(h.ticks()), "[{10 2} {30 4} {50 6} {50 8} {70 10} {90 12}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestColumnsOfWords(t *testing.T) {
	table := Table{Columns: []string{"name", "bytes", "shape", "budget"}, Rows: [][]string{{"a", "4 B", "float32[2]", "–"}, {"b", "1 KiB", "–", "3 B"}}}
	if got := table.Words(); got != "words1 words3" {
		t.Error(got)
	}
}

// What is 0 everywhere takes no colour from what follows.
func TestStackedWithoutEmptySeries(t *testing.T) {
	x := []float64{0, 1}
	c := Lines{Stacked: true, Series: []Series{{Name: "a", X: x, Y: []float64{0, 0}}, {Name: "b", X: x, Y: []float64{1, 2}}}}.Chart()
	if len(c.Paths) != 1 || c.Paths[0].Class != "c1 area" || len(c.Table.Columns) != 2 {
		t.Errorf("%+v, columns %v", c.Paths, c.Table.Columns)
	}
}
