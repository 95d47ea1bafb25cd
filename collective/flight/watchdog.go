package flight

import (
	"fmt"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// watchdog looks at the calls that have not ended.
type watchdog struct {
	stop, done chan struct{} // nil before the first deadline and after the end
}

// start begins to look, if nobody does. The caller holds r.mu.
func (w *watchdog) start(r *Recorder) {
	if w.stop == nil {
		w.stop, w.done = make(chan struct{}), make(chan struct{})
		go r.watch(w.stop, w.done)
	}
}

// Close ends the watchdog. The groups go on to work.
func (r *Recorder) Close() {
	r.mu.Lock()
	w := r.dog
	r.dog = watchdog{}
	r.mu.Unlock()
	if w.stop != nil {
		close(w.stop)
		<-w.done
	}
}

// watch looks several times within the grace.
func (r *Recorder) watch(stop, done chan struct{}) {
	defer close(done)
	ticks := time.NewTicker(min(r.Grace/4, time.Second))
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticks.C:
		}
		if g, err := r.overdue(1, aborted); g != nil {
			_ = r.fail(err) // the file is all that can be done
			g.Group.Abort(err)
		}
		if g, err := r.overdue(2, given); g != nil && r.Stuck != nil {
			r.Stuck(err)
		}
	}
}

// measure is what the watchdog has done about a call.
type measure uint8

const (
	none measure = iota
	aborted
	given // up
)

// overdue takes a measure about a call whose deadline was a number of graces ago, if it
// was not taken before.
func (r *Recorder) overdue(graces int, m measure) (*group, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.groups {
		took := time.Since(g.now.begun)
		if !g.busy || g.timeout <= 0 || took <= g.timeout+time.Duration(graces)*r.Grace || g.taken >= m {
			continue
		}
		g.taken = m
		return g, g.error(fmt.Errorf("%w: still %v after %v", collective.ErrTimeout, g.now.state, took.Round(time.Millisecond)))
	}
	return nil, nil
}
