package remat

import "slices"

// span is a run of points between which nothing that is decided changes, of which the
// highest counts.
type span struct {
	point int // its first
	bytes int64
}

// spans are those that may be the highest of a layer under some decision.
func (l *layer) spans() []span {
	begins := make([]bool, len(l.points)+2)
	for _, v := range l.values {
		begins[v.start] = true
	}
	for p := range l.points {
		if len(l.points[p].reads) > 0 {
			begins[p], begins[p+1] = true, true
		}
	}
	var all []span
	for p := range l.points {
		if p == 0 || begins[p] {
			all = append(all, span{point: p})
		}
		last := &all[len(all)-1]
		last.bytes = max(last.bytes, l.points[p].bytes)
	}
	latest := l.latest()
	var highest []span
	for i := range all {
		lower := false
		for j := range all {
			if i != j && l.below(all[i], all[j], latest) && (i < j || !l.below(all[j], all[i], latest)) {
				lower = true
				break
			}
		}
		if !lower {
			highest = append(highest, all[i])
		}
	}
	return highest
}

// latest is the last half point at which a value may be needed, by value, -1 if never.
func (l *layer) latest() []int32 {
	latest := make([]int32, len(l.values))
	for v := range l.values {
		latest[v] = l.values[v].last
	}
	for _, op := range slices.Backward(l.ops) {
		last := int32(-1)
		for _, v := range op.out {
			last = max(last, latest[v])
		}
		for _, v := range op.in {
			latest[v] = max(latest[v], last)
		}
	}
	return latest
}

// below reports whether no more lives at a than at b, whatever is decided.
func (l *layer) below(a, b span, latest []int32) bool {
	more := a.bytes - b.bytes
	for v, value := range l.values {
		at := int32(2 * b.point)
		there := value.start <= a.point && int32(2*a.point) <= latest[v] // it may live at a
		must := value.first <= at && at <= value.last
		switch {
		case there && (must || a.point < b.point && at <= value.last):
			// What lives at a lives at b as well.
		case there:
			more += value.size
		case must:
			more -= value.size
		}
	}
	return more <= 0
}
