package remat

// peak is the layer's working peak, without its offset, when the ops of a set are
// rerun: Schedule.Peak for what the layer decides about.
func (l *layer) peak(rerun uint64) int64 {
	r := layerReplay{layer: l, rerun: rerun, entered: make([]int, len(l.points)+1),
		begin: make([]int, len(l.values)), end: make([]int, len(l.values))}
	for v := range l.values {
		r.end[v] = -1
	}
	for p := range l.points {
		r.entered[p] = len(r.moments)
		for _, v := range l.points[p].reads {
			r.ensure(l.values[v].producer, p)
		}
		for _, v := range l.points[p].reads {
			r.end[v] = len(r.moments)
		}
		r.moments = append(r.moments, l.points[p].bytes)
	}
	return r.most()
}

type layerReplay struct {
	*layer
	rerun, done uint64
	entered     []int   // by point: the first of its moments
	moments     []int64 // bytes, whatever is decided
	// By value: the moment of its rerun, and the last that reads it; -1 if none does.
	begin, end []int
}

// ensure runs op again before a point, inputs first, if it is in the set and has not
// run again.
func (r *layerReplay) ensure(op, point int) {
	if r.rerun>>op&1 == 0 || r.done>>op&1 == 1 {
		return
	}
	r.done |= 1 << op
	for _, v := range r.ops[op].in {
		if p := r.values[v].producer; p >= 0 {
			r.ensure(p, point)
		}
	}
	for _, v := range r.ops[op].in {
		r.end[v] = len(r.moments)
	}
	for _, v := range r.ops[op].out {
		r.begin[v] = len(r.moments)
		if !r.values[v].optional {
			r.end[v] = len(r.moments)
		}
	}
	r.moments = append(r.moments, r.points[point].before+r.ops[op].workspace)
}

func (r *layerReplay) most() int64 {
	change := make([]int64, len(r.moments)+1)
	r.entered[len(r.points)] = len(r.moments)
	for v, value := range r.values {
		begin := r.begin[v]
		if value.producer < 0 || r.done>>value.producer&1 == 0 {
			begin = r.entered[value.start]
		}
		if r.end[v] >= begin {
			change[begin] += value.size
			change[r.end[v]+1] -= value.size
		}
	}
	var live, most int64
	for i, bytes := range r.moments {
		live += change[i]
		most = max(most, live+bytes)
	}
	return most
}
