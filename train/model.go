package train

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/collective"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/parallel"
)

// Model is what a Trainer trains. It is asked to build itself several times,
// once for each Program, and must build the same forward graph each time.
type Model interface {
	// Name is what reports call the model, such as "llama3 debugmodel".
	Name() string

	// Vocab is the number of token ids; at least the tokenizer's.
	Vocab() int

	// Parameters is the number of trained numbers.
	Parameters() int64

	// FLOPsPerToken is what one token of a sequence of seqLen costs in forward and
	// backward by the model's definition: the numerator of MFU.
	FLOPsPerToken(seqLen int) float64

	// Build adds the model to b and its losses by b.AddLoss. Each layer goes into
	// a checkpoint.Region with the layer's policy; where p has one for attention or
	// mixture of experts, that part goes into a region of its own inside.
	Build(b *graph.Builder, in Inputs, p Policies)
}

// Policies are the policies of the parts of every layer.
type Policies struct {
	Layer graph.Policy
	// Attention and MoE are nil where the layer's policy holds.
	Attention, MoE graph.Policy
}

// Balanced is a Model with experts whose load the optimizer step evens out.
type Balanced interface {
	Model

	// Experts is the number of routed experts of a layer: ranks share them evenly.
	Experts() int

	// BalanceStep is what the bias of a router moves by in one step; see moe.Balance.
	BalanceStep() float64
}

// Shared is a Model whose modules ranks can compute together: its parameters have the names
// that package parallel knows, and between [nn.Embedding] and [nn.OutputLoss] tokens meet in
// the modules of packages attention and moe alone.
type Shared interface {
	Model

	// Shared lists what ranks must be able to divide evenly. The vocabulary is not among it:
	// its last part is padded.
	Shared() []Extent
}

// Extent is a number of things that a model has in each layer, such as 32 heads.
type Extent struct {
	Name string
	Size int
}

// Inputs are what a microbatch feeds to a model.
type Inputs struct {
	// Tokens are the ids, Labels the ids to predict or data.Ignore, Positions the
	// place of each token in its document and DocumentStart the column at which
	// that document begins in its row: int32 [batch, seq_len], see data.Batch.
	Tokens, Labels, Positions, DocumentStart graph.Value
	// Scale is a scalar of the trained dtype: one over the valid labels of the
	// whole optimizer step. A loss is Scale times a sum over tokens, so that the
	// gradients of microbatches add up to that of the step.
	Scale graph.Value
	// Loss is what [Options] has in place of cross-entropy; nil is cross-entropy.
	Loss Loss
	// Experts are the ranks that share the experts of every layer; nil if this rank
	// has all of them.
	Experts collective.Group
	// Training is false when held-out data is measured: no dropout then.
	Training bool
}

// Loss makes the scalar to minimize of logits [batch, seq_len, vocab]: in.Scale times a
// sum over the tokens whose in.Labels are not data.Ignore. [nn.CrossEntropy] gives the
// usual loss of each token. The logits of a microbatch exist as a whole then, which
// cross-entropy alone does without.
type Loss func(b *graph.Builder, logits graph.Value, in Inputs) graph.Value

// of binds the loss to the inputs, for models.
func (l Loss) of(in Inputs) func(b *graph.Builder, logits graph.Value) graph.Value {
	if l == nil {
		return nil
	}
	return func(b *graph.Builder, logits graph.Value) graph.Value { return l(b, logits, in) }
}

// families make a model of a family from its flavor.
var families = map[string]func(flavor string, dtype device.DType) (Model, error){}

// newModel returns the model that a config names.
func newModel(c Config, dtype device.DType) (Model, error) {
	v := validator{}
	v.oneOf("model.name", c.Model.Name, slices.Sorted(maps.Keys(families)))
	if len(v.errs) > 0 {
		return nil, errors.Join(v.errs...)
	}
	m, err := families[c.Model.Name](c.Model.Flavor, dtype)
	if err != nil {
		return nil, fmt.Errorf("train: config: model.flavor: %w", err)
	}
	return m, nil
}

// policies of every layer under a config.
func policies(c ActivationCheckpointConfig) Policies {
	p := Policies{Layer: policy(c.Mode)}
	if c.Attention != "" {
		p.Attention = policy(c.Attention)
	}
	if c.MoE != "" {
		p.MoE = policy(c.MoE)
	}
	return p
}

// policy under an activation checkpointing mode.
func policy(mode string) graph.Policy {
	switch mode {
	case "full":
		return checkpoint.Full()
	case "selective":
		return checkpoint.Selective()
	case budgetMode:
		return checkpoint.Budget()
	}
	return checkpoint.None()
}

// checkpointOptions are what the config says by name. Whether parameters are gathered again is
// decided by name too, in all modes, unless the lists speak of them. Costs are those by which
// copies are placed.
func checkpointOptions(c Config, costs checkpoint.Costs) checkpoint.Options {
	o := checkpoint.Options{ForceRecompute: c.ActivationCheckpoint.ForceRecompute, Save: c.ActivationCheckpoint.Save, Rerun: c.ActivationCheckpoint.Rerun, Offload: c.ActivationCheckpoint.Offload}
	if len(o.Offload) > 0 {
		o.Pace = c.disk(costs)
	}
	if c.Parallelism.DataParallelShardDegree > 1 && !slices.ContainsFunc(slices.Concat(o.Save, o.Rerun, o.Offload), namesGathered) {
		switch c.Parallelism.FSDPReshardAfterForward {
		case reshardAlways:
			o.Rerun = append(slices.Clone(o.Rerun), parallel.GatheredTag)
		case reshardNever:
			o.Save = append(slices.Clone(o.Save), parallel.GatheredTag)
		}
	}
	return o
}

// namesGathered reports whether a kind or tag means gathered parameters.
func namesGathered(name string) bool { return name == "all_gather" || name == parallel.GatheredTag }
