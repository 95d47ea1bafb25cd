package train

import (
	"context"

	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
)

// totals add up a few numbers over all ranks, the same on each. It is host memory that is
// allocated once.
type totals struct {
	group  collective.Group // nil for a rank alone
	buffer device.Buffer
	counts device.Tensor // int64
	sums   device.Tensor // float64
}

// totalsRoom is the most numbers of one kind that are added up at once.
const totalsRoom = 4

func newTotals(d device.Device, g collective.Group) (*totals, error) {
	const bytes = totalsRoom * 8
	b, err := d.Alloc(device.OnHost, 2*bytes)
	if err != nil {
		return nil, err
	}
	return &totals{group: g, buffer: b,
		counts: device.NewTensor(b, 0, device.Int64, totalsRoom),
		sums:   device.NewTensor(b, bytes, device.Float64, totalsRoom)}, nil
}

// addCounts replaces each number by its sum over the ranks.
func (t *totals) addCounts(ctx context.Context, numbers ...*int) error {
	if t.group == nil {
		return nil
	}
	elements := device.Elements[int64](t.counts)
	for i, n := range numbers {
		elements[i] = int64(*n)
	}
	if err := t.group.AllReduce(ctx, t.counts); err != nil {
		return err
	}
	for i, n := range numbers {
		*n = int(elements[i])
	}
	return nil
}

// addSums replaces each number by its sum over the ranks, added in their order.
func (t *totals) addSums(ctx context.Context, numbers ...*float64) error {
	if t.group == nil {
		return nil
	}
	elements := device.Elements[float64](t.sums)
	for i, x := range numbers {
		elements[i] = *x
	}
	if err := t.group.AllReduce(ctx, t.sums); err != nil {
		return err
	}
	for i, x := range numbers {
		*x = elements[i]
	}
	return nil
}

func (t *totals) close() { t.buffer.Free() }
