package graph

import "time"

// Counters tell what has held up the compute lane of a Machine. They count what happens,
// whatever the plan says.
type Counters struct {
	// HostSyncs are, by [Pass], the ops that made the host wait for the device.
	HostSyncs [Passes]int64
	// Exposed is the time spent in collectives of the compute lane and in waits for those
	// of other lanes: communication that no computation hides.
	Exposed time.Duration
	// CopiedOut and CopiedBack are the bytes of what was offloaded and reloaded.
	CopiedOut, CopiedBack int64
	// ExposedCopies is the time spent in waits for these copies.
	ExposedCopies time.Duration
}

// Plus and Minus are the sum and the difference of both.
func (c Counters) Plus(d Counters) Counters {
	for p := range c.HostSyncs {
		c.HostSyncs[p] += d.HostSyncs[p]
	}
	c.Exposed += d.Exposed
	c.CopiedOut += d.CopiedOut
	c.CopiedBack += d.CopiedBack
	c.ExposedCopies += d.ExposedCopies
	return c
}

func (c Counters) Minus(d Counters) Counters {
	for p := range c.HostSyncs {
		c.HostSyncs[p] -= d.HostSyncs[p]
	}
	c.Exposed -= d.Exposed
	c.CopiedOut -= d.CopiedOut
	c.CopiedBack -= d.CopiedBack
	c.ExposedCopies -= d.ExposedCopies
	return c
}

// Counters since the Machine was made.
func (m *Machine) Counters() Counters { return m.counters }

// expose counts the time since begin if it was spent on a collective, or on a copy of
// what is offloaded.
func (m *Machine) expose(s *Step, begin time.Time) {
	switch {
	case !s.Computes():
		m.counters.ExposedCopies += time.Since(begin)
	case s.Node.Effects.Has(Collective):
		m.counters.Exposed += time.Since(begin)
	}
}
