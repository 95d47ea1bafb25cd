package flight_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/collectivetest"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

func floats(shape ...int) device.Tensor {
	return collectivetest.Tensor(device.Float64, shape...)
}

// TestGroup: a recorded group is a group, and allocates no more.
func TestGroup(t *testing.T) {
	collectivetest.Run(t, func(size int, timeout time.Duration) ([]collective.Group, error) {
		groups, err := local.New(size, local.Options{Name: "test", Timeout: timeout})
		for r := range groups {
			recorder := flight.New(flight.Options{Rank: r, Ranks: size, Entries: 7})
			t.Cleanup(recorder.Close)
			groups[r] = recorder.Group(groups[r], nil)
		}
		return groups, err
	})
}

// job is a number of ranks with recorders, in groups "data" of all and, for each two ranks
// that follow one another, "pair".
type job struct {
	folder     string
	recorders  []*flight.Recorder
	data, pair []collective.Group
}

func newJob(t *testing.T, ranks int, timeout time.Duration) *job {
	t.Helper()
	j := &job{folder: filepath.Join(t.TempDir(), "a", "flight_record"), pair: make([]collective.Group, ranks)}
	all, err := local.New(ranks, local.Options{Name: "data"})
	if err != nil {
		t.Fatal(err)
	}
	var members []int
	for r := range ranks {
		members = append(members, r)
	}
	for r := range ranks {
		recorder := flight.New(flight.Options{Rank: r, Ranks: ranks, Folder: j.folder})
		t.Cleanup(recorder.Close)
		j.recorders = append(j.recorders, recorder)
		j.data = append(j.data, recorder.Group(all[r], members))
	}
	for r := 0; r+1 < ranks; r += 2 {
		ends, err := local.New(2, local.Options{Name: "pair"})
		if err != nil {
			t.Fatal(err)
		}
		for i, end := range ends {
			j.pair[r+i] = j.recorders[r+i].Group(end, []int{r, r + 1})
		}
	}
	for _, r := range j.recorders {
		r.SetTimeout(timeout)
	}
	return j
}

// together calls f for every rank. As the trainer does, a rank that fails ends its groups.
func (j *job) together(f func(rank int) error) []error {
	errs := make([]error, len(j.recorders))
	var running sync.WaitGroup
	for r := range j.recorders {
		running.Go(func() {
			if errs[r] = f(r); errs[r] != nil {
				cause := fmt.Errorf("rank %d: %w", r, errs[r])
				j.data[r].Abort(cause)
				if j.pair[r] != nil {
					j.pair[r].Abort(cause)
				}
			}
		})
	}
	running.Wait()
	return errs
}

// record reads that of a rank.
func (j *job) record(t *testing.T, rank int) *flight.Record {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(j.folder, fmt.Sprintf("rank_%d.json", rank)))
	if err != nil {
		t.Fatal(err)
	}
	r := &flight.Record{}
	if err := json.Unmarshal(text, r); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if r.Rank != rank || r.Ranks != len(j.recorders) || r.Written.IsZero() {
		t.Errorf("the record of rank %d is of %d of %d at %v", rank, r.Rank, r.Ranks, r.Written)
	}
	return r
}

// call makes collectives of a node of the graph.
func call(g collective.Group, node string, f func(g collective.Group) error) error {
	g.(collective.Annotated).Annotate(collective.Caller{Node: node, Pass: graph.BackwardPass, Step: 3, Microbatch: 1})
	return f(g)
}

func sum(g collective.Group) error { return g.AllReduce(context.Background(), floats(3)) }

