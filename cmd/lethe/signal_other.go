//go:build !unix

package main

import (
	"os"
	"syscall"
)

// stopSignals end a run after its step.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// snapshotSignals ask a run what holds memory; there is none.
var snapshotSignals []os.Signal
