package train

import (
	"fmt"
	"os"
	"path/filepath"
)

// Config is everything a run is told. Its sections and keys are those of the
// TOML file; where torchtitan has a key for the same thing, the key is
// torchtitan's. Start from [DefaultConfig] or [LoadConfig]: the zero value is
// not valid.
type Config struct {
	Job                  JobConfig                  `toml:"job"`
	Model                ModelConfig                `toml:"model"`
	Training             TrainingConfig             `toml:"training"`
	Optimizer            OptimizerConfig            `toml:"optimizer"`
	LRScheduler          LRSchedulerConfig          `toml:"lr_scheduler"`
	ActivationCheckpoint ActivationCheckpointConfig `toml:"activation_checkpoint"`
	Parallelism          ParallelismConfig          `toml:"parallelism"`
	State                StateConfig                `toml:"state"`
	Metrics              MetricsConfig              `toml:"metrics"`
	Validation           ValidationConfig           `toml:"validation"`
}

// JobConfig says where a run lives.
type JobConfig struct {
	// Folder in which the run writes everything: its config, metrics.jsonl and
	// its state. Relative to the working directory. Two runs must not share it.
	DumpFolder string `toml:"dump_folder"`
}

// ModelConfig chooses the model.
type ModelConfig struct {
	// Name of the model family, for example "llama3".
	Name string `toml:"name"`
	// Size of the model within the family, for example "debugmodel" or
	// "quickstart".
	Flavor string `toml:"flavor"`
}

// TrainingConfig says what is trained on, for how long, and in which numbers.
type TrainingConfig struct {
	// Name of a built-in dataset, or paths of text files. One string or a list.
	Dataset StringList `toml:"dataset"`
	// Tokens in one packed sequence.
	SeqLen int `toml:"seq_len"`
	// Sequences in one microbatch: what one forward and backward pass works on.
	LocalBatchSize int `toml:"local_batch_size"`
	// Sequences of one rank in one optimizer step; a multiple of local_batch_size,
	// the quotient is the number of microbatches whose gradients are summed. 0 means
	// local_batch_size: no accumulation.
	GlobalBatchSize int `toml:"global_batch_size"`
	// Optimizer steps of the whole run. The learning rate schedule ends here.
	Steps int `toml:"steps"`
	// Largest global L2 norm of the gradient that is applied; a larger gradient
	// is scaled down to it. 0 turns clipping off; the norm is reported anyway.
	MaxNorm float64 `toml:"max_norm"`
	// Element type of parameters, activations and gradients: "float32", or
	// "float64" for checking.
	DType string `toml:"dtype"`
	// Compute threads. 0 means one for every CPU this process may use. The
	// numbers trained do not depend on it.
	Threads int `toml:"threads"`
	// Seed of initial values, data order and dropout. Equal configs with equal
	// seeds train equal bits.
	Seed int64 `toml:"seed"`
}

// OptimizerConfig chooses the optimizer.
type OptimizerConfig struct {
	// Name of the optimizer: "AdamW".
	Name string `toml:"name"`
	// Peak learning rate, before the factor of the schedule.
	LR float64 `toml:"lr"`
	// Decay of the first moment, in [0, 1).
	Beta1 float64 `toml:"beta1"`
	// Decay of the second moment, in [0, 1).
	Beta2 float64 `toml:"beta2"`
	// Added to the root of the second moment to bound the step.
	Eps float64 `toml:"eps"`
	// Decoupled weight decay: each step shrinks a parameter by
	// learning rate × weight_decay × parameter.
	WeightDecay float64 `toml:"weight_decay"`
}

// LRSchedulerConfig shapes the factor on the learning rate: linear warmup, a
// stable stretch, a decay. See [Schedule].
type LRSchedulerConfig struct {
	// Steps over which the factor grows linearly to 1.
	WarmupSteps int `toml:"warmup_steps"`
	// Fraction of training.steps that decays, in [0, 1]. Without it the decay
	// starts right after the warmup and there is no stable stretch.
	DecayRatio *float64 `toml:"decay_ratio"`
	// Curve of the decay: "linear", "sqrt" or "cosine".
	DecayType string `toml:"decay_type"`
	// Factor at the end of the decay, in [0, 1].
	MinLRFactor float64 `toml:"min_lr_factor"`
}

