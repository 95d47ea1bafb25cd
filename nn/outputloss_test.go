package nn_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
	"github.com/lethe-go/lethe/nn"
)

// lossCase is an output loss over tokens × vocab with hidden states of a width.
type lossCase struct{ tokens, vocab, width int }

const lossScale = 0.25

func (c lossCase) labels(ignore int32) []int32 {
	labels := make([]int32, c.tokens)
	for i := range labels {
		labels[i] = int32(i * 7 % c.vocab)
		if i%5 == 2 {
			labels[i] = ignore
		}
	}
	return labels
}

// build declares hidden as a parameter and returns the loss.
func (c lossCase) build(b *graph.Builder, config nn.OutputLossConfig) {
	hidden := b.Parameter("hidden", device.Float64, graph.Normal{Std: 1}, c.tokens, c.width)
	labels := b.Input("labels", device.Int32, c.tokens)
	scale := b.Input("scale", device.Float64)
	config.Vocab, config.Init = c.vocab, graph.Normal{Std: 1}
	b.AddLoss("loss", nn.OutputLoss(b.Scope("output"), hidden, labels, scale, config))
}

func (c lossCase) feed(t *testing.T, m *graph.Machine, ignore int32) {
	t.Helper()
	check(t, graph.Feed(m, "labels", c.labels(ignore)))
	check(t, graph.Feed(m, "scale", []float64{lossScale}))
}

// naive computes the loss and its gradients from full logits.
func (c lossCase) naive(hidden, weight []float64, labels []int32, ignore int32) (loss float64, dhidden, dweight []float64) {
	dhidden, dweight = make([]float64, len(hidden)), make([]float64, len(weight))
	logits := make([]float64, c.vocab)
	for i, label := range labels {
		if label == ignore {
			continue
		}
		h, dh := hidden[i*c.width:][:c.width], dhidden[i*c.width:][:c.width]
		peak := math.Inf(-1)
		for v := range logits {
			logits[v] = 0
			for k, x := range h {
				logits[v] += x * weight[v*c.width+k]
			}
			peak = max(peak, logits[v])
		}
		sum := 0.0
		for _, l := range logits {
			sum += math.Exp(l - peak)
		}
		loss += lossScale * (math.Log(sum) + peak - logits[label])
		for v, l := range logits {
			g := lossScale * math.Exp(l-peak) / sum
			if v == int(label) {
				g -= lossScale
			}
			for k, x := range h {
				dh[k] += g * weight[v*c.width+k]
				dweight[v*c.width+k] += g * x
			}
		}
	}
	return loss, dhidden, dweight
}

func TestOutputLossAgainstFullLogits(t *testing.T) {
	for _, c := range []lossCase{
		{1, 13, 5}, {15, 13, 5}, {255, 13, 5}, {256, 13, 5}, {257, 13, 5}, {513, 1, 3}, {600, 37, 2},
		{17, 140_001, 1}, // so many classes that a block has the fewest tokens
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			for _, ignore := range []int32{nn.DefaultIgnore, 1 << 20} {
				store := newStore(t, 2)
				b := graph.New(store)
				config := nn.OutputLossConfig{Ignore: ignore}
				if ignore == nn.DefaultIgnore {
					config.Ignore = 0
				}
				c.build(b, config)
				for i, g := range b.Backward(b.Parameters()...) {
					b.Output([]string{"dhidden", "dweight"}[i], g)
				}
				m := newMachine(t, b)
				c.feed(t, m, ignore)
				run(t, m, 1)
				loss, dhidden, dweight := c.naive(values(store, "hidden"), values(store, "output.weight"), c.labels(ignore), ignore)
				near(t, "loss", []float64{m.Scalar("loss")}, []float64{loss})
				near(t, "dhidden", floats(m, "dhidden"), dhidden)
				near(t, "dweight", floats(m, "dweight"), dweight)
			}
		})
	}
}

