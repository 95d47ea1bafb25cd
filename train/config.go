package train

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lethe-go/lethe/graph"
)

//go:generate go run ../internal/configdoc config.go ../docs/config.md

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
	Profiling            ProfilingConfig            `toml:"profiling"`
	Validation           ValidationConfig           `toml:"validation"`
	Comm                 CommConfig                 `toml:"comm"`
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
	// Name of a built-in dataset, or paths of files, folders and patterns such as
	// "shards/*.jsonl". One string or a list, read one after the other unless
	// dataset_weights is set. A text file is one document; a file that ends with
	// .jsonl or .ndjson holds a document in each line.
	Dataset StringList `toml:"dataset"`
	// Share of the training tokens that each entry of dataset gives, relative to the
	// others: [3, 1] is three quarters and one. Each goes through epochs of its own.
	// Empty means no mixing.
	DatasetWeights NumberList `toml:"dataset_weights"`
	// Field of a JSONL line that holds the text.
	TextField string `toml:"text_field"`
	// Read the documents in another order in every epoch, drawn from the seed.
	// false keeps the order of the dataset.
	Shuffle bool `toml:"shuffle"`
	// Shuffle only among so many neighbouring documents, so that large files are read
	// nearly in order. 0 shuffles all documents of a dataset among each other.
	ShuffleWindow int `toml:"shuffle_window"`
	// How documents are put into sequences: "concatenate" joins them and cuts every
	// seq_len tokens, without padding; "first_fit" leaves documents of up to seq_len
	// tokens whole and pads.
	Packing string `toml:"packing"`
	// Steps whose batches are prepared in the background. 0 prepares a batch when it
	// is needed. The batches do not depend on it.
	Prefetch int `toml:"prefetch"`
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
	// Name of the optimizer: "AdamW", "Adam", "SGD" or "Muon". Muon changes matrices
	// (and the matrix of each expert); embeddings, the output layer, norms and biases
	// get AdamW.
	Name string `toml:"name"`
	// Peak learning rate, before the factor of the schedule.
	LR float64 `toml:"lr"`
	// Decay of the first moment of AdamW and Adam, in [0, 1).
	Beta1 float64 `toml:"beta1"`
	// Decay of the second moment of AdamW and Adam, in [0, 1).
	Beta2 float64 `toml:"beta2"`
	// Added to the root of the second moment of AdamW and Adam to bound the step.
	Eps float64 `toml:"eps"`
	// Weight decay. AdamW and Muon shrink a parameter by learning rate × weight_decay
	// × parameter in each step; Adam and SGD add weight_decay × parameter to its
	// gradient.
	WeightDecay float64 `toml:"weight_decay"`
	// No weight decay on norms, biases (all parameters of one dimension) and
	// embeddings, except where a group sets weight_decay.
	NoDecayNormEmbedding bool `toml:"no_decay_norm_embedding"`
	// Momentum of SGD and Muon, in [0, 1). SGD with 0 keeps no state.
	Momentum float64 `toml:"momentum"`
	// Nesterov momentum in SGD and Muon.
	Nesterov bool `toml:"nesterov"`
	// How Muon scales the learning rate of a matrix [out, in]: "match_rms_adamw" by
	// 0.2·√max(out, in), so that a learning rate and weight decay for AdamW fit, or
	// "original" by √max(1, out/in).
	MuonAdjustLR string `toml:"muon_adjust_lr"`
	// Decay of an exponential moving average of all parameters, in [0, 1), such as
	// 0.999. It is saved with the state, as "ema.PARAMETER". 0 keeps no average.
	EMADecay float64 `toml:"ema_decay"`
	// Tables [[optimizer.groups]] of what is different for some parameters. A
	// parameter belongs to the first group whose pattern matches its name.
	Groups []OptimizerGroup `toml:"groups,omitempty"`
}

