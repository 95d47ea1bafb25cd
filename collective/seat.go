package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/lethe-go/lethe/device"
)

// Seat returns the place of a rank in a group of which no rank is there: enough to build and
// compile what the rank would run, in a group of any size. Its collectives fail.
func Seat(name string, rank, size int) Group { return seat{name, rank, size} }

type seat struct {
	name       string
	rank, size int
}

var errNobody = errors.New("nobody is there: the group is for planning")

func (s seat) Name() string { return s.name }
func (s seat) Rank() int    { return s.rank }
func (s seat) Size() int    { return s.size }

func (s seat) fail(k Kind) error {
	return fmt.Errorf("collective: %v on rank %d of %d of group %q: %w", k, s.rank, s.size, s.name, errNobody)
}

func (s seat) AllToAll(context.Context, device.Tensor, device.Tensor, device.Tensor, device.Tensor) error {
	return s.fail(KindAllToAll)
}
func (s seat) AllReduce(context.Context, device.Tensor) error { return s.fail(KindAllReduce) }
func (s seat) AllGather(context.Context, device.Tensor, device.Tensor) error {
	return s.fail(KindAllGather)
}
func (s seat) ReduceScatter(context.Context, device.Tensor, device.Tensor) error {
	return s.fail(KindReduceScatter)
}
func (s seat) Broadcast(context.Context, device.Tensor, int) error { return s.fail(KindBroadcast) }
func (s seat) Barrier(context.Context) error                       { return s.fail(KindBarrier) }
func (s seat) Abort(error)                                         {}
