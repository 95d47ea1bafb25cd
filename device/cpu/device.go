// Package cpu is the device.Device of the machine the program runs on.
//
// Memory comes from the operating system, outside the Go heap, so that a
// training step gives the garbage collector nothing to do. (Builds with the
// race detector use the Go heap: races on foreign memory are invisible to it.)
// Kernels run on the calling goroutine and a pool of workers; those that have
// an assembly version keep a Go twin, which runs with the build tag noasm, on
// other architectures and where the processor lacks the instructions.
//
// The build tag openblas lets OpenBLAS compute MatMul and the grouped products instead
// (gemm_openblas.go). Such bits are a kernel level of their own.
package cpu

import (
	"fmt"
	"os"
	"runtime"

	"github.com/lethe-go/lethe/device"
)

// Options of a CPU device; the zero value works.
type Options struct {
	// Workers is the number of threads kernels may use; 0 means GOMAXPROCS.
	Workers int
	// Level forces a kernel level ("avx512", "avx2", "go"); "" takes the value of
	// the environment variable LETHE_CPU_LEVEL, or else the best the processor has.
	// In builds with the tag openblas the best is "avx512+openblas" or the like, where
	// OpenBLAS multiplies matrices; without the suffix our own kernels do.
	Level string
}

// Device implements device.Device.
type Device struct {
	level    level
	openBLAS bool // multiplies matrices
	pool     *pool
}

// New returns a CPU device. Asking for a level that the processor or the build
// does not have is an error.
func New(o Options) (*Device, error) {
	if o.Workers < 0 {
		return nil, fmt.Errorf("cpu: %d workers: want 0 (one per processor) or more", o.Workers)
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Level == "" {
		o.Level = os.Getenv("LETHE_CPU_LEVEL")
	}
	l, openBLAS, err := parseLevel(o.Level)
	if err != nil {
		return nil, err
	}
	return &Device{level: l, openBLAS: openBLAS, pool: newPool(o.Workers)}, nil
}

func (d *Device) Name() string         { return "cpu" }
func (d *Device) Workers() int         { return d.pool.workers }
func (d *Device) HostAccessible() bool { return true }

// Level names the instructions of the kernels, and OpenBLAS where that multiplies matrices.
func (d *Device) Level() string {
	if d.openBLAS {
		return d.level.String() + openBLASSuffix
	}
	return d.level.String()
}

// NewQueue returns a queue whose kernels have finished when the call returns.
func (d *Device) NewQueue() device.Queue { return newQueue(d) }

// Close stops the workers.
func (d *Device) Close() error {
	d.pool.close()
	return nil
}
