package train

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lethe-go/lethe/graph"
)

// fit refuses a plan that needs more memory than this process may use, before any of it
// is allocated, and names the mode that keeps the most of those that would fit. With
// dynamic rows what is needed is the bound.
func (t *Trainer) fit() error {
	have := t.options.availableMemory()
	if have == 0 {
		return nil // the system does not say
	}
	first := t.ranks[0]
	usage := first.programs.usage(t.config.Training.Microbatches())
	need := t.bytesNeeded(first.store.Bytes(), usage.arenaBytes, usage.checkBytes, t.ringBytes())
	if need <= have {
		return nil
	}
	problem := fmt.Sprintf("train: the plan needs %s (%d ranks of %s persistent and %s arena, %s to copy the state) and this process may use %s",
		formatBytes(need), len(t.ranks), formatBytes(first.store.Bytes()), formatBytes(usage.arenaBytes), formatBytes(t.stagingBytes()), formatBytes(have))
	if whole := t.shards.stagingBytes(false); t.config.State.Enable && need-t.stagingBytes()+whole <= have {
		return fmt.Errorf("%s; set state.async_mode=\"disabled\", which needs %s", problem, formatBytes(need-t.stagingBytes()+whole))
	}
	if need-int64(len(t.ranks))*usage.checkBytes <= have {
		return fmt.Errorf("%s; set activation_checkpoint.check=%q, for %q keeps copies of %s a rank", problem, graph.CheckChecksum, t.config.ActivationCheckpoint.Check, formatBytes(usage.checkBytes))
	}
	maker, report, err := planModes(t.config, t.options)
	if err != nil {
		return fmt.Errorf("%s; %w", problem, err)
	}
	maker.close()
	byBytes := func(a, b PlanRow) int { return cmp.Compare(a.ArenaBytes, b.ArenaBytes) }
	needs := func(r PlanRow) int64 {
		return t.bytesNeeded(report.PersistentBytes, r.ArenaBytes, r.CheckBytes, r.OffloadBufferBytes)
	}
	rows := slices.SortedFunc(slices.Values(report.Rows), byBytes)
	for _, r := range slices.Backward(rows) {
		if needs(r) <= have {
			return fmt.Errorf("%s; set activation_checkpoint.mode=%q, which needs %s", problem, r.Mode, formatBytes(needs(r)))
		}
	}
	return fmt.Errorf("%s; even mode %q needs %s: lower training.local_batch_size or training.seq_len, or choose a smaller model.flavor",
		problem, rows[0].Mode, formatBytes(needs(rows[0])))
}

// bytesNeeded by all ranks of this process, if one has so many persistent bytes, such an
// arena, so much for checks and such a ring of buffers for what is offloaded.
func (t *Trainer) bytesNeeded(persistent, arena, checks, ring int64) int64 {
	return int64(len(t.ranks))*(persistent+arena+checks+ring) + t.stagingBytes()
}
