// Package collectivetest is the suite that every collective.Group passes.
package collectivetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// Open returns the ends of a new group of size ranks, whose collectives fail after the
// timeout; 0 means never.
type Open func(size int, timeout time.Duration) ([]collective.Group, error)

// Run checks groups of 1 to 5 ranks, each a goroutine.
func Run(t *testing.T, open func(size int, timeout time.Duration) ([]collective.Group, error)) {
	for size := 1; size <= 5; size++ {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			s := suite{t, open, size}
			t.Run("AllToAll", s.with(suite.allToAll))
			t.Run("EqualParts", s.with(suite.equalParts))
			t.Run("Sums", s.with(suite.sums))
			t.Run("UnsupportedSums", s.with(suite.unsupportedSums))
			t.Run("AllGather", s.with(suite.allGather))
			t.Run("Broadcast", s.with(suite.broadcast))
			t.Run("Barrier", s.with(suite.barrier))
			t.Run("Allocations", s.with(suite.allocations))
		})
	}
	s := suite{t, open, 4}
	t.Run("Mismatch", s.with(suite.mismatch))
	t.Run("WrongCalls", s.with(suite.wrongCalls))
	t.Run("Timeout", s.with(suite.timeout))
	t.Run("SlowRankInTime", s.with(suite.slowRank))
	t.Run("Cancel", s.with(suite.cancel))
	t.Run("CancelRaces", s.with(suite.cancelRaces))
	t.Run("Abort", s.with(suite.abort))
	t.Run("RandomExchanges", s.with(suite.randomExchanges))
}

// suite is one test of groups of one size.
type suite struct {
	t    *testing.T
	open Open
	size int
}

func (s suite) with(f func(suite)) func(*testing.T) {
	return func(t *testing.T) { f(suite{t, s.open, s.size}) }
}

// patience is how long a collective may take that must not hang.
const patience = 30 * time.Second

func (s suite) group(timeout time.Duration) []collective.Group {
	s.t.Helper()
	groups, err := s.open(s.size, timeout)
	if err != nil {
		s.t.Fatal(err)
	}
	if len(groups) != s.size {
		s.t.Fatalf("%d ends for %d ranks", len(groups), s.size)
	}
	for r, g := range groups {
		if g.Rank() != r || g.Size() != s.size || g.Name() == "" {
			s.t.Fatalf("end %d says it is rank %d of %d of %q", r, g.Rank(), g.Size(), g.Name())
		}
	}
	return groups
}

// each calls f for every rank at once and returns their errors. A hang fails the test.
func (s suite) each(groups []collective.Group, f func(g collective.Group) error) []error {
	s.t.Helper()
	errs := make([]error, len(groups))
	var running sync.WaitGroup
	for r, g := range groups {
		running.Go(func() { errs[r] = f(g) })
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		s.t.Fatal("a rank hangs")
	}
	return errs
}

// must is each without errors.
func (s suite) must(groups []collective.Group, f func(g collective.Group) error) {
	s.t.Helper()
	for r, err := range s.each(groups, f) {
		if err != nil {
			s.t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// ended demands an error on every rank, of this call and of the next.
func (s suite) ended(groups []collective.Group, errs []error) {
	s.t.Helper()
	for r, err := range errs {
		if err == nil {
			s.t.Errorf("rank %d sees no error", r)
		}
	}
	for r, err := range s.each(groups, func(g collective.Group) error { return g.Barrier(context.Background()) }) {
		if !errors.Is(err, collective.ErrAborted) {
			s.t.Errorf("rank %d after the end of the group: %v, want ErrAborted", r, err)
		}
	}
}
