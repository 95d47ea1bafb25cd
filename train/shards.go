package train

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// shards bring the variables of all ranks together to what a state holds, and back. A
// state does not depend on the layout: a variable that ranks share is whole in it.
//
// What has to be copied for that goes to staging memory, which is allocated once: the
// variables of which each rank has a part, and for an asynchronous save all others too.
type shards struct {
	ranks   []*rank
	layout  layout
	staging device.Buffer
	all     bool         // staging has room for every variable
	staged  []stagedPart // of the tensors in staging
	tensors []Tensor     // of the state; Data is in staging or in the first rank's memory
}

// stagedPart is one rank's part of a variable and its place in staging.
type stagedPart struct{ staging, variable device.Tensor }

func newShards(ranks []*rank, l layout) *shards { return &shards{ranks: ranks, layout: l} }

// reserve makes sure that staging has room: for every variable if all, else for the
// divided ones. No save may be reading it.
func (s *shards) reserve(all bool) error {
	if s.tensors != nil && (s.all || !all) {
		return nil
	}
	s.close()
	store := s.ranks[0].store
	size := stagingBytes(store, all)
	buffer, err := store.Device().Alloc(device.OnHost, size)
	if err != nil {
		return fmt.Errorf("train: state: %d bytes of memory to copy it to: %w; set state.async_mode=\"disabled\"", size, err)
	}
	s.staging, s.all = buffer, all
	var offset int64
	for _, v := range stateVariables(store) {
		t := Tensor{Name: v.Name, DType: v.Spec.DType, Shape: v.Global}
		if all || divided(v) {
			whole := device.NewTensor(buffer, offset, t.DType, t.Shape...)
			t.Data = elementBytes(whole)
			s.stage(v, whole)
			offset += stagedBytes(v)
		} else {
			t.Data = elementBytes(v.Tensor())
		}
		s.tensors = append(s.tensors, t)
	}
	// The first save is to find the pages there.
	s.copyToStaging()
	return nil
}

// stage notes what is copied where.
func (s *shards) stage(v *graph.Variable, whole device.Tensor) {
	if !divided(v) {
		s.staged = append(s.staged, stagedPart{whole, v.Tensor()})
		return
	}
	rows := v.Spec.Shape[0]
	for i, r := range s.ranks[:s.layout.experts] { // one replica is as good as any
		s.staged = append(s.staged, stagedPart{whole.Slice(0, i*rows, (i+1)*rows), r.store.Variable(v.Name).Tensor()})
	}
}

// gather returns every parameter and every State. What is staged is a copy of now; the
// rest, if there is any, is a view of the first rank's memory.
func (s *shards) gather(all bool) ([]Tensor, error) {
	if err := s.reserve(all); err != nil {
		return nil, err
	}
	s.copyToStaging()
	return s.tensors, nil
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

// scatter gives every rank its part of the tensors that gather returned.
func (s *shards) scatter(whole []Tensor) {
	for _, t := range whole {
		for _, r := range s.ranks {
			v := r.store.Variable(t.Name)
			m := elementBytes(v.Tensor())
			if divided(v) {
				copy(m, t.Data[s.layout.part(r.index)*len(m):])
			} else {
				copy(m, t.Data)
			}
		}
	}
}

func (s *shards) close() {
	if s.staging != nil {
		s.staging.Free()
	}
	*s = shards{ranks: s.ranks, layout: s.layout}
}

// stateVariables are those that a state holds.
func stateVariables(store *graph.Store) []*graph.Variable {
	return slices.DeleteFunc(store.Variables(), func(v *graph.Variable) bool {
		return v.Kind != graph.Parameter && v.Kind != graph.State
	})
}

// divided reports whether each rank has a part of the first dimension of a variable: of
// a parameter that the layout divides, or of what is kept for one, such as a moment.
func divided(v *graph.Variable) bool { return !slices.Equal(v.Spec.Shape, v.Global) }

// stagingBytes is the size of staging memory.
func stagingBytes(store *graph.Store, all bool) int64 {
	var sum int64
	for _, v := range stateVariables(store) {
		if all || divided(v) {
			sum += stagedBytes(v)
		}
	}
	return sum
}

// stagingBytes of a run that saves.
func (t *Trainer) stagingBytes() int64 {
	if !t.config.State.Enable {
		return 0
	}
	return stagingBytes(t.ranks[0].store, t.config.State.async())
}

// stagedBytes is what a variable takes of staging.
func stagedBytes(v *graph.Variable) int64 {
	n := device.NewSpec(v.Spec.DType, v.Global...).Bytes()
	return (n + device.Alignment - 1) / device.Alignment * device.Alignment
}

// memory is a variable's elements, as bytes.
func memory(v *graph.Variable) []byte { return elementBytes(v.Tensor()) }

func elementBytes(t device.Tensor) []byte {
	if t.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Pointer()), t.Bytes())
}
