package collective

import (
	"context"
	"errors"
	"time"

	"github.com/lethe-go/lethe/device"
)

// Group is one rank's end of a set of ranks. Methods block until this rank's part
// is done; they are called in the same order on every rank, by one goroutine at a
// time. Tensors are contiguous, and the caller's again on return, with or without an
// error. A rank's error ends the group: what the others wait for, and all later calls,
// return an error that names it.
type Group interface {
	// Name identifies the group in lanes and errors, such as "expert".
	Name() string
	// Rank of this end, in [0, Size).
	Rank() int
	// Size is the number of ranks.
	Size() int

	// AllToAll sends rows of in to each rank, in the order of ranks, and receives
	// rows from each into out. send and receive are host int32 [Size, n]: the rows
	// for rank r are the sum of row r. The counts of a pair must agree; zero is
	// legal. The zero Tensor for both means equal parts. Rows have the extents
	// behind the first.
	AllToAll(ctx context.Context, out, in, receive, send device.Tensor) error

	// AllReduce replaces t by the elementwise sum over all ranks, added in the
	// order of ranks: every rank gets the same bits. Sums of floats are formed in
	// float64 and rounded once. Types are float32, float64, int32 and int64.
	AllReduce(ctx context.Context, t device.Tensor) error

	// AllGather concatenates the ranks' in, of ⌈rows of out / Size⌉ rows each, along the
	// first dimension into out. What then reaches beyond out, of the last ranks, is
	// padding that is not sent.
	AllGather(ctx context.Context, out, in device.Tensor) error

	// ReduceScatter sums in over ranks, in their order, and gives rank r the r-th
	// of Size parts of the first dimension, of ⌈rows of in / Size⌉ rows each. What then
	// reaches beyond in, of the last ranks, is zero.
	ReduceScatter(ctx context.Context, out, in device.Tensor) error

	// Broadcast copies root's t to every rank.
	Broadcast(ctx context.Context, t device.Tensor, root int) error

	// Barrier returns when every rank has called it.
	Barrier(ctx context.Context) error

	// Abort ends the group: every rank's calls return an error that wraps cause.
	Abort(cause error)
}

// Summable reports whether AllReduce and ReduceScatter can add tensors of a dtype.
func Summable(d device.DType) bool {
	return d == device.Float32 || d == device.Float64 || d == device.Int32 || d == device.Int64
}

// Renewer is a Group that can be used again after it was aborted.
type Renewer interface {
	Group

	// Renew makes the group as it was when it was new. It is called on every end
	// while no rank is in a call.
	Renew()
}

// Observed is a Group that tells how far a collective is.
type Observed interface {
	Group

	// Observe has met called in each collective when all ranks have come and data begins
	// to move, on any goroutine. It must be quick.
	Observe(met func())
}

// Timed is a Group whose deadline can be changed.
type Timed interface {
	Group

	// SetTimeout changes how long the next collectives may take; 0 is for ever. It is
	// called while this rank is in no call.
	SetTimeout(time.Duration)
}

// Errors of collectives, which say more when printed.
var (
	// ErrMismatch: ranks called different collectives, or with different shapes.
	ErrMismatch = errors.New("collective: ranks disagree")
	// ErrAborted: another rank has failed.
	ErrAborted = errors.New("collective: the group was aborted")
	// ErrTimeout: a rank did not arrive before the deadline.
	ErrTimeout = errors.New("collective: deadline exceeded")
)
