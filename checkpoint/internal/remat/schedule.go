package remat

// Schedule is a Problem in time: the steps of a pass in the order in which they run
// when nothing is rerun, and what lives at each beside the problem's values. An op
// that is rerun runs a second time right before the first later step that needs
// it, inputs first; what it makes then lives until its last reader.
//
// The problem's costs and sizes need not be small, as they must be for a Solver.
type Schedule struct {
	*Problem
	// First is the step of each op's regular run, by op.
	First []int
	// Workspace is the scratch memory of a rerun, by op. That of regular runs is in
	// the steps' Bytes.
	Workspace []int64
	Steps     []Step
}

// Step is a step of the schedule without reruns.
type Step struct {
	// Bytes live at the step that are no value of the problem. Of them, Before are
	// there between the step before and this one, where reruns take place.
	Bytes, Before int64
	// Reads are the values that the step reads, in the order in which it asks for
	// them. What the regular run of an op reads is in the Problem.
	Reads []int
	// Later steps come after the forward pass: what they read is rerun for them.
	Later bool
}

// Peak is the most that lives at one time when the ops of a set are rerun.
func (s *Schedule) Peak(rerun []bool) int64 {
	r := replay{Schedule: s, rerun: rerun, done: make([]bool, len(s.Ops)),
		first: make([]life, len(s.Values)), again: make([]life, len(s.Values))}
	return r.peak()
}

// life is the moments from begin to end, both included, in which a value lives.
type life struct {
	begin, end int
	known      bool
	read       bool
}

type replay struct {
	*Schedule
	rerun, done  []bool  // by op
	first, again []life  // by value: of the regular run and of the rerun
	moments      []int64 // a step or a rerun before one: bytes beside the problem's values
}

func (r *replay) peak() int64 {
	ops := make([][]int, len(r.Steps))
	for i, step := range r.First {
		ops[step] = append(ops[step], i)
	}
	for t, step := range r.Steps {
		if step.Later {
			for _, v := range step.Reads {
				r.ensure(r.Values[v].Producer, step.Before)
			}
		}
		for _, i := range ops[t] {
			r.read(r.Ops[i].In)
		}
		r.read(step.Reads)
		for _, i := range ops[t] {
			r.write(r.first, i)
		}
		r.moments = append(r.moments, step.Bytes)
	}
	change := make([]int64, len(r.moments)+1)
	for v := range r.Values {
		for _, l := range []life{r.first[v], r.again[v]} {
			if l.known && (l.read || !r.Values[v].Optional) {
				change[l.begin] += r.Values[v].Size
				change[l.end+1] -= r.Values[v].Size
			}
		}
	}
	var live, peak int64
	for i, bytes := range r.moments {
		live += change[i]
		peak = max(peak, live+bytes)
	}
	return peak
}

// ensure reruns what an op of the set needs and the op, unless that has been done.
func (r *replay) ensure(op int, before int64) {
	if !r.rerun[op] || r.done[op] {
		return
	}
	r.done[op] = true
	for _, v := range r.Ops[op].In {
		r.ensure(r.Values[v].Producer, before)
	}
	r.read(r.Ops[op].In)
	r.write(r.again, op)
	r.moments = append(r.moments, before+r.Workspace[op])
}

// read lets values live until now.
func (r *replay) read(values []int) {
	for _, v := range values {
		l := &r.first[v]
		if r.again[v].known {
			l = &r.again[v]
		}
		l.end, l.read = len(r.moments), true
	}
}

// write begins the lives of what an op makes now.
func (r *replay) write(lives []life, op int) {
	for _, v := range r.Ops[op].Out {
		lives[v] = life{begin: len(r.moments), end: len(r.moments), known: true}
	}
}
