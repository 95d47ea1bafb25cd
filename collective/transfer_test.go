package collective_test

import (
	"context"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// What collectives move, counted by hand for 3 ranks and a whole of 7 units of 10 bytes:
// parts have 3, 3 and 1 rows, and of an all-reduce the ranks add up 2, 2 and 3.
func TestMovedBy(t *testing.T) {
	for kind, want := range map[collective.Kind][3]collective.Moved{
		collective.KindAllReduce:     {{50 + 40, 40 + 50}, {50 + 40, 40 + 50}, {40 + 60, 60 + 40}},
		collective.KindAllGather:     {{60, 40}, {60, 40}, {20, 60}},
		collective.KindReduceScatter: {{40, 60}, {40, 60}, {60, 20}},
		collective.KindBroadcast:     {{0, 70}, {140, 0}, {0, 70}},
		collective.KindBarrier:       {},
	} {
		var sum collective.Moved
		for rank := range want {
			got := collective.MovedBy(kind, 7, 10, 1, rank, 3)
			if got != want[rank] {
				t.Errorf("%v: rank %d moves %+v, want %+v", kind, rank, got, want[rank])
			}
			sum.Sent, sum.Received = sum.Sent+got.Sent, sum.Received+got.Received
		}
		if sum.Sent != sum.Received {
			t.Errorf("%v: %d bytes are sent and %d received", kind, sum.Sent, sum.Received)
		}
	}
	if got := collective.MovedBy(collective.KindAllToAll, 9, 10, 0, 1, 3); got != (collective.Moved{Sent: 60, Received: 60}) {
		t.Errorf("an even all-to-all moves %+v", got)
	}
}

func TestSeat(t *testing.T) {
	g := collective.Seat("shard", 255, 256)
	if g.Name() != "shard" || g.Rank() != 255 || g.Size() != 256 {
		t.Errorf("rank %d of %d of %q", g.Rank(), g.Size(), g.Name())
	}
	ctx, x := context.Background(), device.Tensor{}
	for kind, err := range map[string]error{
		"all_to_all": g.AllToAll(ctx, x, x, x, x), "all_reduce": g.AllReduce(ctx, x), "all_gather": g.AllGather(ctx, x, x),
		"reduce_scatter": g.ReduceScatter(ctx, x, x), "broadcast": g.Broadcast(ctx, x, 0), "barrier": g.Barrier(ctx),
	} {
		if err == nil || !strings.Contains(err.Error(), kind+" on rank 255 of 256") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
