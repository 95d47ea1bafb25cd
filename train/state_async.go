package train

import (
	"fmt"
	"sync"
	"time"
)

// Saving is a state on its way to the disk. Its methods may be called from any
// goroutine.
type Saving struct {
	step     int
	hurry    chan struct{} // closed when somebody waits
	once     sync.Once     // closes hurry
	done     chan struct{}
	warnings []string // with err, valid once done is closed
	err      error
}

// Step is that of the state.
func (s *Saving) Step() int { return s.step }

// Done is closed when the state is durable, or the save has failed.
func (s *Saving) Done() <-chan struct{} { return s.done }

// Wait waits for the end of the save, which makes it write as fast as it can, and
// returns its error.
func (s *Saving) Wait() error {
	s.once.Do(func() { close(s.hurry) })
	<-s.done
	return s.err
}

// SaveAsync copies the state and writes the copy while training goes on; the step is
// held up for the copy alone. One state is written at a time: if an earlier one is on its
// way still, SaveAsync waits for it, for a state that is skipped instead would lose more
// steps than the caller asked for. It fails if the copy cannot be made; whether the state
// was written, the Saving tells.
func (t *Trainer) SaveAsync() (*Saving, error) { return t.saveAsync(nil) }

// saveAsync runs before, if it is not nil, in the background before the state is written.
func (t *Trainer) saveAsync(before func() error) (*Saving, error) {
	t.waitForSave()
	meta, err := t.stateMeta()
	if err != nil {
		return nil, err
	}
	parts, err := t.shards.gather(true)
	if err != nil {
		return nil, err
	}
	s := &Saving{step: meta.Step, hurry: make(chan struct{}), done: make(chan struct{})}
	folder := t.stateFolder()
	folder.pace, folder.before = &pacer{hurry: s.hurry}, before
	go func() {
		defer close(s.done)
		s.warnings, s.err = folder.save(meta, parts)
	}()
	t.saving = s
	return s, nil
}

// waitForSave returns when no state is being written.
func (t *Trainer) waitForSave() {
	if t.saving == nil {
		return
	}
	if err := t.saving.Wait(); err == nil { // else the Saving tells
		t.noteSaved(t.saving.step)
	}
	t.saving = nil
}

// What the goroutine that writes may take of one processor: a kernel waits for its
// slowest part, so that all processors lose what is taken from one. And how long it rests
// at most: a disk that is slow is not the processor's time.
const (
	paceShare = 1. / 25
	paceRest  = 20 * time.Millisecond
)

// pacer spreads the work of writing over time. The kernels of a step use every processor;
// a step would wait for the one that is taken from it to check sums and copy pages.
type pacer struct{ hurry <-chan struct{} }

// rest pauses after work that took that long, unless somebody waits.
func (p *pacer) rest(worked time.Duration) {
	if p == nil {
		return
	}
	timer := time.NewTimer(min(time.Duration(float64(worked)*(1/paceShare-1)), paceRest))
	defer timer.Stop()
	select {
	case <-p.hurry:
	case <-timer.C:
	}
}

// unsaved says what becomes of a run whose save has failed.
func unsaved(err error) string {
	return fmt.Sprintf("%v; training goes on, and the next save is tried as usual", err)
}
