package nn

import (
	"testing"

	"github.com/lethe-go/lethe/device"
)

func TestBlocksAreBounded(t *testing.T) {
	for _, c := range []struct{ vocab, rows int }{
		{1, blockRows}, {256, blockRows}, {16 << 10, blockRows}, {32_000, 131}, {128_256, 32}, {1 << 20, minBlockRows},
	} {
		if got := blockOf(c.vocab, device.Float32); got != c.rows {
			t.Errorf("a block of %d classes has %d rows, want %d", c.vocab, got, c.rows)
		}
	}
	in := []device.Spec{
		device.NewSpec(device.Float32, 8, 1024, 512), device.NewSpec(device.Float32, 32_000, 512),
		device.NewSpec(device.Int32, 8, 1024), device.NewSpec(device.Float32),
	}
	if got, want := (outputLoss{}).Workspace(in, 2), int64(maxBlockBytes+8*1024*4); got > want {
		t.Errorf("workspace of %d bytes, want at most %d", got, want)
	}
}
