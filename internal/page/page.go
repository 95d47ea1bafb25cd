// Package page makes self-contained HTML pages of charts and tables: no network, one
// inline style and script, readable in the dark, on a phone, printed and by keyboard.
//
// All text goes through html/template, and the page forbids itself every script but its
// own, so that a name taken from a model or a file stays text.
package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Page is a title, a line below it and sections.
type Page struct {
	Title, Summary string
	Sections       []Section
}

// Section is a heading with what stands below it.
type Section struct {
	Title  string
	Lines  []Lines
	Heats  []Heat
	Spans  []Spans
	Tables []Table
}

// Table has a cell of text for each column in every row.
type Table struct {
	Caption string
	Columns []string
	Rows    [][]string
}

// Words names a class for each column of words in place of numbers: they stand at the left.
func (t Table) Words() string {
	var classes []string
	for i := range t.Columns {
		if slices.ContainsFunc(t.Rows, func(row []string) bool { return startsWithLetter(row[i]) }) {
			classes = append(classes, fmt.Sprint("words", i+1))
		}
	}
	return strings.Join(classes, " ")
}

func startsWithLetter(s string) bool {
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r)
}

var (
	//go:embed page.html
	layout string
	//go:embed style.css
	style string
	//go:embed script.js
	script string

	pages = template.Must(template.New("page").Parse(layout))
)

// Write writes the page.
func (p Page) Write(w io.Writer) error {
	hash := sha256.Sum256([]byte(script))
	err := pages.Execute(w, struct {
		Page
		Style  template.CSS
		Script template.JS
		Hash   string
	}{p, template.CSS(style), template.JS(script), base64.StdEncoding.EncodeToString(hash[:])})
	if err != nil {
		return fmt.Errorf("page: %s: %w", p.Title, err)
	}
	return nil
}

// Tick is a label at a place in percent of the length of an axis.
type Tick struct {
	At   float64
	Text string
}

// cursor is what the script reads of a chart: cells in rows, the middle of each column in
// percent of the width, and a text for each cell, row by row. With Cell neighbouring cells
// share texts: it has the index of each cell's. With Row and Column a text begins with those
// of its cell.
type cursor struct {
	At     []float64 `json:"at"`
	Rows   int       `json:"rows"`
	Text   []string  `json:"text"`
	Cell   []int     `json:"cell,omitempty"`
	Row    []string  `json:"row,omitempty"`
	Column []string  `json:"column,omitempty"`
}
