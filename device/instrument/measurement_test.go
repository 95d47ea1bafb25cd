package instrument

import (
	"slices"
	"testing"
)

func TestAnalyse(t *testing.T) {
	// Bytes 0–10: written at 0, last read at 2. Bytes 10–30: written at 1, read at
	// 3. Bytes 0–4 again: written at 4 and never read. Bytes 20–30: updated in
	// place at 3.
	m := analyse([]access{
		{0, 0, 10, true},
		{1, 0, 10, false}, {1, 10, 30, true},
		{2, 0, 10, false},
		{3, 10, 30, false}, {3, 20, 30, true},
		{4, 20, 30, false}, {4, 0, 4, true},
	}, nil)
	if want := []int64{10, 30, 30, 20, 14}; !slices.Equal(m.Live, want) {
		t.Errorf("live bytes %v, want %v", m.Live, want)
	}
	if m.Across(0) != 0 || m.Across(2) != 30 || m.Across(4) != 10 {
		t.Errorf("%d, %d and %d bytes are carried over to ticks 0, 2 and 4, want 0, 30 and 10", m.Across(0), m.Across(2), m.Across(4))
	}
	if m.Peak != 30 || m.PeakTick != 1 || m.UnwrittenReads != 0 {
		t.Errorf("peak %d at %d, %d unwritten reads: want 30 at 1, 0", m.Peak, m.PeakTick, m.UnwrittenReads)
	}
}

func TestAnalyseSeesReadsBeforeWrites(t *testing.T) {
	m := analyse([]access{{1, 0, 8, true}, {2, 4, 12, false}}, nil)
	if m.UnwrittenReads != 4 {
		t.Errorf("%d unwritten reads, want 4", m.UnwrittenReads)
	}
}

// What runs hand to each other lives from the start if it is read first, and to the end.
func TestAnalyseSeesWhatIsHanded(t *testing.T) {
	m := analyse([]access{
		{1, 0, 8, false}, {1, 16, 24, true}, // 16–24 lend their bytes to another value
		{2, 16, 24, false},
		{3, 16, 24, true},
		{5, 0, 8, false}, {5, 8, 16, false}, {5, 16, 24, false}, // the end
	}, []span{{0, 8}, {8, 16}, {16, 24}})
	if want := []int64{16, 24, 24, 24, 24, 24}; !slices.Equal(m.Live, want) {
		t.Errorf("live bytes %v, want %v", m.Live, want)
	}
	if m.UnwrittenReads != 0 {
		t.Errorf("%d unwritten reads, want none", m.UnwrittenReads)
	}
	handed := 0
	for _, l := range m.lives {
		if l.handed {
			handed++
		}
	}
	if handed != 2 {
		t.Errorf("%d lives began before the run, want 2", handed)
	}
}
