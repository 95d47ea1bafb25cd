package flight

import (
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/graph"
)

// Counts are the collectives that have succeeded.
type Counts [graph.Passes][collective.Kinds]Count

// Count of one kind in one pass. Sent and Received are the bytes to other ranks and from them.
type Count struct {
	Calls    int64 `json:"calls"`
	Sent     int64 `json:"sent_bytes"`
	Received int64 `json:"received_bytes"`
}

// Counts since the Recorder was made, of all its groups.
func (r *Recorder) Counts() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts
}

func (c *Counts) add(e *entry) {
	c.Add(e.caller.Pass, e.kind, Count{1, e.sent, e.received})
}

// Add counts more of one kind in one pass.
func (c *Counts) Add(p graph.Pass, k collective.Kind, more Count) {
	n := &c[p][k]
	n.Calls, n.Sent, n.Received = n.Calls+more.Calls, n.Sent+more.Sent, n.Received+more.Received
}

// Plus is the sum of both.
func (c Counts) Plus(more Counts) Counts {
	for p := range c {
		for k := range c[p] {
			c.Add(graph.Pass(p), collective.Kind(k), more[p][k])
		}
	}
	return c
}

// Minus is what has been added since.
func (c Counts) Minus(earlier Counts) Counts {
	for p := range c {
		for k := range c[p] {
			n, m := &c[p][k], &earlier[p][k]
			n.Calls, n.Sent, n.Received = n.Calls-m.Calls, n.Sent-m.Sent, n.Received-m.Received
		}
	}
	return c
}
