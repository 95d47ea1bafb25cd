#!/usr/bin/env python3
"""Golden losses, gradients and AdamW steps of the llama3 model, from PyTorch.

    pip install torch numpy
    python generate.py            # rewrites debugmodel.json and tiny.json beside this file

The model is written out in plain PyTorch operations and shares nothing with the Go
code but the definitions of the papers and the random numbers, see golden.py in
model/testdata.

Shape letters: B batch, T sequence, D dim, H heads, K key/value heads, C head_dim, V vocabulary.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).parents[2] / "testdata"))
from golden import (FEW, batch, cross_entropy, entries, feed_forward, norm_of, normal, ones, parameters, record,
                    rms_norm, rotate, trunc, visible_BTT, write)

MODELS = {
    "debugmodel": dict(
        seed=20240601, batch=2, seq=64, steps=0,
        config=dict(Dim=256, Layers=6, Heads=16, KVHeads=16, HeadDim=16, Hidden=768, Vocab=2048, NormEps=1e-5,
                    RopeTheta=5e5, RopeFactor=8, RopeLowFreq=1, RopeHighFreq=4, RopeOriginal=8192, MaxPositions=8192)),
    "tiny": dict(  # grouped heads, a norm on every query and key head, and enough positions for all three RoPE bands
        seed=7, batch=2, seq=48, steps=3,
        config=dict(Dim=48, Layers=2, Heads=6, KVHeads=2, HeadDim=16, Hidden=80, Vocab=97, NormEps=1e-5, QKNorm=True,
                    RopeTheta=1e4, RopeFactor=8, RopeLowFreq=1, RopeHighFreq=4, RopeOriginal=128, MaxPositions=256)),
}
OPTIMIZER = dict(lr=1e-2, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, max_norm=1.0)


# ---------------------------------------------------------------- parameters

def parameter_table(c):
    """name -> (shape, initial value from draws). Inits are torchtitan's."""
    D, C = c["Dim"], c["HeadDim"]
    linear = trunc(0.02)
    t = {"tok_embeddings.weight": ((c["Vocab"], D), normal)}
    for l in range(c["Layers"]):
        p, deep = f"layers.{l}.", trunc(0.02 / math.sqrt(2 * (l + 1)))
        t[p + "attention_norm.weight"] = (D,), ones
        t[p + "attention.wq.weight"] = (c["Heads"] * C, D), linear
        t[p + "attention.wk.weight"] = (c["KVHeads"] * C, D), linear
        t[p + "attention.wv.weight"] = (c["KVHeads"] * C, D), linear
        if c.get("QKNorm"):
            t[p + "attention.q_norm.weight"] = (C,), ones
            t[p + "attention.k_norm.weight"] = (C,), ones
        t[p + "attention.wo.weight"] = (D, c["Heads"] * C), deep
        t[p + "ffn_norm.weight"] = (D,), ones
        t[p + "feed_forward.w1.weight"] = (c["Hidden"], D), linear
        t[p + "feed_forward.w2.weight"] = (D, c["Hidden"]), deep
        t[p + "feed_forward.w3.weight"] = (c["Hidden"], D), deep
    t["norm.weight"] = (D,), ones
    t["output.weight"] = (c["Vocab"], D), trunc(D**-0.5, 3 * D**-0.5)
    return t


# ---------------------------------------------------------------- model

def rope_frequencies(c):
    """Llama 3.1's: long wavelengths are stretched by the factor, short ones kept, those between blended."""
    f = c["RopeTheta"] ** (-torch.arange(0, c["HeadDim"], 2, dtype=torch.float64) / c["HeadDim"])
    if c["RopeFactor"] == 1:
        return f
    turns = c["RopeOriginal"] * f / (2 * math.pi)
    keep = ((turns - c["RopeLowFreq"]) / (c["RopeHighFreq"] - c["RopeLowFreq"])).clamp(0, 1)
    return keep * f + (1 - keep) * f / c["RopeFactor"]


def attention(c, p, at, x_BTD, angle_BTf, visible_B1TT):
    B, T, _ = x_BTD.shape
    q, k, v = (F.linear(x_BTD, p[f"{at}.w{n}.weight"]).view(B, T, -1, c["HeadDim"]) for n in "qkv")
    if c.get("QKNorm"):
        q = rms_norm(q, p[at + ".q_norm.weight"], c["NormEps"])
        k = rms_norm(k, p[at + ".k_norm.weight"], c["NormEps"])
    q, k = rotate(q, angle_BTf), rotate(k, angle_BTf)
    group = c["Heads"] // c["KVHeads"]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    score_BHTT = torch.einsum("bthc,bshc->bhts", q, k) * c["HeadDim"] ** -0.5
    weight_BHTT = score_BHTT.masked_fill(~visible_B1TT, -math.inf).softmax(-1)
    return F.linear(torch.einsum("bhts,bshc->bthc", weight_BHTT, v).flatten(2), p[at + ".wo.weight"])


def loss_of(c, p, tokens, labels, position, start):
    """Sum of cross-entropies over the number of labels."""
    eps = c["NormEps"]
    angle = position[..., None] * rope_frequencies(c)
    visible = visible_BTT(start)
    x = p["tok_embeddings.weight"][tokens]
    for l in range(c["Layers"]):
        at = f"layers.{l}."
        h = rms_norm(x, p[at + "attention_norm.weight"], eps)
        x = x + attention(c, p, at + "attention", h, angle, visible[:, None])
        h = rms_norm(x, p[at + "ffn_norm.weight"], eps)
        x = x + feed_forward(p, at + "feed_forward", h)
    logits = F.linear(rms_norm(x, p["norm.weight"], eps), p["output.weight"])
    return cross_entropy(logits, labels)


# ---------------------------------------------------------------- goldens

def gradients(c, seed, data, dtype):
    p = parameters(parameter_table(c), seed, dtype)
    loss = loss_of(c, p, *data)
    loss.backward()
    return p, loss.item()


def train(c, seed, data, steps):
    """AdamW with clipping, on the same batch again and again."""
    o, p, out = OPTIMIZER, parameters(parameter_table(c), seed, torch.float64), []
    adamw = torch.optim.AdamW(p.values(), lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                              weight_decay=o["weight_decay"])
    for _ in range(steps):
        adamw.zero_grad()
        loss = loss_of(c, p, *data)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(p.values(), o["max_norm"])
        adamw.step()
        out.append(dict(loss=loss.item(), grad_norm=norm.item(), parameters={
            n: dict(norm=norm_of([x]), samples=entries(x, seed, n, FEW)) for n, x in p.items()}))
    return out


def golden(seed, batch_size, seq, steps, c):
    data = batch(c["Vocab"], seed, batch_size, seq)
    out = record(seed, batch_size, seq, c, data, *gradients(c, seed, data, torch.float64),
                 *gradients(c, seed, data, torch.float32))
    if steps:
        out["optimizer"], out["steps"] = OPTIMIZER, train(c, seed, data, steps)
    return out


def main():
    for name, m in MODELS.items():
        g = golden(m["seed"], m["batch"], m["seq"], m["steps"], m["config"])
        write(pathlib.Path(__file__).with_name(name + ".json"), g)


if __name__ == "__main__":
    main()
