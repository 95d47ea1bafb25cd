package local_test

import (
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
