package generate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
)

// TestCacheEqualsWholeForward is greedy generation with the cache, the prompt in one
// chunk and in several, against a forward pass over the whole sequence for each token.
// Under grouped-query attention the logits are the same bits.
func TestCacheEqualsWholeForward(t *testing.T) {
	const count = 70
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			_, exact := m.(llama)
			whole := newGenerator(t, store, m, Options{MaxSeqLen: 200, NoCache: true})
			lengths := []int{1, 23, 103}
			if strings.Contains(name, "float64") {
				lengths = []int{23} // its kernels are plain Go
			}
			for _, n := range lengths {
				want, wantLogits := greedy(t, whole, prompt(n, m.Vocab()), count)
				for _, chunk := range []int{8, 128} {
					g := newGenerator(t, store, m, Options{MaxSeqLen: 200, Chunk: chunk})
					got, logits := greedy(t, g, prompt(n, m.Vocab()), count)
					what := fmt.Sprintf("%d tokens in chunks of %d", n, chunk)
					compareLogits(t, what, logits, wantLogits, exact)
					if !slices.Equal(got, want) {
						t.Errorf("%s: with the cache\n%v, without\n%v", what, got, want)
					}
					if again := collect(t, g, prompt(n, m.Vocab()), count, Sampling{}); !slices.Equal(again, want) {
						t.Errorf("%s: Tokens yields\n%v, want\n%v", what, again, want)
					}
				}
			}
		})
	}
}

// greedy also returns the logits of every choice.
func greedy(t *testing.T, g *Generator, sequence []int32, count int) (ids []int32, logits [][]float64) {
	t.Helper()
	s, done := newSampler(Sampling{}, g.model.Vocab()), 0
	for range count {
		p, err := g.advance(context.Background(), sequence, done)
		check(t, err)
		id, err := s.choose(p.logits, len(sequence))
		check(t, err)
		logits = append(logits, floats(p.logits))
		done = len(sequence)
		sequence, ids = append(sequence, id), append(ids, id)
	}
	return ids, logits
}

func floats(x device.Tensor) []float64 {
	if x.DType() == device.Float64 {
		return slices.Clone(device.Elements[float64](x))
	}
	var out []float64
	for _, v := range device.Elements[float32](x) {
		out = append(out, float64(v))
	}
	return out
}

// mostError bounds how far logits computed in another order may be apart, in parts of
// the largest: float32 has 24 bits, and errors grow through few small layers. The two
// best logits of every choice must be further apart than twice that, or a greedy choice
// would be a matter of luck.
const mostError = 1e-5

func compareLogits(t *testing.T, what string, got, want [][]float64, exact bool) {
	t.Helper()
	for i := range want {
		size := 0.0
		for _, v := range want[i] {
			size = max(size, math.Abs(v))
		}
		worst := 0.0
		for j, v := range want[i] {
			worst = max(worst, math.Abs(got[i][j]-v))
		}
		if exact && worst != 0 || !(worst <= mostError*size) {
			t.Fatalf("%s: the logits of token %d differ by %g of %g", what, i, worst, size)
		}
		sorted := slices.Sorted(slices.Values(want[i]))
		if margin := sorted[len(sorted)-1] - sorted[len(sorted)-2]; !exact && margin <= 2*mostError*size {
			t.Fatalf("%s: the best logits of token %d are only %g apart: choose another seed", what, i, margin)
		}
	}
}

// A shorter sequence after a longer one reads nothing that the longer one left.
func TestSequencesDoNotSeeEachOther(t *testing.T) {
	for _, m := range []Model{grouped(2, device.Float32), latent(0, device.Float32)} {
		store := newStore(t)
		g := newGenerator(t, store, m, Options{MaxSeqLen: 64})
		want := collect(t, g, prompt(5, 61), 20, Sampling{})
		collect(t, g, []int32{60, 1, 60, 1, 60, 1, 60, 1, 60, 1}, 50, Sampling{})
		if got := collect(t, g, prompt(5, 61), 20, Sampling{}); !slices.Equal(got, want) {
			t.Errorf("after another sequence %v, before it %v", got, want)
		}
	}
}

// The latent cache is what the paper counts: KVLoRA+RoPEDims elements a token and layer.
func TestCacheSize(t *testing.T) {
	for _, x := range []struct {
		m       Model
		element int
	}{{grouped(2, device.Float32), 2 * (2 * 2 * 8)}, {latent(0, device.Float32), 3 * (24 + 8)}} {
		store := newStore(t)
		newGenerator(t, store, x.m, Options{MaxSeqLen: 100})
		n := 0
		for _, v := range store.Variables() {
			if strings.Contains(v.Name, ".cache.") {
				n += v.Spec.Len()
			}
		}
		if n != 100*x.element {
			t.Errorf("%T: the cache of 100 tokens has %d elements, want %d", x.m, n, 100*x.element)
		}
	}
}
