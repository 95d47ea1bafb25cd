package generate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/lethe-go/lethe/graph"
)

// Options of a Generator.
type Options struct {
	// MaxSeqLen is the most tokens of a sequence, prompt included: the length of the
	// cache, which Generators on one Store share and must agree about.
	MaxSeqLen int
	// Chunk is the most tokens of a prompt that are read at once, a power of two; 0
	// means 256. It bounds the memory of prefill.
	Chunk int
	// NoCache computes the whole sequence anew for every token.
	NoCache bool
}

// DefaultChunk is the Chunk of Options that do not set one.
const DefaultChunk = 256

// Generator continues sequences, one at a time. It is used by one goroutine.
type Generator struct {
	store   *graph.Store
	model   Model
	options Options
	passes  map[int]*pass // by number of tokens
	stats   Stats
}

// New builds the model on a Store, which is the caller's. Variables that the Store does
// not have yet are declared and not allocated: parameters can be loaded before the first
// token.
func New(store *graph.Store, m Model, o Options) (*Generator, error) {
	if o.Chunk == 0 {
		o.Chunk = DefaultChunk
	}
	switch {
	case o.MaxSeqLen < 1 || o.MaxSeqLen > math.MaxInt32: // positions are int32
		return nil, fmt.Errorf("generate: max_seq_len: must be within [1, %d]: %d; set the most tokens of a sequence", math.MaxInt32, o.MaxSeqLen)
	case o.Chunk < 1 || o.Chunk&(o.Chunk-1) != 0:
		return nil, fmt.Errorf("generate: chunk: must be a power of two: %d; set one such as %d", o.Chunk, DefaultChunk)
	}
	g := &Generator{store: store, model: m, options: o, passes: map[int]*pass{}}
	_, err := g.pass(1)
	return g, err
}

// pass returns the Program for a number of tokens, which it compiles at most once.
func (g *Generator) pass(tokens int) (*pass, error) {
	if p := g.passes[tokens]; p != nil {
		return p, nil
	}
	length := g.options.MaxSeqLen
	if g.options.NoCache {
		length = 0
	}
	p, err := compile(g.store, g.model, tokens, length)
	if err != nil {
		return nil, err
	}
	g.passes[tokens] = p
	return p, nil
}

// Close frees the memory of the Programs; the Store remains.
func (g *Generator) Close() error {
	var errs []error
	for _, p := range g.passes {
		errs = append(errs, p.close())
	}
	g.passes = map[int]*pass{}
	return errors.Join(errs...)
}

// Tokens yields up to count tokens that follow a prompt, each as soon as it is chosen.
// A token of stop ends the sequence and is not yielded, and so does one that would make
// it longer than MaxSeqLen. An error, also that of a context that ends between two
// tokens, is the last thing yielded.
func (g *Generator) Tokens(ctx context.Context, prompt []int32, count int, s Sampling, stop ...int32) iter.Seq2[int32, error] {
	return func(yield func(int32, error) bool) {
		if err := g.check(prompt, count, s); err != nil {
			yield(0, err)
			return
		}
		if err := g.generate(ctx, prompt, count, s, stop, func(id int32) bool { return yield(id, nil) }); err != nil {
			yield(0, fmt.Errorf("generate: %w", err))
		}
	}
}

func (g *Generator) check(prompt []int32, count int, s Sampling) error {
	switch most := g.options.MaxSeqLen; {
	case len(prompt) == 0:
		return errors.New("generate: the prompt is empty: give at least one token to follow")
	case len(prompt) > most:
		return fmt.Errorf("generate: the prompt has %d tokens, a sequence at most %d; shorten it or raise max_seq_len", len(prompt), most)
	case count < 0:
		return fmt.Errorf("generate: max_tokens: must be 0 or more: %d", count)
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= g.model.Vocab() {
			return fmt.Errorf("generate: the prompt's token %d is %d: the model knows ids from 0 to %d", i, id, g.model.Vocab()-1)
		}
	}
	return s.Validate()
}

// generate yields tokens until one stops it, yield returns false or there is no room.
func (g *Generator) generate(ctx context.Context, prompt []int32, count int, s Sampling, stop []int32, yield func(int32) bool) error {
	g.stats = Stats{PromptTokens: len(prompt)}
	count = min(count, g.options.MaxSeqLen-len(prompt))
	if count == 0 {
		return nil
	}
	sampler := newSampler(s, g.model.Vocab())
	sequence := append(make([]int32, 0, len(prompt)+count), prompt...)
	done := 0 // tokens that the cache holds
	for range count {
		begin, compiling := time.Now(), g.stats.Compile
		p, err := g.advance(ctx, sequence, done)
		if err != nil {
			return fmt.Errorf("token at position %d: %w", len(sequence), err)
		}
		id, err := sampler.choose(p.logits, len(sequence))
		if err != nil {
			return fmt.Errorf("token at position %d: %w", len(sequence), err)
		}
		g.stats.add(done == 0, time.Since(begin)-(g.stats.Compile-compiling))
		done = len(sequence)
		for _, end := range stop {
			if id == end {
				return nil
			}
		}
		sequence = append(sequence, id)
		if !yield(id) {
			return nil
		}
	}
	return nil
}

// advance runs the tokens from done on and returns the pass that holds the logits behind
// the last one.
func (g *Generator) advance(ctx context.Context, sequence []int32, done int) (*pass, error) {
	if g.options.NoCache {
		return g.run(ctx, 1<<bits.Len(uint(len(sequence)-1)), sequence, 0)
	}
	for {
		n := min(g.options.Chunk, 1<<(bits.Len(uint(len(sequence)-done))-1))
		p, err := g.run(ctx, n, sequence[done:done+n], done)
		if err != nil || done+n == len(sequence) {
			return p, err
		}
		done += n
	}
}

// run runs the pass of a number of tokens.
func (g *Generator) run(ctx context.Context, tokens int, ids []int32, position int) (*pass, error) {
	begin := time.Now()
	p, err := g.pass(tokens)
	if err != nil {
		return nil, err
	}
	if err := p.open(); err != nil {
		return nil, err
	}
	g.stats.Compile += time.Since(begin)
	return p, p.run(ctx, ids, position)
}

// Stats of the last sequence.
func (g *Generator) Stats() Stats { return g.stats }

// Stats tell how long a sequence took.
type Stats struct {
	// PromptTokens were read in the time Prefill, in which the first token was chosen
	// as well.
	PromptTokens int
	Prefill      time.Duration
	// Decoded are the tokens after the first, chosen in the time Decode.
	Decoded int
	Decode  time.Duration
	// Compile is the time in which Programs were built that were not there yet; it is no
	// part of the other times.
	Compile time.Duration
}

func (s *Stats) add(prefill bool, d time.Duration) {
	if prefill {
		s.Prefill += d
		return
	}
	s.Decoded++
	s.Decode += d
}

// String is one line such as "prefill: 17 tokens, 5200 tokens/s; decode: 63 tokens, 830 tokens/s".
func (s Stats) String() string {
	rate := func(tokens int, d time.Duration) string {
		if tokens == 0 || d <= 0 {
			return fmt.Sprintf("%d tokens", tokens)
		}
		return fmt.Sprintf("%d tokens, %.0f tokens/s", tokens, float64(tokens)/d.Seconds())
	}
	return fmt.Sprintf("prefill: %s; decode: %s", rate(s.PromptTokens, s.Prefill), rate(s.Decoded, s.Decode))
}
