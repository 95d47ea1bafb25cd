package data

import (
	"reflect"
	"strings"
	"testing"
)

func sameBatch(t interface {
	Helper()
	Fatalf(string, ...any)
}, got, want Batch) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestBatchCheck(t *testing.T) {
	good := func() *Batch {
		return &Batch{Rows: 2, SeqLen: 2, Tokens: []int32{0, 1, 2, 9}, Labels: []int32{1, Ignore, 9, 0}, Positions: []int32{0, 1, 0, 0}, DocumentStart: []int32{0, 0, 0, 1}, Valid: 3}
	}
	if err := good().Check(2, 2, 10); err != nil {
		t.Error(err)
	}
	for _, test := range []struct {
		change func(*Batch)
		want   string
	}{
		{func(b *Batch) { b.Rows = 1 }, "it has 1 rows of 2 tokens, but 2 rows of 2 are needed"},
		{func(b *Batch) { b.Labels = b.Labels[:3] }, "4 tokens, 3 labels, 4 positions and 4 document starts, but 2 × 2 of each are needed"},
		{func(b *Batch) { b.DocumentStart = nil }, "0 document starts"},
		{func(b *Batch) { b.Tokens[3] = 10 }, "row 1, column 1: token 10 is not in a vocabulary of 10"},
		{func(b *Batch) { b.Tokens[0] = -1 }, "row 0, column 0: token -1"},
		{func(b *Batch) { b.Labels[2] = -1 }, "row 1, column 0: label -1 is neither in a vocabulary of 10 nor Ignore (-100)"},
		{func(b *Batch) { b.Positions[1] = 2 }, "position 2 is not in [0, 2)"},
		{func(b *Batch) { b.DocumentStart[2] = 1 }, "row 1, column 0: a document start at column 1 is not in [0, 0]"},
		{func(b *Batch) { b.Valid = 4 }, "Valid is 4, but 3 labels are not Ignore"},
	} {
		b := good()
		test.change(b)
		if err := b.Check(2, 2, 10); err == nil || !strings.HasPrefix(err.Error(), "data: batch: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want ...%s", err, test.want)
		}
	}
}
