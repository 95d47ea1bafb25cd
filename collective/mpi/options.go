package mpi

import (
	"errors"
	"time"
)

// Options of a group; the zero value works.
type Options struct {
	// Name of the group; "" is "mpi".
	Name string
	// Timeout of each collective; 0 means none.
	Timeout time.Duration
}

// ErrClosed is what a group's calls return after [World.Close].
var ErrClosed = errors.New("mpi: the world was closed")
