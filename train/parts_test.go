package train

import (
	"context"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/graph"
)

// The quickstart's model learns more than bigrams, and it takes attention as well as
// experts to do so: trained as long with the result of either held at zero, its loss is
// above what bigrams reach.
func TestQuickstartPartsMatter(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for a minute")
	}
	ctx := context.Background()
	c, err := LoadConfig("../configs/quickstart.toml", "--state.enable=false", "--job.dump_folder="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		silent  []string // suffixes of the parameters that are held at zero
		learned bool     // more than bigrams
	}{
		{"whole", nil, true},
		{"without attention", []string{".attention.wo.weight"}, false},
		{"without experts", []string{".experts.w2", ".shared_experts.w2.weight"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			trainer, err := New(ctx, c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer trainer.Close()
			for range c.Training.Steps {
				if n := silence(trainer.Store(), test.silent); n == 0 && test.silent != nil {
					t.Fatalf("no parameter ends in one of %q", test.silent)
				}
				if _, err := trainer.Step(ctx); err != nil {
					t.Fatal(err)
				}
			}
			silence(trainer.Store(), test.silent)
			e, err := trainer.Evaluate(ctx)
			if err != nil {
				t.Fatal(err)
			}
			entropy, err := data.MeasureEntropy(ctx, trainer.data.heldOut, trainer.data.tokenizer)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("held-out loss %.4f, bigram entropy %.4f", e.Loss, entropy.Bigram)
			if learned := e.Loss < entropy.Bigram; learned != test.learned {
				t.Errorf("held-out loss %.4f is below the bigram entropy %.4f: %v, want %v", e.Loss, entropy.Bigram, learned, test.learned)
			}
		})
	}
}

// silence sets the parameters with the suffixes to zero and returns their number.
func silence(s *graph.Store, suffixes []string) (n int) {
	for _, v := range s.Variables() {
		for _, suffix := range suffixes {
			if v.Kind == graph.Parameter && strings.HasSuffix(v.Name, suffix) {
				clear(device.Raw(v.Tensor()))
				n++
			}
		}
	}
	return n
}
