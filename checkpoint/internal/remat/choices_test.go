package remat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// However few partial decisions are kept, every decision about a layer of more ops than are
// looked at one by one is undercut by an offer among the bounds, and the choices come to
// what they say.
func TestBoundsOfLargeLayers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	want := 60
	if testing.Short() {
		want = 12
	}
	for layers := 0; layers < want; {
		s := randomSchedule(r, exactOps+5+r.IntN(4), false)
		for i := range s.Values { // some are next to nothing
			s.Values[i].Size *= 100
			if r.IntN(4) == 0 {
				s.Values[i].Size = int64(r.IntN(3))
			}
		}
		all, _, ok := s.layers()
		if !ok {
			t.Fatal("no layers")
		}
		for _, l := range all {
			if len(l.ops) <= exactOps || len(l.ops) > exactOps+2 {
				continue
			}
			layers++
			offers := l.offers()
			for _, keep := range [][]int{{1, 1}, {2, 10}, {10, 100}, {100, 1000}, {math.MaxInt}} {
				checkBounds(t, l, l.chooseAmong(keep), offers)
			}
		}
	}
}

func checkBounds(t *testing.T, l *layer, m menu, offers map[uint64]offer) {
	t.Helper()
	for _, q := range m.choices {
		if o := l.offer(q.rerun); q.offer != o {
			t.Fatalf("choice %+v comes to %+v", q, o)
		}
	}
	for rerun, o := range offers {
		if !slices.ContainsFunc(m.bounds, func(b offer) bool { return b.saved <= o.saved && b.work <= o.work && b.cost <= o.cost }) {
			t.Fatalf("nothing undercuts %b, which comes to %+v; bounds %+v", rerun, o, m.bounds)
		}
	}
}

// offers are what all decisions come to.
func (l *layer) offers() map[uint64]offer {
	var again uint64
	for i, op := range l.ops {
		if op.again {
			again |= 1 << i
		}
	}
	all := map[uint64]offer{}
	for rerun := range uint64(1) << len(l.ops) {
		if rerun&again == again {
			all[rerun] = l.offer(rerun)
		}
	}
	return all
}

// offer is what a decision comes to.
func (l *layer) offer(rerun uint64) offer {
	c := &chooser{layer: l}
	p := c.start()
	for i := len(l.ops) - 1; i >= 0; i-- {
		ways := c.decide(nil, p, i)
		p = ways[0]
		if len(ways) > 1 && rerun>>i&1 == 1 {
			p = ways[1]
		}
	}
	return offer{p.saved, l.peak(rerun), p.cost}
}
