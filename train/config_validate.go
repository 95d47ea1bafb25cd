package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/internal/live"
	"github.com/lethe-go/lethe/internal/pattern"
)

// What Config accepts by name. Names of models, flavors and datasets are
// checked where they are registered: a user's program may add its own.
var (
	dtypeNames     = []string{"float32", "float64"}
	optimizerNames = []string{adamWName, adamName, sgdName, muonName}
	adjustNames    = []string{"match_rms_adamw", "original"}
	decayNames     = []string{"linear", "sqrt", "cosine"}
	modeNames      = []string{"none", "full", "selective"}
	packingNames   = []string{string(data.Concatenate), string(data.FirstFit)}
	backendNames   = []string{localBackend, mpiBackend}
	reshardNames   = []string{reshardAlways, reshardNever}
	asyncModeNames = []string{"async", "disabled"}
)

// Validate reports every impossible value, each with its key, the value, the
// rule and what to write instead.
func (c Config) Validate() error {
	v := validator{}
	v.nonEmpty("job.dump_folder", c.Job.DumpFolder, "name the folder the run writes to")
	v.nonEmpty("model.name", c.Model.Name, `name a model, such as "llama3"`)
	v.nonEmpty("model.flavor", c.Model.Flavor, `name a flavor of the model, such as "debugmodel"`)
	v.training(c.Training)
	v.optimizer(c.Optimizer)
	v.schedule(c.LRScheduler)
	v.checkpoint(c.ActivationCheckpoint)
	v.atLeast("parallelism.data_parallel_replicate_degree", c.Parallelism.DataParallelReplicateDegree, 1, "set 1 for a single replica")
	v.atLeast("parallelism.data_parallel_shard_degree", c.Parallelism.DataParallelShardDegree, 1, "set 1 to keep parameters whole")
	v.atLeast("parallelism.expert_parallel_degree", c.Parallelism.ExpertParallelDegree, 1, "set 1 for a single rank")
	v.atLeast("parallelism.tensor_parallel_degree", c.Parallelism.TensorParallelDegree, 1, "set 1 to leave layers whole")
	if s, e := c.Parallelism.DataParallelShardDegree, c.Parallelism.ExpertParallelDegree; s > 1 && e > 1 && s%e != 0 {
		v.fail("parallelism.data_parallel_shard_degree", s, fmt.Sprintf("must be 1 or a multiple of parallelism.expert_parallel_degree %d", e), fmt.Sprintf("set %d", (s+e-1)/e*e))
	}
	v.oneOf("parallelism.fsdp_reshard_after_forward", c.Parallelism.FSDPReshardAfterForward, reshardNames)
	v.oneOf("parallelism.backend", c.Parallelism.Backend, backendNames)
	if c.State.Enable {
		v.nonEmpty("state.folder", c.State.Folder, `name a folder, such as "state"`)
		v.atLeast("state.interval", c.State.Interval, 1, "set the steps between two saves, or state.enable=false")
		v.atLeast("state.keep_latest_k", c.State.KeepLatestK, 0, "set 0 to keep every state")
		v.oneOf("state.async_mode", c.State.AsyncMode, asyncModeNames)
	}
	v.initialLoad(c.State)
	v.atLeast("metrics.log_freq", c.Metrics.LogFreq, 1, "set the steps between two log lines")
	if c.Metrics.EnableTensorboard {
		v.nonEmpty("metrics.save_tb_folder", c.Metrics.SaveTBFolder, `name a folder, such as "tb"`)
	}
	if c.Metrics.HTTP != "" {
		if _, _, err := live.ParseAddress(c.Metrics.HTTP); err != nil {
			v.fail("metrics.http", quote(c.Metrics.HTTP), err.Error(), `give an address such as ":8080"`)
		}
	}
	if c.Profiling.EnableProfiling {
		v.nonEmpty("profiling.save_traces_folder", c.Profiling.SaveTracesFolder, `name a folder, such as "profile_traces"`)
		v.atLeast("profiling.profile_freq", c.Profiling.ProfileFreq, 1, "set the steps from one trace to the next, or profiling.enable_profiling=false")
	}
	v.entries("validation.dataset", c.Validation.Dataset)
	if c.Validation.Enable {
		v.atLeast("validation.freq", c.Validation.Freq, 1, "set the steps between two measurements, or validation.enable=false")
		if s := c.Validation.Steps; s < 1 && s != -1 {
			v.fail("validation.steps", s, "must be at least 1, or -1", "set -1 to measure all held-out data")
		}
		if c.Validation.UseEMA && c.Optimizer.EMADecay == 0 {
			v.fail("validation.use_ema", true, "needs a moving average", "set optimizer.ema_decay, such as 0.999")
		}
	}
	v.notBefore("comm.init_timeout", c.Comm.InitTimeout)
	v.notBefore("comm.train_timeout", c.Comm.TrainTimeout)
	v.atLeast("comm.check_replicas", c.Comm.CheckReplicas, 0, "set the steps between two comparisons, or 0 for none")
	return errors.Join(v.errs...)
}

