package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/collective/local"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/spill"
)

// disk that values wait on.
type disk struct {
	name      string
	bandwidth float64 // bytes a second
	real      bool
}

const realDisk = "real"

func parseDisks(names string) ([]disk, error) {
	var list []disk
	for name := range strings.SplitSeq(names, ",") {
		d := disk{name: name, real: name == realDisk}
		if !d.real {
			var err error
			if d.bandwidth, err = local.ParseBandwidth(name); err != nil {
				return nil, fmt.Errorf("--disks: %w, or %s", err, realDisk)
			}
		}
		list = append(list, d)
	}
	return list, nil
}

// through is what stands before the file of a rank.
func (d disk) through(file spill.Disk) spill.Disk {
	if d.real {
		return file
	}
	return spill.Limit(&modelled{Disk: file}, d.bandwidth)
}

// modelled is a disk in memory, in place of a file that stays empty.
type modelled struct {
	spill.Disk
	pages []byte
}

func (m *modelled) Allocate(bytes int64) error {
	m.pages = make([]byte, bytes)
	return nil
}

func (m *modelled) ReadAt(p []byte, offset int64) (int, error) {
	return copy(p, m.pages[offset:]), nil
}

func (m *modelled) WriteAt(p []byte, offset int64) (int, error) {
	return copy(m.pages[offset:], p), nil
}

// measureDisk returns the bandwidth of a folder's disk, in bytes a second: what is written
// and read back goes as values do.
func measureDisk(folder string) (bandwidth float64, err error) {
	const bytes, times = 128 << 20, 3
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		return 0, err
	}
	defer dev.Close()
	file, err := spill.NewFile(dev, spill.FileOptions{Dir: folder})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	memory, err := dev.Alloc(device.OnDevice, bytes)
	if err != nil {
		return 0, err
	}
	defer memory.Free()
	q := dev.NewQueue()
	defer q.Close()
	t := device.NewTensor(memory, 0, device.Float32, bytes/4)
	if err := file.Reserve(bytes); err != nil {
		return 0, err
	}
	var rates []float64
	for range times {
		begin := time.Now()
		if err := file.Offload(q, 0, t); err != nil {
			return 0, err
		}
		if err := file.Reload(q, t, 0); err != nil {
			return 0, err
		}
		rates = append(rates, 2*bytes/time.Since(begin).Seconds())
	}
	return quantile.Median(rates), nil
}
