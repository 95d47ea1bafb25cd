package flight

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/lethe-go/lethe/internal/atomicfile"
)

// Record is what a file tells: the last collectives of a rank, and why it was written.
type Record struct {
	Rank  int `json:"rank"`
	Ranks int `json:"ranks"`
	// Written is when, and Cause why.
	Written time.Time    `json:"written"`
	Cause   string       `json:"cause"`
	Groups  []GroupState `json:"groups"`
	// Collectives in the order in which they began.
	Collectives []Call `json:"collectives"`
}

// GroupState is one group of the rank.
type GroupState struct {
	Name string `json:"name"`
	// Rank in the group; Ranks are the members' in the job.
	Rank  int   `json:"rank"`
	Ranks []int `json:"ranks"`
	// Begun and Done count collectives: the last that was begun, and the last that was a
	// success.
	Begun int `json:"begun"`
	Done  int `json:"done"`
}

// Call is one collective.
type Call struct {
	Group    string `json:"group"`
	Sequence int    `json:"sequence"` // in the group, from 1
	Op       string `json:"op"`
	Node     string `json:"node,omitempty"`
	Pass     string `json:"pass"`
	Step     uint32 `json:"step"`
	// Microbatch counts from 0.
	Microbatch uint32 `json:"microbatch"`
	// SentBytes and ReceivedBytes are those to and from other ranks.
	SentBytes     int64 `json:"sent_bytes"`
	ReceivedBytes int64 `json:"received_bytes"`
	// State is "waiting" for other ranks, "moving" data, "done" or "failed".
	State string    `json:"state"`
	Begun time.Time `json:"begun"`
	// WaitSeconds passed until all ranks had come, Seconds until the end, or until the
	// record was written.
	WaitSeconds float64 `json:"wait_seconds"`
	Seconds     float64 `json:"seconds"`
}

// Write writes the record, because of the cause. The file is complete or not there.
func (r *Recorder) Write(cause error) error {
	if r.Folder == "" {
		return nil
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	record := r.Snapshot(cause)
	if err := os.MkdirAll(r.Folder, 0o777); err != nil {
		return fmt.Errorf("collective: flight record: %w", err)
	}
	if err := atomicfile.Write(atomicfile.OS, r.Path(), record.encode); err != nil {
		return fmt.Errorf("collective: flight record: %w", err)
	}
	return nil
}

// Snapshot is what Write would write.
func (r *Recorder) Snapshot(cause error) *Record {
	now := time.Now()
	record := &Record{Rank: r.Rank, Ranks: r.Ranks, Written: now}
	if cause != nil {
		record.Cause = cause.Error()
	}
	r.mu.Lock()
	entries := slices.Clone(r.ring[:min(r.ended, len(r.ring))])
	for _, g := range r.groups {
		begun := g.now.sequence
		done := begun
		if begun > 0 && (g.busy || g.now.state == failed) {
			done--
		}
		record.Groups = append(record.Groups, GroupState{g.Name(), g.Rank(), g.ranks, begun, done})
		if g.busy {
			entries = append(entries, g.now)
		}
	}
	r.mu.Unlock()
	slices.SortStableFunc(entries, func(a, b entry) int { return a.begun.Compare(b.begun) })
	for i := range entries {
		record.Collectives = append(record.Collectives, entries[i].describe(now))
	}
	return record
}

func (e *entry) describe(now time.Time) Call {
	end, met := e.finally, e.met
	if end.IsZero() {
		end = now
	}
	if met.IsZero() {
		met = end
	}
	return Call{
		Group: e.group.Name(), Sequence: e.sequence, Op: e.kind.String(), Node: e.caller.Node, Pass: e.caller.Pass.String(),
		Step: e.caller.Step, Microbatch: e.caller.Microbatch, SentBytes: e.sent, ReceivedBytes: e.received, State: e.state.String(),
		Begun: e.begun, WaitSeconds: met.Sub(e.begun).Seconds(), Seconds: end.Sub(e.begun).Seconds(),
	}
}

// encode writes JSON with a group or collective on each line.
func (r *Record) encode(w io.Writer) error {
	head := *r
	head.Groups, head.Collectives = nil, nil
	text, err := json.Marshal(struct {
		Record
		Groups      *struct{} `json:"groups,omitempty"`
		Collectives *struct{} `json:"collectives,omitempty"`
	}{Record: head})
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "%s,\n\"groups\":[", text[:len(text)-1]); err != nil {
		return err
	}
	if err := lines(w, r.Groups); err != nil {
		return err
	}
	if _, err := io.WriteString(w, "],\n\"collectives\":["); err != nil {
		return err
	}
	if err := lines(w, r.Collectives); err != nil {
		return err
	}
	_, err = io.WriteString(w, "]}\n")
	return err
}

// lines writes the elements of an array.
func lines[T any](w io.Writer, list []T) error {
	for i, x := range list {
		text, err := json.Marshal(x)
		if err != nil {
			return err
		}
		comma := ","
		if i == len(list)-1 {
			comma = ""
		}
		if _, err := fmt.Fprintf(w, "\n%s%s", text, comma); err != nil {
			return err
		}
	}
	return nil
}
