package train

import (
	"cmp"
	"fmt"
	"slices"
)

// fit refuses a plan that needs more memory than this process may use, before any of it
// is allocated, and names the mode that keeps the most of those that would fit. With
// dynamic rows what is needed is the bound.
func (t *Trainer) fit() error {
	have := t.options.memory
	if have == 0 {
		have = machineMemory()
	}
	if have == 0 {
		return nil // the system does not say
	}
	first := t.ranks[0]
	usage := first.programs.usage(t.config.Training.Microbatches())
	need := t.bytesNeeded(first.store.Bytes(), usage.arenaBytes)
	if need <= have {
		return nil
	}
	problem := fmt.Sprintf("train: the plan needs %s (%d ranks of %s persistent and %s arena, %s to copy the state) and this process may use %s",
		formatBytes(need), len(t.ranks), formatBytes(first.store.Bytes()), formatBytes(usage.arenaBytes), formatBytes(t.stagingBytes()), formatBytes(have))
	if whole := t.shards.stagingBytes(false); t.config.State.Enable && need-t.stagingBytes()+whole <= have {
		return fmt.Errorf("%s; set state.async_mode=\"disabled\", which needs %s", problem, formatBytes(need-t.stagingBytes()+whole))
	}
	report, err := planReport(t.config, t.options)
	if err != nil {
		return fmt.Errorf("%s; %w", problem, err)
	}
	byBytes := func(a, b PlanRow) int { return cmp.Compare(a.ArenaBytes, b.ArenaBytes) }
	fits := func(r PlanRow) bool { return t.bytesNeeded(report.PersistentBytes, r.ArenaBytes) <= have }
	rows := slices.SortedFunc(slices.Values(report.Rows), byBytes)
	for _, r := range slices.Backward(rows) {
		if fits(r) {
			return fmt.Errorf("%s; set activation_checkpoint.mode=%q, which needs %s", problem, r.Mode, formatBytes(t.bytesNeeded(report.PersistentBytes, r.ArenaBytes)))
		}
	}
	return fmt.Errorf("%s; even mode %q needs %s: lower training.local_batch_size or training.seq_len, or choose a smaller model.flavor",
		problem, rows[0].Mode, formatBytes(t.bytesNeeded(report.PersistentBytes, rows[0].ArenaBytes)))
}

// bytesNeeded by all ranks of this process, if one has so many persistent bytes and
// such an arena.
func (t *Trainer) bytesNeeded(persistent, arena int64) int64 {
	return int64(len(t.ranks))*(persistent+arena) + t.stagingBytes()
}
