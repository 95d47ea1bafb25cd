package train

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/data/corpus"
)

// announce prints, before the first step, what is trained on what and how.
func (l *loop) announce(ctx context.Context) error {
	c := l.config
	l.print("model:   %s, %s parameters, %s", l.model.Name(), groupThousands(float64(l.model.Parameters()), 0), c.Training.DType)
	text, err := l.describeData(ctx)
	if err != nil {
		return err
	}
	l.print("data:    %s", text)
	ranks := l.layout.ranks()
	l.print("batch:   %d × %d tokens in %d microbatches, %d steps", l.layout.dataRanks()*c.Training.LocalBatchSize*c.Training.Microbatches(), c.Training.SeqLen, c.Training.Microbatches(), c.Training.Steps)
	if ranks > 1 {
		l.print("layout:  %d ranks (%s): data_parallel_replicate_degree %d, data_parallel_shard_degree %d, expert_parallel_degree %d, tensor_parallel_degree %d; memory below is that of one, at most",
			ranks, c.Parallelism.Backend, l.layout.replicas, l.layout.shards, l.layout.experts, l.layout.tensors)
	}
	copied := ""
	if n := l.stagingBytes(); n > 0 {
		copied = fmt.Sprintf(" + %s copy of the state", formatBytes(n))
	}
	if n := l.ringBytes(); n > 0 {
		copied += fmt.Sprintf(" + %s of buffers to offload", formatBytes(n))
	}
	l.print("plan:    activation_checkpoint.mode=%s: predicted peak %s (%s persistent + %s arena%s), %s saved for backward, %s recomputed a step (%.1f%% of forward)",
		c.ActivationCheckpoint.Mode, formatBytes(l.PredictedBytes()), formatBytes(l.Store().Bytes()), formatBytes(l.usage.peakBytes), copied,
		formatBytes(l.usage.savedBytes), formatFLOPs(l.usage.recomputedFLOPs), l.usage.recomputedPct())
	if l.costNote != "" {
		l.print("costs:   %s", l.costNote)
	}
	if n := l.usage.offloadedBytes; n > 0 {
		l.print("offload: %s of a microbatch wait in a file in %s", formatBytes(n), c.OffloadPath())
	}
	if n := l.usage.checkBytes; n > 0 {
		l.print("check:   activation_checkpoint.check=%s keeps copies of %s beside the plan", c.ActivationCheckpoint.Check, formatBytes(n))
	}
	peak := "no peak is measured for " + c.Training.DType
	if !math.IsNaN(l.peak) {
		peak = fmt.Sprintf("peak %s/s (measured: %s)", formatFLOPs(l.peak), l.peakOf)
	}
	l.print("device:  %s, %s kernels, %d threads, %s", l.device.Name(), l.device.Level(), l.device.Workers(), peak)
	l.warn(l.warnings...)
	switch {
	case l.step >= c.Training.Steps:
		l.print("resume:  the state is at step %d of %d: there is nothing left to train", l.step, c.Training.Steps)
	case l.step > 0:
		l.print("resume:  after step %d of %d", l.step, c.Training.Steps)
	}
	return nil
}

func (l *loop) describeData(ctx context.Context) (string, error) {
	if own := l.data.own; own != nil {
		return own.Name, nil
	}
	text := ""
	var sources []data.Source
	for _, p := range l.data.train {
		sources = append(sources, p.Source)
	}
	if l.data.heldOut != nil {
		sources = append(sources, l.data.heldOut)
	}
	shares := l.data.shares()
	for i, s := range sources {
		tokens, all, err := l.data.countTokens(ctx, s)
		if err != nil {
			return "", err
		}
		if text != "" {
			text += "; "
		}
		count := groupThousands(float64(tokens), 0)
		if !all {
			count = "more than " + count
		}
		text += fmt.Sprintf("%s: %d documents, %s tokens", s.Name(), s.Len(), count)
		if i < len(shares) && len(shares) > 1 {
			text += fmt.Sprintf(", %.1f%% of those trained", 100*shares[i])
		}
	}
	if names := l.config.Training.Dataset; len(names) == 1 && slices.Contains(corpus.Names(), names[0]) {
		t, err := corpus.Lookup(names[0])
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(" (%s, %s, %d)", t.Title, t.Author, t.Year)
	}
	return text, nil
}

// verdict holds the final loss against what bigrams of the text would reach.
func (l *loop) verdict(ctx context.Context, e Evaluation) error {
	entropy, err := data.MeasureEntropy(ctx, l.data.heldOut, l.data.tokenizer)
	if err != nil {
		return err
	}
	relation := "below"
	if e.Loss >= entropy.Bigram {
		relation = "not below"
	}
	part := ""
	if !e.Complete {
		part = " (measured on a part of it: validation.steps)"
	}
	l.print("held-out loss %.4f nats a byte is %s the byte-bigram entropy of the held-out text, %.4f%s", e.Loss, relation, entropy.Bigram, part)
	return nil
}

func formatBytes(n int64) string {
	return scaled(float64(n), 1<<10, "B", "KiB", "MiB", "GiB", "TiB")
}

func formatFLOPs(n float64) string {
	return scaled(n, 1000, "FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")
}

// scaled prints x in the largest unit that leaves a whole digit.
func scaled(x, step float64, units ...string) string {
	i := 0
	for ; x >= step && i < len(units)-1; i++ {
		x /= step
	}
	if i == 0 {
		return fmt.Sprintf("%.0f %s", x, units[i])
	}
	return fmt.Sprintf("%.2f %s", x, units[i])
}
