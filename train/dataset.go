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

// heldOutFraction of the documents is measured and never trained on, unless the
// config names other text to measure.
const heldOutFraction = 0.1

// Dataset makes batches in place of the text that a config names.
type Dataset struct {
	// Name is what reports call it.
	Name string
	// Train returns the batches that one of ranks trains on: training.local_batch_size
	// rows of training.seq_len tokens each. [data.Sequence] makes them of an iterator.
	// Where they stand is saved and resumed.
	Train func(ctx context.Context, rank, ranks int) (data.Batches, error)
	// HeldOut returns a rank's part of what is measured, from its start, up to io.EOF;
	// nil if nothing is held out. It is called for each measurement.
	HeldOut func(ctx context.Context, rank, ranks int) (data.Batches, error)
}

// dataset is what a config names, in two parts, or a Dataset in place of it.
type dataset struct {
	own       *Dataset
	train     []data.Weighted // several sources if they are mixed by weight
	heldOut   data.Source     // nil if there is none
	tokenizer tokenizer.Tokenizer
}

// openDataset finds what a config names: embedded texts, text and JSONL files.
// Without text of its own to measure, the last tenth of the documents is held out,
// whether it is measured or not, so that turning validation on does not change what is
// trained.
func openDataset(ctx context.Context, c Config, own *Dataset) (*dataset, error) {
	d := &dataset{own: own, tokenizer: tokenizer.Byte{}}
	if own != nil {
		if own.Train == nil {
			return nil, fmt.Errorf("train: dataset %q: Train is nil", own.Name)
		}
		return d, nil
	}
	t := c.Training
	sources, err := openSources(ctx, "training.dataset", t.Dataset, t)
	if err != nil {
		return nil, err
	}
	weights := t.DatasetWeights
	if len(weights) == 0 {
		whole, err := data.Concat(sources...)
		if err != nil {
			return nil, fmt.Errorf("train: config: training.dataset: %w", err)
		}
		sources, weights = []data.Source{whole}, []float64{1}
	}
	var heldOut []data.Source
	if names := c.Validation.Dataset; len(names) > 0 {
		if heldOut, err = openSources(ctx, "validation.dataset", names, t); err != nil {
			return nil, err
		}
	}
	for i, s := range sources {
		if len(c.Validation.Dataset) == 0 {
			var rest data.Source
			if s, rest, err = holdOut(ctx, s); err != nil {
				return nil, err
			}
			if rest != nil {
				heldOut = append(heldOut, rest)
			}
		}
		d.train = append(d.train, data.Weighted{Source: s, Weight: weights[i]})
	}
	if len(heldOut) > 0 {
		d.heldOut, err = data.Concat(heldOut...)
	}
	return d, err
}

// openSources opens what a key names: with weights every entry by itself, otherwise
// files that follow one another as one source.
func openSources(ctx context.Context, key string, names []string, c TrainingConfig) ([]data.Source, error) {
	separate := key == "training.dataset" && len(c.DatasetWeights) > 0
	var sources []data.Source
	for len(names) > 0 {
		var s data.Source
		var err error
		n := 1
		if slices.Contains(corpus.Names(), names[0]) {
			s, err = data.Corpus(names[0])
		} else {
			for !separate && n < len(names) && !slices.Contains(corpus.Names(), names[n]) {
				n++
			}
			s, err = data.Files(ctx, c.TextField, names[:n]...)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("train: config: %s: %w: no such file, and the built-in datasets are %s", key, err, quote(corpus.Names()...))
		case errors.Is(err, data.ErrLine):
			return nil, fmt.Errorf("train: config: %s: %w (training.text_field is %q)", key, err, c.TextField)
		case err != nil:
			return nil, fmt.Errorf("train: config: %s: %w", key, err)
		}
		sources, names = append(sources, s), names[n:]
	}
	return sources, nil
}

// holdOut divides a source. Of a single document the last tenth of the text is held
// out; a text of one line stays whole and heldOut is nil.
func holdOut(ctx context.Context, s data.Source) (train, heldOut data.Source, err error) {
	if s.Len() == 1 {
		if s, err = halves(ctx, s); err != nil || s.Len() == 1 {
			return s, nil, err
		}
	}
	return data.Split(s, heldOutFraction)
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

// batches returns the training batches of a rank, in an order that only the seed
// decides.
func (d *dataset) batches(ctx context.Context, c TrainingConfig, rank, ranks int) (data.Batches, error) {
	b, err := d.source(ctx, c, rank, ranks)
	if err != nil {
		return nil, err
	}
	return data.Prefetch(b, c.Prefetch*c.Microbatches()), nil
}

func (d *dataset) source(ctx context.Context, c TrainingConfig, rank, ranks int) (data.Batches, error) {
	if d.own != nil {
		return d.own.open(ctx, "train", d.own.Train, rank, ranks)
	}
	return data.NewMixedLoader(ctx, d.train, d.tokenizer, data.Options{
		SeqLen: c.SeqLen, Rows: c.LocalBatchSize, Rank: rank, Ranks: ranks, Seed: uint64(c.Seed),
		Shuffle: c.Shuffle, ShuffleWindow: c.ShuffleWindow, Packing: data.Packing(c.Packing),
	})
}

// open calls one of the functions.
func (d *Dataset) open(ctx context.Context, part string, f func(ctx context.Context, rank, ranks int) (data.Batches, error), rank, ranks int) (data.Batches, error) {
	b, err := f(ctx, rank, ranks)
	if err == nil && b == nil {
		err = errors.New("it returned nil")
	}
	if err != nil {
		return nil, fmt.Errorf("train: dataset %q: %s: %w", d.Name, part, err)
	}
	return b, nil
}

// heldOutBatches returns a rank's part of one pass over the held-out documents. They are
// concatenated in their order however the training text is packed, so that a
// measurement always makes the same predictions.
func (d *dataset) heldOutBatches(ctx context.Context, c TrainingConfig, rank, ranks int) (data.Batches, error) {
	switch {
	case d.own != nil && d.own.HeldOut != nil:
		return d.own.open(ctx, "held out", d.own.HeldOut, rank, ranks)
	case d.own != nil:
		return nil, fmt.Errorf("train: config: validation.enable: dataset %q holds nothing out; give it HeldOut or set validation.enable=false", d.own.Name)
	case d.heldOut == nil:
		return nil, fmt.Errorf("train: config: validation.enable: the text is too short to hold out a part; name some in validation.dataset, give more or set validation.enable=false")
	}
	return data.NewLoader(ctx, d.heldOut, d.tokenizer, data.Options{
		SeqLen: c.SeqLen, Rows: c.LocalBatchSize, Rank: rank, Ranks: ranks, Passes: 1,
	})
}

// vocab is the least vocabulary of a model; a dataset of one's own is checked batch by
// batch.
func (d *dataset) vocab() int {
	if d.own != nil {
		return 0
	}
	return d.tokenizer.Vocab()
}

// shares returns what part of the training tokens comes from each source.
func (d *dataset) shares() []float64 {
	sum := 0.0
	for _, p := range d.train {
		sum += p.Weight
	}
	list := make([]float64, len(d.train))
	for i, p := range d.train {
		list[i] = p.Weight / sum
	}
	return list
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