// OptimizerGroup is what is different for the parameters that a pattern names. A key
// that is left out has the value of [optimizer].
type OptimizerGroup struct {
	// Pattern of names of parameters, such as "attention.wq" or "layers.*.moe": it is
	// split at the dots and matches where consecutive parts of a name equal its own;
	// "*" equals any one part. A group to which no parameter belongs is an error.
	Pattern string `toml:"pattern"`
	// Name of the optimizer. "Muon" here includes embeddings and the output layer;
	// parameters that are no matrices still get AdamW.
	Name string `toml:"name,omitempty"`
	// Peak learning rate.
	LR *float64 `toml:"lr"`
	// Decay of the first moment.
	Beta1 *float64 `toml:"beta1"`
	// Decay of the second moment.
	Beta2 *float64 `toml:"beta2"`
	// Added to the root of the second moment.
	Eps *float64 `toml:"eps"`
	// Weight decay.
	WeightDecay *float64 `toml:"weight_decay"`
	// Momentum.
	Momentum *float64 `toml:"momentum"`
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
	// "selective" keeps what is expensive to compute again, "budget" what costs the
	// least time to compute again within memory_budget.
	Mode string `toml:"mode"`
	// The most memory that a rank may hold at any time of a step in mode "budget":
	// parameters, gradients, optimizer state and its copy for saving, activations and
	// workspace. A number of bytes such as "512MiB", or a fraction of the memory of
	// the machine such as 0.5, which its ranks share.
	MemoryBudget MemoryBudget `toml:"memory_budget"`
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
	// keep them. In mode "budget" the kinds of collectives and host results may be
	// computed again where that is best, which without being named they never are.
	Rerun StringList `toml:"rerun"`
	// Patterns of fully qualified names, for example "moe.router.gate", whose
	// values are always computed again; stronger than save and rerun.
	ForceRecompute StringList `toml:"force_recompute"`
	// Operation kinds or names that wait in a file from forward to backward and not in
	// memory. They are copied as the computation goes on. "*" stands for all that save and
	// rerun do not name. In mode "budget" they wait there where that costs less time than
	// to compute them again, and else do not.
	Offload StringList `toml:"offload"`
	// Folder whose disk holds that file, relative to job.dump_folder unless absolute. The
	// file is gone when the run ends, however it ends. Empty means job.dump_folder.
	OffloadFolder string `toml:"offload_folder"`
	// Bytes that the disk is reckoned to write or read in a second, over all ranks of the
	// machine: it decides how early a value comes back and, in mode "budget", what is
	// worth being moved. It changes no result.
	OffloadBandwidth float64 `toml:"offload_bandwidth"`
	// How closely every recomputation is compared with the first time: "off", "shape",
	// "checksum" (a 64-bit sum of what is read and written) or "bitwise" (a copy of every
	// result, on the host and beside the plan). A run stops at the first operation that read
	// the same and wrote something else, and names it.
	Check string `toml:"check"`
}

