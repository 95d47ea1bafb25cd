package train

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/lethe-go/lethe/graph"
)

// shards bring the variables of all ranks together to what a state holds, and back. A
// state does not depend on the layout: a variable that ranks share is whole in it.
type shards struct {
	ranks   []*rank
	divided map[string]bool // variables of which each rank has a part of the first dimension
}

func newShards(ranks []*rank) *shards {
	s := &shards{ranks: ranks, divided: map[string]bool{}}
	for _, v := range ranks[0].store.Variables() {
		name := strings.TrimPrefix(strings.TrimPrefix(v.Name, meanPrefix), squarePrefix)
		p := ranks[0].store.Variable(name) // the parameter that a moment belongs to
		s.divided[v.Name] = p != nil && p.Kind == graph.Parameter && !slices.Equal(p.Spec.Shape, p.Global)
	}
	return s
}

// gather returns every parameter and every State: views of the first rank's memory, or
// of new memory where a variable is divided.
func (s *shards) gather() []Tensor {
	var list []Tensor
	for _, v := range s.ranks[0].store.Variables() {
		if v.Kind != graph.Parameter && v.Kind != graph.State {
			continue
		}
		t := Tensor{Name: v.Name, DType: v.Spec.DType, Shape: v.Spec.Shape, Data: memory(v)}
		if s.divided[v.Name] {
			t.Shape = slices.Clone(t.Shape)
			t.Shape[0] *= len(s.ranks)
			t.Data = nil
			for _, r := range s.ranks {
				t.Data = append(t.Data, memory(r.store.Variable(v.Name))...)
			}
		}
		list = append(list, t)
	}
	return list
}

// scatter gives every rank its part of what gather returned.
func (s *shards) scatter(whole []Tensor) {
	for _, t := range whole {
		rest := t.Data
		for _, r := range s.ranks {
			m := memory(r.store.Variable(t.Name))
			copy(m, rest)
			if s.divided[t.Name] {
				rest = rest[len(m):]
			}
		}
	}
}

// memory is a variable's elements, as bytes.
func memory(v *graph.Variable) []byte {
	t := v.Tensor()
	if t.Len() == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(t.Pointer()), t.Bytes())
}
