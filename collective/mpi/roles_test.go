//go:build mpi

package mpi_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/collectivetest"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
)

// role is what every process of a job does; g is the group of all.
type role func(w *mpi.World, g collective.Group) error

var roles = map[string]role{
	"dead": dead, "stopped": stopped, "late": late, "hangs": hangs, "renew": renew, "lanes": lanes, "large": large, "flat": flat, "refusals": refusals,
}

// play is the main function of a process with a role. It says how it ends.
func play(name string) {
	w, err := mpi.Init(context.Background())
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	g, err := w.Group(context.Background(), nil, mpi.Options{Name: "all", Timeout: 20 * time.Second})
	if err == nil {
		err = roles[name](w, g)
	}
	fmt.Printf("rank %d ends: %v.\n", w.Rank(), err)
	fmt.Printf("rank %d closes: %v.\n", w.Rank(), w.Close())
	os.Exit(0)
}

// expect launches a role and demands that every rank ends in one of the given ways.
func expect(t *testing.T, ranks int, role string, ends []string, options ...string) {
	t.Helper()
	out, err := launch(t, ranks, role, options...)
	for _, want := range ends {
		if !strings.Contains(out, want) {
			t.Errorf("nobody says %q", want)
		}
	}
	if t.Failed() {
		t.Logf("error %v, output:\n%s", err, out)
	}
}

// well is how n ranks end without errors.
func well(n int) (ends []string) {
	for r := range n {
		ends = append(ends, fmt.Sprintf("rank %d ends: <nil>.", r), fmt.Sprintf("rank %d closes: <nil>.", r))
	}
	return ends
}

