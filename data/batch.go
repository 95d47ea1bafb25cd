package data

import "fmt"

// Ignore is the label of a position that predicts nothing. It is the ignore index
// of PyTorch's cross_entropy.
const Ignore = -100

// Batch is one microbatch of one rank. The slices are row-major [Rows × SeqLen];
// the package's documentation shows an example row.
type Batch struct {
	Rows   int // rows of this rank
	SeqLen int // tokens in a row

	Tokens []int32 // input ids
	Labels []int32 // id to predict at each position, or Ignore

	// Positions counts from 0 in every row's piece of a document.
	Positions []int32

	// DocumentStart is the column, within the row, of the first token of the
	// piece that the position belongs to. A causal document mask lets the query
	// at column q see the keys in [DocumentStart[q], q].
	DocumentStart []int32

	// Valid is the number of labels that are not Ignore. The loss of a step is
	// divided by its sum over all microbatches and ranks. It can be 0 at the end of the
	// last pass, where ranks that have no rows left get padding.
	Valid int

	// Padding is the number of positions without a token of a document.
	Padding int
}

// Check returns an error if the batch is not one of rows × seqLen tokens of a
// vocabulary: what a model may be fed with. A [Loader] makes no other.
func (b *Batch) Check(rows, seqLen, vocab int) error {
	n := rows * seqLen
	if b.Rows != rows || b.SeqLen != seqLen {
		return fmt.Errorf("data: batch: it has %d rows of %d tokens, but %d rows of %d are needed", b.Rows, b.SeqLen, rows, seqLen)
	}
	if len(b.Tokens) != n || len(b.Labels) != n || len(b.Positions) != n || len(b.DocumentStart) != n {
		return fmt.Errorf("data: batch: %d tokens, %d labels, %d positions and %d document starts, but %d × %d of each are needed",
			len(b.Tokens), len(b.Labels), len(b.Positions), len(b.DocumentStart), rows, seqLen)
	}
	valid := 0
	for i, token := range b.Tokens {
		label, position, start, column := b.Labels[i], b.Positions[i], b.DocumentStart[i], int32(i%seqLen)
		var what string
		switch {
		case token < 0 || int(token) >= vocab:
			what = fmt.Sprintf("token %d is not in a vocabulary of %d", token, vocab)
		case label != Ignore && (label < 0 || int(label) >= vocab):
			what = fmt.Sprintf("label %d is neither in a vocabulary of %d nor Ignore (%d)", label, vocab, Ignore)
		case position < 0 || int(position) >= seqLen:
			what = fmt.Sprintf("position %d is not in [0, %d)", position, seqLen)
		case start < 0 || start > column:
			what = fmt.Sprintf("a document start at column %d is not in [0, %d]", start, column)
		}
		if what != "" {
			return fmt.Errorf("data: batch: row %d, column %d: %s", i/seqLen, column, what)
		}
		if label != Ignore {
			valid++
		}
	}
	if b.Valid != valid {
		return fmt.Errorf("data: batch: Valid is %d, but %d labels are not Ignore", b.Valid, valid)
	}
	return nil
}

// shape makes room for rows × seqLen and reuses what is there.
func (b *Batch) shape(rows, seqLen int) {
	n := rows * seqLen
	for _, s := range []*[]int32{&b.Tokens, &b.Labels, &b.Positions, &b.DocumentStart} {
		if cap(*s) < n {
			*s = make([]int32, n)
		}
		*s = (*s)[:n]
	}
	b.Rows, b.SeqLen, b.Valid, b.Padding = rows, seqLen, 0, 0
}

// row returns the slices of one row.
func (b *Batch) row(i int) row {
	from, to := i*b.SeqLen, (i+1)*b.SeqLen
	return row{b.Tokens[from:to], b.Labels[from:to], b.Positions[from:to], b.DocumentStart[from:to]}
}

type row struct{ tokens, labels, positions, start []int32 }

// put writes a document's next tokens at a column. piece is what is left of the
// document: the row takes n of it, and the label of the n-th is still in it unless
// the document ends there. It returns the number of valid labels.
func (r row) put(column, n int, piece []int32) int {
	copy(r.tokens[column:column+n], piece)
	valid := copy(r.labels[column:column+n], piece[1:])
	if valid < n {
		r.labels[column+valid] = Ignore
	}
	r.number(column, n)
	return valid
}

// pad fills the row from a column on and returns the number of positions.
func (r row) pad(column int, token int32) int {
	n := len(r.tokens) - column
	for i := column; i < column+n; i++ {
		r.tokens[i], r.labels[i] = token, Ignore
	}
	r.number(column, n)
	return n
}

func (r row) number(column, n int) {
	positions, start := r.positions[column:column+n], r.start[column:column+n]
	for i := range positions {
		positions[i], start[i] = int32(i), int32(column)
	}
}
