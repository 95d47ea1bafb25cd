package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// shards are what the ranks of this process hold of a state. A state does not depend on the
// layout: a variable that ranks share is one tensor of it. Processes write the state
// together; what several of them hold, one writes, so that all have about as much to do.
//
// What has to be copied for that goes to staging memory, which is allocated once: the
// variables of which each rank of this process has a part, and for an asynchronous save all
// that this process writes.
type shards struct {
	ranks   []*rank
	layout  layout
	alone   bool // this process has all ranks
	staging device.Buffer
	all     bool         // staging has room for every part that is written
	staged  []stagedPart // of the parts in staging
	parts   []part       // that this process writes; Data is in staging or in the first rank's memory
}

// stagedPart is one rank's part of a variable and its place in staging.
type stagedPart struct{ staging, variable device.Tensor }

func newShards(ranks []*rank, l layout, alone bool) *shards {
	return &shards{ranks: ranks, layout: l, alone: alone}
}

// reserve makes sure that staging has room: for every part if all, else for those that the
// ranks of this process have to bring together. No save may be reading it.
func (s *shards) reserve(all bool) error {
	if s.parts != nil && (s.all || !all) {
		return nil
	}
	s.close()
	store := s.ranks[0].store
	size := s.stagingBytes(all)
	buffer, err := store.Device().Alloc(device.OnHost, size)
	if err != nil {
		return fmt.Errorf("train: state: %d bytes of memory to copy it to: %w; set state.async_mode=\"disabled\"", size, err)
	}
	s.staging, s.all = buffer, all
	var offset int64
	for _, v := range s.written() {
		p := s.part(v)
		if s.stages(v, all) {
			copied := device.NewTensor(buffer, offset, p.DType, p.Shape...)
			p.Data = device.Raw(copied)
			s.stage(v, p, copied)
			offset += alignedBytes(p)
		} else {
			p.Data = memory(v)[:p.bytes()]
		}
		s.parts = append(s.parts, p)
	}
	// The first save is to find the pages there.
	s.copyToStaging()
	return nil
}

// part is what the ranks of this process hold together of a variable, without Data.
func (s *shards) part(v *graph.Variable) part {
	if s.alone {
		return whole(Tensor{Name: v.Name, DType: v.Spec.DType, Shape: v.Global})
	}
	return heldPart(v)
}

// stages reports whether a variable is copied to staging.
func (s *shards) stages(v *graph.Variable, all bool) bool { return all || s.alone && divided(v) }

// stage notes what is copied where.
func (s *shards) stage(v *graph.Variable, p part, copied device.Tensor) {
	if !divided(v) {
		s.staged = append(s.staged, stagedPart{copied, v.Tensor()})
		return
	}
	if !s.alone {
		s.staged = append(s.staged, stagedPart{copied, v.Tensor().Slice(0, 0, heldPart(v).Shape[0])})
		return
	}
	for _, r := range s.layout.partsOf(s.layout.divisionOf(v))(0) { // those of one replica are as good as any
		held := s.ranks[r].store.Variable(v.Name)
		p, to := heldPart(held), copied
		for i, lo := range p.start {
			to = to.Slice(i, lo, lo+p.Shape[i])
		}
		s.staged = append(s.staged, stagedPart{to, held.Tensor().Slice(0, 0, p.Shape[0])})
	}
}

// written are the variables of which this process writes what it holds. Every process
// divides the work in the same way: a part is written by that of its holders which has the
// fewest bytes to write so far.
func (s *shards) written() []*graph.Variable {
	variables := stateVariables(s.ranks[0].store)
	if s.alone {
		return variables
	}
	own := s.ranks[0].index
	holders := s.layout.holders()
	loads := make([]int64, s.layout.ranks())
	var list []*graph.Variable
	for _, v := range variables {
		for _, holders := range holders[s.layout.divisionOf(v)] {
			writer := slices.MinFunc(holders, func(a, b int) int { return cmp.Compare(loads[a], loads[b]) })
			loads[writer] += v.Spec.Bytes()
			if writer == own && !slices.Contains(heldPart(v).Shape, 0) {
				list = append(list, v)
			}
		}
	}
	return list
}

// gather returns the parts of all parameters and States that this process writes. What is
// staged is a copy of now; the rest, if there is any, is a view of the first rank's memory.
func (s *shards) gather(all bool) ([]part, error) {
	if err := s.reserve(all); err != nil {
		return nil, err
	}
	s.copyToStaging()
	return s.parts, nil
}

// copyToStaging uses all threads of the device: a step is held up for it.
func (s *shards) copyToStaging() {
	q := s.ranks[0].store.Device().NewQueue()
	defer q.Close()
	for _, p := range s.staged {
		if p.variable.Len() > 0 {
			q.Copy(p.staging, p.variable)
		}
	}
	_ = q.Sync() // copies of one dtype do not fail
}

// held lists what the model has of a state: for each tensor the part of every rank of this
// process, in its memory.
func (s *shards) held() [][]part {
	var list [][]part
	for _, v := range stateVariables(s.ranks[0].store) {
		var parts []part
		for _, r := range s.ranks {
			v := r.store.Variable(v.Name)
			p := heldPart(v)
			p.Data = memory(v)[:p.bytes()]
			parts = append(parts, p)
		}
		list = append(list, parts)
	}
	return list
}

func (s *shards) close() {
	if s.staging != nil {
		s.staging.Free()
	}
	*s = *newShards(s.ranks, s.layout, s.alone)
}

// stagingBytes is the size of staging memory.
func (s *shards) stagingBytes(all bool) int64 {
	var sum int64
	for _, v := range s.written() {
		if s.stages(v, all) {
			sum += alignedBytes(s.part(v))
		}
	}
	return sum
}

// stateVariables are those that a state holds.
func stateVariables(store *graph.Store) []*graph.Variable {
	return slices.DeleteFunc(store.Variables(), func(v *graph.Variable) bool {
		return v.Kind != graph.Parameter && v.Kind != graph.State
	})
}

// divided reports whether each rank has a part of a variable: of a parameter that the layout
// divides, or of what is kept for one, such as a moment.
func divided(v *graph.Variable) bool { return !slices.Equal(v.Spec.Shape, v.Global) }

// heldPart is what a rank holds of a variable, without Data and padding. It may have no rows.
func heldPart(v *graph.Variable) part {
	t := Tensor{Name: v.Name, DType: v.Spec.DType, Shape: v.Global}
	if !divided(v) {
		return whole(t)
	}
	start := slices.Clone(v.Offset)
	t.Shape = slices.Clone(v.Spec.Shape)
	t.Shape[0] -= v.Padding()
	start[0] = min(start[0], v.Global[0]-t.Shape[0])
	return part{t, v.Global, start}
}

// stagingBytes of a run that saves.
func (t *Trainer) stagingBytes() int64 {
	if !t.config.State.Enable {
		return 0
	}
	return t.shards.stagingBytes(t.config.State.async())
}

// alignedBytes is what a part takes of staging.
func alignedBytes(p part) int64 {
	return device.Align(p.bytes(), device.Alignment)
}

// memory is a variable's elements, as bytes.
func memory(v *graph.Variable) []byte { return device.Raw(v.Tensor()) }
