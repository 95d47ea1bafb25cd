package train

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/lethe-go/lethe/internal/page"
)

// snapshotSection shows the newest memory snapshot of each run.
func snapshotSection(runs []reportedRun) (s page.Section, err error) {
	s.Title = "Memory snapshot"
	for _, r := range runs {
		file, err := r.newestSnapshot()
		if err != nil {
			return s, err
		}
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return s, fmt.Errorf("train: memory snapshot: %w", err)
		}
		var m MemorySnapshot
		if err := json.Unmarshal(text, &m); err != nil {
			return s, fmt.Errorf("train: memory snapshot: %s: %w; move the file away", file, err)
		}
		s.Tables = append(s.Tables, m.rankTable(r.name))
		if len(m.Ranks) > 0 && m.Ranks[0].Program != "" {
			first := m.Ranks[0]
			s.Tables = append(s.Tables, heldTables(fmt.Sprintf("on rank %d of %s, in step %d of %s", first.Rank, r.name, first.Index, first.Program), first.Values)...)
		}
	}
	return s, nil
}

func (r *reportedRun) newestSnapshot() (newest string, err error) {
	files, err := filepath.Glob(filepath.Join(r.config.MemoryPath(), "*.json"))
	if err != nil {
		return "", fmt.Errorf("train: memory snapshot: %w", err)
	}
	var at os.FileInfo
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return "", fmt.Errorf("train: memory snapshot: %w", err)
		}
		if at == nil || info.ModTime().After(at.ModTime()) {
			newest, at = f, info
		}
	}
	return newest, nil
}

func (s *MemorySnapshot) rankTable(run string) page.Table {
	t := page.Table{Caption: fmt.Sprintf("Snapshot of %s in optimizer step %d: %s", run, s.Step, s.Cause), Columns: []string{"rank", "persistent", "arena", "of it alive", "program", "at"}}
	for _, m := range s.Ranks {
		program := m.Program
		if program == "" {
			program = "between Programs"
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(m.Rank), formatBytes(m.PersistentBytes), formatBytes(m.ArenaBytes), formatBytes(m.LiveBytes), program, m.Node})
	}
	return t
}