// dead: rank 1 is killed while the others wait for it with a deadline that is far away.
func dead(w *mpi.World, g collective.Group) error {
	if err := g.Barrier(context.Background()); err != nil {
		return err
	}
	if w.Rank() == 1 {
		time.Sleep(50 * time.Millisecond) // what it has sent arrives
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	return g.Barrier(context.Background())
}

func TestDead(t *testing.T) {
	if out, _ := exec.Command(mpirun(), "--version").CombinedOutput(); !strings.Contains(string(out), "Open MPI") {
		t.Skip("only Open MPI's launcher can be told to leave the survivors alone")
	}
	expect(t, 3, "dead", []string{"rank 0 ends: ", "rank 2 ends: ", "barrier number 2: rank 1, process ", "has died."}, "--enable-recovery")
}

// stopped: the deadline finds a rank that was stopped by a signal. It learns of that as it
// goes on.
func stopped(w *mpi.World, g collective.Group) error {
	ctx := context.Background()
	quick, err := w.Group(ctx, nil, mpi.Options{Name: "quick", Timeout: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	ids, err := share(g, []string{strconv.Itoa(os.Getpid())})
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		time.Sleep(10 * time.Millisecond) // the other threads stop a little later
		// What rank 0 has sent may be all that the first one needs.
		return errors.Join(quick.Barrier(ctx), quick.Barrier(ctx))
	}
	err = quick.Barrier(ctx)
	id, _ := strconv.Atoi(ids[1])
	syscall.Kill(id, syscall.SIGCONT)
	return err
}

func TestStopped(t *testing.T) {
	expect(t, 2, "stopped", []string{
		"rank 0 ends: collective: deadline exceeded: barrier number 1 waited 300ms for ranks [1]; rank 1 is process ", ", which is stopped.", "rank 0 closes: <nil>.", "rank 1 closes: <nil>.",
		"rank 1 ends: collective: the group was aborted: rank 0: collective: deadline exceeded: barrier number 1 waited 300ms for ranks [1]"})
}

// late: rank 1 does not come to open a group before the context of rank 0 ends.
func late(w *mpi.World, g collective.Group) error {
	ctx := context.Background()
	if w.Rank() == 1 {
		if err := g.Barrier(ctx); err != nil {
			return err
		}
		_, err := w.Group(ctx, []int{1, 0}, mpi.Options{Name: "late"})
		return err
	}
	brief, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := w.Group(brief, []int{1, 0}, mpi.Options{Name: "late"})
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	return err
}

func TestLate(t *testing.T) {
	expect(t, 2, "late", []string{
		`rank 0 ends: mpi: group "late": ranks [0] have not opened it: context deadline exceeded.`, "rank 0 closes: <nil>.", "rank 1 closes: <nil>.",
		`rank 1 ends: collective: the group was aborted: rank 1: mpi: group "late": ranks [0] have not opened it`})
}

// hangs: MPI does not return to the thread while rank 0 waits for rank 1, which does not come.
func hangs(w *mpi.World, g collective.Group) error {
	ctx := context.Background()
	quick, err := w.Group(ctx, nil, mpi.Options{Name: "quick", Timeout: 300 * time.Millisecond})
	if err != nil {
		return err
	}
	if w.Rank() == 1 {
		return g.Barrier(ctx)
	}
	returns, waits := make(chan struct{}), make(chan string, 1)
	go func() {
		for w.Waiting() == "" {
			runtime.Gosched()
		}
		w.Do(func() {
			waits <- w.Waiting()
			<-returns
		})
	}()
	err = quick.Barrier(ctx)
	close(returns)
	fmt.Println(<-waits)
	return errors.Join(err, g.Barrier(ctx))
}

func TestHangs(t *testing.T) {
	expect(t, 2, "hangs", []string{"group quick: barrier number 1 waits for ranks [1]; rank 1 is process ",
		"rank 0 ends: collective: deadline exceeded: barrier number 1 waited 300ms for ranks [1]; rank 1 is process ", "; MPI hangs, and its messages are still under way",
		"rank 1 ends: <nil>.", "rank 0 closes: <nil>.", "rank 1 closes: <nil>."})
}

// renew: whatever the ranks were at when one of them failed, the group works again.
func renew(w *mpi.World, g collective.Group) error {
	const floats = 60_000 // more than MPI sends before the receiver has come
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, uint64(w.Rank())))
	in, out := newFloats(g.Size()*floats), newFloats(g.Size()*floats)
	x := device.Elements[float32](in)
	between, err := w.Group(ctx, nil, mpi.Options{Name: "between", Timeout: 20 * time.Second})
	if err != nil {
		return err
	}
	for round := range 60 {
		victim := round % g.Size()
		own, cancel := context.WithCancel(ctx)
		if victim == w.Rank() {
			time.AfterFunc(time.Duration(r.IntN(3000))*time.Microsecond, cancel)
		}
		var err error
		for err == nil {
			if err = g.AllToAll(own, out, in, device.Tensor{}, device.Tensor{}); err == nil {
				err = g.AllReduce(own, in)
			}
			clear(x)
		}
		cancel()
		if victim == w.Rank() != errors.Is(err, context.Canceled) {
			return fmt.Errorf("round %d, where rank %d has left: %w", round, victim, err)
		}
		g.(collective.Renewer).Renew()
		for i := range x {
			x[i] = float32(i%100 + w.Rank())
		}
		if err := g.AllReduce(ctx, in); err != nil {
			return fmt.Errorf("renewed in round %d: %w", round, err)
		}
		for i, v := range x {
			if want := float32(g.Size()*(i%100) + g.Size()*(g.Size()-1)/2); v != want {
				return fmt.Errorf("round %d: element %d is %v, want %v", round, i, v, want)
			}
		}
		// An abort may overtake the end of a sum.
		if err := between.Barrier(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestRenew(t *testing.T) { expect(t, 3, "renew", well(3)) }

// lanes: groups of all ranks and of some are used by goroutines at the same time.
func lanes(w *mpi.World, g collective.Group) error {
	ctx := context.Background()
	half := w.Rank() / 2 * 2
	var groups []collective.Group
	for _, ranks := range [][]int{nil, {half, half + 1}, {w.Rank() % 2, w.Rank()%2 + 2}, nil} {
		g, err := w.Group(ctx, ranks, mpi.Options{Timeout: 20 * time.Second})
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	errs := make([]error, len(groups))
	var running sync.WaitGroup
	for i, g := range groups {
		running.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(i))) // the same on all ranks
			for round := range 60 {
				n := r.IntN(40_000)
				t := newFloats(n)
				x := device.Elements[float32](t)
				for j := range x {
					x[j] = float32(100*round + i)
				}
				if err := g.AllReduce(ctx, t); err != nil {
					errs[i] = err
					return
				}
				for j, v := range x {
					if want := float32(g.Size() * (100*round + i)); v != want {
						errs[i] = fmt.Errorf("group %d, round %d: element %d of %d is %v, want %v", i, round, j, n, v, want)
						g.Abort(errs[i])
						return
					}
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

func TestLanes(t *testing.T) { expect(t, 4, "lanes", well(4)) }

// large: more bytes than one message takes.
func large(w *mpi.World, g collective.Group) error {
	const n = 70 << 20
	in, out := collectivetest.Tensor(device.Uint8, n), collectivetest.Tensor(device.Uint8, g.Size()*n)
	own := device.Elements[uint8](in)
	for i := range own {
		own[i] = byte(i>>16 + i + w.Rank())
	}
	if err := g.AllGather(context.Background(), out, in); err != nil {
		return err
	}
	for i, v := range device.Elements[uint8](out) {
		if want := byte(i%n>>16 + i%n + i/n); v != want {
			return fmt.Errorf("byte %d is %d, want %d", i, v, want)
		}
	}
	return nil
}

func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("400 MB")
	}
	expect(t, 2, "large", well(2))
}

// flat: the memory of a process does not grow with the number of collectives.
func flat(w *mpi.World, g collective.Group) error {
	ctx := context.Background()
	sum, in, out := newFloats(20_000), newFloats(2*g.Size()), newFloats(2*g.Size())
	steps := func(n int) error {
		for range n {
			if err := errors.Join(g.AllToAll(ctx, out, in, device.Tensor{}, device.Tensor{}), g.AllReduce(ctx, sum)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := steps(300); err != nil {
		return err
	}
	before := resident()
	if err := steps(1000); err != nil {
		return err
	}
	if after := resident(); after > before+1<<20 {
		return fmt.Errorf("the process grew from %d to %d bytes", before, after)
	}
	return nil
}

// resident bytes of this process.
func resident() (pages int64) {
	var size int64
	b, _ := os.ReadFile("/proc/self/statm")
	fmt.Sscan(string(b), &size, &pages)
	return pages * int64(os.Getpagesize())
}

func TestFlat(t *testing.T) { expect(t, 2, "flat", well(2)) }

// refusals: what Group and Init do not accept.
func refusals(w *mpi.World, g collective.Group) error {
	ctx := context.Background()
	for _, ranks := range [][]int{{}, {0, 0}, {0, 2}, {-1}, {1 - w.Rank()}} {
		if _, err := w.Group(ctx, ranks, mpi.Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprint(ranks)) {
			return fmt.Errorf("ranks %v: %v", ranks, err)
		}
	}
	if _, err := mpi.Init(ctx); err == nil {
		return errors.New("a second Init is accepted")
	}
	return nil
}

func TestRefusals(t *testing.T) { expect(t, 2, "refusals", well(2)) }

func newFloats(n int) device.Tensor { return collectivetest.Tensor(device.Float32, n) }
