//go:build !mpi

package mpi

import (
	"context"
	"errors"

	"github.com/lethe-go/lethe/collective"
)

// Available reports whether this program was built with MPI.
const Available = false

// World is this process's place among those that mpirun has started.
type World struct{}

var errStub = errors.New(`mpi: this program was built without MPI: build it with "-tags mpi" (Open MPI: apt-get install libopenmpi-dev openmpi-bin) or "-tags mpi,mpich" (MPICH: apt-get install libmpich-dev mpich)`)

// Init fails: this program was built without MPI.
func Init(context.Context) (*World, error) { return nil, errStub }

// Rank of this process.
func (*World) Rank() int { return 0 }

// Size is the number of processes.
func (*World) Size() int { return 1 }

// Library is "".
func (*World) Library() string { return "" }

// Group fails.
func (*World) Group(context.Context, []int, Options) (collective.Group, error) {
	return nil, errStub
}

// Dead is nil.
func (*World) Dead() error { return nil }

// Waiting is "".
func (*World) Waiting() string { return "" }

// Do fails.
func (*World) Do(func()) error { return errStub }

// Close does nothing.
func (*World) Close() error { return nil }
