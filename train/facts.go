package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/graph"
)

// This file lists what ranks compare before the first step.

// configFacts are the keys of a config. Machines may differ in their number of threads.
func configFacts(c Config) facts {
	c.Training.Threads = 0
	return facts{"config", func(yield func(string) bool) {
		text, err := c.TOML()
		if err != nil {
			yield(err.Error())
			return
		}
		section := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				section = strings.Trim(line, "[]")
			} else if line != "" && !yield(section+"."+line) {
				return
			}
		}
	}}
}

// facts of the Programs that this rank has compiled, and of where it begins.
func (r *rank) facts(ctx context.Context, t *Trainer) ([]facts, error) {
	start, err := r.startFacts(ctx, t)
	if err != nil {
		return nil, err
	}
	return []facts{configFacts(r.config), {"graph", r.programs.describeGraphs()}, {"plan", r.programs.describePlans()}, start}, nil
}

// named lists the Programs that are there with what they are called.
func (p *programs) named() iter.Seq2[string, *graph.Program] {
	return func(yield func(string, *graph.Program) bool) {
		for _, x := range []struct {
			name    string
			program *graph.Program
		}{{"first", p.first}, {"more", p.more}, {"last", p.last}, {"norm", p.norm}, {"update", p.update}, {"evaluate", p.evaluate}} {
			if x.program != nil && !yield(x.name, x.program) {
				return
			}
		}
	}
}

func (p *programs) describeGraphs() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, q := range p.named() {
			for line := range q.Graph.Describe() {
				if !yield(name + ": " + line) {
					return
				}
			}
		}
	}
}

func (p *programs) describePlans() iter.Seq[string] {
	return func(yield func(string) bool) {
		for name, q := range p.named() {
			for line := range q.Plan.Describe(q.Graph) {
				if !yield(name + ": " + line) {
					return
				}
			}
		}
	}
}

// startFacts are the step that is next, the kernels, and the data: where the loader stands,
// and what rank 0 would read first.
func (r *rank) startFacts(ctx context.Context, t *Trainer) (facts, error) {
	position, err := r.loader.AppendState(nil)
	if err != nil {
		return facts{}, fmt.Errorf("train: loader: %w", err)
	}
	first, err := r.hashFirstBatch(ctx, t.data, position)
	if err != nil {
		return facts{}, err
	}
	return facts{"start", func(yield func(string) bool) {
		_ = yield(fmt.Sprintf("step %d done", t.step)) &&
			yield(fmt.Sprintf("%s kernels", t.device.Level())) &&
			yield(fmt.Sprintf("data at %s", position)) &&
			yield(fmt.Sprintf("a first batch of rank 0 with hash %016x", first))
	}}, nil
}

func (r *rank) hashFirstBatch(ctx context.Context, d *dataset, position []byte) (uint64, error) {
	loader, err := d.source(ctx, r.config.Training, 0, r.layout.dataRanks())
	if err != nil {
		return 0, err
	}
	defer loader.Close()
	if err := loader.Restore(position); err != nil {
		return 0, fmt.Errorf("train: loader: %w", err)
	}
	var b data.Batch
	if err := loader.Next(ctx, &b); errors.Is(err, io.EOF) {
		return 0, nil
	} else if err != nil {
		return 0, err
	}
	return fingerprint(noFingerprint, &b), nil
}
