package graph

// Schedule is Compile without the placing: the Program has steps and lives, from which
// its peak follows, but no offsets, and no Machine may run it. A search that looks
// at many plans judges them by it.
func Schedule(g *Graph, plan *Plan) (*Program, error) {
	if err := plan.check(g); err != nil {
		return nil, err
	}
	s, err := newScheduler(g, plan, g.Store.dev.Workers())
	if err != nil {
		return nil, err
	}
	s.finish()
	p := &Program{Graph: g, Plan: plan, Steps: s.steps, Storages: s.storages, Host: s.host, scratch: s.scratch, SpillBytes: s.spill}
	p.commit = len(p.Steps)
	for i, step := range p.Steps {
		if step.Node.Commit {
			p.commit = i
			break
		}
	}
	return p, nil
}

// Rehearse returns the peak that a Program of g under a plan would have with the
// given live rows.
func Rehearse(g *Graph, plan *Plan, counts Counts) (peak int64, err error) {
	p, err := Schedule(g, plan)
	if err != nil {
		return 0, err
	}
	return p.peak(counts), nil
}
