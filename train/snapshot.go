package train

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/atomicfile"
)

// MemorySnapshot tells what holds memory on the ranks of a process at one moment, or would
// hold it in a plan that was refused.
type MemorySnapshot struct {
	// Cause is why it was taken.
	Cause string `json:"cause"`
	// Step is the optimizer step that is made or was made last, 0 before the first.
	Step  int          `json:"step"`
	Ranks []RankMemory `json:"ranks"`
	// StateCopyBytes hold the copy of the state while it is written.
	StateCopyBytes int64 `json:"state_copy_bytes"`
}

// RankMemory is what holds the memory of a rank.
type RankMemory struct {
	Rank int `json:"rank"`
	// PersistentBytes are those of Variables, the largest first: held from start to end.
	PersistentBytes int64          `json:"persistent_bytes"`
	Variables       []HeldVariable `json:"variables"`
	// ArenaBytes is the size of the arena, LiveBytes what of it is alive.
	ArenaBytes int64 `json:"arena_bytes"`
	LiveBytes  int64 `json:"live_bytes"`
	// CheckBytes hold the copies of activation_checkpoint.check.
	CheckBytes int64 `json:"check_bytes,omitempty"`
	// Program that runs: "first", "more", "last", "norm", "update" or "evaluate". It is
	// empty between Programs: in the arena gradients alone may be alive then, until the step is
	// made.
	Program string `json:"program"`
	// Index is the place in the Program's schedule, from the feeding of inputs (0) to the
	// reading of outputs, and Node what runs there; empty at both ends.
	Index int    `json:"index"`
	Node  string `json:"node"`
	// Sums of LiveBytes, and Values one by one, the largest first.
	ByUse    []HeldSum   `json:"by_use"`
	ByRegion []HeldSum   `json:"by_region"`
	ByKind   []HeldSum   `json:"by_kind"`
	Values   []HeldValue `json:"values"`
}

// HeldVariable is a parameter, moment, state or table.
type HeldVariable struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Shape string `json:"shape"`
	Bytes int64  `json:"bytes"`
}

// Snapshot writes what holds memory at this moment into the folder memory of
// job.dump_folder, as JSON of a [MemorySnapshot], and returns its path. Like Record it may
// be called at any time, on any goroutine: it reads the plan and where in it the machines
// are, and holds up nothing.
func (t *Trainer) Snapshot(cause string) (path string, err error) {
	s := t.snapshot(cause)
	return t.writeSnapshot(s, fmt.Sprintf("step-%06d", s.Step))
}

func (t *Trainer) snapshot(cause string) MemorySnapshot {
	s := MemorySnapshot{Cause: cause, StateCopyBytes: t.stagingBytes()}
	for _, r := range t.ranks {
		m := r.heldMemory()
		for _, x := range r.machines.all() {
			step, index, running := x.Position()
			s.Step = max(s.Step, step)
			if running {
				m.stand(r.programs.name(x.Program()), x.Program(), x.Counts(), index)
			}
		}
		s.Ranks = append(s.Ranks, m)
	}
	return s
}

// refused adds to an error for lack of memory what would hold it at the peak.
func (t *Trainer) refused(err error) error {
	s := MemorySnapshot{Cause: err.Error(), StateCopyBytes: t.stagingBytes()}
	for _, r := range t.ranks {
		m := r.heldMemory()
		p := largestOf(r.programs.all(), atBounds)
		m.stand(r.programs.name(p), p, nil, p.PeakStep(nil))
		s.Ranks = append(s.Ranks, m)
	}
	path, failed := t.writeSnapshot(s, "refused")
	if failed != nil {
		return fmt.Errorf("%w (what would hold it could not be written: %w)", err, failed)
	}
	return fmt.Errorf("%w; what would hold it is in %s", err, path)
}

// heldMemory is what a rank holds between Programs.
func (r *rank) heldMemory() RankMemory {
	m := RankMemory{Rank: r.index, PersistentBytes: r.store.Bytes(), Variables: []HeldVariable{}, ByUse: []HeldSum{}, ByRegion: []HeldSum{}, ByKind: []HeldSum{}, Values: []HeldValue{}}
	u := r.programs.usage(r.config.Training.Microbatches())
	m.ArenaBytes, m.CheckBytes = u.arenaBytes, u.checkBytes
	for _, v := range r.store.Variables() {
		if v.Kind != graph.Scratch {
			m.Variables = append(m.Variables, HeldVariable{v.Name, v.Kind.String(), v.Spec.String(), v.Spec.Bytes()})
		}
	}
	slices.SortStableFunc(m.Variables, func(a, b HeldVariable) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return m
}

// stand takes what is alive at a step of a Program's schedule.
func (m *RankMemory) stand(name string, p *graph.Program, counts graph.Counts, index int) {
	m.Program, m.Index = name, index
	if index > 0 && index <= len(p.Steps) {
		m.Node = p.Steps[index-1].Node.Name
	}
	m.Values = heldAt(p, counts, index)
	m.LiveBytes = totalHeld(m.Values)
	m.ByUse = sumHeld(m.Values, func(v HeldValue) string { return v.Use })
	m.ByRegion = sumHeld(m.Values, func(v HeldValue) string { return v.Region })
	m.ByKind = sumHeld(m.Values, func(v HeldValue) string { return v.Kind })
}

func (t *Trainer) writeSnapshot(s MemorySnapshot, name string) (path string, err error) {
	folder := t.config.MemoryPath()
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return "", fmt.Errorf("train: memory snapshot: %w", err)
	}
	if t.world.several() {
		name += fmt.Sprintf(".rank-%d", t.ranks[0].index)
	}
	path = filepath.Join(folder, name+".json")
	err = atomicfile.Write(atomicfile.OS, path, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", " ")
		return e.Encode(s)
	})
	if err != nil {
		return "", fmt.Errorf("train: memory snapshot: %w", err)
	}
	return path, nil
}
