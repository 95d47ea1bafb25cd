package train_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lethe-go/lethe/device"
	"github.com/lethe-go/lethe/train"
)

// A run on a shuffled mixture that is packed first-fit and prefetched, stopped in the
// middle of a block and resumed without prefetching, trains the bits of one that never
// stopped; and both those of a run that reads every batch when it needs it.
func TestResumeOfAMixture(t *testing.T) {
	c := tinyConfig(t)
	c.Training.Dataset = nil
	for i, name := range []string{"numbers.jsonl", "words.jsonl"} {
		file, err := os.Create(filepath.Join(c.Job.DumpFolder, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for j := range 200 {
			text := strings.Repeat([]string{fmt.Sprint(1000+j, " "), "word "}[i], 3+j%5)
			if err := json.NewEncoder(file).Encode(map[string]string{"text": text}); err != nil {
				t.Fatal(err)
			}
		}
		c.Training.Dataset = append(c.Training.Dataset, file.Name())
	}
	c.Training.DatasetWeights = train.NumberList{1, 3}
	c.Training.ShuffleWindow = 20
	c.Training.Packing = "first_fit"
	c.Training.GlobalBatchSize = 8

	whole := c
	whole.Job.DumpFolder, whole.Training.Prefetch, whole.State.Enable = t.TempDir(), 0, false
	reference := newTrainer(t, whole, train.Options{})
	want := steps(t, reference, 6)

	first := newTrainer(t, c, train.Options{})
	got := steps(t, first, 3)
	if err := first.Save(); err != nil {
		t.Fatal(err)
	}
	steps(t, first, 1) // is forgotten
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.Training.Prefetch = 1
	second := newTrainer(t, c, train.Options{})
	if second.Steps() != 3 {
		t.Fatalf("resumed at step %d", second.Steps())
	}
	got = append(got, steps(t, second, 3)...)
	padding := 0
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("step %d: %+v, want %+v", i+1, got[i], want[i])
		}
		padding += got[i].Padding
	}
	if padding == 0 {
		t.Error("first-fit has no padding")
	}
	if name := sameBits(parameters(reference), parameters(second)); name != "" {
		t.Errorf("%s differs", name)
	}
}

// Changing the mixture is not overlooked by a resume.
func TestResumeRefusesAnotherMixture(t *testing.T) {
	c := tinyConfig(t)
	r := newTrainer(t, c, train.Options{})
	steps(t, r, 1)
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	c.Training.Packing = "first_fit"
	_, err := train.New(context.Background(), c, train.Options{Model: tiny(device.Float32)})
	if err == nil || !strings.Contains(err.Error(), `saved with packing "concatenate", now "first_fit"`) {
		t.Errorf("got %v", err)
	}
}