type validator struct{ errs []error }

func (v *validator) training(c TrainingConfig) {
	if len(c.Dataset) == 0 {
		v.fail("training.dataset", "[]", "must not be empty", "name a built-in dataset or give paths of text or JSONL files")
	}
	v.entries("training.dataset", c.Dataset)
	v.weights(c)
	v.nonEmpty("training.text_field", c.TextField, `name the field of a JSONL line that holds the text, such as "text"`)
	v.atLeast("training.shuffle_window", c.ShuffleWindow, 0, "set 0 to shuffle all documents among each other")
	v.oneOf("training.packing", c.Packing, packingNames)
	v.atLeast("training.prefetch", c.Prefetch, 0, "set 0 to prepare nothing in the background")
	before := len(v.errs)
	v.atLeast("training.seq_len", c.SeqLen, 1, "set the tokens of one sequence, such as 256")
	v.atLeast("training.local_batch_size", c.LocalBatchSize, 1, "set the sequences of one microbatch, such as 8")
	shaped := len(v.errs) == before
	// Kernels count rows of a microbatch in 32 bits.
	if shaped && c.SeqLen > math.MaxInt32/c.LocalBatchSize {
		v.fail("training.seq_len", fmt.Sprintf("%d × local_batch_size %d", c.SeqLen, c.LocalBatchSize),
			fmt.Sprintf("a microbatch must have at most %d tokens", math.MaxInt32), "lower one of them and accumulate with training.global_batch_size")
	}
	switch g := c.GlobalBatchSize; {
	case g < 0:
		v.fail("training.global_batch_size", g, "must not be negative", "set 0 for one microbatch a step")
	case c.LocalBatchSize >= 1 && g%c.LocalBatchSize != 0:
		down := g / c.LocalBatchSize * c.LocalBatchSize
		fix := fmt.Sprint("set ", down+c.LocalBatchSize)
		if down > 0 {
			fix = fmt.Sprintf("set %d or %d", down, down+c.LocalBatchSize)
		}
		v.fail("training.global_batch_size", g, fmt.Sprintf("must be a multiple of training.local_batch_size %d", c.LocalBatchSize), fix)
	}
	v.atLeast("training.steps", c.Steps, 1, "set the number of optimizer steps")
	v.notNegative("training.max_norm", c.MaxNorm, "set 0 to turn clipping off")
	v.oneOf("training.dtype", c.DType, dtypeNames)
	v.atLeast("training.threads", c.Threads, 0, "set 0 for one thread a CPU")
	if c.Seed < 0 {
		v.fail("training.seed", c.Seed, "must not be negative", "set 0 or more")
	}
}

func (v *validator) weights(c TrainingConfig) {
	const key = "training.dataset_weights"
	if len(c.DatasetWeights) == 0 {
		return
	}
	if len(c.DatasetWeights) != len(c.Dataset) {
		v.fail(key, len(c.DatasetWeights), fmt.Sprintf("must be as many as training.dataset has entries, %d", len(c.Dataset)), "give each entry a weight, or none to any")
	}
	for _, w := range c.DatasetWeights {
		v.positive(key, w, "leave out what shall not be read")
	}
}

func (v *validator) optimizer(c OptimizerConfig) {
	v.hyperparameters("optimizer", c)
	v.oneOf("optimizer.muon_adjust_lr", c.MuonAdjustLR, adjustNames)
	v.within("optimizer.ema_decay", c.EMADecay, false, "set a decay such as 0.999, or 0 for no average")
	for i, g := range c.Groups {
		key := fmt.Sprintf("optimizer.groups[%d]", i)
		if _, err := pattern.Parse(g.Pattern); err != nil {
			v.errs = append(v.errs, fmt.Errorf("train: config: %s.pattern: %w", key, err))
		}
		// Values of [optimizer] are not reported again.
		own := DefaultConfig().Optimizer
		own.set(g)
		v.hyperparameters(key, own)
	}
}

// hyperparameters checks what a group can set.
func (v *validator) hyperparameters(key string, c OptimizerConfig) {
	v.oneOf(key+".name", c.Name, optimizerNames)
	v.positive(key+".lr", c.LR, "set a learning rate such as 8e-4")
	v.within(key+".beta1", c.Beta1, false, "set a decay such as 0.9")
	v.within(key+".beta2", c.Beta2, false, "set a decay such as 0.95")
	v.positive(key+".eps", c.Eps, "set a small number such as 1e-8")
	v.notNegative(key+".weight_decay", c.WeightDecay, "set 0 for no decay")
	v.within(key+".momentum", c.Momentum, false, "set a decay such as 0.9, or 0 for none")
}

