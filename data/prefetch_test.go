package data

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lethe-go/lethe/data/tokenizer"
	"pgregory.net/rapid"
)

// Batches, states, errors and the end are those of the loader, in its order, whatever
// the source does, however many are prepared and wherever it is restored to.
func TestPrefetchIsAsIfItWereNotThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		c := drawCase(t)
		flaky := &flakySource{Source: c.parts[0].Source}
		calm := c.open(t, 1, 2)[0]
		c.parts[0].Source = flaky
		p := Prefetch(c.open(t, 1, 2)[0], rapid.IntRange(1, 4).Draw(t, "ahead"))
		defer p.Close()
		// What opening reads has passed.
		if fails := rapid.SampledFrom([]int{0, 1, 2, 3, 7}).Draw(t, "fails at"); fails > 0 {
			flaky.fails = flaky.calls + fails
		}
		var saved []string
		for range rapid.IntRange(0, 60).Draw(t, "calls") {
			if state := stateOf(t, p); state != stateOf(t, calm) {
				t.Fatalf("state %s\nwant  %s", state, stateOf(t, calm))
			}
			saved = append(saved, stateOf(t, p))
			switch rapid.SampledFrom([]string{"next", "next", "next", "restore", "refused"}).Draw(t, "call") {
			case "next":
				var got, want Batch
				err := p.Next(ctx, &got)
				for errors.Is(err, errBroken) {
					err = p.Next(ctx, &got)
				}
				if wantErr := calm.Next(ctx, &want); err != wantErr {
					t.Fatalf("got %v, want %v", err, wantErr)
				}
				if err == nil {
					sameBatch(t, got, want)
				}
			case "restore":
				state := []byte(rapid.SampledFrom(saved).Draw(t, "state"))
				for _, b := range []Batches{p, calm} {
					if err := b.Restore(state); err != nil {
						t.Fatal(err)
					}
				}
			case "refused":
				if err := p.Restore([]byte(`{"version":9}`)); !errors.Is(err, ErrState) {
					t.Fatal(err)
				}
			}
		}
	})
}

// flakySource fails ever more rarely to read, so that every batch is read in the end.
type flakySource struct {
	Source
	fails, calls int
}

func (f *flakySource) Document(ctx context.Context, i int) (string, error) {
	if f.calls++; f.calls == f.fails {
		f.fails *= 2
		return "", errBroken
	}
	return f.Source.Document(ctx, i)
}

// stuckSource waits for the end of the context, as a network might.
type stuckSource struct {
	Source
	stuck chan struct{} // closed: it works
}

func (s *stuckSource) Document(ctx context.Context, i int) (string, error) {
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case <-s.stuck:
		return s.Source.Document(ctx, i)
	}
}

// synctest fails if a goroutine is left or all wait for one another.
func TestPrefetchFromASourceThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stuckSource{Documents("text", "one", "two", "three"), make(chan struct{})}
		open := func() Batches {
			works := make(chan struct{})
			close(works)
			l, err := NewLoader(t.Context(), &stuckSource{source.Source, works}, tokenizer.Byte{}, Options{SeqLen: 4, Rows: 1})
			if err != nil {
				t.Fatal(err)
			}
			l.stream.parts[0].Source = source
			return Prefetch(l, 2)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p := open()
		before := stateOf(t, p)
		go func() {
			synctest.Wait()
			cancel()
		}()
		var b Batch
		if err := p.Next(ctx, &b); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled while it waits: %v", err)
		}
		if err := p.Next(ctx, &b); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		// Close and Restore end the wait.
		if err := p.Restore([]byte(before)); err != nil {
			t.Error(err)
		}
		go p.Next(ctx, &b)
		synctest.Wait()
		other := open()
		waiting, stop := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			stop()
		}()
		other.Next(waiting, &b)
		if err := other.Close(); err != nil {
			t.Error(err)
		}
		if err := other.Close(); err != nil {
			t.Error("closed twice:", err)
		}
		if err := other.Next(t.Context(), &b); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("Next after Close: %v", err)
		}
		if err := other.Restore([]byte(before)); err == nil {
			t.Error("Restore after Close works")
		}
		// What was given up is there when the source works again.
		close(source.stuck)
		if err := p.Next(t.Context(), &b); err != nil || (tokenizer.Byte{}).Decode(b.Tokens) != "one" {
			t.Errorf("got %v, %v", b.Tokens, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// It prepares as many batches as it was told to, and no more.
func TestPrefetchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []int{1, 2, 5} {
			counted := &countedBatches{}
			p := Prefetch(counted, ahead)
			for given := range 7 {
				synctest.Wait()
				if want := given + ahead; given > 0 && counted.made != want {
					t.Errorf("%d ahead: %d are made of which %d were taken", ahead, counted.made, given)
				}
				if err := p.Next(t.Context(), new(Batch)); err != nil {
					t.Fatal(err)
				}
			}
			p.Close()
			if !counted.closed {
				t.Error("Close does not close what it prefetches from")
			}
		}
	})
	if b := (Batches)(&countedBatches{}); Prefetch(b, 0) != b {
		t.Error("with 0 ahead there is something in between")
	}
}

type countedBatches struct {
	made   int
	closed bool
}

func (c *countedBatches) Next(context.Context, *Batch) error    { c.made++; return nil }
func (c *countedBatches) AppendState(to []byte) ([]byte, error) { return append(to, '0'), nil }
func (c *countedBatches) Restore([]byte) error                  { return nil }
func (c *countedBatches) Close() error                          { c.closed = true; return nil }

// A batch is the caller's until it is given to Next again.
func TestPrefetchedBatchesAreTheCallers(t *testing.T) {
	l, err := NewLoader(t.Context(), Documents("text", "abcdefghij"), tokenizer.Byte{}, Options{SeqLen: 4, Rows: 1, Passes: 9})
	if err != nil {
		t.Fatal(err)
	}
	p := Prefetch(l, 3)
	defer p.Close()
	var batches, copies []Batch
	for {
		var b Batch
		if err := p.Next(t.Context(), &b); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		var copied Batch
		copied.shape(b.Rows, b.SeqLen)
		copy(copied.Tokens, b.Tokens)
		batches, copies = append(batches, b), append(copies, copied)
	}
	for i, b := range batches {
		for j, token := range b.Tokens {
			if token != copies[i].Tokens[j] {
				t.Fatalf("batch %d was overwritten", i)
			}
		}
	}
	if err := p.Next(t.Context(), new(Batch)); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
}