// ParallelismConfig spreads a model over ranks.
type ParallelismConfig struct {
	// Replicas of the model. The number of ranks is data_parallel_replicate_degree × the
	// larger of data_parallel_shard_degree and expert_parallel_degree × tensor_parallel_degree.
	// Ranks train on sequences of their own, but for those that tensor_parallel_degree puts
	// together, so that the batch grows with their number, and all make the same step. 1
	// keeps a single replica.
	DataParallelReplicateDegree int `toml:"data_parallel_replicate_degree"`
	// Ranks of a replica, of which each keeps a part of the rows of parameters, gradients and
	// moments: a layer's parameters are gathered before it computes, one layer ahead, and
	// gradients are added up and divided after it. It must be 1, which divides nothing, or a
	// multiple of expert_parallel_degree.
	DataParallelShardDegree int `toml:"data_parallel_shard_degree"`
	// "always" gathers parameters again for backward, "never" keeps them from forward to
	// backward. It counts in every mode of activation_checkpoint, unless save or rerun there
	// lists "all_gather" or "gathered_parameter"; in mode "budget", "always" lets those stay
	// gathered for which there is room.
	FSDPReshardAfterForward string `toml:"fsdp_reshard_after_forward"`
	// Ranks of a replica, which share the experts of every layer. It must divide their
	// number. 1 keeps all experts on one rank.
	ExpertParallelDegree int `toml:"expert_parallel_degree"`
	// Ranks that compute the same sequences together: of attention each has some heads, of a
	// feed-forward and of every expert some hidden units, of the embedding and the output
	// some of the vocabulary, and between them some tokens. It must divide heads, key and
	// value heads and hidden units; vocabulary and tokens are padded. 1 leaves layers whole.
	TensorParallelDegree int `toml:"tensor_parallel_degree"`
	// What ranks are: "local", goroutines of one process; "mpi", processes that mpirun or
	// Slurm has started, one for each rank. The program must be built with the tag mpi then.
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
	// "async" holds a step only while the state is copied in memory and writes the
	// copy as training goes on; it takes the memory of one more set of parameters and
	// moments. "disabled" holds the step until the state is on disk. The last state
	// of a run, and that at a signal, are on disk before the run ends in both.
	AsyncMode string `toml:"async_mode"`
	// State of another run to start from: the dump folder of a run, for its newest
	// state, or the folder of one state. Only a run that has no state of its own yet
	// starts from it; later it goes on from its own.
	InitialLoadPath string `toml:"initial_load_path"`
	// Load the parameters and what else belongs to the model from initial_load_path,
	// and begin at step 0 with a new optimizer and the first of the data. false takes
	// over the optimizer's moments, the step and the place in the data too.
	InitialLoadModelOnly bool `toml:"initial_load_model_only"`
	// Patterns of names of tensors to load from initial_load_path, such as
	// "layers.*.attention"; the others have their initial values. Empty loads all. A
	// pattern is split at the dots and matches where consecutive parts of a name equal
	// its own; "*" equals any one part. A pattern that matches nothing is an error.
	LoadOnly StringList `toml:"load_only"`
	// Patterns of names of tensors that are not loaded from initial_load_path, such as
	// "output"; stronger than load_only. The moments of a parameter have its name
	// behind a prefix, so the pattern excludes them too.
	ExcludeFromLoading StringList `toml:"exclude_from_loading"`
}

func (c StateConfig) async() bool { return c.AsyncMode == "async" }

// MetricsConfig says how often a run reports.
type MetricsConfig struct {
	// Optimizer steps between two lines on the console and in metrics.jsonl.
	// Step 1 is always reported.
	LogFreq int `toml:"log_freq"`
	// Write the metrics of every logged step, held-out losses and the load of experts
	// as event files for TensorBoard.
	EnableTensorboard bool `toml:"enable_tensorboard"`
	// Look for NaN and infinities in the result of every operation and stop at the first
	// that makes one. It costs a pass over all results. Without it a step whose loss or
	// gradient norm is not finite is run again that way before the run ends.
	NaNWatch bool `toml:"nan_watch"`
	// Folder of the event files, relative to job.dump_folder unless absolute.
	SaveTBFolder string `toml:"save_tb_folder"`
	// Address at which a run shows itself while it is on, such as ":8080": the page of
	// lethe report, and at /metrics its numbers for Prometheus. Without a host it is this
	// machine's loopback; "0.0.0.0:8080" lets everybody look. Empty serves nothing.
	HTTP string `toml:"http"`
}

// ProfilingConfig says when a step is traced: when each operation ran on which lane and
// worker, and how much memory was alive. Tracing changes no numbers.
type ProfilingConfig struct {
	// Trace one step out of profile_freq. Open the files in ui.perfetto.dev or
	// chrome://tracing.
	EnableProfiling bool `toml:"enable_profiling"`
	// Folder of the traces, relative to job.dump_folder unless absolute. The trace of
	// step 10 is step-000010.trace.json; where ranks are processes, each writes its own,
	// such as step-000010.rank-1.trace.json.
	SaveTracesFolder string `toml:"save_traces_folder"`
	// Optimizer steps from one traced step to the next.
	ProfileFreq int `toml:"profile_freq"`
}

// ValidationConfig says which text is measured, and when.
type ValidationConfig struct {
	// Text to measure: names or paths as in training.dataset. Empty means the last
	// tenth of the documents of training.dataset, which is then not trained on.
	Dataset StringList `toml:"dataset"`
	// Measure the loss on held-out data.
	Enable bool `toml:"enable"`
	// Optimizer steps between two measurements. The last step is always
	// measured.
	Freq int `toml:"freq"`
	// Microbatches in one measurement; -1 means all of the held-out data.
	Steps int `toml:"steps"`
	// Measure with the moving average of the parameters; needs optimizer.ema_decay.
	UseEMA bool `toml:"use_ema"`
}

