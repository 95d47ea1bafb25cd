package graph

// Rehearse returns the peak that a Program of g under a plan would have, at the
// bounds of dynamic rows, without placing its values: Compile's schedule, lives
// and errors, for a search that looks at many plans.
func Rehearse(g *Graph, plan *Plan) (peak int64, err error) {
	if err := plan.check(g); err != nil {
		return 0, err
	}
	s, err := newScheduler(g, plan, g.Store.dev.Workers())
	if err != nil {
		return 0, err
	}
	s.finish()
	return (&Program{Graph: g, Plan: plan, Steps: s.steps, Storages: s.storages, Host: s.host}).peak(nil), nil
}
