package train

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/lethe-go/lethe/collective/flight"
)

// Metrics is what is reported about one optimizer step. In metrics.jsonl it is
// one JSON object per line with these keys; a float64 that JSON has no number
// for is one of the strings "NaN", "Infinity", "-Infinity".
//
// Loss and GradNorm may be float32 numbers: they are written with the digits
// that bring back the same float64, and so the same float32, bit for bit.
type Metrics struct {
	// Step is the optimizer step, from 1.
	Step int `json:"step"`
	// Loss is the mean cross-entropy of a token over the whole step, in nats.
	Loss Float `json:"loss"`
	// GradNorm is the global L2 norm of the gradient before clipping.
	GradNorm Float `json:"grad_norm"`
	// MemoryBytes is the high-water mark of memory since the last line.
	MemoryBytes int64 `json:"memory_bytes"`
	// MemoryPct is MemoryBytes in percent of what this process may use.
	MemoryPct Float `json:"memory_pct"`
	// TPS is tokens per second since the last line.
	TPS Float `json:"tps"`
	// TFLOPS counts model FLOPs, 10¹² a second: no causal discount and no
	// recomputation, so that it compares with other tools.
	TFLOPS Float `json:"tflops"`
	// MFU is TFLOPS in percent of the peak measured with the same number of
	// threads. NaN if it is not measured: shown as N/A.
	MFU Float `json:"mfu"`
	// ExecutedTFLOPS counts the FLOPs that really ran, 10¹² a second.
	ExecutedTFLOPS Float `json:"executed_tflops"`
	// SavedBytes is what the forward pass of a microbatch keeps for backward.
	SavedBytes int64 `json:"saved_bytes"`
	// RecomputedFLOPs is what the step computed a second time.
	RecomputedFLOPs int64 `json:"recomputed_flops"`
	// HostSyncs counts how often the first rank waited in the step for its device, so that
	// the host could read a result; HostSyncsByPass are the parts of that sum.
	HostSyncs       int64         `json:"host_syncs"`
	HostSyncsByPass ByPass[int64] `json:"host_syncs_by_pass"`
	// Collectives of the step's Programs on the first rank, by kind, such as "all_to_all";
	// kinds that were not called are not there.
	Collectives map[string]ByPass[flight.Count] `json:"collectives"`
	// ExposedSeconds is the time since the last line in which the first rank computed
	// nothing, for a Program waited for a collective.
	ExposedSeconds Float `json:"exposed_seconds"`
	// OffloadedBytes and ReloadedBytes are what the step's microbatches moved to a file and
	// back on the first rank, and OffloadExposedSeconds the time since the last line in which
	// it computed nothing, for it waited for that; not there if nothing is offloaded.
	OffloadedBytes        int64 `json:"offloaded_bytes,omitempty"`
	ReloadedBytes         int64 `json:"reloaded_bytes,omitempty"`
	OffloadExposedSeconds Float `json:"offload_exposed_seconds,omitempty"`
	// Seconds is the time since the last line.
	Seconds Float `json:"seconds"`
	// ExpertLoad is how even the work of experts was in this step, layer by layer; not
	// there for a model without experts.
	ExpertLoad []ExpertLoad `json:"expert_load,omitempty"`
}

// ExpertLoad is how even the work of the experts of a layer was, over all ranks.
type ExpertLoad struct {
	// Layer is its fully qualified name, such as "layers.3.moe".
	Layer string `json:"layer"`
	// MaxViolation is the load of the busiest expert over the mean, minus 1: 0 is even.
	MaxViolation Float `json:"max_violation"`
	// Entropy of the load, as a part of the largest possible: 1 is even, 0 is all on
	// one expert.
	Entropy Float `json:"entropy"`
}

// ValidationMetrics is what is reported about one measurement of held-out data: a line
// of its own in metrics.jsonl, told from others by its keys.
type ValidationMetrics struct {
	// Step is the number of optimizer steps that were made before it.
	Step int `json:"step"`
	// Loss is the mean cross-entropy over the predictions, in nats.
	Loss Float `json:"validation_loss"`
	// Predictions is the number of labels measured.
	Predictions int64 `json:"validation_predictions"`
}

// String is the line on the console, in torchtitan's format:
//
//	step:  1  loss:  7.62811  grad_norm:  1.8420  memory:  0.42GiB(1.82%)  tps: 3,214  tflops: 0.18  mfu: 43.12%
func (m Metrics) String() string {
	mfu := "N/A"
	if !math.IsNaN(float64(m.MFU)) {
		mfu = fmt.Sprintf("%.2f%%", m.MFU)
	}
	return fmt.Sprintf("step: %2d  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %s  tflops: %s  mfu: %s",
		m.Step, m.Loss, m.GradNorm, float64(m.MemoryBytes)/(1<<30), m.MemoryPct,
		groupThousands(float64(m.TPS), 0), groupThousands(float64(m.TFLOPS), 2), mfu)
}

// groupThousands prints x with commas between groups of three digits.
func groupThousands(x float64, decimals int) string {
	text := strconv.FormatFloat(x, 'f', decimals, 64)
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return text
	}
	sign := ""
	if text[0] == '-' {
		sign, text = "-", text[1:]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	return sign + whole
}

// Float is a float64 in JSON that may be NaN or infinite, written as protobuf
// writes them: "NaN", "Infinity", "-Infinity". Every other value comes back with
// the same bits, -0 included.
type Float float64

// MarshalJSON implements [encoding/json.Marshaler].
func (f Float) MarshalJSON() ([]byte, error) {
	x := float64(f)
	switch {
	case math.IsNaN(x):
		return []byte(`"NaN"`), nil
	case math.IsInf(x, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(x, -1):
		return []byte(`"-Infinity"`), nil
	}
	return strconv.AppendFloat(nil, x, 'g', -1, 64), nil
}

// UnmarshalJSON implements [encoding/json.Unmarshaler].
func (f *Float) UnmarshalJSON(text []byte) error {
	switch string(text) {
	case `"NaN"`:
		*f = Float(math.NaN())
	case `"Infinity"`:
		*f = Float(math.Inf(1))
	case `"-Infinity"`:
		*f = Float(math.Inf(-1))
	default:
		// JSON's grammar is checked before; this excludes the quoted rest.
		x, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return fmt.Errorf("not a number: %s", text)
		}
		*f = Float(x)
	}
	return nil
}
