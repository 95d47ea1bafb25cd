package train

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/checkpoint"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// hostileName ends tags, attributes, strings and scripts wherever it is not escaped.
const hostileName = "</script><script>alert(1)</script>\" onload=\"alert(2)' --><img src=x onerror=alert(3)>\u2028${alert(4)}"

// hostile is a model all of whose names are hostileName.
type hostile struct{}

func (hostile) Name() string              { return hostileName }
func (hostile) Vocab() int                { return 257 }
func (hostile) Parameters() int64         { return 257 * 16 * 2 }
func (hostile) FLOPsPerToken(int) float64 { return 1 }

func (hostile) Build(b *graph.Builder, in Inputs, p Policies) {
	b = b.Scope(hostileName)
	x := nn.Embedding(b, in.Tokens, nn.EmbeddingConfig{Vocab: 257, Dim: 16, DType: device.Float32})
	checkpoint.Region(b, p.Layer, func() {
		x = checkpoint.Name(nn.RMSNorm(b.Scope("norm"), x, 1e-5), hostileName)
		x = nn.Mul(x, b.Parameter(hostileName, device.Float32, graph.Constant(1), x.Shape()...))
	})
	b.AddLoss("cross_entropy", nn.OutputLoss(b.Scope("output"), x, in.Labels, in.Scale, nn.OutputLossConfig{Vocab: 257}))
}

// inert checks that a page has no script but its own, and shows the name as text.
func inert(t *testing.T, page string) {
	t.Helper()
	if n := strings.Count(page, "<script"); n != strings.Count(page, "</script>") || n != 1+strings.Count(page, `<script type="application/json">`) {
		t.Errorf("%d scripts, %d ends", n, strings.Count(page, "</script>"))
	}
	for _, never := range []string{`" onload="`, "<img", "-->", "ZgotmplZ"} {
		if strings.Contains(page, never) {
			t.Errorf("%q on the page", never)
		}
	}
	if !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Error("the name is not shown")
	}
	// What the page's script reads is JSON, and no string of it ends its element.
	for rest := page; ; {
		_, after, found := strings.Cut(rest, `<script type="application/json">`)
		if !found {
			break
		}
		text, more, _ := strings.Cut(after, "</script>")
		if rest = more; !json.Valid([]byte(text)) {
			t.Errorf("not JSON: %.200q", text)
		}
	}
}

// Every series has a color: the memory of a step is drawn by more uses than anything else.
func TestSeriesHaveColors(t *testing.T) {
	c := DefaultConfig()
	c.Training.Dataset, c.Training.SeqLen = StringList{"moby_dick"}, 16
	plan, err := PlanReportFor(c, Options{Model: hostile{}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := plan.WriteHTML(&b, c); err != nil {
		t.Fatal(err)
	}
	series := regexp.MustCompile(`class="(c\d+)\b`).FindAllStringSubmatch(b.String(), -1)
	if len(series) < 7 {
		t.Fatalf("%d series", len(series))
	}
	for _, s := range series {
		if !strings.Contains(b.String(), "."+s[1]+" { --c: ") {
			t.Errorf("no color of %s", s[1])
		}
	}
}

// Names are text wherever they stand, in HTML, attributes and JSON: those of a model's
// parameters, scopes, regions and tags, on the page of its plan and of its run.
func TestHostileNamesAreInert(t *testing.T) {
	c := DefaultConfig()
	c.Job.DumpFolder = t.TempDir()
	c.Training.Dataset, c.Training.SeqLen, c.Training.LocalBatchSize, c.Training.Steps = StringList{"moby_dick"}, 16, 2, 3
	c.Metrics.LogFreq = 1
	c.Profiling.EnableProfiling, c.Profiling.ProfileFreq = true, 3
	plan, err := PlanReportFor(c, Options{Model: hostile{}})
	if err != nil {
		t.Fatal(err)
	}
	plan.Costs = "/home/somebody/lethe/costs/avx2.json" // no page for others tells where somebody keeps things
	var b strings.Builder
	if err := plan.WriteHTML(&b, c); err != nil {
		t.Fatal(err)
	}
	inert(t, b.String())
	if strings.Contains(b.String(), "somebody") || !strings.Contains(b.String(), "costs of operations: avx2.json") {
		t.Error("the page has the folder of the costs, or not their name")
	}

	runConfig(t, c, Options{Model: hostile{}, Hooks: []Hook{{Priority: -1, AfterStep: func(_ context.Context, t *Trainer, _ StepResult) error {
		if t.Steps() == 1 {
			t.ranks[0].machines.first.Trace(asker{func(index int) {
				if index == 2 {
					t.Snapshot(hostileName)
				}
			}})
		}
		return nil
	}}}})
	inert(t, report(t, c.Job.DumpFolder))
	inert(t, report(t, c.Job.DumpFolder, syntheticRun(t, 20, 2, hostileName)))
}
