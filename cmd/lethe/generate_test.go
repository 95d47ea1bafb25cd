package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
)

func TestGenerate(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	if code, _, err := lethe(smallRun(run)...); code != exitDone {
		t.Fatal(err)
	}
	args := func(more ...string) []string {
		return append([]string{"generate", "--state", run, "--prompt", "Call me", "--max_tokens", "30"}, more...)
	}
	code, sampled, stderr := lethe(args("--seed=1", "--top_k=50", "--top_p=0.9")...)
	if code != exitDone || !strings.HasPrefix(sampled, "Call me") || !strings.HasSuffix(sampled, "\n") {
		t.Fatalf("code %d, stdout %q, stderr %q", code, sampled, stderr)
	}
	for _, want := range []string{"model:   deepseek_v3 quickstart, step 2, " + run, "sequences of 16 tokens", "prefill: 7 tokens", "decode: "} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr %q does not say %q", stderr, want)
		}
	}
	if _, again, _ := lethe(args("--seed=1", "--top_k=50", "--top_p=0.9", "--threads=1")...); again != sampled {
		t.Errorf("the same seed: %q and %q", again, sampled)
	}
	if _, other, _ := lethe(args("--seed=2", "--top_k=50", "--top_p=0.9")...); other == sampled {
		t.Errorf("another seed: %q", other)
	}
	_, greedy, _ := lethe(args("--temperature=0")...)
	if _, plain, _ := lethe(args("--temperature=0", "--no_cache")...); plain != greedy {
		t.Errorf("without the cache %q, with it %q", plain, greedy)
	}
	if _, short, _ := lethe(args("--temperature=0", "--max_seq_len=9")...); !strings.HasPrefix(greedy, strings.TrimSuffix(short, "\n")) || len(short) > len("Call me")+7 {
		t.Errorf("of 9 tokens %q, of 37 %q", short, greedy)
	}
	var out, errs bytes.Buffer
	code, err := runGenerate(context.Background(), []string{"--state", run, "--prompt=-", "--max_tokens=30", "--temperature=0"},
		streams{strings.NewReader("Call me"), &out, &errs, nil})
	if code != exitDone || err != nil || out.String() != greedy {
		t.Errorf("from stdin: code %d, %v, %q, want %q", code, err, &out, greedy)
	}
	if _, _, err := lethe("generate", "--state", run, "--prompt", "help", "--max_tokens=0"); !strings.Contains(err, "prefill: 4 tokens") {
		t.Errorf("the prompt help: %q", err)
	}
}

func TestGenerateRefusals(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	if code, _, err := lethe(smallRun(run)...); code != exitDone {
		t.Fatal(err)
	}
	for _, x := range []struct {
		args []string
		want string
	}{
		{nil, "give --state DIR"},
		{[]string{"--state", run}, "give --prompt TEXT"},
		{[]string{"--state"}, "flag needs an argument: -state"},
		{[]string{"--state", run, "--prompt=x", "--heat=3"}, "not defined: -heat; lethe help generate"},
		{[]string{"--state", run, "--prompt", "Call", "me"}, `unexpected argument "me"`},
		{[]string{"--state", run, "--prompt=x", "--temperature=-1"}, "temperature: must be 0 or more"},
		{[]string{"--state", run, "--prompt=x", "--temperature=NaN"}, "temperature: must be 0 or more"},
		{[]string{"--state", run, "--prompt=x", "--temperature=hot"}, `"hot"`},
		{[]string{"--state", run, "--prompt=x", "--top_p=2"}, "top_p: must be within [0, 1]"},
		{[]string{"--state", run, "--prompt=x", "--top_k=-2"}, "top_k: must be 0 or more"},
		{[]string{"--state", run, "--prompt=x", "--max_tokens=-2"}, "--max_tokens -2"},
		{[]string{"--state", run, "--prompt=Call me", "--max_seq_len=6"}, "the prompt has 7 tokens, more than --max_seq_len 6"},
		{[]string{"--state", run, "--prompt=x", "--max_tokens=1000000000"}, "set a smaller max_seq_len"},
		{[]string{"--state", run, "--prompt=x", "--max_tokens=9000000000000000000"}, "max_seq_len: must be within"},
		{[]string{"--state", filepath.Join(run, "none"), "--prompt=x"}, "give the job.dump_folder of a run"},
		{[]string{"--state", filepath.Dir(run), "--prompt=x"}, "no state; give the dump folder of a run"},
		{[]string{"--state", run, "--prompt=x", "--ema"}, "train with optimizer.ema_decay"},
	} {
		code, stdout, stderr := lethe(append([]string{"generate"}, x.args...)...)
		if code != exitUsage || stdout != "" || !strings.HasPrefix(stderr, "lethe: ") || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, x.want) {
			t.Errorf("%v: code %d, stdout %q, stderr %q, want code 2 and %q", x.args, code, stdout, stderr, x.want)
		}
	}
}
