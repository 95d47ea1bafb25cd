// Package collectivetest is the suite that every collective.Group passes.
package collectivetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
)

// Open returns the ends of a new group of size ranks that live in this process, whose
// collectives fail after the timeout; 0 means never.
type Open func(size int, timeout time.Duration) ([]collective.Group, error)

// Run checks groups of 1 to 5 ranks, each a goroutine.
func Run(t *testing.T, open Open) {
	Processes{Open: open, Most: 5, Share: func(own []string) ([]string, error) { return own, nil }}.Run(t)
}

// Processes are where ranks live that are no goroutines of one process. All of them run
// the suite at the same time.
type Processes struct {
	// Open is called by all; those that are not in a group get no ends.
	Open Open
	// Most is the number of processes: the largest group.
	Most int
	// Share returns what all processes bring, in their order, once all have called it.
	Share func(own []string) ([]string, error)
}

// Run checks groups of 1 to Most ranks, one in each process.
func (p Processes) Run(t *testing.T) {
	for size := 1; size <= p.Most; size++ {
		t.Run(fmt.Sprintf("%d ranks", size), func(t *testing.T) {
			s := suite{p, t, size}
			t.Run("AllToAll", s.with(suite.allToAll))
			t.Run("EqualParts", s.with(suite.equalParts))
			t.Run("Sums", s.with(suite.sums))
			t.Run("UnsupportedSums", s.with(suite.unsupportedSums))
			t.Run("AllGather", s.with(suite.allGather))
			t.Run("Padding", s.with(suite.padded))
			t.Run("Broadcast", s.with(suite.broadcast))
			t.Run("Barrier", s.with(suite.barrier))
			t.Run("Allocations", s.with(suite.allocations))
		})
	}
	if p.Most < 2 {
		return
	}
	s := suite{p, t, min(4, p.Most)}
	t.Run("Mismatch", s.with(suite.mismatch))
	t.Run("WrongCalls", s.with(suite.wrongCalls))
	t.Run("Timeout", s.with(suite.timeout))
	t.Run("ChangedTimeout", s.with(suite.changedTimeout))
	t.Run("SlowRankInTime", s.with(suite.slowRank))
	t.Run("Cancel", s.with(suite.cancel))
	t.Run("CancelRaces", s.with(suite.cancelRaces))
	t.Run("Abort", s.with(suite.abort))
	t.Run("RandomExchanges", s.with(suite.randomExchanges))
}

// suite is one test of groups of one size.
type suite struct {
	Processes
	t    *testing.T
	size int
}

func (s suite) with(f func(suite)) func(*testing.T) {
	return func(t *testing.T) { f(suite{s.Processes, t, s.size}) }
}

// patience is how long a collective may take that must not hang.
const patience = 30 * time.Second

// group opens one and returns the ends of this process.
func (s suite) group(timeout time.Duration) []collective.Group {
	s.t.Helper()
	groups, err := s.Open(s.size, timeout)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, g := range groups {
		if g.Rank() < 0 || g.Rank() >= s.size || g.Size() != s.size || g.Name() == "" {
			s.t.Fatalf("an end says it is rank %d of %d of %q", g.Rank(), g.Size(), g.Name())
		}
	}
	ranks := s.share(groups, func(g collective.Group) string { return fmt.Sprint(g.Rank()) })
	slices.Sort(ranks)
	for r := range s.size {
		if len(ranks) != s.size || ranks[r] != fmt.Sprint(r) {
			s.t.Fatalf("the ends are ranks %v of %d", ranks, s.size)
		}
	}
	return groups
}

// share collects what f says of every end, in all processes: none goes on before.
func (s suite) share(groups []collective.Group, f func(g collective.Group) string) []string {
	s.t.Helper()
	var own []string
	for _, g := range groups {
		own = append(own, f(g))
	}
	all, err := s.Share(own)
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// each calls f for every end at once and returns their errors. A hang fails the test.
func (s suite) each(groups []collective.Group, f func(g collective.Group) error) []error {
	s.t.Helper()
	errs := make([]error, len(groups))
	var running sync.WaitGroup
	for i, g := range groups {
		running.Go(func() { errs[i] = f(g) })
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
	for i, err := range s.each(groups, f) {
		if err != nil {
			s.t.Fatalf("rank %d: %v", groups[i].Rank(), err)
		}
	}
}

// ended demands an error on every rank, of this call and of the next.
func (s suite) ended(groups []collective.Group, errs []error) {
	s.t.Helper()
	for i, err := range errs {
		if err == nil {
			s.t.Errorf("rank %d sees no error", groups[i].Rank())
		}
	}
	s.over(groups)
}

// over demands an error of the next call of every rank.
func (s suite) over(groups []collective.Group) {
	s.t.Helper()
	for i, err := range s.each(groups, func(g collective.Group) error { return g.Barrier(context.Background()) }) {
		if !errors.Is(err, collective.ErrAborted) {
			s.t.Errorf("rank %d after the end of the group: %v, want ErrAborted", groups[i].Rank(), err)
		}
	}
}

// some demands that a rank, in whatever process, has an error for which f holds.
func (s suite) some(what string, groups []collective.Group, errs []error, f func(error) bool) {
	s.t.Helper()
	i := 0
	said := s.share(groups, func(collective.Group) string {
		i++
		return fmt.Sprintf("%t: %v", f(errs[i-1]), errs[i-1])
	})
	if !slices.ContainsFunc(said, func(s string) bool { return strings.HasPrefix(s, "true") }) {
		s.t.Errorf("no rank %s: %q", what, said)
	}
}
