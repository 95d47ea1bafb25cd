package main

import (
	"context"
	"runtime"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/collective/mpi"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
)

// processes are the ranks as processes; world is nil if they are goroutines.
type processes struct {
	world *mpi.World
	all   collective.Group
}

// join meets the processes that mpirun has started.
func (x *experiment) join(ctx context.Context) (err error) {
	if x.world, err = mpi.Init(ctx); err != nil {
		return err
	}
	if x.all, err = x.world.Group(ctx, nil, mpi.Options{Name: "sums"}); err != nil {
		return err
	}
	x.ranks, x.links = x.world.Size(), []link{{name: "mpi"}}
	if x.threads == 0 {
		x.threads = max(1, runtime.NumCPU()/x.ranks)
	}
	return nil
}

// sum adds up numbers over the processes.
func (p processes) sum(ctx context.Context, numbers ...*int64) error {
	if p.world == nil {
		return nil
	}
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		return err
	}
	defer dev.Close()
	buffer, err := dev.Alloc(device.OnHost, int64(8*len(numbers)))
	if err != nil {
		return err
	}
	defer buffer.Free()
	t := device.NewTensor(buffer, 0, device.Int64, len(numbers))
	elements := device.Elements[int64](t)
	for i, n := range numbers {
		elements[i] = *n
	}
	if err := p.all.AllReduce(ctx, t); err != nil {
		return err
	}
	for i, n := range numbers {
		*n = elements[i]
	}
	return nil
}
