package instrument

import (
	"slices"
)

// Measurement is what a recorded run shows.
type Measurement struct {
	// Peak is the most bytes of the arena that were alive at one tick.
	Peak int64
	// PeakTick is the first tick at which they were.
	PeakTick int
	// Persistent is the size of all other device buffers that were touched.
	Persistent int64
	// Live is the number of bytes alive at each tick.
	Live []int64
	// UnwrittenReads counts the bytes that were read before anything wrote them.
	UnwrittenReads int64

	lives []life
	ticks int
}

// Across returns the bytes that are carried over a border between ticks: written before
// the tick and read at it or later.
func (m Measurement) Across(tick int) int64 {
	var sum int64
	for _, l := range m.lives {
		if l.first < tick && l.last >= tick {
			sum += l.hi - l.lo
		}
	}
	return sum
}

type span struct{ lo, hi int64 }

// life is a stretch of ticks during which a range of bytes held one value.
type life struct {
	span
	first, last int
	handed      bool // it began before the run
}

// analyse finds the lives of all bytes. The borders of all accesses cut the
// buffer into segments, and each segment's accesses are followed in order. What is handed to
// the run may be read first.
func analyse(accesses []access, handed []span) Measurement {
	// Kernels of asynchronous steps are recorded when they run, which may be later.
	slices.SortStableFunc(accesses, func(a, b access) int { return a.tick - b.tick })
	var m Measurement
	borders := make([]int64, 0, 2*(len(accesses)+len(handed)))
	for _, a := range accesses {
		borders = append(borders, a.lo, a.hi)
		m.ticks = max(m.ticks, a.tick)
	}
	for _, s := range handed {
		borders = append(borders, s.lo, s.hi)
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	open := make([]*life, max(len(borders)-1, 0))
	before := make([]bool, len(open)) // by segment: it is handed to the run
	for _, s := range handed {
		i, _ := slices.BinarySearch(borders, s.lo)
		for ; borders[i] < s.hi; i++ {
			before[i] = true
		}
	}
	for _, a := range accesses {
		i, _ := slices.BinarySearch(borders, a.lo)
		for ; borders[i] < a.hi; i++ {
			size := borders[i+1] - borders[i]
			switch {
			case a.write:
				if l := open[i]; l != nil && l.first == a.tick && l.last == a.tick {
					break // written piece by piece within one step
				}
				if open[i] != nil {
					m.lives = append(m.lives, *open[i])
				}
				open[i] = &life{span: span{borders[i], borders[i+1]}, first: a.tick, last: a.tick}
			case open[i] == nil:
				if !before[i] {
					m.UnwrittenReads += size
				}
				open[i] = &life{span: span{borders[i], borders[i+1]}, last: a.tick, handed: before[i]}
			default:
				open[i].last = a.tick
			}
		}
	}
	for _, l := range open {
		if l != nil {
			m.lives = append(m.lives, *l)
		}
	}
	m.sum()
	return m
}

// sum counts the live bytes of every tick. A byte that two lives share at a tick,
// read and then overwritten in place, counts once.
func (m *Measurement) sum() {
	change := make([]int64, m.ticks+2)
	slices.SortFunc(m.lives, func(a, b life) int {
		if a.lo != b.lo {
			return int(min(max(a.lo-b.lo, -1), 1))
		}
		return a.first - b.first
	})
	for i, l := range m.lives {
		first := l.first
		if i > 0 && m.lives[i-1].lo == l.lo && m.lives[i-1].last == first {
			first++
		}
		if first > l.last {
			continue
		}
		change[first] += l.hi - l.lo
		change[l.last+1] -= l.hi - l.lo
	}
	m.Live = make([]int64, m.ticks+1)
	var live int64
	for t := range m.Live {
		live += change[t]
		m.Live[t] = live
		if live > m.Peak {
			m.Peak, m.PeakTick = live, t
		}
	}
}
