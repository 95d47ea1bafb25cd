package train

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestPlanThatDoesNotFitIsRefused(t *testing.T) {
	ctx := context.Background()
	c, err := LoadConfig("../configs/llama3_debug.toml", "--job.dump_folder="+t.TempDir(), "--activation_checkpoint.mode=none", "--training.dataset=moby_dick")
	if err != nil {
		t.Fatal(err)
	}
	report, err := PlanReportFor(c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	need := map[string]int64{}
	for _, r := range report.Rows {
		need[r.Mode] = report.PersistentBytes + r.ArenaBytes
	}
	open := func(memory int64) error {
		trainer, err := New(ctx, c, Options{memory: memory})
		if err == nil {
			trainer.Close()
		}
		return err
	}
	if err := open(need["none"]); err == nil || !strings.Contains(err.Error(), `set state.async_mode="disabled", which needs `) {
		t.Errorf("without room for a copy of the state: %v", err)
	}
	c.State.AsyncMode = "disabled"
	if err := open(need["none"]); err != nil {
		t.Errorf("with exactly what it needs: %v", err)
	}
	c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.Check = "full", "bitwise"
	if err := open(need["full"]); err == nil || !strings.Contains(err.Error(), `set activation_checkpoint.check="checksum", for "bitwise" keeps copies of `) {
		t.Errorf("without room for the copies of checks: %v", err)
	}
	c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.Check = "none", "off"
	for _, test := range []struct {
		memory int64
		want   string
	}{
		{need["none"] - 1, `set activation_checkpoint.mode="selective", which needs `},
		{need["selective"] - 1, `set activation_checkpoint.mode="full", which needs `},
		{need["full"] - 1, `even mode "full" needs `},
	} {
		err := open(test.memory)
		var config *ConfigError
		if !errors.As(err, &config) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("with %d bytes: %v, want a ConfigError with %q", test.memory, err, test.want)
		}
	}
}
