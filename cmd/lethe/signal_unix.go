//go:build unix

package main

import (
	"os"
	"syscall"
)

// stopSignals end a run after its step. mpirun passes SIGUSR1 and SIGUSR2 on to its
// processes, and Slurm can send one some time before a job's time is up; on SIGTERM mpirun
// leaves them a second.
var stopSignals = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGUSR2}

// snapshotSignals ask a run what holds memory.
var snapshotSignals = []os.Signal{syscall.SIGUSR1}
