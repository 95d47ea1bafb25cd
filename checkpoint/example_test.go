package checkpoint_test

import (
	"fmt"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// layers is a small model whose layers are regions with one policy.
func layers(policy checkpoint.Policy) (*graph.Graph, error) {
	dev, err := cpu.New(cpu.Options{Workers: 1})
	if err != nil {
		return nil, err
	}
	b := graph.New(graph.NewStore(dev, graph.StoreOptions{}))
	x := b.Input("x", device.Float32, 64, 16)
	for i := range 2 {
		b := b.Scope("layers", i)
		checkpoint.Region(b, policy, func() {
			h := nn.RMSNorm(b.Scope("norm"), x, 1e-5)
			h = checkpoint.Name(nn.Linear(b.Scope("w1"), h, 32, nil), "hidden")
			x = nn.Add(x, nn.Linear(b.Scope("w2"), h, 16, nil))
		})
	}
	b.AddLoss("loss", graph.Sum(x))
	for i, grad := range b.Backward(b.Parameters()...) {
		b.Output(fmt.Sprint("gradient ", i), grad)
	}
	return b.Graph()
}

// A policy is any function of a node. Here it keeps what is small.
func Example() {
	g, err := layers(func(c checkpoint.Candidate) checkpoint.Decision {
		if c.Bytes() <= 4096 {
			return checkpoint.PreferSave
		}
		return checkpoint.PreferRecompute
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := checkpoint.Resolve(g, checkpoint.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := graph.Compile(g, graph.CompileOptions{Plan: plan})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, n := range program.Reruns() {
		fmt.Println(n.Name)
	}
	// Output:
	// layers.1.w1.matmul:0
	// layers.0.w1.matmul:0
}

// The configuration can overrule a model's policies by name. Names that mean
// nothing are refused.
func ExampleResolve() {
	g, err := layers(checkpoint.Full())
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := checkpoint.Resolve(g, checkpoint.Options{Save: []string{"hidden"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	report := checkpoint.Explain(g, plan)
	fmt.Println(report.With(checkpoint.Kept))
	fmt.Println(report.With(checkpoint.Rerun))

	_, err = checkpoint.Resolve(g, checkpoint.Options{ForceRecompute: []string{"layers.*.w3"}})
	fmt.Println(err)
	// Output:
	// [layers.0.w1.matmul:0 layers.0.add:0 layers.1.w1.matmul:0]
	// [layers.0.norm.rms_norm:0 layers.1.norm.rms_norm:0]
	// checkpoint: force_recompute "layers.*.w3" matches nothing in the forward graph; near names: layers.*.w1, layers.*.w2
}

// Selective would keep every second matmul and no norm.
func ExampleOverride() {
	policy := checkpoint.Override(checkpoint.Selective(), map[string]checkpoint.Decision{
		"matmul":   checkpoint.PreferRecompute,
		"rms_norm": checkpoint.MustSave,
	})
	g, err := layers(policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	plan, err := checkpoint.Resolve(g, checkpoint.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range checkpoint.Explain(g, plan).Filter("layers.1").Lines {
		fmt.Println(l.Node.Name, l.Fate, l.Bytes)
	}
	// Output:
	// layers.1.norm.rms_norm:0 kept 4096
	// layers.1.w1.matmul:0 rerun 8192
	// layers.1.w2.matmul:0 not needed 0
	// layers.1.add:0 not needed 0
	// layers.1.sum:0 not needed 0
}
