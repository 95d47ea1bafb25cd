//go:build mpi

package mpi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/collectivetest"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
)

// roleKey is the environment variable that tells a process of this test which part it
// plays. Processes without one start those that have.
const roleKey = "LETHE_MPI_TEST"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleKey); role != "" && role != "suite" {
		play(role)
	}
	os.Exit(m.Run())
}

// mpirun is the launcher: $MPIRUN where several versions of MPI are installed.
func mpirun() string { return cmp.Or(os.Getenv("MPIRUN"), "mpirun") }

// launch starts n processes that play a role and returns what they print.
func launch(t *testing.T, n int, role string, options ...string) (string, error) {
	t.Helper()
	args := append([]string{"-n", fmt.Sprint(n)}, options...)
	args = append(args, os.Args[0], "-test.run=^TestGroup$", "-test.timeout=120s")
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	cmd := exec.Command(mpirun(), args...)
	cmd.Env = append(os.Environ(), roleKey+"="+role,
		// More processes than processors, by whatever user runs the tests.
		"OMPI_MCA_rmaps_base_oversubscribe=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestGroup is the suite of all groups, under mpirun.
func TestGroup(t *testing.T) {
	if os.Getenv(roleKey) == "suite" {
		suite(t)
		return
	}
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprintf("%d processes", n), func(t *testing.T) {
			if n > 2 && testing.Short() {
				t.Skip("2 processes are enough for -short")
			}
			out, err := launch(t, n, "suite")
			if err != nil || testing.Verbose() {
				t.Log(out)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func suite(t *testing.T) {
	w, err := mpi.Init(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	shared, err := w.Group(context.Background(), nil, mpi.Options{Name: "share"})
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	collectivetest.Processes{
		Most: w.Size(),
		Open: func(size int, timeout time.Duration) ([]collective.Group, error) {
			opened++
			var ranks []int // others each time, in any order
			for i := range size {
				ranks = append(ranks, (opened*(w.Size()-1)+i)%w.Size())
			}
			for _, r := range ranks {
				if r == w.Rank() {
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					g, err := w.Group(ctx, ranks, mpi.Options{Name: "test", Timeout: timeout})
					return []collective.Group{g}, err
				}
			}
			return nil, nil
		},
		Share: func(own []string) ([]string, error) { return share(shared, own) },
	}.Run(t)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := shared.Barrier(context.Background()); !errors.Is(err, mpi.ErrClosed) {
		t.Errorf("a call in a closed world: %v", err)
	}
}

// share exchanges strings between all processes.
func share(g collective.Group, own []string) (all []string, err error) {
	const room = 16 << 10
	b, err := json.Marshal(own)
	if err != nil || len(b) > room {
		return nil, fmt.Errorf("%d bytes to share: %w", len(b), err)
	}
	in, out := collectivetest.Tensor(device.Uint8, room), collectivetest.Tensor(device.Uint8, g.Size()*room)
	copy(device.Elements[uint8](in), b)
	if err := g.AllGather(context.Background(), out, in); err != nil {
		return nil, err
	}
	for r := range g.Size() {
		var theirs []string
		text, _, _ := bytes.Cut(device.Elements[uint8](out)[r*room:][:room], []byte{0})
		if err := json.Unmarshal(text, &theirs); err != nil {
			return nil, err
		}
		all = append(all, theirs...)
	}
	return all, nil
}