// survivor demands that an error and the record name the rank, the op, the node and the
// sequence number, of the survivor and of the culprit.
func (j *job) survivor(t *testing.T, rank int, err error, want flight.Error, cause error, says ...string) {
	t.Helper()
	var e *flight.Error
	if !errors.As(err, &e) || !errors.Is(err, cause) {
		t.Errorf("rank %d: %v, want a flight.Error because of %v", rank, err, cause)
		return
	}
	if e.Rank != rank || e.Group != want.Group || e.Kind != want.Kind || e.Sequence != want.Sequence || e.Node != want.Node || !slices.Equal(e.Ranks, want.Ranks) {
		t.Errorf("rank %d: %+v, want %+v", rank, e, want)
	}
	if e.Record != j.recorders[rank].Path() {
		t.Errorf("rank %d names the record %q", rank, e.Record)
	}
	r := j.record(t, rank)
	for _, s := range append(says, fmt.Sprintf("rank %d", rank), fmt.Sprintf("%v number %d (%s)", want.Kind, want.Sequence, want.Node)) {
		if !strings.Contains(err.Error(), s) || !strings.Contains(r.Cause, s) {
			t.Errorf("rank %d: no %q in\n%v\nor its record:\n%s", rank, s, err, r.Cause)
		}
	}
	last := r.Collectives[len(r.Collectives)-1]
	if last.Group != want.Group || last.Op != want.Kind.String() || last.Sequence != want.Sequence || last.Node != want.Node || last.State != "failed" ||
		last.Pass != "backward" || last.Step != 3 || last.Microbatch != 1 {
		t.Errorf("rank %d: the last collective of the record is %+v", rank, last)
	}
}

var everyone = []int{0, 1, 2, 3}

// TestDeadline: rank 2 does not come to the second sum of all.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 4, time.Minute)
		defer j.close()
		begin := time.Now()
		errs := j.together(func(rank int) error {
			if err := call(j.data[rank], "norm", sum); err != nil || rank == 2 {
				return err // it has died
			}
			return call(j.data[rank], "loss", sum)
		})
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("the survivors stop after %v, want a minute", took)
		}
		want := flight.Error{Group: "data", Kind: collective.KindAllReduce, Sequence: 2, Node: "loss", Ranks: everyone}
		for _, rank := range []int{0, 1, 3} {
			j.survivor(t, rank, errs[rank], want, collective.ErrTimeout, "waited 1m0s for ranks [2]")
			g := j.record(t, rank).Groups[0]
			if g.Name != "data" || g.Rank != rank || !slices.Equal(g.Ranks, everyone) || g.Begun != 2 || g.Done != 1 {
				t.Errorf("rank %d: the record tells of %+v", rank, g)
			}
		}
		if errs[2] != nil || j.recorders[2].Write(errors.New("SIGTERM")) != nil {
			t.Errorf("rank 2: %v", errs[2])
		}
		if r := j.record(t, 2); r.Cause != "SIGTERM" || r.Groups[0].Begun != 1 || r.Groups[0].Done != 1 || len(r.Collectives) != 1 || r.Collectives[0].State != "done" {
			t.Errorf("the culprit's record is %+v", r)
		}
	})
}

func (j *job) close() {
	for _, r := range j.recorders {
		r.Close()
	}
}

// TestMismatch: rank 1 leaves out a sum, or brings more elements.
func TestMismatch(t *testing.T) {
	for name, odd := range map[string]func(g collective.Group) error{
		"out of order": func(g collective.Group) error { return g.Barrier(context.Background()) },
		"other size":   func(g collective.Group) error { return g.AllReduce(context.Background(), floats(4)) },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, 2, time.Minute)
			errs := j.together(func(rank int) error {
				if rank == 1 {
					return call(j.data[rank], "odd", odd)
				}
				return call(j.data[rank], "even", sum)
			})
			want := flight.Error{Group: "data", Kind: collective.KindAllReduce, Sequence: 1, Node: "even", Ranks: []int{0, 1}}
			j.survivor(t, 0, errs[0], want, collective.ErrMismatch, "(odd)")
			want.Node = "odd"
			if name == "out of order" {
				want.Kind = collective.KindBarrier
			}
			j.survivor(t, 1, errs[1], want, collective.ErrMismatch, "(even)")
		})
	}
}

