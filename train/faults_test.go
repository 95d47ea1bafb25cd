package train_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/train"
)

// fault is what goes wrong on rank 1 of a job whose ranks are one expert group.
type fault struct {
	name string
	// build adds to the logits on each rank; nil adds nothing.
	build func(x graph.Value, g collective.Group, culprit bool) graph.Value
	// next is called on rank 1 before its n-th batch is read, from 1; nil is never.
	next func(ctx context.Context, n int) error
	// ahead has rank 1 begin behind the first batch.
	ahead bool
	// want is what the error of every rank says, and its flight record.
	want []string
	is   error // what the error on rank 1 wraps, nil if it is the same everywhere
}

var (
	errPaper = errors.New("out of paper")
	errDisk  = errors.New("no disk")
)

// faults that a rank can have wherever it lives. Those of the first step are found before
// it is made.
var faults = []fault{
	{name: "another graph", is: train.ErrDisagree,
		build: func(x graph.Value, _ collective.Group, culprit bool) graph.Value {
			if culprit {
				return nn.Mul(x, x)
			}
			return nn.Add(x, x)
		},
		want: []string{"ranks disagree about the graph: rank 1 has first: output.mul:0 mul ", "first: output.add:0 add "}},
	{name: "another policy", is: train.ErrDisagree,
		build: func(x graph.Value, _ collective.Group, culprit bool) (y graph.Value) {
			policy := checkpoint.None()
			if culprit {
				policy = checkpoint.Full()
			}
			checkpoint.Region(graph.At(x), policy, func() { y = nn.Mul(nn.Mul(x, x), x) })
			return y
		},
		want: []string{"ranks disagree about the plan: rank 1 has first: output.mul:0: rerun"}},
	{name: "another place in the data", is: train.ErrDisagree, ahead: true,
		want: []string{`ranks disagree about the start: rank 1 has data at {"batches":1}, `}},
	{name: "an error in the data", is: errDisk,
		next: func(_ context.Context, n int) error {
			if n == 3 {
				return errDisk
			}
			return nil
		},
		want: []string{"rank 1: ", "no disk"}},
	{name: "an error in the forward pass", is: errPaper, build: third(graph.ForwardPass, outOfPaper), want: []string{"rank 1: graph: output.fails:0: ", "out of paper"}},
	{name: "an error in the backward pass", is: errPaper, build: third(graph.BackwardPass, outOfPaper), want: []string{"rank 1: graph: output.backward.fails:0: ", "out of paper"}},
	{name: "a collective out of order", is: collective.ErrMismatch,
		build: func(x graph.Value, g collective.Group, culprit bool) graph.Value {
			return third(graph.ForwardPass, func(x *graph.Exec) error { return g.Barrier(x.Context) })(x, g, culprit)
		},
		want: []string{"rank 1 calls barrier number ", " calls all_to_all number ", "(layers.1.moe."}},
}

// fails is an op that copies, but on the culprit, in the third step and one pass, does
// something else as well.
type fails struct {
	graph.Pure
	pass    graph.Pass
	culprit bool
	how     func(*graph.Exec) error
}

// third does something on the culprit in a pass of the third step.
func third(p graph.Pass, how func(*graph.Exec) error) func(x graph.Value, _ collective.Group, culprit bool) graph.Value {
	return func(x graph.Value, _ collective.Group, culprit bool) graph.Value {
		return graph.At(x).Apply(fails{pass: p, culprit: culprit, how: how}, x)
	}
}

func outOfPaper(*graph.Exec) error { return errPaper }

func (fails) Kind() string                                    { return "fails" }
func (fails) Cost(in []device.Spec) graph.Cost                { return graph.Traffic(0, in, in) }
func (fails) Outputs(in []device.Spec) ([]device.Spec, error) { return in, nil }
func (f fails) Run(x *graph.Exec, out, in []device.Tensor) error {
	x.Copy(out[0], in[0])
	if f.culprit && x.Step == 3 && x.Running.Pass() == f.pass {
		return f.how(x)
	}
	return nil
}

func (f fails) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(f, grad[0])}
}

// options have the fault.
func (f fault) options() train.Options {
	o := train.Options{Model: tinyLatent()}
	if f.build != nil {
		o.Loss = func(b *graph.Builder, logits graph.Value, in train.Inputs) graph.Value {
			x := f.build(logits, in.Experts, in.Experts.Rank() == 1)
			return nn.Scale(graph.Sum(nn.CrossEntropy(x, in.Labels, 0)), in.Scale)
		}
	}
	o.Dataset = &train.Dataset{Name: "counting", Train: func(ctx context.Context, rank, ranks int) (data.Batches, error) {
		b, err := counting(1, 33, 100)(ctx, rank, ranks)
		if err != nil || rank != 1 {
			return b, err
		}
		if f.ahead {
			err = b.Next(ctx, new(data.Batch))
		}
		if f.next != nil {
			b = &disturbed{Batches: b, next: f.next}
		}
		return b, err
	}}
	return o
}

