package generate

import (
	"context"
	"slices"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/device/cpu"
	"github.com/lethe-go/lethe/device/instrument"
	"github.com/lethe-go/lethe/graph"
)

// TestPeakIsPredicted measures the Programs of prefill and decoding on a device that
// sees only which bytes kernels touch, and runs them again with every dead byte NaN.
func TestPeakIsPredicted(t *testing.T) {
	for name, m := range map[string]Model{"GQA": grouped(2, device.Float32), "MLA": latent(20, device.Float32)} {
		t.Run(name, func(t *testing.T) {
			dev, err := cpu.New(cpu.Options{Workers: 2})
			check(t, err)
			defer dev.Close()
			store := graph.NewStore(instrument.Wrap(dev), graph.StoreOptions{Seed: 3})
			defer store.Close()
			g := newGenerator(t, store, m, Options{MaxSeqLen: 64, Chunk: 16})
			sequence := prompt(21, 61)
			want, _ := greedy(t, g, sequence, 1)
			done := 0
			for _, n := range []int{16, 4, 1} {
				p, err := g.run(context.Background(), n, sequence[done:done+n], done)
				check(t, err)
				before := floats(p.logits)
				seen, err := graph.Measure(context.Background(), p.machine, graph.RunOptions{Step: 1})
				check(t, err)
				if planned := p.program.Memory(nil).Peak; seen.Peak != planned {
					t.Errorf("%d tokens: measured a peak of %d bytes, predicted %d", n, seen.Peak, planned)
				}
				check(t, p.machine.Run(context.Background(), graph.RunOptions{Step: 1}))
				if got := floats(p.logits); !slices.Equal(got, before) {
					t.Errorf("%d tokens: with dead memory poisoned the logits differ", n)
				}
				store.Device().(*instrument.Device).Poison(instrument.Measurement{})
				done += n
			}
			if id, err := newSampler(Sampling{}, 61).choose(g.passes[1].logits, done); err != nil || id != want[0] {
				t.Errorf("the token is %d, %v, want %d", id, err, want[0])
			}
		})
	}
}

func TestDecodingAllocatesNothing(t *testing.T) {
	for name, m := range map[string]Model{"GQA": grouped(2, device.Float32), "MLA": latent(0, device.Float32)} {
		g := newGenerator(t, newStore(t), m, Options{MaxSeqLen: 128})
		s := newSampler(Sampling{Temperature: 1, TopK: 20, TopP: 0.9}, m.Vocab())
		sequence := append(make([]int32, 0, 128), prompt(9, 61)...)
		step := func() {
			p, err := g.advance(context.Background(), sequence, len(sequence)-1)
			check(t, err)
			id, err := s.choose(p.logits, len(sequence))
			check(t, err)
			sequence = append(sequence, id)
		}
		_, err := g.advance(context.Background(), sequence, 0)
		check(t, err)
		step()
		if n := testing.AllocsPerRun(50, step); n != 0 {
			t.Errorf("%s: a token allocates %v times", name, n)
		}
	}
}

// BenchmarkCache compares a token behind a long sequence with and without the cache; the
// ratio is what the cache saves.
func BenchmarkCache(b *testing.B) {
	for name, m := range map[string]Model{"GQA": grouped(2, device.Float32), "MLA": latent(0, device.Float32)} {
		b.Run(name, func(b *testing.B) {
			store := newStore(b)
			sequence := prompt(256, 61)
			seconds := map[bool]float64{}
			for _, noCache := range []bool{false, true} {
				g := newGenerator(b, store, m, Options{MaxSeqLen: 256, NoCache: noCache})
				step := func(done int) {
					if _, err := g.advance(context.Background(), sequence, done); err != nil {
						b.Fatal(err)
					}
				}
				step(0)
				step(255)
				b.ResetTimer()
				for range b.N {
					step(255)
				}
				seconds[noCache] = b.Elapsed().Seconds() / float64(b.N)
			}
			b.ReportMetric(seconds[false]*1e6, "µs/cached")
			b.ReportMetric(seconds[true]*1e6, "µs/uncached")
			b.ReportMetric(seconds[true]/seconds[false], "uncached/cached")
		})
	}
}