// TestDead: rank 3 fails by itself while others wait for it in its groups, and others for
// these in theirs.
func TestDead(t *testing.T) {
	j := newJob(t, 4, time.Minute)
	errs := j.together(func(rank int) error {
		switch rank {
		case 3:
			return errors.New("the disk is full")
		case 2:
			return call(j.pair[rank], "counts", sum)
		}
		return call(j.data[rank], "loss", sum)
	})
	j.survivor(t, 2, errs[2], flight.Error{Group: "pair", Kind: collective.KindAllReduce, Sequence: 1, Node: "counts", Ranks: []int{2, 3}}, collective.ErrAborted, "rank 3: the disk is full")
	for rank := range 2 {
		j.survivor(t, rank, errs[rank], flight.Error{Group: "data", Kind: collective.KindAllReduce, Sequence: 1, Node: "loss", Ranks: everyone}, collective.ErrAborted, "the disk is full")
	}
	if r := j.record(t, 3); r.Cause != "rank 3: the disk is full" || len(r.Collectives) != 0 {
		t.Errorf("the culprit's record is %+v", r)
	}
}

// TestLast: a record holds the last collectives, and those that go on, with their bytes.
func TestLast(t *testing.T) {
	recorder := flight.New(flight.Options{Ranks: 2, Entries: 3})
	ends, err := local.New(2, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	alone, err := local.New(1, local.Options{Name: "alone"})
	if err != nil {
		t.Fatal(err)
	}
	both, one := recorder.Group(ends[0], []int{0, 1}), recorder.Group(alone[0], []int{0})
	gone := make(chan error)
	go func() {
		gone <- call(both, "gather", func(g collective.Group) error { return g.AllGather(context.Background(), floats(6), floats(3)) })
	}()
	for recorder.Snapshot(nil).Groups[0].Begun == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 5 {
		if err := one.Barrier(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	var have []string
	for _, c := range recorder.Snapshot(nil).Collectives {
		have = append(have, fmt.Sprint(c.Group, c.Sequence, c.Op, c.Node, c.State, c.SentBytes, c.ReceivedBytes))
	}
	if want := []string{"local1all_gathergatherwaiting24 24", "alone3barrierdone0 0", "alone4barrierdone0 0", "alone5barrierdone0 0"}; !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
	both.Abort(errors.New("enough"))
	if err := <-gone; !errors.Is(err, collective.ErrAborted) {
		t.Error(err)
	}
}

// hung is a group whose barriers do not return, and may not even when it is aborted.
type hung struct {
	collective.Group
	release chan error
	deaf    bool
}

func (h *hung) Barrier(context.Context) error { return <-h.release }
func (h *hung) Abort(cause error) {
	if !h.deaf {
		h.release <- cause
	}
}

// TestWatchdog ends the calls of backends that have no deadline, and gives up on those
// that cannot be ended.
func TestWatchdog(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ends, err := local.New(1, local.Options{Name: "lost"})
			if err != nil {
				t.Fatal(err)
			}
			h := &hung{Group: ends[0], release: make(chan error), deaf: deaf}
			var stuck error
			recorder := flight.New(flight.Options{Rank: 5, Folder: t.TempDir(), Grace: 4 * time.Second, Stuck: func(err error) {
				if stuck != nil {
					t.Error("given up twice")
				}
				stuck = err
				h.release <- errors.New("killed")
			}})
			defer recorder.Close()
			g := recorder.Group(h, []int{5})
			recorder.SetTimeout(time.Minute)
			time.Sleep(time.Hour) // no call
			begin := time.Now()
			err = g.Barrier(context.Background())
			took := time.Since(begin)
			if !deaf && (stuck != nil || !errors.Is(err, collective.ErrTimeout) || took < 64*time.Second || took > 66*time.Second) {
				t.Errorf("after %v: %v, stuck %v", took, err, stuck)
			}
			if deaf && (!errors.Is(stuck, collective.ErrTimeout) || took < 68*time.Second || took > 70*time.Second ||
				!strings.Contains(stuck.Error(), "rank 5 (number 0 of ranks [5], group lost): barrier number 1: collective: deadline exceeded: still waiting after 1m9s")) {
				t.Errorf("after %v: %v, stuck %v", took, err, stuck)
			}
			text, err := os.ReadFile(recorder.Path())
			if err != nil || !strings.Contains(string(text), `"state":"waiting"`) {
				t.Errorf("the record is %s, %v", text, err)
			}
		})
	}
}

