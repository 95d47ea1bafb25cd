package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/lethe-go/lethe/bench/internal/quantile"
)

// Row is one comparison.
type Row struct {
	Name string `json:"name"`
	// Peer is one of those of the command's documentation.
	Peer string `json:"peer"`
	// Ratio is how many times faster Lethe is, or smaller.
	Ratio   float64 `json:"ratio"`
	Threads int     `json:"threads"`

	low, high float64 // ratios of the turns
	rate      string  // of Lethe, for people
}

// newRow makes a row of the ratios of its turns.
func newRow(name, peer string, threads int, ratios []float64, rate string) Row {
	return Row{Name: name, Peer: peer, Threads: threads, Ratio: quantile.Median(ratios),
		low: slices.Min(ratios), high: slices.Max(ratios), rate: rate}
}

// table prints rows as they come: a run takes minutes.
type table struct {
	out  io.Writer
	json *json.Encoder // nil for people
}

func newTable(out io.Writer, asJSON bool) *table {
	t := &table{out: out}
	if asJSON {
		t.json = json.NewEncoder(out)
		return t
	}
	fmt.Fprintf(out, "%-40s  %-20s  %7s  %6s  %6s  %7s  %16s\n", "name", "peer", "threads", "ratio", "lowest", "highest", "lethe")
	return t
}

func (t *table) add(r Row) error {
	if t.json != nil {
		return t.json.Encode(r)
	}
	_, err := fmt.Fprintf(t.out, "%-40s  %-20s  %7d  %6.2f  %6.2f  %7.2f  %16s\n", r.Name, r.Peer, r.Threads, r.Ratio, r.low, r.high, r.rate)
	return err
}
