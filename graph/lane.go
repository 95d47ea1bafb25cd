package graph

import (
	"context"

	"github.com/lethe-go/lethe/device"
)

// lane runs asynchronous steps in order on a goroutine and a queue of its own.
type lane struct {
	machine *Machine
	queue   device.Queue
	label   device.Labeler // the queue, if it can tell steps apart
	sync    bool
	steps   chan *boundStep
	done    chan struct{}
	// pending counts steps whose result has not been collected.
	pending []*boundStep
}

// openLanes starts one lane for every name that a step mentions.
func (m *Machine) openLanes() {
	for i := range m.steps {
		b := &m.steps[i]
		if b.step.Lane == Compute {
			continue
		}
		l := m.lanes[b.step.Lane]
		if l == nil {
			l = &lane{machine: m, queue: m.dev.NewQueue(), sync: m.dev.HostAccessible(), steps: make(chan *boundStep, len(m.steps)), done: make(chan struct{})}
			l.label, _ = l.queue.(device.Labeler)
			m.lanes[b.step.Lane] = l
			go l.work()
		}
		b.exec.Kernels = l.queue
	}
}

func (l *lane) work() {
	defer close(l.done)
	for b := range l.steps {
		if c, ok := l.queue.(interface{ Tick(int) }); ok { // an instrument
			c.Tick(b.step.Index)
		}
		b.done <- l.run(b)
	}
}

func (l *lane) run(b *boundStep) error {
	t := l.machine.tracer
	if t == nil {
		return b.run(l.queue, l.sync)
	}
	l.machine.labelKernels(l.label, b.step)
	t.Started(b.step)
	defer t.Finished(b.step)
	return b.run(l.queue, l.sync)
}

func (l *lane) enqueue(b *boundStep) {
	l.pending = append(l.pending, b)
	l.steps <- b
}

// wait blocks until an asynchronous step has finished, or the context ends.
func (l *lane) wait(ctx context.Context, b *boundStep) error {
	select {
	case err := <-b.done:
		l.collected(b)
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *lane) collected(b *boundStep) {
	for i, p := range l.pending {
		if p == b {
			l.pending = append(l.pending[:i], l.pending[i+1:]...)
			return
		}
	}
}

// drain waits for what a failed run has left on the lanes, so that nothing
// writes to the arena any more.
func (m *Machine) drain() {
	for _, l := range m.lanes {
		for _, b := range l.pending {
			<-b.done
		}
		l.pending = l.pending[:0]
	}
}

func (l *lane) close() {
	close(l.steps)
	<-l.done
	l.queue.Close()
}
