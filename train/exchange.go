package train

import (
	"context"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// exchange returns what each rank of a group brings, in the order of ranks.
func exchange(ctx context.Context, d device.Device, g collective.Group, own []byte) ([][]byte, error) {
	lengths, err := gather(ctx, d, g, device.Int64, 1, func(mine device.Tensor) {
		device.Elements[int64](mine)[0] = int64(len(own))
	})
	if err != nil {
		return nil, err
	}
	defer lengths.Buffer().Free()
	most := 0
	for _, n := range device.Elements[int64](lengths) {
		most = max(most, int(n))
	}
	list := make([][]byte, g.Size())
	if most == 0 {
		return list, nil
	}
	texts, err := gather(ctx, d, g, device.Uint8, most, func(mine device.Tensor) {
		copy(device.Elements[uint8](mine), own)
	})
	if err != nil {
		return nil, err
	}
	defer texts.Buffer().Free()
	for r, n := range device.Elements[int64](lengths) {
		list[r] = append(list[r], device.Elements[uint8](texts)[r*most:][:n]...)
	}
	return list, nil
}

// gather returns n elements of each rank, in host memory that is the caller's.
func gather(ctx context.Context, d device.Device, g collective.Group, dtype device.DType, n int, fill func(device.Tensor)) (device.Tensor, error) {
	own, err := hostTensor(d, dtype, n)
	if err != nil {
		return own, err
	}
	defer own.Buffer().Free()
	fill(own)
	all, err := hostTensor(d, dtype, n*g.Size())
	if err != nil {
		return all, err
	}
	if err := g.AllGather(ctx, all, own); err != nil {
		all.Buffer().Free()
		return all, err
	}
	return all, nil
}

func hostTensor(d device.Device, dtype device.DType, n int) (device.Tensor, error) {
	b, err := d.Alloc(device.OnHost, int64(n*dtype.Size()))
	if err != nil {
		return device.Tensor{}, err
	}
	return device.NewTensor(b, 0, dtype, n), nil
}
