//go:build mpi

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/lethe-go/lethe/bench/internal/command"
	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
)

// startedKey is set for processes that mpirun has started on behalf of this command.
const startedKey = "LETHE_BENCH_COLLECTIVE"

func main() { command.Main("collective", run) }

func run(ctx context.Context, args []string, out, log io.Writer) error {
	flags := flag.NewFlagSet("collective", flag.ContinueOnError)
	flags.SetOutput(log)
	n := flags.Int("n", 2, "processes")
	turns := flags.Int("turns", 15, "turns of each row")
	asJSON := flags.Bool("json", false, "print one JSON object per row")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if os.Getenv(startedKey) == "" {
		return start(ctx, *n)
	}
	return compare(ctx, *turns, *asJSON, out)
}

// start starts this command under mpirun, by any user and on any number of processors.
func start(ctx context.Context, n int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("MPIRUN"), "mpirun"), append([]string{"-n", strconv.Itoa(n), self}, os.Args[1:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), startedKey+"=1",
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return cmd.Run()
}

// Row is a collective of one size. Times are of one call, in microseconds.
type Row struct {
	Kind  string  `json:"kind"`
	Ranks int     `json:"ranks"`
	Bytes int     `json:"bytes"` // the largest tensor of a rank
	Raw   float64 `json:"raw_us"`
	MPI   float64 `json:"mpi_us"`
	Local float64 `json:"local_us"`
	// MPIToRaw and LocalToRaw are times divided by those of MPI's own calls.
	MPIToRaw   float64 `json:"mpi_to_raw"`
	LocalToRaw float64 `json:"local_to_raw"`
}

// compare prints the rows, on the first rank.
func compare(ctx context.Context, turns int, asJSON bool, out io.Writer) error {
	w, err := mpi.Init(ctx)
	if err != nil {
		return err
	}
	g, err := w.Group(ctx, nil, mpi.Options{})
	if err != nil {
		return err
	}
	ends, err := local.New(w.Size(), local.Options{})
	if err != nil {
		return err
	}
	if w.Rank() == 0 && !asJSON {
		fmt.Fprintf(out, "%s, %d processes\n%-15s %9s  %9s %9s %9s  %8s %9s\n", w.Library(), w.Size(),
			"", "bytes", "raw µs", "mpi µs", "local µs", "mpi/raw", "local/raw")
	}
	for _, bytes := range []int{64, 4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		for kind := range collective.Kind(collective.Kinds) {
			if kind == collective.KindBarrier && bytes > 64 {
				continue
			}
			row, err := measure(w, g, ends, kind, bytes, turns)
			if err != nil {
				return err
			}
			if w.Rank() != 0 {
				continue
			}
			if asJSON {
				err = json.NewEncoder(out).Encode(row)
			} else {
				_, err = fmt.Fprintf(out, "%-15s %9d  %9.1f %9.1f %9.1f  %8.2f %9.2f\n", row.Kind, row.Bytes, row.Raw, row.MPI, row.Local, row.MPIToRaw, row.LocalToRaw)
			}
			if err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// measure times one row, in turns.
func measure(w *mpi.World, g collective.Group, ends []collective.Group, kind collective.Kind, bytes, turns int) (Row, error) {
	row := Row{Kind: kind.String(), Ranks: g.Size(), Bytes: bytes}
	calls := max(2, min(200, (4<<20)/bytes))
	own := newBuffers(bytes, g.Size())
	others := make([]buffers, len(ends))
	for r := range others {
		others[r] = newBuffers(bytes, g.Size())
	}
	var raw, over, near, overRaw, nearRaw []float64
	for turn := range turns + 1 { // the first warms up
		var a, b, c float64
		if err := g.Barrier(context.Background()); err != nil {
			return row, err
		}
		if err := w.Do(func() { a = rawSeconds(kind, calls, own.out.floats(), own.in.floats()) }); err != nil {
			return row, err
		}
		if err := g.Barrier(context.Background()); err != nil {
			return row, err
		}
		begin := time.Now()
		if err := repeat(g, kind, calls, own); err != nil {
			return row, err
		}
		b = time.Since(begin).Seconds()
		if w.Rank() == 0 {
			var err error
			if c, err = together(ends, kind, calls, others); err != nil {
				return row, err
			}
		}
		if turn == 0 {
			continue
		}
		perCall := 1e6 / float64(calls)
		raw, over, near = append(raw, a*perCall), append(over, b*perCall), append(near, c*perCall)
		overRaw, nearRaw = append(overRaw, b/a), append(nearRaw, c/a)
	}
	row.Raw, row.MPI, row.Local = quantile.Median(raw), quantile.Median(over), quantile.Median(near)
	row.MPIToRaw, row.LocalToRaw = quantile.Median(overRaw), quantile.Median(nearRaw)
	return row, nil
}

// together runs the collective on goroutines.
func together(ends []collective.Group, kind collective.Kind, calls int, b []buffers) (seconds float64, err error) {
	errs := make([]error, len(ends))
	var running sync.WaitGroup
	begin := time.Now()
	for r, g := range ends {
		running.Go(func() { errs[r] = repeat(g, kind, calls, b[r]) })
	}
	running.Wait()
	return time.Since(begin).Seconds(), errs[0]
}

func repeat(g collective.Group, kind collective.Kind, calls int, b buffers) error {
	ctx := context.Background()
	for range calls {
		var err error
		switch kind {
		case collective.KindAllToAll:
			err = g.AllToAll(ctx, b.out.tensor(), b.in.tensor(), device.Tensor{}, device.Tensor{})
		case collective.KindAllReduce:
			err = g.AllReduce(ctx, b.out.tensor())
		case collective.KindAllGather:
			err = g.AllGather(ctx, b.out.tensor(), b.part.tensor())
		case collective.KindReduceScatter:
			err = g.ReduceScatter(ctx, b.part.tensor(), b.in.tensor())
		case collective.KindBroadcast:
			err = g.Broadcast(ctx, b.out.tensor(), 0)
		default:
			err = g.Barrier(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// buffers of a rank.
type buffers struct{ in, out, part heap }

func newBuffers(bytes, ranks int) buffers {
	n := max(ranks, bytes/4/ranks*ranks)
	return buffers{make(heap, n), make(heap, n), make(heap, n/ranks)}
}

// heap is memory of float32.
type heap []float32

func (h heap) Size() int64             { return int64(4 * len(h)) }
func (h heap) Free()                   {}
func (h heap) Pointer() unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(h)) }
func (h heap) floats() []float32       { return h }
func (h heap) tensor() device.Tensor   { return device.NewTensor(h, 0, device.Float32, len(h)) }
