package nn_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// A bigram model: the embedding of a token predicts the next one.
func Example() {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	store := graph.NewStore(dev, graph.StoreOptions{Seed: 1})
	defer store.Close()

	b := graph.New(store)
	tokens := b.Input("tokens", device.Int32, 1, 4)
	labels := b.Input("labels", device.Int32, 1, 4)
	scale := b.Input("scale", device.Float32)
	x := nn.Embedding(b.Scope("tok_embeddings"), tokens, nn.EmbeddingConfig{Vocab: 256, Dim: 8})
	x = nn.RMSNorm(b.Scope("norm"), x, 0)
	b.AddLoss("loss", nn.OutputLoss(b.Scope("output"), x, labels, scale, nn.OutputLossConfig{
		Vocab: 256, Init: graph.Zeros, // every byte is as likely as any other
	}))

	g, err := b.Graph()
	if err != nil {
		log.Fatal(err)
	}
	program, err := graph.Compile(g, graph.CompileOptions{})
	if err != nil {
		log.Fatal(err)
	}
	m, err := graph.NewMachine(program)
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	graph.Feed(m, "tokens", []int32{'L', 'e', 't', 'h'})
	graph.Feed(m, "labels", []int32{'e', 't', 'h', nn.DefaultIgnore})
	graph.Feed(m, "scale", []float32{1. / 3}) // one over the labels that count
	if err := m.Run(context.Background(), graph.RunOptions{Step: 1}); err != nil {
		log.Fatal(err)
	}
	for _, v := range store.Variables() {
		fmt.Println(v.Name, v.Spec)
	}
	fmt.Printf("loss %.4f nats: log 256\n", m.Scalar("loss"))
	// Output:
	// tok_embeddings.weight float32[256 8]
	// norm.weight float32[8]
	// output.weight float32[256 8]
	// loss 5.5452 nats: log 256
}

// Leading dimensions stay as they are.
func ExampleLinear() {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	b := graph.New(graph.NewStore(dev, graph.StoreOptions{}))
	x := b.Input("x", device.Float32, 4, 16, 64)
	fmt.Println(nn.Linear(b.Scope("wq"), x, 32, nil).Spec())
	// Output: float32[4 16 32]
}