// TestRecordCannotBeWritten: the cause is told all the same.
func TestRecordCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	ends, err := local.New(2, local.Options{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	g := flight.New(flight.Options{Folder: filepath.Join(file, "x")}).Group(ends[0], []int{0, 1})
	if err := g.Barrier(context.Background()); !errors.Is(err, collective.ErrTimeout) || !strings.Contains(err.Error(), "flight record: mkdir") || strings.Contains(err.Error(), "see ") {
		t.Error(err)
	}
}

// TestRenew: a second failure is recorded again.
func TestRenew(t *testing.T) {
	j := newJob(t, 2, time.Minute)
	for round := range 2 {
		why := fmt.Sprintf("failure %d", round)
		errs := j.together(func(rank int) error {
			if rank == 1 {
				return errors.New(why)
			}
			return call(j.data[rank], "loss", sum)
		})
		j.survivor(t, 0, errs[0], flight.Error{Group: "data", Kind: collective.KindAllReduce, Sequence: 1, Node: "loss", Ranks: []int{0, 1}}, collective.ErrAborted, why)
		for r := range 2 {
			j.data[r].(collective.Renewer).Renew()
			j.pair[r].(collective.Renewer).Renew()
		}
	}
}

// TestCounts against counts made by hand.
func TestCounts(t *testing.T) {
	j := newJob(t, 2, time.Minute)
	before := make([]flight.Counts, 2)
	ctx := context.Background()
	for round := range 2 {
		errs := j.together(func(rank int) error {
			before[rank] = j.recorders[rank].Counts()
			return errors.Join(
				call(j.data[rank], "a", sum), // 3 float64s: rank 0 sums one, rank 1 two
				j.data[rank].AllReduce(ctx, floats(2)),
				call(j.pair[rank], "b", func(g collective.Group) error { return g.AllGather(ctx, floats(10), floats(5)) }),
				call(j.pair[rank], "c", func(g collective.Group) error { return g.ReduceScatter(ctx, floats(5), floats(10)) }),
				call(j.pair[rank], "d", func(g collective.Group) error { return g.Broadcast(ctx, floats(7), 1) }),
				call(j.pair[rank], "e", func(g collective.Group) error {
					return g.AllToAll(ctx, floats(4, 3), floats(4, 3), device.Tensor{}, device.Tensor{})
				}),
				call(j.pair[rank], "f", func(g collective.Group) error { return g.Barrier(ctx) }))
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for rank := range 2 {
			var want flight.Counts
			want[graph.NoPass][collective.KindAllReduce] = flight.Count{Calls: 1, Sent: 16, Received: 16}
			want[graph.BackwardPass] = [collective.Kinds]flight.Count{
				collective.KindAllReduce:     {Calls: 1, Sent: 24, Received: 24},
				collective.KindAllGather:     {Calls: 1, Sent: 40, Received: 40},
				collective.KindReduceScatter: {Calls: 1, Sent: 40, Received: 40},
				collective.KindBroadcast:     {Calls: 1, Received: 56},
				collective.KindAllToAll:      {Calls: 1, Sent: 48, Received: 48},
				collective.KindBarrier:       {Calls: 1},
			}
			if rank == 1 {
				want[graph.BackwardPass][collective.KindBroadcast] = flight.Count{Calls: 1, Sent: 56}
			}
			if got := j.recorders[rank].Counts().Minus(before[rank]); got != want {
				t.Errorf("round %d, rank %d: counts %v\nwant %v", round, rank, got, want)
			}
		}
	}
}
