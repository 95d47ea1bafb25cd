package page

import (
	"fmt"
	"math"
	"slices"
)

// Spans shows what each of several lanes was busy with over time.
type Spans struct {
	Title, Note string
	// X is the time and its unit, such as "milliseconds"; it begins at 0 and ends at Length.
	X      string
	Length float64
	// Kinds are the legend; lanes may be busy with other things than these.
	Kinds []string
	Lanes []Lane
}

// Lane has spans in order of time, which do not overlap.
type Lane struct {
	Name  string
	Spans []Span
}

// Span is a stretch of a lane.
type Span struct {
	Begin, End float64
	Kind       int // index in Kinds, or −1 for something else
	Text       string
}

// spanColumns are drawn; in each a lane shows the kind that took most of it.
const spanColumns = 600

// spanMap is what the template draws of Spans, in a box of one unit a lane and column.
type spanMap struct {
	Spans
	Width, Height int
	Bars          []spanBar
	Ticks         []Tick
	Cursor        cursor
	Table         Table
}

type spanBar struct{ X, Y, Width, Kind int }

// Map prepares the chart for the template.
func (s Spans) Map() spanMap {
	m := spanMap{Spans: s, Width: spanColumns, Height: len(s.Lanes), Cursor: cursor{At: []float64{}, Rows: len(s.Lanes), Text: []string{}, Cell: []int{}}}
	for i := range spanColumns {
		m.Cursor.At = append(m.Cursor.At, math.Round(1e5*(float64(i)+0.5)/spanColumns)/1000)
	}
	x := scale{high: s.Length}
	if s.Length > 0 {
		for _, v := range x.ticks(8) {
			m.Ticks = append(m.Ticks, Tick{100 * x.at(v), fmt.Sprintf("%.6g", v)})
		}
	}
	for y, lane := range s.Lanes {
		m.lane(y, lane)
	}
	m.Table = s.table()
	return m
}

// lane draws one lane. Neighbouring columns that show the same span, or one kind in spans
// that are narrower than a column, are one bar.
func (m *spanMap) lane(y int, lane Lane) {
	columns := m.columns(lane.Spans)
	for from := 0; from < len(columns); {
		to := from + 1
		for to < len(columns) && columns[to] == columns[from] {
			to++
		}
		c := columns[from]
		text := lane.Name + " · idle"
		if c.busy {
			if c.kind >= 0 {
				m.Bars = append(m.Bars, spanBar{from, y, to - from, c.kind})
			}
			text = lane.Name + " · " + lane.Spans[c.span].Text
		}
		for range to - from {
			m.Cursor.Cell = append(m.Cursor.Cell, len(m.Cursor.Text))
		}
		m.Cursor.Text = append(m.Cursor.Text, text)
		from = to
	}
}

// spanColumn is what a lane shows in a column.
type spanColumn struct {
	busy bool
	kind int
	span int // the longest of that kind
}

func (m *spanMap) columns(spans []Span) []spanColumn {
	columns := make([]spanColumn, spanColumns)
	width := m.Length / spanColumns
	first := 0
	for i := range columns {
		begin, end := float64(i)*width, float64(i+1)*width
		for first < len(spans) && spans[first].End <= begin {
			first++
		}
		took := make([]float64, len(m.Kinds)+1) // by kind, the last is anything else
		longest := slices.Repeat([]int{-1}, len(took))
		for j := first; j < len(spans) && spans[j].Begin < end; j++ {
			k := spans[j].Kind
			if k < 0 {
				k = len(m.Kinds)
			}
			took[k] += min(end, spans[j].End) - max(begin, spans[j].Begin)
			if l := longest[k]; l < 0 || spans[j].End-spans[j].Begin > spans[l].End-spans[l].Begin {
				longest[k] = j
			}
		}
		most := 0
		for k, t := range took {
			if t > took[most] {
				most = k
			}
		}
		if took[most] > 0 {
			kind := most
			if most == len(m.Kinds) {
				kind = -1
			}
			columns[i] = spanColumn{true, kind, longest[most]}
		}
	}
	return columns
}

// table sums the times by lane and kind.
func (s Spans) table() Table {
	t := Table{Caption: fmt.Sprintf("%s: %s by lane", s.Title, s.X), Columns: append([]string{"lane"}, s.Kinds...)}
	t.Columns = append(t.Columns, "other", "idle")
	for _, lane := range s.Lanes {
		sums := make([]float64, len(s.Kinds)+2)
		sums[len(s.Kinds)+1] = s.Length
		for _, x := range lane.Spans {
			k := x.Kind
			if k < 0 {
				k = len(s.Kinds)
			}
			sums[k] += x.End - x.Begin
			sums[len(s.Kinds)+1] -= x.End - x.Begin
		}
		row := []string{lane.Name}
		for _, v := range sums {
			row = append(row, fmt.Sprintf("%.3f", max(v, 0)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