func (v *validator) schedule(c LRSchedulerConfig) {
	v.atLeast("lr_scheduler.warmup_steps", c.WarmupSteps, 0, "set 0 for no warmup")
	if c.DecayRatio != nil {
		v.within("lr_scheduler.decay_ratio", *c.DecayRatio, true, "set the fraction of steps that decays, such as 0.8")
	}
	v.oneOf("lr_scheduler.decay_type", c.DecayType, decayNames)
	v.within("lr_scheduler.min_lr_factor", c.MinLRFactor, true, "set the factor at the last step, such as 0.1")
}

func (v *validator) checkpoint(c ActivationCheckpointConfig) {
	v.oneOf("activation_checkpoint.mode", c.Mode, append(slices.Clone(modeNames), budgetMode))
	for key, mode := range map[string]string{"attention": c.Attention, "moe": c.MoE} {
		switch mode {
		case "":
		case budgetMode:
			v.fail("activation_checkpoint."+key, quote(mode), "a budget is one for the whole step", `set activation_checkpoint.mode="budget" and leave this empty`)
		default:
			v.oneOf("activation_checkpoint."+key, mode, modeNames)
		}
	}
	if c.Mode == budgetMode && c.MemoryBudget == (MemoryBudget{}) {
		v.fail("activation_checkpoint.memory_budget", `""`, `must be set for mode "budget"`, `set bytes such as "512MiB", or a fraction of memory such as 0.5`)
	}
	v.entries("activation_checkpoint.save", c.Save)
	v.entries("activation_checkpoint.rerun", c.Rerun)
	v.entries("activation_checkpoint.force_recompute", c.ForceRecompute)
	v.entries("activation_checkpoint.offload", c.Offload)
	if len(c.Offload) > 0 {
		v.positive("activation_checkpoint.offload_bandwidth", c.OffloadBandwidth, "set what the disk does in a second, such as 1e9")
	}
	v.oneOf("activation_checkpoint.check", c.Check, graph.CheckNames())
	for _, lists := range []struct {
		key, other  string
		list, names StringList
	}{{"save", "rerun", c.Save, c.Rerun}, {"save", "offload", c.Save, c.Offload}, {"rerun", "offload", c.Rerun, c.Offload}} {
		for _, name := range lists.list {
			if name != "" && slices.Contains(lists.names, name) {
				v.fail("activation_checkpoint."+lists.key, quote(name), "must not also be in activation_checkpoint."+lists.other, "remove it from one of the two")
			}
		}
	}
}

func (v *validator) initialLoad(c StateConfig) {
	for _, x := range []struct {
		key  string
		list StringList
	}{{"state.load_only", c.LoadOnly}, {"state.exclude_from_loading", c.ExcludeFromLoading}} {
		v.entries(x.key, x.list)
		if len(x.list) > 0 && c.InitialLoadPath == "" {
			v.fail(x.key, quote(x.list...), "needs state.initial_load_path, for a run loads all of its own state", "set that, or remove the list")
		}
	}
}

// fail records that key has an impossible value.
func (v *validator) fail(key string, value any, rule, fix string) {
	v.errs = append(v.errs, fmt.Errorf("train: config: %s: %s: %v; %s", key, rule, value, fix))
}

func (v *validator) nonEmpty(key, value, fix string) {
	if value == "" {
		v.fail(key, `""`, "must not be empty", fix)
	}
}

func (v *validator) entries(key string, list StringList) {
	if slices.Contains(list, "") {
		v.fail(key, quote(list...), "must not hold an empty string", "remove it")
	}
}

func (v *validator) atLeast(key string, value, least int, fix string) {
	if value < least {
		v.fail(key, value, fmt.Sprintf("must be at least %d", least), fix)
	}
}

func (v *validator) notBefore(key string, d Duration) {
	if d < 0 {
		v.fail(key, d, "must not be negative", `set a duration such as "5m", or "0s" to wait for ever`)
	}
}

// The comparisons are written so that NaN fails them.

func (v *validator) positive(key string, value float64, fix string) {
	if !(value > 0 && value <= math.MaxFloat64) {
		v.fail(key, value, "must be positive and finite", fix)
	}
}

func (v *validator) notNegative(key string, value float64, fix string) {
	if !(value >= 0 && value <= math.MaxFloat64) {
		v.fail(key, value, "must be 0 or more and finite", fix)
	}
}

func (v *validator) within(key string, value float64, closed bool, fix string) {
	switch {
	case closed && !(value >= 0 && value <= 1):
		v.fail(key, value, "must be within [0, 1]", fix)
	case !closed && !(value >= 0 && value < 1):
		v.fail(key, value, "must be within [0, 1)", fix)
	}
}

func (v *validator) oneOf(key, value string, known []string) {
	if slices.Contains(known, value) {
		return
	}
	fix := "known are " + quote(known...)
	if name, ok := nearest(value, known); ok {
		fix += fmt.Sprintf("; did you mean %q?", name)
	}
	v.fail(key, quote(value), "unknown name", fix)
}

func quote(names ...string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(quoted, ", ")
}