// CommConfig says what ranks expect of each other. When one fails, dies or does not come in
// time the others stop, and each leaves a record of its last collectives in the folder
// flight of job.dump_folder.
type CommConfig struct {
	// Longest wait for another rank outside of steps, and in the first one: until all have
	// started, and while a state is written. "0s" waits for ever.
	InitTimeout Duration `toml:"init_timeout"`
	// Longest that a collective may take in a step, from the second one on. A rank that is
	// slower than the others by as much ends the run. "0s" waits for ever.
	TrainTimeout Duration `toml:"train_timeout"`
	// Optimizer steps between two comparisons of the checksums of what ranks hold in common:
	// parameters, moments and what else a state holds. The first that differs ends the run.
	// 0 compares nothing.
	CheckReplicas int `toml:"check_replicas"`
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
			TextField:      "text",
			Shuffle:        true,
			Packing:        "concatenate",
			Prefetch:       2,
		},
		Optimizer: OptimizerConfig{
			Name:        "AdamW",
			LR:          8e-4,
			Beta1:       0.9,
			Beta2:       0.95,
			Eps:         1e-8,
			WeightDecay: 0.1,
			Momentum:    0.95, Nesterov: true, MuonAdjustLR: "match_rms_adamw",
		},
		LRScheduler:          LRSchedulerConfig{WarmupSteps: 200, DecayType: "linear"},
		ActivationCheckpoint: ActivationCheckpointConfig{Mode: "selective", OffloadBandwidth: 1e9, Check: graph.CheckOff.String()},
		Parallelism:          ParallelismConfig{DataParallelReplicateDegree: 1, DataParallelShardDegree: 1, FSDPReshardAfterForward: reshardAlways, ExpertParallelDegree: 1, TensorParallelDegree: 1, Backend: "local"},
		State:                StateConfig{Enable: true, Folder: "state", Interval: 500, KeepLatestK: 10, AsyncMode: "async", InitialLoadModelOnly: true},
		Metrics:              MetricsConfig{LogFreq: 10, SaveTBFolder: "tb"},
		Profiling:            ProfilingConfig{SaveTracesFolder: "profile_traces", ProfileFreq: 10},
		Validation:           ValidationConfig{Freq: 10, Steps: -1},
		Comm:                 CommConfig{InitTimeout: Duration(5 * time.Minute), TrainTimeout: Duration(5 * time.Minute)},
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
func (c Config) StatePath() string { return c.inDumpFolder(c.State.Folder) }

// TensorboardPath is the folder of the run's event files.
func (c Config) TensorboardPath() string { return c.inDumpFolder(c.Metrics.SaveTBFolder) }

// TracesPath is the folder of the run's traces.
func (c Config) TracesPath() string { return c.inDumpFolder(c.Profiling.SaveTracesFolder) }

// MemoryPath is the folder of the run's memory snapshots.
func (c Config) MemoryPath() string { return c.inDumpFolder("memory") }

// OffloadPath is the folder of the file that values are offloaded to.
func (c Config) OffloadPath() string { return c.inDumpFolder(c.ActivationCheckpoint.OffloadFolder) }

// FlightPath is the folder of the flight records of the run's ranks.
func (c Config) FlightPath() string { return c.inDumpFolder("flight") }

func (c Config) inDumpFolder(folder string) string {
	if filepath.IsAbs(folder) {
		return folder
	}
	return filepath.Join(c.Job.DumpFolder, folder)
}

// NumberList is a list of numbers that the command line may also give separated by
// commas.
type NumberList []float64

// Duration is written as a number with a unit in TOML, such as "90s" or "1h30m".
type Duration time.Duration

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText writes it as [time.Duration] does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what [time.ParseDuration] does.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return errors.New("not a duration")
	}
	*d = Duration(parsed)
	return nil
}

// StringList is a list of strings that TOML may also give as one string.
type StringList []string

// UnmarshalText sets the list to one string: what go-toml calls for a string
// where a list could stand.
func (l *StringList) UnmarshalText(text []byte) error {
	*l = StringList{string(text)}
	return nil
}
