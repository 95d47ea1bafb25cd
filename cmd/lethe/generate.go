package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/lethe-go/lethe/generate"
	"github.com/lethe-go/lethe/train"
)

var generateCommand = command{
	name:  "generate",
	usage: "--state DIR --prompt TEXT [--max_tokens N --temperature X --top_k K --top_p P --seed S]",
	about: "continue a text with a trained model",
	details: `DIR is the job.dump_folder of a run, of which the newest state is taken, or one of its
folders step-…. The prompt and what follows go to stdout as tokens come; what model it is and
how fast go to stderr. The end of a document ends the text.

  --prompt TEXT      text to continue; - reads it from stdin
  --max_tokens N     most tokens to generate (100)
  --temperature X    divides the logits: 1 is the model's own distribution (the default), below 1
                     likely tokens become likelier, 0 always takes the likeliest
  --top_k K          draw among the K likeliest tokens only (0: all)
  --top_p P          draw among the fewest tokens that reach the probability P only (1: all);
                     what top_k leaves counts as 1
  --seed S           of the draws: the same seed and prompt give the same text (0)
  --max_seq_len N    room for prompt and generated tokens (as many as both may have)
  --threads N        compute threads (0: those of the run's config)
  --ema              take the moving average of the parameters (optimizer.ema_decay)
  --no_cache         run the whole text through the model for every token. Slow: it is what the
                     cache is checked against

Examples:
  lethe generate --state outputs/quickstart --prompt "Call me Ishmael."
  lethe generate --state outputs/quickstart/state/step-00000400 --prompt - --temperature 0 < prompt.txt
`,
	run: runGenerate,
}

// generateArgs are the options of generate.
type generateArgs struct {
	state, prompt string
	maxTokens     int
	threads       int
	ema           bool
	options       generate.Options
	sampling      generate.Sampling
}

func parseGenerateArgs(args []string) (a generateArgs, err error) {
	f := flag.NewFlagSet("generate", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&a.state, "state", "", "")
	f.StringVar(&a.prompt, "prompt", "", "")
	f.IntVar(&a.maxTokens, "max_tokens", 100, "")
	f.Float64Var(&a.sampling.Temperature, "temperature", 1, "")
	f.IntVar(&a.sampling.TopK, "top_k", 0, "")
	f.Float64Var(&a.sampling.TopP, "top_p", 1, "")
	f.Uint64Var(&a.sampling.Seed, "seed", 0, "")
	f.IntVar(&a.options.MaxSeqLen, "max_seq_len", 0, "")
	f.IntVar(&a.threads, "threads", 0, "")
	f.BoolVar(&a.ema, "ema", false, "")
	f.BoolVar(&a.options.NoCache, "no_cache", false, "")
	if err := f.Parse(args); err != nil {
		return a, usagef("%v; lethe help generate lists the options", err)
	}
	switch {
	case f.NArg() > 0:
		return a, usagef("unexpected argument %q: options are written --name VALUE; quote a prompt of several words", f.Arg(0))
	case a.state == "":
		return a, usagef("no state: give --state DIR, for example --state outputs/quickstart")
	case a.prompt == "":
		return a, usagef("no prompt: give --prompt TEXT, or --prompt - to read it from stdin")
	case a.maxTokens < 0 || a.options.MaxSeqLen < 0 || a.threads < 0:
		return a, usagef("--max_tokens %d --max_seq_len %d --threads %d: want 0 or more", a.maxTokens, a.options.MaxSeqLen, a.threads)
	}
	if err := a.sampling.Validate(); err != nil {
		return a, &usageError{err.Error()}
	}
	return a, nil
}

func runGenerate(ctx context.Context, args []string, s streams) (code int, err error) {
	a, err := parseGenerateArgs(args)
	if err != nil {
		return 0, err
	}
	if a.prompt == "-" {
		text, err := io.ReadAll(s.in)
		if err != nil {
			return 0, fmt.Errorf("prompt: %w", err)
		}
		a.prompt = string(text)
	}
	p, err := train.OpenPretrained(a.state, train.PretrainedOptions{Threads: a.threads, EMA: a.ema})
	if err != nil {
		return 0, &train.ConfigError{Err: err}
	}
	defer p.Close()
	for _, w := range p.Warnings {
		fmt.Fprintf(s.err, "warning: %s\n", w)
	}
	return exitDone, a.generate(ctx, p, s)
}

func (a *generateArgs) generate(ctx context.Context, p *train.Pretrained, s streams) error {
	prompt := p.Tokenizer.Encode(a.prompt)
	if bos := p.Tokenizer.BOS(); bos >= 0 {
		prompt = append([]int32{bos}, prompt...)
	}
	if len(prompt) == 0 {
		return usagef("the prompt is empty: give some text to continue")
	}
	o := a.options
	if o.MaxSeqLen == 0 {
		o.MaxSeqLen = len(prompt) + min(a.maxTokens, math.MaxInt32)
	}
	if len(prompt) > o.MaxSeqLen {
		return usagef("the prompt has %d tokens, more than --max_seq_len %d: shorten it or raise that", len(prompt), o.MaxSeqLen)
	}
	g, err := p.Generator(o)
	if err != nil {
		return &train.ConfigError{Err: err}
	}
	defer g.Close()
	fmt.Fprintf(s.err, "model:   %s, step %d, %s\n", p.Model.Name(), p.Step(), p.Path())
	if most := p.Config.Training.SeqLen; o.MaxSeqLen > most && a.maxTokens > most-len(prompt) {
		fmt.Fprintf(s.err, "warning: the model was trained on sequences of %d tokens: text further from the start may be worse\n", most)
	}
	if _, err := io.WriteString(s.out, a.prompt); err != nil {
		return err
	}
	err = write(s.out, generate.Text(p.Tokenizer, g.Tokens(ctx, prompt, a.maxTokens, a.sampling, p.Tokenizer.EOS())))
	if err != nil {
		return err
	}
	fmt.Fprintln(s.err, g.Stats())
	return nil
}

// write writes text as it comes, and ends the line.
func write(out io.Writer, text iter.Seq2[string, error]) error {
	for t, err := range text {
		if err == nil {
			_, err = io.WriteString(out, t)
		}
		if err != nil {
			fmt.Fprintln(out)
			return err
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}
