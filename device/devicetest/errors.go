package devicetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// errorTest is a kernel's call with bad data.
type errorTest struct {
	name  string
	want  string
	build func(c *scene) func(k device.Kernels)
}

// testErrors tests that bad data is reported by Sync, once, and that the kernel
// writes nothing outside of its outputs.
func testErrors(t *testing.T, d device.Device) {
	tests := []errorTest{
		{"Embedding", "embedding: id 300 at index 17 is outside [0, 256)", func(c *scene) func(k device.Kernels) {
			table, ids, dst := c.input(contiguous, 256, 4), badIDs(c, 17, 300, 20), c.output(contiguous, 20, 4)
			return func(k device.Kernels) {
				k.Embedding(dst.Tensor, table.Tensor, ids.Tensor, device.Part{})
			}
		}},
		{"EmbeddingBackward of a part", "embedding: id -1 at index 3 is outside [0, 300)", func(c *scene) func(k device.Kernels) {
			dtable, ids, dy := c.output(contiguous, 256, 4), badIDs(c, 3, -1, 20), c.input(contiguous, 20, 4)
			return func(k device.Kernels) {
				k.EmbeddingBackward(dtable.Tensor, ids.Tensor, dy.Tensor, device.Part{First: 100, Whole: 300})
			}
		}},
		{"RoPE", "rope: position 8 at index 5 is outside [0, 8)", func(c *scene) func(k device.Kernels) {
			x, dst := c.input(contiguous, 2, 3, 2, 4), c.output(contiguous, 2, 3, 2, 4)
			cos, positions := c.input(contiguous, 8, 2), badIDs(c, 5, 8, 2, 3)
			return func(k device.Kernels) {
				k.RoPE(dst.Tensor, x.Tensor, cos.Tensor, cos.Tensor, positions.Tensor, device.RotateHalf, false)
			}
		}},
		{"CrossEntropy", "cross-entropy: label 9 at index 2 is outside [0, 9)", func(c *scene) func(k device.Kernels) {
			logits, loss, labels := inPlace(c.input(contiguous, 4, 9)), c.output(contiguous, 4), badIDs(c, 2, 9, 4)
			return func(k device.Kernels) { k.CrossEntropy(loss.Tensor, logits.Tensor, labels.Tensor, -1, true) }
		}},
		{"CrossEntropyPart", "cross-entropy: label 12 at index 2 is outside [0, 12)", func(c *scene) func(k device.Kernels) {
			logits, loss, labels := inPlace(c.input(contiguous, 4, 9)), c.output(contiguous, 4), badIDs(c, 2, 12, 4)
			lse := c.input(contiguous, 4)
			return func(k device.Kernels) {
				k.CrossEntropyPart(loss.Tensor, logits.Tensor, labels.Tensor, lse.Tensor, device.Part{First: 3, Whole: 12}, -1, true)
			}
		}},
	}
	for _, test := range slices.Concat(tests, routingErrors) {
		t.Run(test.name, func(t *testing.T) {
			q := d.NewQueue()
			defer q.Close()
			c := newScene(t, d, q, device.Float32, seed)
			defer c.free()
			call, probe := test.build(c), c.output(contiguous, 1)
			c.commit()
			call(q)
			// Later kernels still run, and do not hide the error.
			q.Fill(probe.Tensor, 3)
			if err := q.Sync(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
			if err := q.Sync(); err != nil {
				t.Errorf("Sync did not forget %v", err)
			}
			c.verify()
			c.close(probe, []float64{3}, nil, 0)
			c.indexable()
		})
	}
}

// badIDs are zeros but for one.
func badIDs(c *scene, index int, id float64, shape ...int) *operand {
	values := make([]float64, product(shape))
	values[index] = id
	return c.inputOf(device.Int32, contiguous, values, shape...)
}
