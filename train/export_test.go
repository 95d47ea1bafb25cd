package train

import (
	"context"
	"slices"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/atomicfile"
	"github.com/lethe-go/lethe/internal/ranktest"
)

// WithStateFS returns the options with states written through fs.
func (o Options) WithStateFS(fs atomicfile.FS) Options {
	o.stateFS = fs
	return o
}

// WaitForSave lets a state that is being written be written.
func (t *Trainer) WaitForSave() {
	if t.saving != nil {
		_ = t.saving.Wait()
	}
}

// GoOnFrom takes a state over, as a run does that begins with it.
func (t *Trainer) GoOnFrom(path string) error {
	t.config.State.InitialLoadPath, t.config.State.InitialLoadModelOnly = path, false
	return t.initialLoad()
}

// Flip turns over a low bit of a parameter on one rank.
func (t *Trainer) Flip(rank int, parameter string) {
	memory(t.ranks[rank].store.Variable(parameter))[0] ^= 1
}

// Stores of this process' ranks.
func (t *Trainer) Stores() (list []*graph.Store) {
	for _, r := range t.ranks {
		list = append(list, r.store)
	}
	return list
}

// AgreeWith compares what the ranks have in common again, of which one has another config.
func (t *Trainer) AgreeWith(rank int, differ func(*Config)) error {
	differ(&t.ranks[rank].config)
	return t.agree(context.Background())
}

// CallIn has f called on this process' first rank in each run of what belongs to a pass.
func (t *Trainer) CallIn(pass graph.Pass, f func()) {
	m := &t.ranks[0].machines
	for _, x := range m.all() {
		if (x == m.update) == (pass == graph.UpdatePass) {
			x.Trace(&caller{pass: pass, call: f})
		}
	}
}

// caller calls at the twentieth step of a pass.
type caller struct {
	pass  graph.Pass
	call  func()
	begun int
}

func (c *caller) Begin(_ int, s *graph.Step) {
	if s != nil && s.Pass() == c.pass {
		if c.begun++; c.begun == 20 {
			c.call()
		}
	}
}

func (*caller) Waited(*graph.Step)   {}
func (*caller) End(error)            {}
func (*caller) Started(*graph.Step)  {}
func (*caller) Finished(*graph.Step) {}

// Gradients of the last step by replica and parameter: the parts of a replica's ranks are
// joined. Parameters are alike.
func (t *Trainer) Gradients() []map[string][]float64  { return t.byReplica(gradientPrefix) }
func (t *Trainer) Parameters() []map[string][]float64 { return t.byReplica("") }

func (t *Trainer) byReplica(prefix string) []map[string][]float64 {
	replicas := make([]map[string][]float64, t.layout.replicas)
	for _, r := range t.ranks {
		i := t.layout.replica(r.index)
		if replicas[i] == nil {
			replicas[i] = map[string][]float64{}
		}
		for _, v := range r.store.Variables() {
			if v.Kind != graph.Parameter {
				continue
			}
			list := floats(r.store.Variable(prefix + v.Name).Tensor())
			if !divided(v) {
				replicas[i][v.Name] = list
				continue
			}
			whole := replicas[i][v.Name]
			if whole == nil {
				whole = make([]float64, device.NewSpec(v.Spec.DType, v.Global...).Len())
				replicas[i][v.Name] = whole
			}
			p := heldPart(v)
			for i := range p.bytes() / int64(v.Spec.DType.Size()) {
				whole[ranktest.Place(p.global, p.Shape, p.start, int(i))] = list[i]
			}
		}
	}
	return replicas
}

// Floats are the elements of a tensor.
func Floats(t device.Tensor) []float64 { return floats(t) }

func floats(t device.Tensor) []float64 {
	if t.DType() == device.Float64 {
		return slices.Clone(device.Elements[float64](t))
	}
	list := make([]float64, t.Len())
	for i, x := range device.Elements[float32](t) {
		list[i] = float64(x)
	}
	return list
}

// RecomputedFLOPs of a step with one microbatch.
func (t *Trainer) RecomputedFLOPs() float64 { return t.ranks[0].programs.usage(1).recomputedFLOPs }
