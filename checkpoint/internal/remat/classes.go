package remat

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// class are layers whose menus differ by no more than what lies below all of their forward
// or all of their backward points: the counts of tokens that each layer of experts leaves
// behind, say, lie below the backward passes of those that come later, and gradients below
// those of earlier layers. What lies below backward and not below forward differs little
// between members: it decides which of the two passes a choice has to keep small.
type class struct {
	members []int // of the layers
	// The least that lies below, of all members.
	forward, backward int64
}

// menus finds the menus of layers, once for all that are alike. Large layers are alike if they
// are of a class: the menu is found of one below which the least lies, whose bounds hold
// for all; what the choices come to is looked at for each.
func menus(layers []*layer) []menu {
	all := make([]menu, len(layers))
	list := classes(layers)
	forEach(len(list), func(i int) {
		c := list[i]
		first := layers[c.members[0]]
		found := first.lowered(c.forward, c.backward).menu()
		for _, i := range c.members {
			m := menu{choices: slices.Clone(found.choices), bounds: found.bounds}
			for j := range m.choices {
				m.choices[j].work = layers[i].peak(m.choices[j].rerun)
			}
			m.choices = undominated(m.choices, func(q choice) offer { return q.offer })
			all[i] = m
		}
	})
	return all
}

func classes(layers []*layer) []*class {
	known := map[string]*class{}
	var list []*class
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, l := range layers {
		forward, backward := l.floors()
		least, most = min(least, backward-forward), max(most, backward-forward)
	}
	for i, l := range layers {
		forward, backward := l.floors()
		little := max((most-least)/differences, l.bytes()/differences/8) + 1
		key := fmt.Sprint((backward-forward-least)/little, l.key(forward, backward))
		if len(l.ops) <= exactOps {
			key = l.key(0, 0) // of each the menu is exact
		}
		c := known[key]
		if c == nil {
			c = &class{forward: forward, backward: backward}
			known[key] = c
			list = append(list, c)
		}
		c.members = append(c.members, i)
		c.forward, c.backward = min(c.forward, forward), min(c.backward, backward)
	}
	return list
}

// differences are into how many ranges what lies below backward alone is divided at most; less
// than an eighth of such a part of a layer's own bytes makes no difference.
const differences = 8

// bytes of the values that the layer decides about.
func (l *layer) bytes() int64 {
	var sum int64
	for _, v := range l.values {
		sum += v.size
	}
	return sum
}

// floors are the bytes below all forward and all backward points.
func (l *layer) floors() (forward, backward int64) {
	forward, backward = math.MaxInt64, math.MaxInt64
	for i, p := range l.points {
		if i < l.turn {
			forward = min(forward, p.bytes, p.before)
		} else {
			backward = min(backward, p.bytes, p.before)
		}
	}
	return forward, backward
}

// lowered is the layer with other floors.
func (l *layer) lowered(forward, backward int64) *layer {
	f, b := l.floors()
	low := *l
	low.points = slices.Clone(l.points)
	for i := range low.points {
		by := f - forward
		if i >= l.turn {
			by = b - backward
		}
		low.points[i].bytes -= by
		low.points[i].before -= by
	}
	return &low
}

// key tells apart layers that are not alike above their floors.
func (l *layer) key(forward, backward int64) string {
	var b []byte
	put := func(numbers ...int64) {
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	list := func(l []int) {
		put(int64(len(l)))
		for _, i := range l {
			put(int64(i))
		}
	}
	truth := func(t bool) int64 {
		if t {
			return 1
		}
		return 0
	}
	put(int64(len(l.ops)), int64(len(l.values)), int64(len(l.points)), int64(l.turn))
	for _, o := range l.ops {
		put(o.cost, o.workspace, truth(o.again))
		list(o.in)
		list(o.out)
	}
	for _, v := range l.values {
		put(v.size, int64(v.producer), truth(v.optional), truth(v.across), int64(v.start), int64(v.first), int64(v.last))
	}
	for i, p := range l.points {
		floor := forward
		if i >= l.turn {
			floor = backward
		}
		put(p.bytes-floor, p.before-floor)
		list(p.reads)
	}
	return string(b)
}
