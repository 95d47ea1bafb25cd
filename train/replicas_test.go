package train_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/train"
)

// A bit that turns over on one rank is found at the next check, and the flight record names
// the rank and the parameter. Healthy ranks pass.
func TestCheckReplicas(t *testing.T) {
	for _, test := range []struct {
		replicas, experts, rank int
		parameter, want         string
	}{
		{3, 1, 1, "layers.0.attention.wo.weight", "layers.0.attention.wo.weight: rank 1 has checksum "},
		{2, 2, 3, "layers.1.moe.experts.w2", "layers.1.moe.experts.w2: rank 3 has checksum "},
	} {
		c := onRanks(t, test.replicas, test.experts)
		c.Comm.CheckReplicas = 2
		r := newTrainer(t, c, train.Options{Model: tinyLatent()})
		steps(t, r, 3)
		r.Flip(test.rank, test.parameter)
		_, err := r.Step(context.Background())
		if !errors.Is(err, train.ErrDiverged) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d × %d: %v, want %q", test.replicas, test.experts, err, test.want)
		}
		if record, err := readRecord(c, test.rank); err != nil || !strings.Contains(record.Cause, test.want) {
			t.Errorf("%v: %q", err, record.Cause)
		}
	}
}
