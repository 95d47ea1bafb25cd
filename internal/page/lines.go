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
	// Stacked draws areas upon each other, from 0. All series have the same X then, and no
	// value is below 0; one that is 0 everywhere has no colour in the legend.
	Stacked bool
	// Linear keeps the vertical axis from being logarithmic.
	Linear bool
	// Marks are places of the horizontal axis that have a name.
	Marks []Mark
	// Format prints a value of the vertical axis; nil prints four digits.
	Format func(float64) string
	// Label says more about a place of the horizontal axis, or is nil.
	Label func(x float64) string
}

// Series is a line; X ascends. A value that is not finite leaves a gap.
type Series struct {
	Name string
	X, Y []float64
	// Points draws single points in place of a line, each with a name, which stands above
	// its point, or Below it.
	Points []string
	Below  bool
}

// Mark is a line across a chart.
type Mark struct {
	X    float64
	Text string
}

// mostPoints of a series are drawn; of more, the extremes of each stretch are.
const mostPoints = 1000

// chart is what the template draws of a Lines.
type chart struct {
	Lines
	Log    bool
	Paths  []path
	Points []point
	XTicks []Tick
	YTicks []Tick
	XMarks []Tick
	Cursor cursor
	Table  Table
}

type path struct{ Name, Class, D string }

// point is a name beside a point, at a place in percent of the chart from its upper left.
type point struct {
	X, Y float64
	Text string
	Left bool // of the point, where there is no room at its right
	Low  bool // below the point
}

// Chart prepares the chart for the template.
func (l Lines) Chart() chart {
	if l.Format == nil {
		l.Format = func(v float64) string { return fmt.Sprintf("%.4g", v) }
	}
	tops := l.thin()
	var xs, ys []float64
	for i, s := range l.Series {
		xs, ys = append(xs, s.X...), append(ys, tops[i]...)
	}
	if l.Stacked {
		ys = append(ys, 0)
	}
	x, y := newScale(xs, false), newScale(ys, !l.Stacked && !l.Linear)
	c := chart{Lines: l, Log: y.log}
	c.Series = nil
	for i, s := range l.Series {
		if l.Stacked && !slices.ContainsFunc(s.Y, func(v float64) bool { return v > 0 }) {
			continue
		}
		c.Series = append(c.Series, s)
		p := path{Name: s.Name, Class: fmt.Sprint("c", i)}
		switch {
		case l.Stacked:
			below := make([]float64, len(s.X))
			if i > 0 {
				below = tops[i-1]
			}
			p.Class, p.D = p.Class+" area", area(s.X, below, tops[i], x, y)
		case s.Points != nil:
			p.Class, p.D = p.Class+" points", s.dots(x, y)
			for j, text := range s.Points {
				if finite(s.Y[j]) {
					low := s.Below && y.at(s.Y[j]) > 0.1 // axes have labels of their own
					c.Points = append(c.Points, point{X: 100 * x.at(s.X[j]), Y: 100 - 100*y.at(s.Y[j]), Text: text, Left: low && x.at(s.X[j]) > 0.04 || x.at(s.X[j]) > 0.7, Low: low})
				}
			}
		default:
			p.D = s.path(x, y)
		}
		c.Paths = append(c.Paths, p)
	}
	for _, v := range x.ticks(8) {
		c.XTicks = append(c.XTicks, Tick{100 * x.at(v), fmt.Sprintf("%.6g", v)})
	}
	for _, v := range y.ticks(5) {
		c.YTicks = append(c.YTicks, Tick{100 - 100*y.at(v), l.Format(v)})
	}
	for _, m := range l.Marks {
		c.XMarks = append(c.XMarks, Tick{100 * x.at(m.X), m.Text})
	}
	slices.Sort(xs)
	c.read(slices.Compact(xs), x)
	return c
}

// thin leaves few enough values of each series, and returns where they are drawn: stacked
// ones are upon each other.
func (l *Lines) thin() (tops [][]float64) {
	l.Series = slices.Clone(l.Series)
	if l.Stacked {
		return l.stack()
	}
	for i, s := range l.Series {
		if s.Points == nil {
			l.Series[i] = s.thin(mostPoints)
		}
		tops = append(tops, l.Series[i].Y)
	}
	return tops
}

// stack keeps of each stretch where the sum is largest.
func (l *Lines) stack() (tops [][]float64) {
	if len(l.Series) == 0 {
		return nil
	}
	n := len(l.Series[0].X)
	total := make([]float64, n)
	for _, s := range l.Series {
		for i, v := range s.Y {
			total[i] += v
		}
	}
	var keep []int
	stretch := (n + mostPoints - 1) / mostPoints
	for from := 0; from < n; from += stretch {
		most := from
		for i := from; i < min(from+stretch, n); i++ {
			if total[i] > total[most] {
				most = i
			}
		}
		keep = append(keep, most)
	}
	sum := make([]float64, len(keep))
	for i, s := range l.Series {
		x, y := make([]float64, len(keep)), make([]float64, len(keep))
		for j, k := range keep {
			x[j], y[j] = s.X[k], s.Y[k]
			sum[j] += y[j]
		}
		l.Series[i].X, l.Series[i].Y = x, y
		tops = append(tops, slices.Clone(sum))
	}
	return tops
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
		row := []string{coordinate(v)}
		text := c.X + " " + row[0]
		for _, s := range c.Series {
			value := "–"
			if at, ok := slices.BinarySearch(s.X, v); ok {
				value = c.Format(s.Y[at])
				if s.Points != nil {
					value = s.Points[at] + " " + value
				}
				text += " · " + s.Name + " " + value
			}
			row = append(row, value)
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

// coordinate prints whole numbers, such as those of steps, in full.
func coordinate(v float64) string {
	if v == math.Trunc(v) {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
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

// dots are strokes so short that only their round ends are seen.
func (s Series) dots(x, y scale) string {
	var b strings.Builder
	for i, v := range s.Y {
		if finite(v) {
			fmt.Fprintf(&b, "M%.1f %.1fh.1", 1000*x.at(s.X[i]), 300-300*y.at(v))
		}
	}
	return b.String()
}

// area is what lies between two lines of steps: a value holds until the next.
func area(xs, low, high []float64, x, y scale) string {
	if len(xs) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", 1000*x.at(xs[0]), 300-300*y.at(high[0]))
	for i := 1; i < len(xs); i++ {
		if high[i] != high[i-1] || i == len(xs)-1 {
			fmt.Fprintf(&b, "H%.1fV%.1f", 1000*x.at(xs[i]), 300-300*y.at(high[i]))
		}
	}
	last := len(xs) - 1
	fmt.Fprintf(&b, "V%.1f", 300-300*y.at(low[last]))
	for i := last; i > 0; i-- {
		if low[i] != low[i-1] || i == 1 {
			fmt.Fprintf(&b, "H%.1fV%.1f", 1000*x.at(xs[i]), 300-300*y.at(low[i-1]))
		}
	}
	fmt.Fprintf(&b, "H%.1fZ", 1000*x.at(xs[0]))
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
