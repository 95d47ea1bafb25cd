package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
)

// What parallelism.backend may be.
const (
	localBackend = "local"
	mpiBackend   = "mpi"
)

// world is the job as this process sees it: the seats of its own ranks, and their ends of
// the groups that they are in. With the backend local all ranks are in this process, with
// mpi it is one of several and has one rank.
type world struct {
	layout  layout
	seats   []seat
	timeout Duration // of collectives in steps
	// processes of the job; nil if this is the only one.
	processes *mpi.World
	owned     bool // processes is closed with the world
	// beside is the group of all processes for what goes on beside steps, such as writing a
	// state in the background; nil if this is the only one.
	beside collective.Group
}

// seat is the place of a rank.
type seat struct {
	rank   int
	ends   ends
	flight *flight.Recorder // of what the ends do; nil for a rank alone
}

// joinWorld seats the ranks of this process, once all others have come.
func joinWorld(ctx context.Context, c Config, o Options, d device.Device) (*world, error) {
	if c.Parallelism.Backend == mpiBackend {
		return joinProcesses(ctx, c, o, d)
	}
	w := &world{layout: newLayout(c.Parallelism)}
	connected, err := w.layout.localEnds(o.Link)
	if err != nil {
		return nil, err
	}
	for rank, e := range connected {
		w.sit(rank, e, c, o)
	}
	w.setTimeout(c.Comm.InitTimeout)
	return w, nil
}

// joinProcesses meets the processes that a launcher has started. A process with another
// config is found before the groups are opened that depend on it.
func joinProcesses(ctx context.Context, c Config, o Options, d device.Device) (*world, error) {
	ctx, cancel := withTimeout(ctx, c.Comm.InitTimeout)
	defer cancel()
	w := &world{layout: newLayout(c.Parallelism), processes: o.World}
	if w.processes == nil {
		var err error
		if w.processes, err = mpi.Init(ctx); err != nil {
			err = fmt.Errorf("train: parallelism.backend: %w", err)
			if !mpi.Available {
				err = &ConfigError{err}
			}
			return nil, err
		}
		w.owned = true
	}
	if err := w.openGroups(ctx, c, o, d); err != nil {
		if isCommon(err) {
			_ = w.record(err) // must not hide the cause
		} else {
			w.abort(err)
		}
		w.close()
		return nil, err
	}
	return w, nil
}

// openGroups opens those that this process is in, in the same order on all of them.
func (w *world) openGroups(ctx context.Context, c Config, o Options, d device.Device) error {
	rank, ranks := w.processes.Rank(), w.processes.Size()
	if ranks == 1 {
		if err := w.layout.fits(ranks); err != nil {
			return &ConfigError{err}
		}
		w.sit(rank, ends{}, c, o)
		return nil
	}
	// Whether the layouts are the same is not known before all are in one group.
	s := w.sit(rank, ends{}, c, o)
	open := func(name string, members []int) (collective.Group, error) {
		if len(members) < 2 {
			return nil, nil
		}
		g, err := w.processes.Group(ctx, members, mpi.Options{Name: name, Timeout: time.Duration(c.Comm.InitTimeout)})
		if err != nil {
			return nil, fmt.Errorf("train: %w", err)
		}
		return s.flight.Group(g, members), nil
	}
	var err error
	all := w.layout.all(ranks)
	if s.ends.data, err = open("data", all); err != nil {
		return err
	}
	if err := agree(ctx, d, s.ends.data, configFacts(c)); errors.Is(err, ErrDisagree) {
		return &ConfigError{err}
	} else if err != nil {
		return err
	}
	if err := w.layout.fits(ranks); err != nil {
		return &ConfigError{&common{err}}
	}
	for _, kind := range w.layout.groups()[1:] {
		if *kind.end(&s.ends), err = open(kind.name, kind.ranks(rank)); err != nil {
			return err
		}
	}
	w.beside, err = open("beside steps", all)
	w.setTimeout(c.Comm.InitTimeout)
	return err
}

// sit takes the seat of a rank of this process.
func (w *world) sit(rank int, e ends, c Config, o Options) *seat {
	s := seat{rank: rank, ends: e}
	if ranks := w.ranks(); ranks > 1 {
		s.flight = flight.New(flight.Options{Rank: rank, Ranks: ranks, Folder: c.FlightPath(), Stuck: o.Stuck})
		s.ends = w.layout.recorded(s.flight, rank, e)
	}
	w.seats = append(w.seats, s)
	return &w.seats[len(w.seats)-1]
}

// ranks of the job, whatever the layout says.
func (w *world) ranks() int {
	if w.processes != nil {
		return w.processes.Size()
	}
	return w.layout.ranks()
}

// several reports whether other processes take part in the job.
func (w *world) several() bool { return w.beside != nil }

// leads reports whether this process is the one that speaks and writes for all.
func (w *world) leads() bool { return w.processes == nil || w.processes.Rank() == 0 }

// setTimeout changes the deadline of the next collectives of steps. No rank is in one.
func (w *world) setTimeout(d Duration) {
	w.timeout = d
	for _, s := range w.seats {
		for _, g := range s.ends.all() {
			g.(collective.Timed).SetTimeout(time.Duration(d))
		}
	}
}

// dead is an error that names a process of the job that can be seen to have died.
func (w *world) dead() error {
	if w.processes == nil {
		return nil
	}
	return w.processes.Dead()
}

// waiting tells for which processes of the job this one waits, "" if for none.
func (w *world) waiting() string {
	if w.processes == nil {
		return ""
	}
	return w.processes.Waiting()
}

// record writes the flight records of this process' ranks, because of the cause.
func (w *world) record(cause error) error {
	var errs []error
	for _, s := range w.seats {
		if s.flight != nil {
			errs = append(errs, s.flight.Write(cause))
		}
	}
	return errors.Join(errs...)
}

// abort ends all groups, so that no rank waits for one of this process. The flight records
// are written first.
func (w *world) abort(cause error) {
	for _, s := range w.seats {
		s.ends.abort(cause)
	}
	if w.beside != nil {
		w.beside.Abort(cause)
	}
}

func (w *world) close() error {
	for _, s := range w.seats {
		if s.flight != nil {
			s.flight.Close()
		}
	}
	if w.owned {
		return w.processes.Close()
	}
	return nil
}

// withTimeout is a context that ends after d, or never if d is 0.
func withTimeout(ctx context.Context, d Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, time.Duration(d), fmt.Errorf("%w: comm.init_timeout is %v", collective.ErrTimeout, d))
}
