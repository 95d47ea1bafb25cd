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
	limit     float64 // bytes a second; 0 is the real disk
	bandwidth float64 // the same as measured
}

const realDisk = "real"

func parseDisks(names string) ([]disk, error) {
	var list []disk
	for name := range strings.SplitSeq(names, ",") {
		d := disk{name: name}
		if name != realDisk {
			var err error
			if d.limit, err = local.ParseBandwidth(name); err != nil {
				return nil, fmt.Errorf("--disks: %w, or %s", err, realDisk)
			}
		}
		list = append(list, d)
	}
	return list, nil
}

// through is what stands before the file of a rank.
func (d disk) through(file spill.Disk) spill.Disk {
	if d.limit == 0 {
		return file
	}
	return spill.Limit(&modelled{Disk: file}, d.limit)
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

// measure finds the bandwidth: what is written and read back goes as values do.
func (d *disk) measure(folder string) (err error) {
	const bytes, times = 32 << 20, 3
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		return err
	}
	defer dev.Close()
	file, err := spill.NewFile(dev, spill.FileOptions{Dir: folder, Through: d.through})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	memory, err := dev.Alloc(device.OnDevice, bytes)
	if err != nil {
		return err
	}
	defer memory.Free()
	q := dev.NewQueue()
	defer q.Close()
	t := device.NewTensor(memory, 0, device.Float32, bytes/4)
	if err := file.Reserve(bytes); err != nil {
		return err
	}
	var rates []float64
	for range times {
		begin := time.Now()
		if err := file.Offload(q, 0, t); err != nil {
			return err
		}
		if err := file.Reload(q, t, 0); err != nil {
			return err
		}
		rates = append(rates, 2*bytes/time.Since(begin).Seconds())
	}
	d.bandwidth = quantile.Median(rates)
	return nil
}
