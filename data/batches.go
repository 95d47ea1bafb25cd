package data

import "context"

// Batches is a sequence of batches that can be resumed: what training reads. [Loader]
// is one; [Sequence] makes one of an iterator; [Prefetch] prepares those of another in
// the background. It is used by one goroutine at a time.
//
// A dataset of one's own gives every rank its Batches. With several ranks their states
// must be equal whenever they have given equally many batches, since only that of the
// first is saved and all are restored from it.
type Batches interface {
	// Next fills b with this rank's next batch and may reuse the slices that b has; they
	// are not touched again before the next call. It returns io.EOF at the end; all ranks
	// must do so at the same call. After any error the position is what it was before.
	Next(ctx context.Context, b *Batch) error

	// AppendState appends the position behind the batch that Next gave last, as one JSON
	// value.
	AppendState(to []byte) ([]byte, error)

	// Restore goes to a position that AppendState wrote, in this process or another. An
	// error leaves the position what it was.
	Restore(state []byte) error

	// Close ends what runs in the background. Next must not be called any more.
	Close() error
}
