package main

import (
	"context"
	"fmt"
	"math"

	"github.com/lethe-go/lethe/bench/internal/quantile"
	"github.com/lethe-go/lethe/device"
)

// Attention of the size that the rows name, forward and backward, causal.
const batch, heads, tokens, width = 2, 16, 1024, 128

func benchAttention(ctx context.Context, o options, t *table) error {
	name := fmt.Sprintf("attention_fwd_bwd %dx%dx%dx%d causal", batch, heads, tokens, width)
	if o.python == "" || !o.wants(name) {
		return nil
	}
	for _, threads := range o.threads {
		if err := attentionRow(ctx, name, threads, o, t); err != nil {
			return err
		}
	}
	return nil
}

func attentionRow(ctx context.Context, name string, threads int, o options, t *table) error {
	torch, err := startTorch(ctx, o.python, threads, tuned, "attention", "--shape", fmt.Sprintf("%d,%d,%d,%d", batch, heads, tokens, width))
	if err != nil {
		return err
	}
	defer torch.stop()
	d, err := openDevice(threads)
	if err != nil {
		return err
	}
	defer d.Close()
	step, free, err := attentionStep(d)
	if err != nil {
		return err
	}
	defer free()
	var ratios, times []float64
	for range o.repeats {
		theirs, err := torch.steps(3)
		if err != nil {
			return err
		}
		ours := []float64{seconds(step), seconds(step), seconds(step)}
		times = append(times, quantile.Median(ours))
		ratios = append(ratios, quantile.Median(theirs)/quantile.Median(ours))
	}
	return t.add(newRow(name, eager, threads, ratios, fmt.Sprintf("%.0f ms", 1e3*quantile.Median(times))))
}

// attentionStep returns forward and backward as one call.
func attentionStep(d device.Device) (step, free func(), err error) {
	q := d.NewQueue()
	var buffers []device.Buffer
	free = func() {
		for _, b := range buffers {
			b.Free()
		}
		q.Close()
	}
	tensor := func(shape ...int) device.Tensor {
		n := 1
		for _, e := range shape {
			n *= e
		}
		b, allocErr := d.Alloc(device.OnDevice, int64(4*n))
		if allocErr != nil {
			err = allocErr
			return device.Tensor{}
		}
		buffers = append(buffers, b)
		return device.NewTensor(b, 0, device.Float32, shape...)
	}
	var x [8]device.Tensor // out, query, key, value, the gradients of the three, and that of out
	for i := range x {
		if x[i] = tensor(batch, tokens, heads, width); err != nil {
			free()
			return nil, nil, err
		}
		q.Random(x[i], device.Distribution{Kind: device.Normal, Std: 1}, device.WholeDraw(uint64(i), batch, tokens, heads, width))
	}
	lse, work := tensor(batch, heads, tokens), tensor(int(device.AttentionWorkspace(device.Float32, batch, heads, tokens)/4))
	if err != nil {
		free()
		return nil, nil, err
	}
	mask, scale := device.Mask{Causal: true}, 1/math.Sqrt(width)
	step = func() {
		q.Attention(x[0], lse, x[1], x[2], x[3], mask, scale)
		q.AttentionBackward(x[4], x[5], x[6], x[1], x[2], x[3], x[0], lse, x[7], mask, scale, work)
	}
	step()
	return step, free, q.Sync()
}
