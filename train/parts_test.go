package train

import (
	"context"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/graph"
)

// The quickstart's model learns more than bigrams, and it takes attention as well as
// experts to do so: with the results of either replaced by zero the loss is above what
// bigrams reach.
func TestQuickstartPartsMatter(t *testing.T) {
	if testing.Short() {
		t.Skip("trains for half a minute")
	}
	ctx := context.Background()
	c, err := LoadConfig("../configs/quickstart.toml", "--training.steps=220", "--state.enable=false",
		"--validation.steps=20", "--job.dump_folder="+t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := New(ctx, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	for range c.Training.Steps {
		if _, err := trainer.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	entropy, err := data.MeasureEntropy(ctx, trainer.data.heldOut, trainer.data.tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	loss := func() float64 {
		e, err := trainer.Evaluate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return e.Loss
	}
	if whole := loss(); whole >= entropy.Bigram {
		t.Errorf("held-out loss %.4f is not below the bigram entropy %.4f", whole, entropy.Bigram)
	}
	for part, suffixes := range map[string][]string{
		"attention": {".attention.wo.weight"},
		"experts":   {".experts.w2", ".shared_experts.w2.weight"},
	} {
		restore := silence(trainer.Store(), suffixes)
		without := loss()
		if restore() == 0 {
			t.Fatalf("no parameter of %s", part)
		}
		t.Logf("held-out loss without %s: %.4f", part, without)
		if without < entropy.Bigram {
			t.Errorf("held-out loss without %s is %.4f, below the bigram entropy %.4f: it does not matter", part, without, entropy.Bigram)
		}
	}
}

// silence sets the parameters with the suffixes to zero. The returned function brings
// their values back and says how many there were.
func silence(s *graph.Store, suffixes []string) (restore func() int) {
	saved := map[*graph.Variable][]byte{}
	for _, v := range s.Variables() {
		for _, suffix := range suffixes {
			if v.Kind == graph.Parameter && strings.HasSuffix(v.Name, suffix) {
				saved[v] = append([]byte(nil), memory(v)...)
				clear(memory(v))
			}
		}
	}
	return func() int {
		for v, bytes := range saved {
			copy(memory(v), bytes)
		}
		return len(saved)
	}
}
