//go:build mpi

package mpi

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// Available reports whether this program was built with MPI.
const Available = true

// World is this process's place among those that mpirun has started.
type World struct {
	rank, size int
	library    string
	thread     *thread

	mu     sync.Mutex
	opened map[uint64]uint64 // groups of the same name and ranks so far
}

var initialize sync.Once

// Init starts MPI, once in a process. All processes of a job call it, and it waits for all;
// when the context ends before, MPI is of no use to this process any more. Without a
// launcher the world is this process alone.
func Init(ctx context.Context) (*World, error) {
	first := false
	initialize.Do(func() { first = true })
	if !first {
		return nil, errors.New("mpi: Init was called before")
	}
	t := newThread()
	ready := make(chan error, 1)
	go t.run(ready)
	select {
	case err := <-ready:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		n, _ := launched()
		return nil, fmt.Errorf("mpi: MPI_Init waits for all of the job's %d processes: %w", n, context.Cause(ctx))
	}
	w := &World{rank: t.rank, size: t.size, library: t.library, thread: t, opened: map[uint64]uint64{}}
	if n, by := launched(); n > 1 && w.size == 1 {
		w.Close()
		return nil, fmt.Errorf("mpi: the launcher set %s=%d, but %s sees one process: the launcher belongs to another MPI; use that of %s, or build with the tag of the other (mpi: Open MPI, mpi,mpich: MPICH)",
			by, n, w.library, w.library)
	}
	return w, nil
}

// launched is the number of processes that a launcher says it has started.
func launched() (n int, by string) {
	for _, by := range []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS"} {
		if n, err := strconv.Atoi(os.Getenv(by)); err == nil {
			return n, by
		}
	}
	return 1, ""
}

// Rank of this process.
func (w *World) Rank() int { return w.rank }

// Size is the number of processes.
func (w *World) Size() int { return w.size }

// Library names the MPI in use, such as "Open MPI v4.1.4".
func (w *World) Library() string { return w.library }

// Group opens the group of the given ranks of the world, in that order; nil means all.
// Each of them calls it, and processes that share several groups open them in the same
// order. It waits until all have come; when the context ends before, the error tells who
// has not.
func (w *World) Group(ctx context.Context, ranks []int, o Options) (collective.Group, error) {
	if ranks == nil {
		for r := range w.size {
			ranks = append(ranks, r)
		}
	}
	if o.Name == "" {
		o.Name = "mpi"
	}
	for i, r := range ranks {
		if r < 0 || r >= w.size || slices.Contains(ranks[:i], r) {
			return nil, fmt.Errorf("mpi: group %q of ranks %v: want different ones of the %d in the world", o.Name, ranks, w.size)
		}
	}
	rank := slices.Index(ranks, w.rank)
	if rank < 0 {
		return nil, fmt.Errorf("mpi: group %q of ranks %v is opened by rank %d, which is not in it", o.Name, ranks, w.rank)
	}
	g := newGroup(w.thread, w.identify(o.Name, ranks), rank, slices.Clone(ranks), o)
	if err := g.open(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// identify gives a group the number by which all its ranks know it.
func (w *World) identify(name string, ranks []int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %v", name, ranks)
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.opened[h.Sum64()]
	w.opened[h.Sum64()]++
	binary.Write(h, binary.LittleEndian, n)
	return h.Sum64()
}

// Dead is an error that names a process of the world that has died, nil if none can be seen
// to have. Those on other machines cannot. It may be called at any time, on any goroutine.
func (w *World) Dead() error {
	t := w.thread
	if r := slices.IndexFunc(t.peers, t.here().sees(dead)); r >= 0 {
		return fmt.Errorf("rank %d, %v, has died", r, t.peers[r])
	}
	return nil
}

// Waiting tells which collectives of this process wait for which ranks of the world, "" if
// none does. It may be called at any time, on any goroutine.
func (w *World) Waiting() string {
	var waits []string
	knowledge.Lock()
	defer knowledge.Unlock()
	for _, g := range w.thread.active {
		if missing := g.missing(); g.waits && len(missing) > 0 {
			waits = append(waits, fmt.Sprintf("group %s: %s waits for ranks %v%s", g.name, g.doing(), missing, w.thread.states(g, missing)))
		}
	}
	return strings.Join(waits, "; ")
}

// Do runs f on the thread that makes all MPI calls, between two of its polls: a way to
// use another library of MPI in this process. Messages of groups rest until f returns.
func (w *World) Do(f func()) error {
	done := make(chan struct{})
	if err := w.thread.submit(command{kind: doFunction, function: func() { defer close(done); f() }}); err != nil {
		return err
	}
	<-done
	return nil
}

// Close ends MPI in this process. All processes call it, when none is in a call of a
// group; later calls return [ErrClosed]. It waits for the others ten seconds, or two if
// one of them has died or is stopped.
func (w *World) Close() error {
	t := w.thread
	if err := t.submit(command{kind: closeWorld}); err != nil {
		return nil // closed before
	}
	begin, tick := time.Now(), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-t.ended:
			return t.err
		case <-tick.C:
		}
		waited := time.Since(begin)
		if r := slices.IndexFunc(t.peers, t.here().seesGone); r >= 0 && waited > partingWithout {
			return fmt.Errorf("mpi: MPI_Finalize waits for rank %d of the world, %v, which has died or is stopped", r, t.peers[r])
		}
		if waited > parting {
			return fmt.Errorf("mpi: MPI_Finalize: %w: waited %v for the other processes", collective.ErrTimeout, parting)
		}
	}
}

const (
	parting        = 10 * time.Second
	partingWithout = 2 * time.Second
)
