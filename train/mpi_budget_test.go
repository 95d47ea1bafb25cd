//go:build mpi

package train_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// budgetKey is the budget of a process of TestMPIBudget, in bytes.
const budgetKey = "LETHE_MPI_BUDGET"

// Processes plan alike within a budget, from costs that the first one measures and keeps, and
// train what saving everything does. They share a fraction of their machine.
func TestMPIBudget(t *testing.T) {
	if folder := os.Getenv(processKey); folder != "" {
		planAsProcess(t, folder, os.Getenv(budgetKey))
		return
	}
	folder := t.TempDir()
	c := expertsOnProcesses(t, folder)
	c.Parallelism.Backend = "local"
	o := train.Options{Model: latent(device.Float64), CostFolder: t.TempDir()}
	c.ActivationCheckpoint.Mode = "none"
	most := newTrainer(t, c, o).PredictedBytes()
	c.ActivationCheckpoint.Mode, c.ActivationCheckpoint.MemoryBudget.Bytes = "budget", 1
	_, err := train.New(context.Background(), c, o)
	var infeasible *train.BudgetError
	if !errors.As(err, &infeasible) {
		t.Fatal(err)
	}
	// The smallest plan that is known depends on the costs, which the processes measure anew.
	budget := most - (most-infeasible.SmallestBytes)/4
	t.Logf("a budget of %d bytes, between %d and %d", budget, infeasible.SmallestBytes, most)
	if out, err := launch(2, "TestMPIBudget", folder, fmt.Sprint(budgetKey, "=", budget)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if tables, err := filepath.Glob(filepath.Join(folder, "costs", "*.json")); err != nil || len(tables) != 1 {
		t.Errorf("the tables that are kept: %v, %v", tables, err)
	}
}

func expertsOnProcesses(t testing.TB, folder string) train.Config {
	c := onProcesses(t, degrees{1, 1, 2, 1}, folder)
	c.State.Enable = false
	return c
}

// planAsProcess is the part of one process.
func planAsProcess(t *testing.T, folder, budget string) {
	bytes, err := strconv.ParseInt(budget, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c := expertsOnProcesses(t, folder)
	o := train.Options{Model: latent(device.Float64), World: w, CostFolder: filepath.Join(folder, "costs")}
	c.ActivationCheckpoint.Mode = "none"
	want := steps(t, newTrainer(t, c, o), 2)
	c.ActivationCheckpoint.Mode = "budget"
	for _, budget := range []train.MemoryBudget{{Bytes: bytes}, {Fraction: 0.9}} {
		c.ActivationCheckpoint.MemoryBudget = budget
		r := newTrainer(t, c, o)
		if got := steps(t, r, 2); !slices.Equal(got, want) {
			t.Errorf("%v: steps %v, want %v", budget, got, want)
		}
		if budget.Bytes > 0 && r.PredictedBytes() > budget.Bytes {
			t.Errorf("%v: %d bytes are predicted", budget, r.PredictedBytes())
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}
