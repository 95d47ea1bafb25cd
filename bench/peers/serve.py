#!/usr/bin/env python3
"""PyTorch, on request: the process that `go run ./bench` takes turns with.

    serve.py --threads 2 step --config dsv3_debug --batch 4 --seq 256 [--compile] [--experts loop|grouped]
    serve.py --threads 2 attention --shape 2,16,1024,128

It prints one line when it is ready, after two steps (a JSON object; peak_bytes is what the model and these steps added to
the resident memory of the process at most), and then, for each line with a number n on standard input, makes n
steps and prints their times in seconds (a JSON list). It ends with its input.
"""
import json
import os
import sys
import time

import torch
import torch.nn.functional as F

import torch_moe


def stepper(options):
    args = torch_moe.parser().parse_args(options)
    config = torch_moe.CONFIGS[args.config]
    trainer = torch_moe.Trainer(args, config)
    data = torch_moe.make_tokens(16, args.batch, args.seq, config.vocab)
    at = 0

    def step():
        nonlocal at
        trainer.step(data[at % len(data)], lambda i: None)
        at += 1

    return step


def attender(options):
    batch, heads, tokens, width = (int(n) for n in options[1].split(","))
    q, k, v = (torch.randn(batch, heads, tokens, width, requires_grad=True) for _ in range(3))
    dout = torch.randn(batch, heads, tokens, width)

    def step():
        q.grad = k.grad = v.grad = None
        F.scaled_dot_product_attention(q, k, v, is_causal=True).backward(dout)

    return step


def main():
    # What is meant for the caller is not to be mixed with what torch prints.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(int(sys.argv[2]))
    base = torch_moe.proc_kib("VmRSS")
    torch_moe.reset_peak_rss()
    step = {"step": stepper, "attention": attender}[sys.argv[3]](sys.argv[4:])
    for _ in range(2):
        step()
    peak = 1024 * (torch_moe.peak_rss_kib() - base)
    print(json.dumps(dict(torch=torch.__version__, threads=torch.get_num_threads(), peak_bytes=peak)), file=out, flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        print(json.dumps(times), file=out, flush=True)


if __name__ == "__main__":
    main()
