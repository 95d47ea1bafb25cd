package train

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lethe-go/lethe/moe"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// What a step tells takes no memory, and it waits for no reader: not for one that holds the
// page's lock for ever.
func TestPublishingWaitsForNobody(t *testing.T) {
	n := newLiveNumbers(DefaultConfig(), []moe.Load{{Layer: "layers.1.moe"}})
	page := n.report("")
	reading, release, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
	page.Make = func() ([]byte, error) {
		close(reading)
		<-release
		return nil, nil
	}
	go func() {
		page.Content()
		close(left)
	}()
	<-reading
	m := Metrics{Step: 1, ExpertLoad: []ExpertLoad{{Layer: "layers.1.moe", MaxViolation: 1, Entropy: 0.5}}}
	if allocs := testing.AllocsPerRun(100, func() {
		n.stepped(1, StepResult{Loss: 2, Tokens: 128}, time.Second)
		n.reported(m)
		n.validated(Evaluation{Loss: 3})
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	close(release)
	<-left
}

// Names are data in Prometheus' format, whatever they hold, and so are numbers that are none.
func TestPrometheusHostileNames(t *testing.T) {
	const hostile = "a\"} 1\nlethe_loss 7\n\\<script>\xff"
	n := newLiveNumbers(DefaultConfig(), []moe.Load{{Layer: hostile}})
	n.stepped(1, StepResult{Loss: math.NaN(), GradNorm: math.Inf(1)}, time.Second)
	text, err := n.prometheus()
	if err != nil {
		t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(string(text)))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if got, want := families["lethe_expert_load_entropy"].Metric[0].Label[0].GetValue(), strings.ToValidUTF8(hostile, "�"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if v := families["lethe_loss"].Metric[0].GetGauge().GetValue(); len(families["lethe_loss"].Metric) != 1 || !math.IsNaN(v) {
		t.Errorf("loss %v", families["lethe_loss"])
	}
	if v := families["lethe_grad_norm"].Metric[0].GetGauge().GetValue(); !math.IsInf(v, 1) {
		t.Errorf("grad_norm %v", v)
	}
}