// run trains until the fault ends it.
func (f fault) run(c train.Config, o train.Options) error {
	r, err := train.New(context.Background(), c, o)
	if err != nil {
		return err
	}
	err = r.Run(context.Background())
	return errors.Join(err, r.Close())
}

// check holds the end of a run against what is wanted of these ranks.
func (f fault) check(t *testing.T, c train.Config, err error, ranks ...int) {
	t.Helper()
	says := func(text string) bool {
		return !slices.ContainsFunc(f.want, func(want string) bool { return !strings.Contains(text, want) })
	}
	if err == nil || !says(err.Error()) {
		t.Errorf("the run ends with %v, want %q", err, f.want)
	}
	for _, rank := range ranks {
		if record, err := readRecord(c, rank); err != nil || record.Rank != rank || !says(record.Cause) {
			t.Errorf("rank %d: %v, the record is about %q, want %q", rank, err, record.Cause, f.want)
		}
	}
}

// readRecord reads the flight record of a rank.
func readRecord(c train.Config, rank int) (record flight.Record, err error) {
	text, err := os.ReadFile(filepath.Join(c.FlightPath(), fmt.Sprintf("rank_%d.json", rank)))
	if err == nil {
		err = json.Unmarshal(text, &record)
	}
	return record, err
}

// Whatever goes wrong on one rank, all stop, and the record of each names the rank.
func TestFaults(t *testing.T) {
	waits := []string{"collective: deadline exceeded: ", " waited 300ms for ranks [1]"}
	for _, f := range append(faults,
		fault{name: "a rank that dies", want: waits, build: third(graph.ForwardPass, func(*graph.Exec) error {
			runtime.Goexit()
			return nil
		})},
		fault{name: "a rank that hangs", want: waits, build: third(graph.ForwardPass, func(x *graph.Exec) error {
			<-x.Context.Done()
			return context.Cause(x.Context)
		})}) {
		t.Run(f.name, func(t *testing.T) {
			c := onRanks(t, 1, 4)
			ranks := []int{0, 1, 2, 3}
			if f.is == nil {
				c.Comm.TrainTimeout = train.Duration(300 * time.Millisecond)
			}
			if f.name == "a rank that dies" {
				ranks = []int{0, 2, 3}
			}
			err := f.run(c, f.options())
			f.check(t, c, err, ranks...)
			if f.is != nil && !errors.Is(err, f.is) {
				t.Errorf("%v does not wrap %v", err, f.is)
			}
		})
	}
}

// A rank that waits for something that heeds no context is given up.
func TestStuckRank(t *testing.T) {
	c := onRanks(t, 1, 2)
	c.Comm.TrainTimeout = train.Duration(50 * time.Millisecond)
	freed := make(chan struct{})
	f := fault{build: third(graph.BackwardPass, func(*graph.Exec) error {
		<-freed
		return errPaper
	})}
	o := f.options()
	var stuck error
	o.Stuck = func(err error) { stuck = err; close(freed) }
	err := f.run(c, o)
	if want := "waited 50ms for ranks [1]"; stuck == nil || !strings.Contains(stuck.Error(), want) || err == nil {
		t.Errorf("stuck: %v, and the run ends with %v", stuck, err)
	}
}

// A rank that has another config than the others, which ranks of one process cannot, is
// named.
func TestAnotherConfig(t *testing.T) {
	c := onRanks(t, 1, 4)
	r := newTrainer(t, c, train.Options{Model: tinyLatent()})
	f := fault{want: []string{"ranks disagree about the config: rank 1 has activation_checkpoint.mode = 'full', ranks 0, 2, 3 have activation_checkpoint.mode = 'selective'"}}
	f.check(t, c, r.AgreeWith(1, func(c *train.Config) { c.ActivationCheckpoint.Mode = "full" }), 0, 1, 2, 3)
}

// disturbed calls next before each batch.
type disturbed struct {
	data.Batches
	next func(ctx context.Context, n int) error
	n    int
}

func (d *disturbed) Next(ctx context.Context, b *data.Batch) error {
	d.n++
	if err := d.next(ctx, d.n); err != nil {
		return err
	}
	return d.Batches.Next(ctx, b)
}
