package generate

import (
	"context"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/attention"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// pass is the Program that runs the model over a fixed number of tokens, and the
// Machine that runs it, once there is need of it.
type pass struct {
	program *graph.Program
	machine *graph.Machine
	// Host memory of the machine's inputs; start, the position of the first token, is
	// nil without a cache.
	tokens, positions, row, start []int32
	logits                        device.Tensor
}

// compile builds the model for a number of tokens behind a cache of length positions, or
// without a cache if length is 0.
func compile(store *graph.Store, m Model, tokens, length int) (*pass, error) {
	b := graph.New(store)
	in := Inputs{
		Tokens: b.Input("tokens", device.Int32, 1, tokens), Positions: b.Input("positions", device.Int32, 1, tokens),
		Row: b.HostInput("row", device.Int32),
	}
	if length > 0 {
		in.Cache = &attention.Cache{Length: length, Position: b.HostInput(startInput, device.Int32)}
	}
	logits := m.Logits(b, in)
	if s := logits.Spec(); b.Err() == nil && (s.Len() != m.Vocab() || s.DType != device.Float32 && s.DType != device.Float64) {
		return nil, fmt.Errorf("generate: the model's logits are %v: want float32 or float64 [1 %d]", s, m.Vocab())
	}
	b.Output("logits", logits)
	g, err := b.Graph()
	if err != nil {
		return nil, err
	}
	if length > 0 {
		if err := usesCache(g); err != nil {
			return nil, err
		}
	}
	p := &pass{}
	p.program, err = graph.Compile(g, graph.CompileOptions{})
	return p, err
}

// startInput is the position of the first token of a run.
const startInput = "start"

// usesCache refuses a model of which some attention would not see the tokens before.
func usesCache(g *graph.Graph) error {
	any := false
	for _, n := range g.Nodes {
		if n.Kind != "attention" {
			continue
		}
		behind := slices.ContainsFunc(n.In, func(e graph.Edge) bool { return e.Node.Name == startInput })
		if !behind {
			return fmt.Errorf("generate: %s has no cache: give Inputs.Cache to every attention module, or set NoCache", n.Name)
		}
		any = true
	}
	if !any {
		return fmt.Errorf("generate: the model has no attention with a cache: give Inputs.Cache to attention modules, or set NoCache")
	}
	return nil
}

// open makes the machine.
func (p *pass) open() error {
	if p.machine != nil {
		return nil
	}
	m, err := graph.NewMachine(p.program)
	if err != nil {
		return err
	}
	ids := func(name string) []int32 {
		if t := m.Input(name); !t.IsZero() {
			return device.Elements[int32](t)
		}
		return nil
	}
	p.machine, p.logits = m, m.Output("logits")
	p.tokens, p.positions, p.row, p.start = ids("tokens"), ids("positions"), ids("row"), ids(startInput)
	return nil
}

// run computes the logits behind the last of ids, which begin at a position. There may
// be fewer than the pass has room for only without a cache.
func (p *pass) run(ctx context.Context, ids []int32, position int) error {
	clear(p.tokens[copy(p.tokens, ids):])
	for i := range p.positions {
		p.positions[i] = int32(position + i)
	}
	p.row[0] = int32(len(ids) - 1)
	if p.start != nil {
		p.start[0] = int32(position)
	}
	return p.machine.Run(ctx, graph.RunOptions{Step: 1})
}

func (p *pass) close() error {
	if p.machine == nil {
		return nil
	}
	return p.machine.Close()
}
