package train_test

import (
	"context"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/lethe-go/lethe/collective/flight"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/moe"
	"github.com/lethe-go/lethe/train"
)

// A step reports what its ranks have really exchanged, pass by pass: one layer of four
// experts on two ranks, three microbatches.
func TestTrafficOfAStep(t *testing.T) {
	const microbatches = 3
	var want map[string]train.ByPass[flight.Count]
	for _, test := range []struct {
		mode   string
		rerun  train.StringList
		reruns int64 // of the forward pass' exchanges
	}{
		{mode: "none"}, {mode: "selective"}, {mode: "full"},
		{mode: "selective", rerun: train.StringList{"all_to_all", "to_host"}, reruns: 1},
	} {
		c := onRanks(t, 1, 2)
		c.Training.GlobalBatchSize, c.Training.Steps = microbatches, 2
		c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.Rerun = test.mode, test.rerun
		r := newTrainer(t, c, train.Options{Model: latent(device.Float32)})
		if err := r.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		lines, err := train.ReadMetrics(filepath.Join(c.Job.DumpFolder, train.MetricsFile))
		if err != nil || len(lines) != 2 {
			t.Fatal(lines, err)
		}
		m := lines[1]

		// The counts of two experts go to the other rank, then rows there and back; in
		// backward the rows' gradients go the same ways.
		exchange := m.Collectives["all_to_all"]
		forward := exchange.Forward
		const counts = microbatches * 2 * 4
		if rows := forward.Sent - counts; forward.Calls != 3*microbatches || forward.Received != forward.Sent || rows <= 0 || rows%(4*32) != 0 {
			t.Errorf("%s: forward exchanges %+v", test.mode, forward)
		}
		if again := (flight.Count{Calls: test.reruns * forward.Calls, Sent: test.reruns * forward.Sent, Received: test.reruns * forward.Received}); exchange.Rerun != again {
			t.Errorf("%s, rerun %v: %+v are rerun, want %+v", test.mode, test.rerun, exchange.Rerun, again)
		}
		if back := (flight.Count{Calls: 2 * microbatches, Sent: forward.Sent - counts, Received: forward.Received - counts}); exchange.Backward != back {
			t.Errorf("%s: backward exchanges %+v, want %+v", test.mode, exchange.Backward, back)
		}

		// Two ranks send each other all of what is summed: gradients once a step in one
		// bucket, the norm's part of the experts, and the loads of the layer.
		var update flight.Count
		for _, v := range r.Store().Variables() {
			if v.Kind == graph.Parameter && !moe.IsExpert(v.Name) || v.Name == "layers.1.moe.tokens_per_expert" {
				update.Sent += v.Spec.Bytes()
			}
		}
		update.Sent += 8
		update.Received, update.Calls = update.Sent, 3
		if sums := m.Collectives["all_reduce"]; sums != (train.ByPass[flight.Count]{Update: update}) || len(m.Collectives) != 2 {
			t.Errorf("%s: %+v, want the sums %+v", test.mode, m.Collectives, update)
		}

		syncs := train.ByPass[int64]{Forward: 2 * microbatches, Rerun: test.reruns * 2 * microbatches}
		if m.HostSyncsByPass != syncs || m.HostSyncs != syncs.Forward+syncs.Rerun {
			t.Errorf("%s: host syncs %d = %+v, want %+v", test.mode, m.HostSyncs, m.HostSyncsByPass, syncs)
		}
		if m.ExposedSeconds <= 0 || m.ExposedSeconds > m.Seconds {
			t.Errorf("%s: %v of %v s exposed", test.mode, m.ExposedSeconds, m.Seconds)
		}

		exchange.Rerun = flight.Count{}
		m.Collectives["all_to_all"] = exchange
		if want == nil {
			want = m.Collectives
		}
		if !reflect.DeepEqual(m.Collectives, want) {
			t.Errorf("%s: %+v, other modes %+v", test.mode, m.Collectives, want)
		}
	}
}

// A rank alone exchanges nothing, and counting costs no memory.
func TestTrafficOfARankAlone(t *testing.T) {
	r := newTrainer(t, tinyConfig(t), train.Options{Model: latent(device.Float32)})
	steps(t, r, 1)
	var got train.Traffic
	if n := testing.AllocsPerRun(10, func() { got = r.Traffic().Minus(got) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := r.Traffic(); got != (train.Traffic{}) {
		t.Errorf("%+v", got)
	}
}
