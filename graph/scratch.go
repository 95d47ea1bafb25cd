package graph

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/device"
)

// This file is about the life of scratch variables, which hand values from one Program of a
// step to the next: gradients, most of all. They lie at the beginning of the arena, one behind
// the other, where every Program finds them. In a Program that overwrites one it is born there,
// and until then other values may lie in its memory; in one that reads or adds to it, it is
// alive from the start. A Program that does not touch it may take its memory.

// arrangeScratch decides where the scratch variables lie that g is the first graph to have:
// those that it assigns in the order in which their values are computed, since what is stacked
// from the end of the arena recedes as they are born.
func (s *Store) arrangeScratch(g *Graph) {
	computed := map[*Variable]int{}
	var found []*Variable
	for _, n := range g.Nodes {
		if v := n.Variable; v != nil && v.Kind == Scratch {
			found = append(found, v)
		}
		if _, ok := n.Op.(assign); ok {
			computed[n.In[0].Base().Node.Variable] = n.In[1].Base().Node.ID
		}
	}
	slices.SortStableFunc(found, func(a, b *Variable) int { return cmp.Compare(computed[a], computed[b]) })
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range found {
		if slices.Contains(s.scratch, v) {
			continue
		}
		if n := len(s.scratch); n > 0 {
			v.place = align(s.scratch[n-1].place + s.scratch[n-1].Spec.Bytes())
		}
		s.scratch = append(s.scratch, v)
	}
}

// addScratch adds the storages of the scratch variables that the steps touch, in the order of
// the arena.
func (s *scheduler) addScratch() {
	born := map[*Variable]int{}
	touch := func(v *Variable, step int) {
		if v == nil || v.Kind != Scratch {
			return
		}
		if _, known := born[v]; !known {
			born[v] = step
		}
	}
	for _, step := range s.steps {
		whole := step.overwrites()
		for i, o := range step.in {
			if i != whole {
				touch(o.variable, 0)
			}
		}
		if whole >= 0 {
			touch(step.in[whole].variable, step.Index)
		}
		for _, st := range step.out {
			if st != nil {
				touch(st.placed, step.Index)
			}
		}
	}
	for _, o := range s.g.Outputs {
		touch(o.Edge.Base().Node.Variable, 0)
	}
	for _, n := range s.g.Nodes {
		if begin, ok := born[n.Variable]; ok {
			s.scratch = append(s.scratch, &Storage{Edge: Edge{n, 0}, Begin: begin, End: len(s.steps) + 1, bytes: n.Variable.Spec.Bytes(), variable: n.Variable})
		}
	}
	slices.SortFunc(s.scratch, func(a, b *Storage) int { return cmp.Compare(a.variable.place, b.variable.place) })
	s.storages = append(s.storages, s.scratch...)
}

// overwrites is the index of the operand of which the step writes every element and reads none,
// −1 if there is none.
func (s *Step) overwrites() int {
	if _, ok := s.Node.Op.(assign); ok && !s.Node.Commit && s.Node.In[0].Spec().Bytes() == s.in[0].variable.Spec.Bytes() {
		return 0
	}
	return -1
}

// placeScratch gives the scratch variables that lie within an arena their memory there, with
// what they hold if they had another. The Store is locked.
func (s *Store) placeScratch(arena device.Buffer) error {
	q := s.dev.NewQueue()
	defer q.Close()
	for _, v := range s.scratch {
		if v.place+v.Spec.Bytes() > arena.Size() {
			break
		}
		if !v.tensor.IsZero() && v.tensor.Buffer() == arena {
			continue
		}
		t := device.NewTensor(arena, v.place, v.Spec.DType, v.Spec.Shape...)
		if v.tensor.IsZero() {
			q.Fill(t, 0)
		} else {
			q.Copy(t, v.tensor)
		}
		v.tensor = t
	}
	return q.Sync()
}

// claimScratch begins a run of p: until keepScratch what lies in its arena is lost, and for good
// if the run stops. It refuses a run that would read what is lost.
func (s *Store) claimScratch(p *Program) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range p.scratch {
		if st.Begin == 0 && st.variable.lost {
			return fmt.Errorf("graph: the program reads %q, whose memory has been given to other values since it was written: run the Program that writes it right before", st.variable.Name)
		}
	}
	for _, v := range s.scratch {
		if v.place >= p.ArenaBytes {
			break
		}
		v.lost = true
	}
	return nil
}

// keepScratch says that the scratch variables that p touches hold what p leaves in them.
func (s *Store) keepScratch(p *Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range p.scratch {
		st.variable.lost = false
	}
}
