package data

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// counting yields n batches; batch i has the token i, and those in failing are errors at
// the first attempt.
func counting(n int, failing ...int) func(context.Context) iter.Seq2[*Batch, error] {
	var failed []int
	return func(context.Context) iter.Seq2[*Batch, error] {
		return func(yield func(*Batch, error) bool) {
			b := Batch{Rows: 1, SeqLen: 2, Tokens: make([]int32, 2), Labels: []int32{1, Ignore}}
			for i := range n {
				if slices.Contains(failing, i) && !slices.Contains(failed, i) {
					failed = append(failed, i)
					if !yield(nil, errBroken) {
						return
					}
				}
				b.Tokens[0] = int32(i)
				if !yield(&b, nil) {
					return
				}
			}
		}
	}
}

// A sequence that is stopped, resumed and interrupted by errors gives every batch once.
func TestSequenceResumes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "n")
		open := counting(n, rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "failing")...)
		var got []int32
		state := `{"batches":0}`
		for ended := false; !ended; {
			s := Prefetch(Sequence("test", open), rapid.IntRange(0, 2).Draw(t, "ahead"))
			if err := s.Restore([]byte(state)); err != nil {
				t.Fatal(err)
			}
			for range rapid.IntRange(1, 9).Draw(t, "read") {
				var b Batch
				err := s.Next(context.Background(), &b)
				if ended = err == io.EOF; ended {
					break
				}
				if errors.Is(err, errBroken) {
					continue
				}
				if err == nil {
					err = b.Check(1, 2, 100)
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b.Tokens[0])
			}
			state = stateOf(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if len(got) != n {
			t.Fatalf("%d batches of %d: %v", len(got), n, got)
		}
		for i, token := range got {
			if token != int32(i) {
				t.Fatalf("got %v", got)
			}
		}
	})
}

func TestSequenceErrors(t *testing.T) {
	ctx := t.Context()
	yielding := func(b *Batch) Batches {
		return Sequence("mine", func(context.Context) iter.Seq2[*Batch, error] {
			return func(yield func(*Batch, error) bool) { yield(b, nil) }
		})
	}
	for _, test := range []struct {
		batch *Batch
		want  string
	}{
		{nil, "data: mine: batch 0 is nil"},
		{&Batch{}, "data: mine: batch 0: 0 tokens, 0 labels, 0 positions and 0 document starts are not 0 rows of 0"},
		{&Batch{Rows: 2, SeqLen: 2, Tokens: make([]int32, 3), Labels: make([]int32, 3)}, "3 tokens, 3 labels"},
		{&Batch{Rows: 1, SeqLen: 2, Tokens: make([]int32, 2)}, "2 tokens, 0 labels"},
		{&Batch{Rows: 1, SeqLen: 2, Tokens: make([]int32, 2), Labels: make([]int32, 2), Positions: make([]int32, 1)}, "1 positions"},
	} {
		if err := yielding(test.batch).Next(ctx, new(Batch)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want ...%s", err, test.want)
		}
	}
	s := Sequence("mine", counting(3))
	for _, state := range []string{``, `{}`, `{"batches":-1}`, `{"batches":"x"}`, `[]`} {
		if err := s.Restore([]byte(state)); !errors.Is(err, ErrState) {
			t.Errorf("state %q: %v", state, err)
		}
	}
	if err := s.Restore([]byte(`{"batches":5}`)); err != nil {
		t.Fatal(err)
	}
	if err := s.Next(ctx, new(Batch)); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), "ends after 3 batches, before the 5 that are done") {
		t.Errorf("got %v", err)
	}
}

// A sequence that waits is told when nobody waits for it any more.
func TestSequenceThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opened, left := 0, 0
		stuck := func(ctx context.Context) iter.Seq2[*Batch, error] {
			return func(yield func(*Batch, error) bool) {
				opened++
				<-ctx.Done()
				left++
			}
		}
		for _, ahead := range []int{0, 2} {
			s := Prefetch(Sequence("stuck", stuck), ahead)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				synctest.Wait()
				cancel()
			}()
			if err := s.Next(ctx, new(Batch)); !errors.Is(err, context.Canceled) {
				t.Errorf("%d ahead: %v", ahead, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		if opened != 2 || left != 2 {
			t.Errorf("opened %d times, left %d times", opened, left)
		}
	})
}
