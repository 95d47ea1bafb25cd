// Command squared_relu trains a model of its own that has an operation and a
// checkpointing policy of its own. It is a module of its own, as a user's program is.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
	"github.com/lethe-go/lethe/train"
)

// squaredReLU is max(x, 0)², elementwise. (So et al. 2021, Primer.)
type squaredReLU struct{ graph.Pure }

func (squaredReLU) Kind() string                                    { return "squared_relu" }
func (squaredReLU) Outputs(in []device.Spec) ([]device.Spec, error) { return in[:1], nil }
func (squaredReLU) Workspace(in []device.Spec, _ int) int64         { return int64(in[0].DType.Size()) }
func (squaredReLU) Cost(in []device.Spec) graph.Cost {
	return graph.Traffic(2*float64(in[0].Len()), in[:1], in[:1])
}

func (squaredReLU) Run(x *graph.Exec, out, in []device.Tensor) error {
	relu(x, out[0], in[0])
	x.Unary(device.Square, out[0], out[0])
	return nil
}

func (squaredReLU) Gradient(b *graph.Builder, in, _, grad []graph.Value) []graph.Value {
	return []graph.Value{b.Apply(squaredReLUBackward{}, in[0], grad[0])}
}

// squaredReLUBackward is dx = 2·max(x, 0)·dy. It costs what the forward does.
type squaredReLUBackward struct{ squaredReLU }

func (squaredReLUBackward) Kind() string { return "squared_relu_backward" }
func (squaredReLUBackward) Run(x *graph.Exec, out, in []device.Tensor) error {
	relu(x, out[0], in[0])
	x.Binary(device.Mul, out[0], out[0], in[1])
	x.AddScaled(out[0], out[0], out[0], 1)
	return nil
}

// relu enqueues dst = max(x, 0): an operation is made of the device's kernels.
func relu(x *graph.Exec, dst, src device.Tensor) {
	zero := x.Scratch(0, src.DType())
	x.Fill(zero, 0)
	x.Binary(device.Maximum, dst, src, zero.BroadcastTo(src))
}

// policy keeps the results of attention and what goes into the squared ReLU. All else
// in a layer is computed again.
func policy(c checkpoint.Candidate) checkpoint.Decision {
	if c.Kind == "attention" || c.Tagged("hidden") {
		return checkpoint.MustSave
	}
	return checkpoint.PreferRecompute
}

// model is a byte-level transformer; checkpointed says whether its layers have the
// policy.
type model struct {
	dim, layers  int
	checkpointed bool
}

func (model) Name() string                { return "squared ReLU" }
func (model) Vocab() int                  { return 257 }
func (m model) Parameters() int64         { return int64(m.layers*m.perLayer() + 2*257*m.dim + m.dim) }
func (m model) FLOPsPerToken(int) float64 { return 6 * float64(m.layers*m.perLayer()+257*m.dim) }
func (m model) perLayer() int             { return 12*m.dim*m.dim + 2*m.dim }

func (m model) Build(b *graph.Builder, in train.Inputs, _ train.Policies) {
	of := checkpoint.None()
	if m.checkpointed {
		of = policy
	}
	mask := attention.CausalDocuments(b, in.Tokens, in.DocumentStart)
	x := nn.Embedding(b.Scope("embed"), in.Tokens, nn.EmbeddingConfig{Vocab: m.Vocab(), Dim: m.dim, DType: device.Float32})
	for i := range m.layers {
		b := b.Scope("layers", i)
		checkpoint.Region(b, of, func() {
			a := attention.GQA{Heads: 4, KVHeads: 4, RoPE: attention.RoPE{Theta: 1e4}, Positions: in.Positions, Mask: mask}
			x = nn.Add(x, a.Build(b.Scope("attention"), nn.RMSNorm(b.Scope("attention_norm"), x, 1e-5)))
			h := nn.Linear(b.Scope("up"), nn.RMSNorm(b.Scope("norm"), x, 1e-5), 4*m.dim, nil)
			h = b.Apply(squaredReLU{}, checkpoint.Name(h, "hidden"))
			x = nn.Add(x, nn.Linear(b.Scope("down"), h, m.dim, nil))
		})
	}
	x = nn.RMSNorm(b.Scope("norm"), x, 1e-5)
	b.AddLoss("cross_entropy", nn.OutputLoss(b.Scope("output"), x, in.Labels, in.Scale, nn.OutputLossConfig{Vocab: m.Vocab()}))
}

// fit trains m for some steps and returns the losses and the bytes kept for backward.
func fit(ctx context.Context, m model, steps int) (losses []float64, saved int64, err error) {
	c := train.DefaultConfig()
	c.Training.Dataset = train.StringList{"moby_dick"}
	c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Steps = 128, 8, steps
	c.Optimizer.LR, c.LRScheduler.WarmupSteps = 3e-3, 10
	c.Metrics.LogFreq, c.State.Enable = 20, false
	if c.Job.DumpFolder, err = os.MkdirTemp("", "squared_relu"); err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(c.Job.DumpFolder)
	notes := train.Hook{Name: "notes",
		AfterStep: func(_ context.Context, _ *train.Trainer, r train.StepResult) error {
			losses = append(losses, r.Loss)
			return nil
		},
		Report: func(_ context.Context, _ *train.Trainer, r train.Metrics) error {
			saved = r.SavedBytes
			return nil
		},
	}
	t, err := train.New(ctx, c, train.Options{Model: m, Log: os.Stdout, Hooks: []train.Hook{notes}})
	if err != nil {
		return nil, 0, err
	}
	defer t.Close()
	return losses, saved, t.Run(ctx)
}

func main() {
	for _, checkpointed := range []bool{false, true} {
		losses, saved, err := fit(context.Background(), model{dim: 128, layers: 3, checkpointed: checkpointed}, 100)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("checkpointed %v: loss %v after %d steps, %d bytes kept for backward\n\n", checkpointed, losses[len(losses)-1], len(losses), saved)
	}
}
