package attention_test

import (
	"fmt"
	"log"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

func ExampleGQA() {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	store := graph.NewStore(dev, graph.StoreOptions{Seed: 1})
	b := graph.New(store)
	x := b.Input("x", device.Float32, 4, 16, 256)
	attend := attention.GQA{
		Heads: 16, KVHeads: 4,
		RoPE: attention.RoPE{Theta: 500_000},
		Mask: attention.Mask{Causal: true},
	}
	y := attend.Build(b.Scope("layers", 0, "attention"), x)
	if b.Err() != nil {
		log.Fatal(b.Err())
	}
	fmt.Println(y.Spec())
	for _, p := range b.Parameters() {
		fmt.Println(p.Name(), p.Spec())
	}
	// Output:
	// float32[4 16 256]
	// layers.0.attention.wq.weight float32[256 256]
	// layers.0.attention.wk.weight float32[64 256]
	// layers.0.attention.wv.weight float32[64 256]
	// layers.0.attention.wo.weight float32[256 256]
}
