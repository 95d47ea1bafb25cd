package page

import (
	"fmt"
	"math"
	"slices"
)

// Heat is a map of values over rows and columns; a darker cell is a larger value.
type Heat struct {
	Title, Note string
	// X is what columns count, such as "step".
	X       string
	Columns []float64
	Rows    []HeatRow
	// Format prints a value; nil prints four digits.
	Format func(float64) string
}

// HeatRow has a value for each column, NaN where there is none.
type HeatRow struct {
	Name   string
	Values []float64
}

// mostColumns are drawn; of more, the largest value of each stretch is.
const mostColumns = 160

// heatMap is what the template draws of a Heat, in a box of one unit a cell.
type heatMap struct {
	Heat
	Width, Height int
	Cells         []heatCell
	Ticks         []Tick
	Low, High     string
	Cursor        cursor
	Table         Table
}

type heatCell struct {
	X, Y, Width int
	Opacity     float64
}

// cell draws a cell, or widens its neighbour at the left if that looks the same.
func (m *heatMap) cell(x, y int, opacity float64) {
	if n := len(m.Cells); n > 0 {
		if c := &m.Cells[n-1]; c.Y == y && c.X+c.Width == x && c.Opacity == opacity {
			c.Width++
			return
		}
	}
	m.Cells = append(m.Cells, heatCell{x, y, 1, opacity})
}

// Map prepares the map for the template.
func (h Heat) Map() heatMap {
	if h.Format == nil {
		h.Format = func(v float64) string { return fmt.Sprintf("%.4g", v) }
	}
	h = h.thin()
	m := heatMap{Heat: h, Width: len(h.Columns), Height: len(h.Rows), Cursor: cursor{At: []float64{}, Rows: len(h.Rows), Text: []string{}}}
	m.Table = Table{Caption: h.Title, Columns: []string{"", "least", "mean", "largest", "last"}}
	var all []float64
	for _, r := range h.Rows {
		all = append(all, r.Values...)
	}
	s := newScale(all, false)
	m.Low, m.High = h.Format(s.low), h.Format(s.high)
	for i, x := range h.Columns {
		m.Cursor.At = append(m.Cursor.At, math.Round(1000*100*(float64(i)+0.5)/float64(m.Width))/1000)
		m.Cursor.Column = append(m.Cursor.Column, h.X+" "+coordinate(x))
	}
	m.Ticks = h.ticks()
	for y, r := range h.Rows {
		for i, v := range r.Values {
			if finite(v) {
				m.cell(i, y, math.Round(100*(0.04+0.96*s.at(v)))/100)
			}
			m.Cursor.Text = append(m.Cursor.Text, h.Format(v))
		}
		m.Cursor.Row = append(m.Cursor.Row, r.Name)
		m.Table.Rows = append(m.Table.Rows, r.summary(h.Format))
	}
	return m
}

// ticks are round values, each at the column nearest to it.
func (h Heat) ticks() []Tick {
	var list []Tick
	for _, v := range newScale(h.Columns, false).ticks(8) {
		i, _ := slices.BinarySearch(h.Columns, v)
		if i > 0 && (i == len(h.Columns) || v-h.Columns[i-1] < h.Columns[i]-v) {
			i--
		}
		if i < len(h.Columns) {
			list = append(list, Tick{100 * (float64(i) + 0.5) / float64(len(h.Columns)), fmt.Sprintf("%.6g", v)})
		}
	}
	return list
}

func (r HeatRow) summary(format func(float64) string) []string {
	low, high, sum, n := math.Inf(1), math.Inf(-1), 0.0, 0
	for _, v := range r.Values {
		if finite(v) {
			low, high, sum, n = min(low, v), max(high, v), sum+v, n+1
		}
	}
	if n == 0 {
		return []string{r.Name, "–", "–", "–", "–"}
	}
	row := []string{r.Name}
	for _, v := range []float64{low, sum / float64(n), high, r.Values[len(r.Values)-1]} {
		row = append(row, format(v))
	}
	return row
}

func (h Heat) thin() Heat {
	stretch := (len(h.Columns) + mostColumns - 1) / mostColumns
	if stretch <= 1 {
		return h
	}
	out := h
	out.Columns, out.Rows = nil, make([]HeatRow, len(h.Rows))
	for from := 0; from < len(h.Columns); from += stretch {
		out.Columns = append(out.Columns, h.Columns[from])
	}
	for i, r := range h.Rows {
		out.Rows[i].Name = r.Name
		for from := 0; from < len(r.Values); from += stretch {
			most := math.NaN()
			for _, v := range r.Values[from:min(from+stretch, len(r.Values))] {
				if !(v <= most) && !math.IsNaN(v) {
					most = v
				}
			}
			out.Rows[i].Values = append(out.Rows[i].Values, most)
		}
	}
	return out
}
