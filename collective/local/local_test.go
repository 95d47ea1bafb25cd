package local_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/collectivetest"
	"github.com/lethe-go/lethe/collective/local"
)

func TestGroup(t *testing.T) {
	collectivetest.Run(t, func(size int, timeout time.Duration) ([]collective.Group, error) {
		return local.New(size, local.Options{Name: "test", Timeout: timeout})
	})
}

func TestSizeAndName(t *testing.T) {
	if _, err := local.New(0, local.Options{}); err == nil {
		t.Error("a group without ranks is accepted")
	}
	groups, err := local.New(1, local.Options{})
	if err != nil || groups[0].Name() != "local" {
		t.Errorf("name %q, error %v", groups[0].Name(), err)
	}
}

// A group that was aborted works again once it is renewed, whatever the ranks were at.
func TestRenew(t *testing.T) {
	ends, err := local.New(3, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	meet := func(absent int) (errs [3]error) {
		var running sync.WaitGroup
		for r, g := range ends {
			running.Go(func() {
				if r == absent {
					g.Abort(errors.New("failed"))
					return
				}
				errs[r] = g.Barrier(context.Background())
			})
		}
		running.Wait()
		return errs
	}
	for absent := range 3 {
		if errs := meet(absent); !errors.Is(errs[(absent+1)%3], collective.ErrAborted) {
			t.Errorf("without rank %d: %v", absent, errs)
		}
		for _, g := range ends {
			g.(collective.Renewer).Renew()
		}
		for range 5 {
			if errs := meet(-1); errs != [3]error{} {
				t.Fatalf("after rank %d had failed: %v", absent, errs)
			}
		}
	}
}
