package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/lethe-go/lethe/data"
	"github.com/lethe-go/lethe/data/corpus"
	"github.com/lethe-go/lethe/data/tokenizer"
)

// heldOutFraction of the documents is measured and never trained on.
const heldOutFraction = 0.1

// dataset is what a config names, in two parts.
type dataset struct {
	train, heldOut data.Source // heldOut is nil if there is none
	tokenizer      tokenizer.Tokenizer
}

// openDataset finds an embedded text by name, or text files. The last tenth of
// the documents is held out, whether it is measured or not, so that turning
// validation on does not change what is trained. Of a single file, which is one
// document, the last tenth of the text is.
func openDataset(ctx context.Context, names []string) (*dataset, error) {
	d := &dataset{tokenizer: tokenizer.Byte{}}
	var err error
	if len(names) == 1 && slices.Contains(corpus.Names(), names[0]) {
		d.train, d.heldOut, err = data.Corpus(names[0])
		return d, err
	}
	files, err := data.TextFiles(names...)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("train: config: training.dataset: %w: no such file, and the built-in datasets are %s", err, quote(corpus.Names()...))
	}
	if err != nil {
		return nil, fmt.Errorf("train: config: training.dataset: %w", err)
	}
	if files.Len() == 1 {
		if files, err = halves(ctx, files); err != nil {
			return nil, err
		}
	}
	if files.Len() == 1 {
		d.train = files
		return d, nil
	}
	d.train, d.heldOut, err = data.Split(files, heldOutFraction)
	return d, err
}

// halves cuts the one document of a source in two, at the last line break in
// front of the part to hold out. A text of one line stays whole.
func halves(ctx context.Context, s data.Source) (data.Source, error) {
	text, err := s.Document(ctx, 0)
	if err != nil {
		return nil, err
	}
	cut := 1 + strings.LastIndexByte(text[:len(text)-int(heldOutFraction*float64(len(text)))], '\n')
	if cut <= 0 || cut == len(text) {
		return s, nil
	}
	return data.Documents(s.Name(), text[:cut], text[cut:]), nil
}

// loader returns the training batches of a rank, in an order that only the seed
// decides.
func (d *dataset) loader(ctx context.Context, c TrainingConfig, rank, ranks int) (*data.Loader, error) {
	return data.NewLoader(ctx, d.train, d.tokenizer, data.Options{
		SeqLen: c.SeqLen, Rows: c.LocalBatchSize, Rank: rank, Ranks: ranks, Seed: uint64(c.Seed), Shuffle: true,
	})
}

// heldOutLoader returns a rank's part of one pass over the held-out documents.
func (d *dataset) heldOutLoader(ctx context.Context, c TrainingConfig, rank, ranks int) (*data.Loader, error) {
	if d.heldOut == nil {
		return nil, fmt.Errorf("train: config: validation.enable: %s is too short to hold out a part; give more text or set validation.enable=false", d.train.Name())
	}
	return data.NewLoader(ctx, d.heldOut, d.tokenizer, data.Options{
		SeqLen: c.SeqLen, Rows: c.LocalBatchSize, Rank: rank, Ranks: ranks, Passes: 1,
	})
}

// countBytes is how much text is read to count the tokens of a source.
const countBytes = 64 << 20

// countTokens returns the number of tokens of a source, and whether that is all
// of them: it stops after countBytes of text.
func (d *dataset) countTokens(ctx context.Context, s data.Source) (tokens int64, all bool, err error) {
	var ids []int32
	read := 0
	for i := range s.Len() {
		if read > countBytes {
			return tokens, false, nil
		}
		text, err := s.Document(ctx, i)
		if err != nil {
			return 0, false, err
		}
		read += len(text)
		ids = d.tokenizer.AppendEncode(ids[:0], text)
		tokens += int64(len(ids))
		for _, special := range []int32{d.tokenizer.BOS(), d.tokenizer.EOS()} {
			if special >= 0 && text != "" {
				tokens++
			}
		}
	}
	return tokens, true, nil
}