// The loss from whole logits is the same.
func TestCrossEntropyOfLogitsIsOutputLoss(t *testing.T) {
	c := lossCase{300, 37, 6}
	store := newStore(t, 2)
	b := graph.New(store)
	hidden := b.Parameter("hidden", device.Float64, graph.Normal{Std: 1}, c.tokens, c.width)
	labels := b.Input("labels", device.Int32, c.tokens)
	logits := nn.OutputLogits(b.Scope("output"), hidden, nn.OutputLossConfig{Vocab: c.vocab})
	b.Output("losses", nn.CrossEntropy(logits, labels, 0))
	b.AddLoss("loss", graph.Sum(nn.CrossEntropy(logits, labels, 0)))
	for i, g := range b.Backward(b.Parameters()...) {
		b.Output([]string{"dhidden", "dweight"}[i], nn.Scale(g, b.Full(lossScale, device.Float64)))
	}
	m := newMachine(t, b)
	check(t, graph.Feed(m, "labels", c.labels(nn.DefaultIgnore)))
	run(t, m, 1)
	loss, dhidden, dweight := c.naive(values(store, "hidden"), values(store, "output.weight"), c.labels(nn.DefaultIgnore), nn.DefaultIgnore)
	near(t, "loss", []float64{m.Scalar("loss") * lossScale}, []float64{loss})
	near(t, "dhidden", floats(m, "dhidden"), dhidden)
	near(t, "dweight", floats(m, "dweight"), dweight)
	for i, l := range c.labels(nn.DefaultIgnore) {
		if got := floats(m, "losses")[i]; (l == nn.DefaultIgnore) != (got == 0) {
			t.Errorf("token %d with label %d has the loss %g", i, l, got)
		}
	}
}

func TestOutputLossWithoutBackwardComputesTheLossAlone(t *testing.T) {
	c := lossCase{300, 37, 6}
	store := newStore(t, 1)
	train, evaluate := graph.New(store), graph.New(store)
	c.build(train, nn.OutputLossConfig{})
	grads := train.Backward(train.Parameters()...)
	train.Output("dhidden", grads[0])
	train.Output("dweight", grads[1])
	c.build(evaluate, nn.OutputLossConfig{})
	a, b := newMachine(t, train), newMachine(t, evaluate)
	for _, m := range []*graph.Machine{a, b} {
		c.feed(t, m, nn.DefaultIgnore)
		run(t, m, 1)
	}
	near(t, "loss", []float64{b.Scalar("loss")}, []float64{a.Scalar("loss")})
	for _, s := range b.Program().Storages {
		if s.Edge.Node.Kind == "output_loss" && s.Edge.Out > 0 {
			t.Errorf("a program without backward holds output %d of the loss", s.Edge.Out)
		}
	}
}

// TestOutputLossOfOneGradient drops the product that nobody needs.
func TestOutputLossOfOneGradient(t *testing.T) {
	c := lossCase{300, 11, 3}
	store := newStore(t, 1)
	var want []float64
	for _, all := range []bool{true, false} {
		b := graph.New(store)
		c.build(b, nn.OutputLossConfig{})
		wrt := b.Parameters()
		if !all {
			wrt = wrt[1:]
		}
		grads := b.Backward(wrt...)
		b.Output("dweight", grads[len(grads)-1])
		m := newMachine(t, b)
		c.feed(t, m, nn.DefaultIgnore)
		run(t, m, 1)
		if all {
			want = floats(m, "dweight")
		} else {
			near(t, "dweight", floats(m, "dweight"), want)
		}
	}
}

func TestOutputLossRefusesLabels(t *testing.T) {
	c := lossCase{4, 5, 3}
	b := graph.New(newStore(t, 1))
	c.build(b, nn.OutputLossConfig{})
	m := newMachine(t, b)
	check(t, graph.Feed(m, "labels", []int32{0, 1, 5, 2}))
	check(t, graph.Feed(m, "scale", []float64{1}))
	wantRunError(t, m, "output.output_loss:0", "label 5", "[0, 5)")
}

func values(s *graph.Store, name string) []float64 {
	return device.Elements[float64](s.Variable(name).Tensor())
}

// near compares relative to the largest element.
func near(t *testing.T, what string, got, want []float64) {
	t.Helper()
	largest := 1.0
	for _, w := range want {
		largest = max(largest, math.Abs(w))
	}
	for i, w := range want {
		if !(math.Abs(got[i]-w) <= 1e-12*largest) {
			t.Errorf("%s, element %d: %g, want %g", what, i, got[i], w)
			return
		}
	}
}
