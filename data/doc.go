// Package data turns text into the batches a model is trained on: the same ones,
// in the same order, on every run, after every resume and on any number of ranks.
//
// # From text to rows
//
// A [Source] is a numbered list of documents: the chapters of an embedded novel
// ([Corpus]), text files ([TextFiles]), strings ([Documents]). A tokenizer makes
// ids of each, its BOS id before them and its EOS id after them where it has
// such ids. Documents without text are skipped. The documents of an epoch, end to
// end, are one stream of tokens, and a row is the next SeqLen of them, so that
// each token is an input exactly once in an epoch:
//
//	document     C  a  l  l  .  ⏎ | N  o  ⏎ | …          ⏎ is EOS
//	tokens       C  a  l  l  .  ⏎   N  o
//	labels       a  l  l  .  ⏎  −   o  ⏎                 − is Ignore, -100
//	positions    0  1  2  3  4  5   0  1
//	start        0  0  0  0  0  0   6  6                 DocumentStart
//
// A label is the token after its input. The end of a document is predicted; what
// follows it is not, for no model can know the next document: its label is
// [Ignore]. A label at the end of a row is the first token of the next row, so no
// prediction is lost at the seam. Positions and DocumentStart count within the
// row's piece of the document: a document that goes on in the next row starts
// there again at position 0, because attention does not see beyond its row.
//
// An epoch's end is not a row's end: the next epoch's first document fills the
// row. Only a [Loader] with a number of Passes ends, with io.EOF, and pads what is
// left of its last batch: EOS (or 0) as token, Ignore as label, each row's padding
// a piece of its own.
//
// # Order and ranks
//
// With Shuffle every epoch has its own permutation of the documents. It is
// computed place by place from the seed and the epoch (a Feistel network over
// Philox) and takes no memory, so a position in a run is three numbers, a
// [State], that [Loader.Restore] goes to without replaying anything.
//
// The rows form one sequence whatever the layout. A loader of rank r of R takes
// Rows of them and leaves the others: with each [Loader.Next] all ranks together
// take the next R·Rows, rank r the r-th block. The State counts tokens of the
// common sequence, so it is the same on all ranks and can be restored by another
// number of ranks, rows or another SeqLen. Every rank reads and tokenizes the
// whole stream.
//
// # Ownership
//
// [Loader.Next] fills a [Batch] of the caller's, whose slices it allocates once
// and then reuses: a batch is valid until it is given to Next again, and a warm
// Next allocates only what reading a document takes (nothing for texts in
// memory). A Loader holds the tokens of one document. It belongs to one goroutine.
//
// Error texts start with "data:" and the source's name.
package data
