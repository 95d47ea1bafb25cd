package main

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
)

// benchMemory compares what a step adds to the resident memory of its process at most:
// parameters, gradients, optimizer state, activations and what the allocator wastes.
// PyTorch runs as installed, since its tuned allocator keeps memory for speed.
func benchMemory(ctx context.Context, o options, t *table) error {
	if o.python == "" {
		return nil
	}
	for _, threads := range o.threads {
		for _, w := range workloads {
			for _, mode := range []string{"none", "full"} {
				name := strings.Replace(w.name(), "step", "memory", 1) + " " + mode
				if !o.wants(name) {
					continue
				}
				row, err := w.memory(ctx, name, mode, threads, o.python)
				if err != nil {
					return err
				}
				if err := t.add(row); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (w workload) memory(ctx context.Context, name, mode string, threads int, python string) (Row, error) {
	peer, err := startTorch(ctx, python, threads, nil, append(w.arguments(), "--ac", mode)...)
	if err != nil {
		return Row{}, err
	}
	peer.stop()
	debug.FreeOSMemory() // what the rows before left
	before, err := residentBytes("VmRSS")
	if err != nil {
		return Row{}, err
	}
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // the peak begins anew
		return Row{}, err
	}
	lethe, err := w.trainer(ctx, threads, mode)
	if err != nil {
		return Row{}, err
	}
	lethe.close()
	peak, err := residentBytes("VmHWM")
	if err != nil {
		return Row{}, err
	}
	ours := peak - before
	return newRow(name, asInstalled, threads, []float64{float64(peer.ready.PeakBytes) / float64(ours)}, fmt.Sprintf("%.0f MiB", float64(ours)/(1<<20))), nil
}

// residentBytes reads a figure of this process from Linux.
func residentBytes(key string) (int64, error) {
	const file = "/proc/self/status"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, key+": %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("%s: no %s", file, key)
}