// ActivationCheckpointConfig says which values of the forward pass are kept
// for the backward pass and which are computed again. Loss, gradients and
// parameters are the same bits in every mode.
type ActivationCheckpointConfig struct {
	// "none" keeps everything, "full" only the inputs of each layer,
	// "selective" keeps what is expensive to compute again.
	Mode string `toml:"mode"`
	// Mode of the attention of each layer, where it differs from the mode of the
	// layer. Empty means the layer's.
	Attention string `toml:"attention"`
	// Mode of the mixture of experts of each layer, where it differs from the mode
	// of the layer. Empty means the layer's.
	MoE string `toml:"moe"`
	// Operation kinds ("matmul", "attention", …) or names given to values that
	// are kept in addition to what the mode keeps.
	Save StringList `toml:"save"`
	// Operation kinds or names that are computed again although the mode would
	// keep them.
	Rerun StringList `toml:"rerun"`
	// Patterns of fully qualified names, for example "moe.router.gate", whose
	// values are always computed again; stronger than save and rerun.
	ForceRecompute StringList `toml:"force_recompute"`
}

// ParallelismConfig spreads a model over ranks.
type ParallelismConfig struct {
	// Ranks that share the experts of every layer; each trains on its own sequences,
	// so that the batch grows by this factor. 1 keeps all experts on one rank.
	ExpertParallelDegree int `toml:"expert_parallel_degree"`
	// How ranks communicate: "local", ranks are goroutines of one process.
	Backend string `toml:"backend"`
}

// StateConfig says when the state of the run is written to disk.
type StateConfig struct {
	// Write state, and resume from the newest complete one at start.
	Enable bool `toml:"enable"`
	// Folder of the states, relative to job.dump_folder unless absolute.
	Folder string `toml:"folder"`
	// Optimizer steps between two saves. The last step is always saved.
	Interval int `toml:"interval"`
	// Newest states to keep; older ones are deleted once a newer one is
	// complete on disk. 0 keeps all.
	KeepLatestK int `toml:"keep_latest_k"`
}

// MetricsConfig says how often a run reports.
type MetricsConfig struct {
	// Optimizer steps between two lines on the console and in metrics.jsonl.
	// Step 1 is always reported.
	LogFreq int `toml:"log_freq"`
}

// ValidationConfig says when the held-out part of the dataset is measured.
type ValidationConfig struct {
	// Measure the loss on held-out data.
	Enable bool `toml:"enable"`
	// Optimizer steps between two measurements. The last step is always
	// measured.
	Freq int `toml:"freq"`
	// Microbatches in one measurement; -1 means all of the held-out data.
	Steps int `toml:"steps"`
}

// DefaultConfig returns the values that keys have when nothing sets them.
func DefaultConfig() Config {
	return Config{
		Job:   JobConfig{DumpFolder: "outputs"},
		Model: ModelConfig{Name: "llama3", Flavor: "debugmodel"},
		Training: TrainingConfig{
			SeqLen:         2048,
			LocalBatchSize: 8,
			Steps:          10_000,
			MaxNorm:        1,
			DType:          "float32",
		},
		Optimizer: OptimizerConfig{
			Name:        "AdamW",
			LR:          8e-4,
			Beta1:       0.9,
			Beta2:       0.95,
			Eps:         1e-8,
			WeightDecay: 0.1,
		},
		LRScheduler:          LRSchedulerConfig{WarmupSteps: 200, DecayType: "linear"},
		ActivationCheckpoint: ActivationCheckpointConfig{Mode: "selective"},
		Parallelism:          ParallelismConfig{ExpertParallelDegree: 1, Backend: "local"},
		State:                StateConfig{Enable: true, Folder: "state", Interval: 500, KeepLatestK: 10},
		Metrics:              MetricsConfig{LogFreq: 10},
		Validation:           ValidationConfig{Freq: 10, Steps: -1},
	}
}

// LoadConfig reads the TOML file at path over the defaults, applies overrides
// of the form "--section.key=value" in order, and validates the result.
func LoadConfig(path string, overrides ...string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("train: config: %w; give the path of a TOML file", err)
	}
	c, err := ParseConfig(path, text)
	if err != nil {
		return Config{}, err
	}
	for _, o := range overrides {
		if err := c.Override(o); err != nil {
			return Config{}, err
		}
	}
	if err := c.Validate(); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Microbatches is the number of forward and backward passes in one optimizer
// step. The config must be valid.
func (c TrainingConfig) Microbatches() int {
	if c.GlobalBatchSize == 0 {
		return 1
	}
	return c.GlobalBatchSize / c.LocalBatchSize
}

// StatePath is the folder of the run's states.
func (c Config) StatePath() string {
	if filepath.IsAbs(c.State.Folder) {
		return c.State.Folder
	}
	return filepath.Join(c.Job.DumpFolder, c.State.Folder)
}

// StringList is a list of strings that TOML may also give as one string.
type StringList []string

// UnmarshalText sets the list to one string: what go-toml calls for a string
// where a list could stand.
func (l *StringList) UnmarshalText(text []byte) error {
	*l = StringList{string(text)}
	return nil
}
