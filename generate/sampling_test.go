package generate

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/graph"
)

// logitsOf makes a tensor [1, vocab].
func logitsOf(t testing.TB, values ...float32) device.Tensor {
	t.Helper()
	dev, err := cpu.New(cpu.Options{Workers: 1})
	check(t, err)
	buffer, err := dev.Alloc(device.OnHost, int64(4*len(values)))
	check(t, err)
	t.Cleanup(func() {
		buffer.Free()
		dev.Close()
	})
	x := device.NewTensor(buffer, 0, device.Float32, 1, len(values))
	copy(device.Elements[float32](x), values)
	return x
}

var inf = float32(math.Inf(1))

// ln gives the logits of probabilities, shifted.
func ln(p ...float64) []float32 {
	out := make([]float32, len(p))
	for i, v := range p {
		out[i] = float32(math.Log(v) + 3)
	}
	return out
}

// TestFrequencies draws many tokens: Pearson's χ² against the probabilities that the
// definition gives stays under its 99.9 % quantile. The seed is fixed.
func TestFrequencies(t *testing.T) {
	const draws = 20_000
	half := func(p ...float64) []float64 { // temperature 2 takes roots
		sum := 0.0
		for i := range p {
			p[i] = math.Sqrt(p[i])
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	for _, x := range []struct {
		name     string
		sampling Sampling
		want     []float64
	}{
		{"all", Sampling{Temperature: 1}, []float64{0.1, 0.4, 0.2, 0.3}},
		{"temperature", Sampling{Temperature: 2}, half(0.1, 0.4, 0.2, 0.3)},
		{"top k", Sampling{Temperature: 1, TopK: 2}, []float64{0, 4.0 / 7, 0, 3.0 / 7}},
		{"top k of more than there are", Sampling{Temperature: 1, TopK: 9}, []float64{0.1, 0.4, 0.2, 0.3}},
		{"top p", Sampling{Temperature: 1, TopP: 0.75}, []float64{0, 4.0 / 9, 2.0 / 9, 3.0 / 9}},
		{"top p of all", Sampling{Temperature: 1, TopP: 1}, []float64{0.1, 0.4, 0.2, 0.3}},
		// Of the two best 4/7 is enough for one half: p counts what top k leaves.
		{"top k, then top p", Sampling{Temperature: 1, TopK: 2, TopP: 0.5}, []float64{0, 1, 0, 0}},
		{"temperature before top p", Sampling{Temperature: 2, TopP: 0.65}, []float64{0, 0.4142, 0.2290, 0.3568}},
	} {
		t.Run(x.name, func(t *testing.T) {
			logits := logitsOf(t, ln(0.1, 0.4, 0.2, 0.3)...)
			if x.name == "temperature before top p" {
				p := half(0.1, 0.4, 0.2, 0.3)
				kept := 1 - p[0] // the other three reach 0.65 together, two do not
				if p[1]+p[3] >= 0.65 {
					t.Fatal("the case is no test")
				}
				x.want = []float64{0, p[1] / kept, p[2] / kept, p[3] / kept}
			}
			x.sampling.Seed = 11
			s := newSampler(x.sampling, 4)
			counts := make([]float64, 4)
			for i := range draws {
				id, err := s.choose(logits, i)
				check(t, err)
				counts[id]++
			}
			chi := 0.0
			for id, p := range x.want {
				if p == 0 || p == 1 {
					if counts[id] != p*draws {
						t.Errorf("token %d was drawn %v times of %d, its probability is %v", id, counts[id], draws, p)
					}
					continue
				}
				chi += (counts[id] - p*draws) * (counts[id] - p*draws) / (p * draws)
			}
			if chi > 16.27 { // three degrees of freedom
				t.Errorf("χ² is %.1f: drew %v, want %v", chi, counts, x.want)
			}
		})
	}
}

func TestEdges(t *testing.T) {
	for _, x := range []struct {
		name     string
		sampling Sampling
		logits   []float32
		want     []int32 // that can be drawn
	}{
		{"greedy takes the lowest of equals", Sampling{}, []float32{1, 5, 5, 2}, []int32{1}},
		{"top 1 takes the lowest of equals", Sampling{Temperature: 1, TopK: 1}, []float32{1, 5, 5, 2}, []int32{1}},
		{"equals at the end of top k", Sampling{Temperature: 1, TopK: 2}, []float32{1, 5, 1, 1}, []int32{0, 1}},
		{"a tiny p leaves one", Sampling{Temperature: 1, TopP: 1e-300}, []float32{1, 5, 5, 2}, []int32{1}},
		{"equals within p", Sampling{Temperature: 1, TopP: 0.7}, []float32{0, 0, 0, 0}, []int32{0, 1, 2}},
		{"what is −Inf is never drawn", Sampling{Temperature: 100}, []float32{-inf, 0, -inf, 0}, []int32{1, 3}},
		{"a tiny temperature is greedy", Sampling{Temperature: math.SmallestNonzeroFloat64}, []float32{1, 5, 4.999, 2}, []int32{1}},
		{"a huge temperature is even", Sampling{Temperature: math.MaxFloat64}, []float32{-90, 90}, []int32{0, 1}},
		{"huge logits", Sampling{Temperature: 1}, []float32{-3e38, 3e38}, []int32{1}},
		{"one token", Sampling{Temperature: 1, TopK: 5, TopP: 0.1}, []float32{-7}, []int32{0}},
	} {
		s, logits := newSampler(x.sampling, len(x.logits)), logitsOf(t, x.logits...)
		seen := map[int32]bool{}
		for i := range 400 {
			id, err := s.choose(logits, i)
			check(t, err)
			seen[id] = true
		}
		for id := range int32(len(x.logits)) {
			if seen[id] != slices.Contains(x.want, id) {
				t.Errorf("%s: token %d drawn: %v, can be drawn: %v", x.name, id, seen[id], x.want)
			}
		}
	}
}

func TestBrokenLogits(t *testing.T) {
	for _, x := range []struct {
		logits []float32
		want   string
	}{
		{[]float32{1, float32(math.NaN())}, "the logit of token 1 is NaN"},
		{[]float32{inf, 0}, "the logit of token 0 is +Inf"},
		{[]float32{-inf, -inf}, "all tokens are -Inf"},
	} {
		for _, s := range []Sampling{{}, {Temperature: 1}, {Temperature: 1, TopK: 1, TopP: 0.5}} {
			if _, err := newSampler(s, 2).choose(logitsOf(t, x.logits...), 0); err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, %+v: %v, want %q", x.logits, s, err, x.want)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, s := range []Sampling{
		{Temperature: -1}, {Temperature: math.NaN()}, {Temperature: math.Inf(1)}, {TopK: -1}, {TopP: 1.01}, {TopP: -0.1}, {TopP: math.NaN()},
	} {
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "set ") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// Draws depend on seed and prompt alone, not on what was generated before.
func TestSeedDecides(t *testing.T) {
	g := newGenerator(t, newStore(t), grouped(2, device.Float32), Options{MaxSeqLen: 64})
	sampling := Sampling{Temperature: 1.5, TopK: 40, TopP: 0.95, Seed: 1}
	first := collect(t, g, prompt(4, 61), 40, sampling)
	if again := collect(t, g, prompt(4, 61), 40, sampling); !slices.Equal(first, again) {
		t.Errorf("the same seed gave %v and %v", first, again)
	}
	sampling.Seed = 2
	if other := collect(t, g, prompt(4, 61), 40, sampling); slices.Equal(first, other) {
		t.Errorf("two seeds gave %v", first)
	}
}

func TestTokensStops(t *testing.T) {
	g := newGenerator(t, newStore(t), grouped(2, device.Float32), Options{MaxSeqLen: 12})
	all := collect(t, g, prompt(4, 61), 100, Sampling{})
	if len(all) != 8 {
		t.Errorf("%d tokens fit behind a prompt of 4 in 12: %v", len(all), all)
	}
	end := slices.Index(all, all[4]) // where that token comes first
	if got := collect(t, g, prompt(4, 61), 100, Sampling{}, 999, all[4]); !slices.Equal(got, all[:end]) {
		t.Errorf("with the stop token %d: %v of %v", all[4], got, all)
	}
	if got := collect(t, g, prompt(12, 61), 5, Sampling{}); got != nil {
		t.Errorf("behind a full sequence: %v", got)
	}
	n := 0
	for range g.Tokens(context.Background(), prompt(4, 61), 5, Sampling{}) {
		if n++; n == 2 {
			break
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	reason, n := errors.New("enough"), 0
	for _, err := range g.Tokens(ctx, prompt(4, 61), 5, Sampling{}) {
		if n++; n == 3 {
			cancel(reason)
		}
		if (err != nil) != (n == 4) || err != nil && !errors.Is(err, reason) {
			t.Errorf("yield %d: %v", n, err)
		}
	}
	if n != 4 {
		t.Errorf("%d yields, want 3 tokens and the error", n)
	}
}

func TestRefusals(t *testing.T) {
	store := newStore(t)
	g := newGenerator(t, store, grouped(2, device.Float32), Options{MaxSeqLen: 8})
	for _, x := range []struct {
		prompt   []int32
		count    int
		sampling Sampling
		want     string
	}{
		{nil, 1, Sampling{}, "the prompt is empty"},
		{prompt(9, 61), 1, Sampling{}, "the prompt has 9 tokens, a sequence at most 8"},
		{[]int32{1, 61}, 1, Sampling{}, "the prompt's token 1 is 61: the model knows ids from 0 to 60"},
		{[]int32{-1}, 1, Sampling{}, "ids from 0 to 60"},
		{[]int32{1}, -1, Sampling{}, "max_tokens"},
		{[]int32{1}, 1, Sampling{TopK: -1}, "top_k"},
	} {
		n := 0
		for _, err := range g.Tokens(context.Background(), x.prompt, x.count, x.sampling) {
			if n++; err == nil || !strings.Contains(err.Error(), x.want) {
				t.Errorf("%v, want %q", err, x.want)
			}
		}
		if n != 1 {
			t.Errorf("%d yields, want the error %q", n, x.want)
		}
	}
	for _, o := range []Options{{}, {MaxSeqLen: 8, Chunk: 3}, {MaxSeqLen: 8, Chunk: -4}} {
		if _, err := New(store, grouped(2, device.Float32), o); err == nil || !strings.Contains(err.Error(), "; set ") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := New(newStore(t), forgetful{grouped(2, device.Float32)}, Options{MaxSeqLen: 8}); err == nil || !strings.Contains(err.Error(), "layers.0.attention.attention:0 has no cache") {
		t.Errorf("a model that does not use the cache: %v", err)
	}
	forced := latent(0, device.Float32)
	forced.ForceBalance = true
	if _, err := New(newStore(t), forced, Options{MaxSeqLen: 8}); err == nil || !strings.Contains(err.Error(), "ForceBalance") {
		t.Errorf("routing by column: %v", err)
	}
	bad := grouped(2, device.Float32)
	bad.Heads = 5
	if _, err := New(newStore(t), bad, Options{MaxSeqLen: 8}); err == nil || !strings.Contains(err.Error(), "5 Heads cannot share 2 KVHeads") {
		t.Errorf("%v", err)
	}
}

func TestBrokenParameters(t *testing.T) {
	store := newStore(t)
	g := newGenerator(t, store, grouped(2, device.Float32), Options{MaxSeqLen: 8})
	check(t, store.Allocate())
	device.Elements[float32](store.Variable("norm.weight").Tensor())[0] = float32(math.NaN())
	for _, err := range g.Tokens(context.Background(), prompt(3, 61), 5, Sampling{}) {
		if err == nil || !strings.Contains(err.Error(), "token at position 3: the logit of token 0 is NaN: the parameters are broken") {
			t.Errorf("%v", err)
		}
	}
}

// forgetful is a model that was not written for a cache.
type forgetful struct{ llama }

func (f forgetful) Logits(b *graph.Builder, in Inputs) graph.Value {
	in.Cache = nil
	return f.llama.Logits(b, in)
}
