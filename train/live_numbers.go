package train

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lethe-go/lethe/moe"
)

// prometheusType is the content type of version 0.0.4 of the text format:
// prometheus.io/docs/instrumenting/exposition_formats.
const prometheusType = "text/plain; version=0.0.4; charset=utf-8"

// number is a float64 that one goroutine sets and others read.
type number struct{ bits atomic.Uint64 }

func (n *number) set(x float64) { n.bits.Store(math.Float64bits(x)) }
func (n *number) add(x float64) { n.set(n.get() + x) }
func (n *number) get() float64  { return math.Float64frombits(n.bits.Load()) }

// liveNumbers are what a run tells of itself while it is on. What sets them takes no lock
// and no memory, so that no reader can hold up a step.
type liveNumbers struct {
	labels string        // of what is trained
	lines  atomic.Uint64 // of metrics.jsonl that were written

	// By step; not a number before there is one.
	step, loss, gradNorm, learningRate number
	steps, seconds, tokens             number // sums

	// By line.
	memory, tps, flops, mfu, executed number
	validationLoss                    number

	layers []liveLayer
}

// liveLayer is how even the work of the experts of a layer was.
type liveLayer struct {
	name                  string
	maxViolation, entropy number
}

func newLiveNumbers(c Config, loads []moe.Load) *liveNumbers {
	n := &liveNumbers{labels: prometheusLabels("model", c.Model.Name, "flavor", c.Model.Flavor, "dtype", c.Training.DType, "activation_checkpoint", c.ActivationCheckpoint.Mode)}
	for _, x := range []*number{&n.loss, &n.gradNorm, &n.learningRate, &n.memory, &n.tps, &n.flops, &n.mfu, &n.executed, &n.validationLoss} {
		x.set(math.NaN())
	}
	n.layers = make([]liveLayer, len(loads))
	for i, l := range loads {
		n.layers[i].name = l.Layer
		n.layers[i].maxViolation.set(math.NaN())
		n.layers[i].entropy.set(math.NaN())
	}
	return n
}

func (n *liveNumbers) stepped(step int, r StepResult, took time.Duration) {
	n.step.set(float64(step))
	n.loss.set(r.Loss)
	n.gradNorm.set(r.GradNorm)
	n.learningRate.set(r.LearningRate)
	n.steps.add(1)
	n.seconds.add(took.Seconds())
	n.tokens.add(float64(r.Tokens))
}

// reported is called when the line has been written.
func (n *liveNumbers) reported(m Metrics) {
	n.memory.set(float64(m.MemoryBytes))
	n.tps.set(float64(m.TPS))
	n.flops.set(1e12 * float64(m.TFLOPS))
	n.mfu.set(float64(m.MFU) / 100)
	n.executed.set(1e12 * float64(m.ExecutedTFLOPS))
	for i, l := range m.ExpertLoad[:min(len(m.ExpertLoad), len(n.layers))] {
		n.layers[i].maxViolation.set(float64(l.MaxViolation))
		n.layers[i].entropy.set(float64(l.Entropy))
	}
	n.lines.Add(1)
}

func (n *liveNumbers) validated(e Evaluation) {
	n.validationLoss.set(e.Loss)
	n.lines.Add(1)
}

// prometheus is the numbers in the text format.
func (n *liveNumbers) prometheus() ([]byte, error) {
	var b bytes.Buffer
	w := prometheusWriter{&b}
	w.family("lethe_info", "gauge", "What is trained: 1.")
	w.sample("lethe_info", n.labels, 1)
	for _, g := range []struct {
		name, kind, help string
		value            *number
	}{
		{"lethe_step", "gauge", "Optimizer steps done.", &n.step},
		{"lethe_loss", "gauge", "Mean cross-entropy of a token over the last step, in nats.", &n.loss},
		{"lethe_grad_norm", "gauge", "L2 norm of the gradient of the last step, before clipping.", &n.gradNorm},
		{"lethe_learning_rate", "gauge", "Learning rate of the last step.", &n.learningRate},
		{"lethe_tokens_total", "counter", "Tokens trained since the process started, padding included.", &n.tokens},
		{"lethe_memory_bytes", "gauge", "High-water mark of memory between the last two lines of metrics.", &n.memory},
		{"lethe_tokens_per_second", "gauge", "Tokens a second between the last two lines of metrics.", &n.tps},
		{"lethe_model_flops_per_second", "gauge", "Operations of the model a second, without recomputation.", &n.flops},
		{"lethe_executed_flops_per_second", "gauge", "Operations a second that really ran.", &n.executed},
		{"lethe_mfu_ratio", "gauge", "Operations of the model as a part of the measured peak.", &n.mfu},
		{"lethe_validation_loss", "gauge", "Loss on held-out data, measured last.", &n.validationLoss},
	} {
		w.family(g.name, g.kind, g.help)
		w.sample(g.name, "", g.value.get())
	}
	w.family("lethe_step_seconds", "summary", "What optimizer steps took.")
	w.sample("lethe_step_seconds_sum", "", n.seconds.get())
	w.sample("lethe_step_seconds_count", "", n.steps.get())
	w.layers(n.layers, "lethe_expert_load_max_violation", "Load of the busiest expert of a layer over the mean, minus 1.", func(l *liveLayer) *number { return &l.maxViolation })
	w.layers(n.layers, "lethe_expert_load_entropy", "Entropy of the load of a layer's experts: 1 is even.", func(l *liveLayer) *number { return &l.entropy })
	return b.Bytes(), nil
}

type prometheusWriter struct{ *bytes.Buffer }

func (w prometheusWriter) family(name, kind, help string) {
	fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (w prometheusWriter) sample(name, labels string, value float64) {
	fmt.Fprintf(w, "%s%s %s\n", name, labels, strconv.FormatFloat(value, 'g', -1, 64))
}

func (w prometheusWriter) layers(layers []liveLayer, name, help string, of func(*liveLayer) *number) {
	if len(layers) == 0 {
		return
	}
	w.family(name, "gauge", help)
	for i := range layers {
		w.sample(name, prometheusLabels("layer", layers[i].name), of(&layers[i]).get())
	}
}

var prometheusEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// prometheusLabels are written from names and values in turns.
func prometheusLabels(pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		b.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&b, `%s="%s"`, pairs[i], prometheusEscapes.Replace(strings.ToValidUTF8(pairs[i+1], "�")))
	}
	return b.String() + "}"
}
