package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Lines is a chart of series over one axis.
type Lines struct {
	Title, Note string
	// X is what the horizontal axis counts, such as "step".
	X      string
	Series []Series
	// Format prints a value of the vertical axis; nil prints four digits.
	Format func(float64) string
	// Label says more about a place of the horizontal axis, or is nil.
	Label func(x float64) string
}

// Series is a line; X ascends. A value that is not finite leaves a gap.
type Series struct {
	Name string
	X, Y []float64
}

// mostPoints of a series are drawn; of more, the extremes of each stretch are.
const mostPoints = 1000

// chart is what the template draws of a Lines.
type chart struct {
	Lines
	Log    bool
	Paths  []path
	XTicks []Tick
	YTicks []Tick
	Cursor cursor
	Table  Table
}

type path struct{ Name, D string }

// Chart prepares the chart for the template.
func (l Lines) Chart() chart {
	if l.Format == nil {
		l.Format = func(v float64) string { return fmt.Sprintf("%.4g", v) }
	}
	var xs, ys []float64
	series := make([]Series, len(l.Series))
	for i, s := range l.Series {
		series[i] = s.thin(mostPoints)
		xs, ys = append(xs, series[i].X...), append(ys, series[i].Y...)
	}
	l.Series = series
	x, y := newScale(xs, false), newScale(ys, true)
	c := chart{Lines: l, Log: y.log}
	for _, s := range series {
		c.Paths = append(c.Paths, path{s.Name, s.path(x, y)})
	}
	for _, v := range x.ticks(6) {
		c.XTicks = append(c.XTicks, Tick{100 * x.at(v), fmt.Sprintf("%.6g", v)})
	}
	for _, v := range y.ticks(5) {
		c.YTicks = append(c.YTicks, Tick{100 - 100*y.at(v), l.Format(v)})
	}
	slices.Sort(xs)
	c.read(slices.Compact(xs), x)
	return c
}

// read makes the texts of the cursor, and of some of its places the table.
func (c *chart) read(xs []float64, x scale) {
	c.Cursor = cursor{At: []float64{}, Rows: 1, Text: []string{}}
	c.Table = Table{Caption: c.Title, Columns: []string{c.X}}
	for _, s := range c.Series {
		c.Table.Columns = append(c.Table.Columns, s.Name)
	}
	const rows = 40
	every := max(1, (len(xs)+rows-1)/rows)
	for i, v := range xs {
		row := []string{fmt.Sprintf("%.12g", v)}
		text := c.X + " " + row[0]
		for _, s := range c.Series {
			value := "–"
			if at, ok := slices.BinarySearch(s.X, v); ok {
				value = c.Format(s.Y[at])
			}
			row = append(row, value)
			text += " · " + s.Name + " " + value
		}
		if c.Label != nil {
			text += " · " + c.Label(v)
		}
		c.Cursor.At = append(c.Cursor.At, math.Round(1000*100*x.at(v))/1000)
		c.Cursor.Text = append(c.Cursor.Text, text)
		if i%every == 0 || i == len(xs)-1 {
			c.Table.Rows = append(c.Table.Rows, row)
		}
	}
}

// path is the line in a box of 1000 by 300 with its origin at the top.
func (s Series) path(x, y scale) string {
	var b strings.Builder
	down := false
	for i, v := range s.Y {
		if !finite(v) {
			down = false
			continue
		}
		letter := 'M'
		if down {
			letter = 'L'
		}
		down = true
		fmt.Fprintf(&b, "%c%.1f %.1f", letter, 1000*x.at(s.X[i]), 300-300*y.at(v))
		if i == 0 || !finite(s.Y[i-1]) {
			b.WriteString("h.1") // so that a point alone is seen
		}
	}
	return b.String()
}

// thin keeps the least and the largest value of each stretch, and what is not finite,
// so that no spike is lost.
func (s Series) thin(most int) Series {
	if len(s.X) <= most {
		return s
	}
	out := Series{Name: s.Name}
	stretch := (2*len(s.X) + most - 1) / most
	for from := 0; from < len(s.X); from += stretch {
		part := s.Y[from:min(from+stretch, len(s.X))]
		low, high := 0, 0
		for i, v := range part {
			if !(v >= part[low]) {
				low = i
			}
			if !(v <= part[high]) {
				high = i
			}
		}
		for _, i := range slices.Compact([]int{min(low, high), max(low, high)}) {
			out.X, out.Y = append(out.X, s.X[from+i]), append(out.Y, part[i])
		}
	}
	return out
}
