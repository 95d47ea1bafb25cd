package local

// Renew makes a group that was aborted usable again, as it was when it was new. Call it
// on every end of the group while no rank is in a call.
func (g *group) Renew() {
	g.Restart()
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.meeting
	if m.cause == nil {
		return
	}
	m.cause, m.stop, m.arrived = nil, make(chan struct{}), 0
	clear(m.posts)
	for _, w := range m.wake {
		select {
		case <-w:
		default:
		}
	}
}
