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
	n := &c[e.caller.Pass][e.kind]
	n.Calls++
	n.Sent += e.sent
	n.Received += e.received
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
