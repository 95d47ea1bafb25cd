// Package data turns text into the batches a model is trained on: the same ones,
// in the same order, on every run, after every resume and on any number of ranks.
//
// # From text to rows
//
// A [Source] is a numbered list of documents: the chapters of an embedded novel
// ([Corpus]), text files and lines of JSONL files ([Files]), strings ([Documents]). A
// tokenizer makes ids of each, its BOS id before them and its EOS id after them where it
// has such ids. Documents without text are skipped. The documents of an epoch, end to
// end, are one stream of tokens. Concatenated, a row is the next SeqLen of them, so that
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
// With [FirstFit] a document that fits a row is never cut: it goes into the first of up
// to 128 rows that has room, and a longer one is cut into rows and a rest that is placed
// likewise. When a piece fits into none, the rows are handed out, padded, and the piece
// begins the next 128. That pads some 2% of documents of a third of a row in the mean and
// spread widely, 6% of documents of up to four fifths of a row; [Batch.Padding] tells how
// much. The rows take 16 bytes a token of memory.
//
// An epoch's end is not a row's end: the next epoch's first document fills the
// row. Only a [Loader] with a number of Passes ends, with io.EOF, and pads what is
// left of its last batch: EOS (or 0) as token, Ignore as label, each row's padding
// a piece of its own.
//
// # Order and mixtures
//
// With Shuffle every epoch has its own permutation of the documents. It is computed place
// by place from the seed and the epoch (a Feistel network over Philox) and takes no
// memory. With a ShuffleWindow of n the epoch is cut into blocks of n documents, and each
// is permuted by itself: files are read nearly in order, no document moves by n places or
// more, and the blocks begin elsewhere in every epoch. That mixes neighbours, not the
// ends of a file: sort nothing by topic or length that is to be shuffled so.
//
// [NewMixedLoader] reads several sources by weight, each through epochs and permutations
// of its own. The next document is of the source that has given the fewest tokens for its
// weight. What is exact are tokens, EOS and BOS included, of whole documents: after any
// number of documents with N tokens, source i with share w has given at most w·N + L,
// where L is its longest document, and at least w·N less w times the longest documents of
// the others together. First-fit reorders that within its 128 rows.
//
// # Ranks and resuming
//
// The rows form one sequence whatever the layout. A loader of rank r of R takes
// Rows of them and leaves the others: with each Next all ranks together
// take the next R·Rows, rank r the r-th block. Every rank reads and tokenizes the
// whole stream.
//
// A state is the place of the next row in that sequence: for every source the epoch, the
// document and the tokens given, the tokens done of the next document, and with FirstFit
// the rows done since the 128 began. It is JSON of a few hundred bytes, the same on all
// ranks, and [Loader.Restore] goes there without replaying anything (FirstFit packs up to
// 128 rows again). So this holds for every source, order, mixture and packing: however
// often a run is stopped, and with whatever ranks and Rows it goes on, the sequence of
// rows it reads is that of a run that never stopped. The batches are the same too where
// R·Rows is. Concatenated, SeqLen may change as well: the tokens and labels are the same.
//
// [Prefetch] prepares batches in the background; what is saved is the place behind the
// batch that was trained on, not behind those prepared. [Batches] is the interface for
// datasets of one's own, and [Sequence] makes one of an iterator.
//
// # JSONL files
//
// Each line is a JSON object; one field of it, "text" or another, is the document, a
// string. Lines end with LF or CRLF, the last with either or none; blank lines and a
// byte-order mark at the start are skipped. Of a field that is there twice the last
// counts, escaped NULs are text, and half a surrogate pair becomes U+FFFD, all as in
// encoding/json. Everything else is an [ErrLine] that names file and line and says what
// to do, before training begins: no object, no such field, a field that is no string,
// invalid JSON, bytes that are not UTF-8, NUL bytes, a line of more than 256 MiB.
//
// # Ownership
//
// Next fills a [Batch] of the caller's, whose slices it allocates once
// and then reuses: a batch is valid until it is given to Next again, and a warm
// Next allocates only what reading its documents takes (nothing for texts in
// memory). A Loader holds the tokens of one document, with FirstFit 128 rows. It belongs
// to one goroutine.
//
// Error texts start with "data:" and the source's name.
package data
