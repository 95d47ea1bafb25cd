package modeltest

import (
	"fmt"
	"math"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// Setup returns the golden's run, which lacks a Build.
func (g *Golden[C]) Setup(t *testing.T, vocab int, dtype device.DType) Setup {
	t.Helper()
	s := Setup{DType: dtype, Batch: g.Draw(vocab), Seed: g.Seed}
	documents := 0
	for _, p := range s.Batch.Positions {
		if p == 0 {
			documents++
		}
	}
	if s.Batch.Valid != g.Labels || documents != g.Documents {
		t.Fatalf("batch of %d labels and %d documents, golden has %d and %d", s.Batch.Valid, documents, g.Labels, g.Documents)
	}
	return s
}

// Check makes a pass of m and compares initial parameters, the loss and all gradients.
// What differs may be tolerance of a tensor's norm or of the loss.
func (g *Golden[C]) Check(t *testing.T, m *Model, dtype device.DType, tolerance float64) {
	t.Helper()
	if len(m.Names) != len(g.Parameters) {
		t.Errorf("%d parameters, PyTorch has %d", len(m.Names), len(g.Parameters))
	}
	for name, want := range g.Parameters {
		g.checkInitial(t, m, name, want, dtype)
	}
	if t.Failed() {
		t.Fatal("parameters differ: no use to compare more")
	}
	worst := Difference{Limit: tolerance}
	worst.Add(t, "loss", m.Pass(t, 1), g.Loss, g.Loss)
	worst.Add(t, "gradient norm", m.GradNorm(), g.GradNorm, g.GradNorm)
	for name, want := range g.Parameters {
		gradient := m.Gradient(name)
		worst.Add(t, name+": norm", Norm(gradient), want.GradNorm, want.GradNorm)
		worst.Add(t, name+": projection", g.projection(name, gradient), want.GradProjection, want.GradNorm)
		for i, v := range g.Samples(name, gradient, len(want.GradSamples)) {
			worst.Add(t, fmt.Sprintf("%s: sample %d", name, i), v, want.GradSamples[i], want.GradNorm)
		}
	}
	t.Logf("loss %.12f, worst difference %v", m.Scalar("cross_entropy"), worst)
}

// checkInitial demands the same parameters, to the last bit of the dtype or,
// since inverse error functions differ, a few.
func (g *Golden[C]) checkInitial(t *testing.T, m *Model, name string, want Parameter, dtype device.DType) {
	v := m.Store.Variable(name)
	if v == nil {
		t.Errorf("no parameter %s", name)
		return
	}
	if fmt.Sprint(v.Global) != fmt.Sprint(want.Shape) {
		t.Errorf("%s is %v, PyTorch's is %v", name, v.Global, want.Shape)
		return
	}
	for i, v := range g.Samples(name, m.Parameter(name), len(want.Initial)) {
		w := want.Initial[i]
		ulp := math.Nextafter(math.Abs(w), math.Inf(1)) - math.Abs(w)
		limit := 8 * ulp
		if dtype == device.Float32 {
			w = float64(float32(w))
			limit = float64(math.Nextafter32(float32(math.Abs(w)), 10)) - math.Abs(w)
		}
		if math.Abs(v-w) > limit {
			t.Errorf("%s: initial sample %d is %v, PyTorch's is %v: %v apart", name, i, v, w, v-w)
		}
	}
}

// Difference keeps the largest share of what differs.
type Difference struct {
	Limit float64
	share float64
	what  string
}

// Add holds have against want, with their difference as a share of size.
func (d *Difference) Add(t *testing.T, what string, have, want, size float64) {
	t.Helper()
	share := math.Abs(have-want) / size
	if !(share <= d.Limit) {
		t.Errorf("%s is %v, PyTorch's is %v: differs by %.1e of the norm, the limit is %.0e", what, have, want, share, d.Limit)
	}
	if share > d.share {
		d.share, d.what = share, what
	}
}

func (d Difference) String() string { return fmt.Sprintf("%.1e (%s)", d.share, d.what) }
