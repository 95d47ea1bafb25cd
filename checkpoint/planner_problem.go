package checkpoint

import (
	"slices"

	"github.com/lethe-go/lethe/checkpoint/internal/remat"
	"github.com/lethe-go/lethe/graph"
)

// build makes the schedule of the graph without reruns, and the solver of its problem.
func (p *Planner) build(f *forward) error {
	plan := &graph.Plan{Entries: slices.Clone(p.resolved.Entries), Pace: p.resolved.Pace}
	for i := range plan.Entries {
		if plan.Entries[i].Choice == graph.Rerun {
			plan.Entries[i].Choice = graph.Save
		}
	}
	program, err := graph.Schedule(p.graph, plan)
	if err != nil {
		return err
	}
	b := &scheduleBuilder{Planner: p, program: program, values: make([]int, len(p.graph.Nodes)),
		schedule: &remat.Schedule{Problem: &remat.Problem{}, Steps: make([]remat.Step, len(program.Steps)+2)}}
	if p.offloads() {
		for _, step := range program.Steps[:program.Boundary()-1] {
			if step.Computes() {
				p.mover.forward += p.resolved.Pace.Nanoseconds(at(step.Node, p.counts))
			}
		}
	}
	b.addOps(f)
	b.addReads()
	b.addBytes()
	p.schedule = b.schedule
	return p.buildSolver()
}

// scheduleBuilder turns a Program in which nothing is rerun into a schedule.
type scheduleBuilder struct {
	*Planner
	program  *graph.Program
	schedule *remat.Schedule
	values   []int // by node id: that of its first output, plus 1; 0 for nodes that are none
}

// addOps adds inputs, and the live ops of the forward pass.
func (b *scheduleBuilder) addOps(f *forward) {
	first := make([]int, len(b.graph.Nodes)) // step of a node
	for _, s := range b.program.Steps {
		if s.Kind == graph.Run {
			first[s.Node.ID] = s.Index
		}
	}
	for _, n := range b.graph.Inputs {
		b.add(n, remat.Op{Fixed: remat.Once}, 0)
	}
	for _, n := range f.nodes {
		if n.IsView() || !f.live[n.ID] {
			continue
		}
		op := remat.Op{Cost: b.costs[n.ID], Fixed: remat.Once, In: b.reads(n)}
		if b.free[n.ID] {
			op.Fixed = remat.Free
		} else if b.resolved.Entries[n.ID].Choice == graph.Rerun {
			op.Fixed = remat.Again
		}
		b.add(n, op, first[n.ID])
	}
}

func (b *scheduleBuilder) add(n *graph.Node, op remat.Op, step int) {
	s := b.schedule
	b.values[n.ID] = len(s.Values) + 1
	for i := range n.Out {
		op.Out = append(op.Out, len(s.Values))
		optional, _ := n.Op.(graph.OptionalOutputs)
		s.Values = append(s.Values, remat.Value{Producer: len(s.Ops), Optional: optional != nil && optional.Optional(i)})
	}
	s.Ops = append(s.Ops, op)
	s.First = append(s.First, step)
	s.Workspace = append(s.Workspace, 0)
	b.ops = append(b.ops, n)
}

// value is that of an edge's memory, -1 if the forward pass does not compute it.
func (b *scheduleBuilder) value(e graph.Edge) int {
	base := e.Base()
	if b.values[base.Node.ID] == 0 {
		return -1
	}
	return b.values[base.Node.ID] - 1 + base.Out
}

// reads are the values that a node reads, each once.
func (b *scheduleBuilder) reads(n *graph.Node) []int {
	var values []int
	for _, e := range n.In {
		if v := b.value(e); v >= 0 && !slices.Contains(values, v) {
			values = append(values, v)
		}
	}
	return values
}

// addReads adds what the steps read that are no first run of an op.
func (b *scheduleBuilder) addReads() {
	for _, s := range b.program.Steps {
		step := &b.schedule.Steps[s.Index]
		step.Later = s.Node.Phase != graph.Forward
		switch from := s.Awaits(); {
		case s.Kind == graph.Run && step.Later:
			step.Reads = b.reads(s.Node)
		case s.Kind == graph.Wait && from.Kind == graph.Run:
			step.Reads = b.reads(from.Node)
			for i := range from.Node.Out {
				if v := b.value(graph.Edge{Node: from.Node, Out: i}); v >= 0 {
					step.Reads = append(step.Reads, v)
				}
			}
		}
		if step.Later {
			for _, v := range step.Reads {
				b.schedule.Values[v].Needed = true
			}
		}
	}
	end := &b.schedule.Steps[len(b.program.Steps)+1]
	for _, o := range b.graph.Outputs {
		if v := b.value(o.Edge); v >= 0 {
			end.Reads = append(end.Reads, v)
		}
	}
}

// addBytes adds what the arena holds: sizes of values, and what else lives at the steps.
func (b *scheduleBuilder) addBytes() {
	at, before := make([]int64, len(b.schedule.Steps)+1), make([]int64, len(b.schedule.Steps)+1)
	for _, st := range b.program.Storages {
		n, bytes := st.Edge.Node, st.BytesAt(b.counts)
		if v := b.value(st.Edge); v >= 0 {
			if st.Workspace() {
				b.schedule.Workspace[b.schedule.Values[v].Producer] = bytes
			} else if b.resolved.Entries[n.ID].Choice != graph.Offload {
				if !inPlace(n, st.Edge) {
					b.schedule.Values[v].Size = bytes
				}
				continue
			}
		}
		at[st.Begin] += bytes
		at[st.End+1] -= bytes
		before[min(st.Begin, st.End)+1] += bytes
		before[st.End+1] -= bytes
	}
	var live, between int64
	for t := range b.schedule.Steps {
		live, between = live+at[t], between+before[t]
		b.schedule.Steps[t].Bytes, b.schedule.Steps[t].Before = live, between
	}
}

// buildSolver makes the problem in units that its solver's integers hold. Rounding down
// keeps its bounds valid.
func (p *Planner) buildSolver() (err error) {
	var cost, size int64 = 1, 1
	for i, op := range p.schedule.Ops {
		cost += op.Cost
		size += p.ops[i].Bytes()
	}
	p.unit.cost, p.unit.size = 1, 1
	for float64(cost/p.unit.cost+1)*float64(size/p.unit.size+1) >= 1<<59 {
		if cost/p.unit.cost > size/p.unit.size {
			p.unit.cost *= 2
		} else {
			p.unit.size *= 2
		}
	}
	problem := &remat.Problem{Ops: slices.Clone(p.schedule.Ops), Values: slices.Clone(p.schedule.Values)}
	for i := range problem.Ops {
		problem.Ops[i].Cost /= p.unit.cost
		for _, v := range problem.Ops[i].Out {
			problem.Values[v].Size /= p.unit.size
		}
	}
	p.solver, err = remat.NewSolver(problem)
	return err
}

// inPlace reports whether the compiler may let a value be computed right in the variable that a
// user of n assigns it to: under some plans it takes no arena then, and a bound must not
// count it.
func inPlace(n *graph.Node, value graph.Edge) bool {
	for _, u := range n.Users() {
		if u.IsView() && inPlace(u, value) {
			return true
		}
		if u.Kind != "assign" || u.Commit || u.In[1].Base() != value {
			continue
		}
		if v := u.In[0].Base().Node.Variable; v != nil && v.Kind == graph.Scratch {
			return true
		}
	}
	return false
}
