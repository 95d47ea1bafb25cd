package graph

import "sync/atomic"

// position is where a Machine is: what a signal or another goroutine may ask at any time.
type position struct {
	step  atomic.Int64 // RunOptions.Step of the last run
	index atomic.Int64 // 1 more than that of the step of the schedule; 0 between runs
}

func (p *position) enter(step int) { p.step.Store(int64(step)) }
func (p *position) at(index int)   { p.index.Store(int64(index) + 1) }
func (p *position) leave()         { p.index.Store(0) }

// Position tells, at any time and on any goroutine, which step of the schedule runs, from the
// feeding of inputs (0) to the reading of outputs behind the last step, and the optimizer
// step of the last run. Between runs there is no index and running is false.
func (m *Machine) Position() (step, index int, running bool) {
	at := m.position.index.Load()
	return int(m.position.step.Load()), int(at) - 1, at > 0
}
