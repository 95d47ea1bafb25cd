#!/usr/bin/env python3
"""Golden losses, gradients and AdamW steps of the llama3 model, from PyTorch.

    pip install torch numpy
    python generate.py            # rewrites debugmodel.json and tiny.json beside this file

A golden holds seeds, not tensors: parameters and batches are drawn here with the
same counter-based numbers as in Go (device/philox), so a golden also proves that
both sides start from equal parameters. The model is written out in plain PyTorch
operations and shares nothing with the Go code but the definitions of the papers.

Shape letters: B batch, T sequence, D dim, H heads, K key/value heads, C head_dim, V vocabulary.
"""
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F

SAMPLES = 64  # sampled entries of every gradient
FEW = 8       # sampled entries of every initial and updated parameter
IGNORE = -100

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


# ---------------------------------------------------------------- random numbers, as device/philox defines them

M32, M64 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF


def philox_key(seed, name, call=0):
    """FNV-1a of seed, name and call index, then SplitMix64's finalizer."""
    h = 14695981039346656037
    for b in seed.to_bytes(8, "little") + name.encode() + call.to_bytes(8, "little"):
        h = (h ^ b) * 1099511628211 & M64
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & M64
    h = (h ^ h >> 27) * 0x94D049BB133111EB & M64
    return h ^ h >> 31


def draws(key, n):
    """The 64-bit draws of elements 0 to n-1 at step 0, microbatch 0: Philox4x32-10 in uint64 lanes."""
    i = np.arange(n, dtype=np.uint64)
    mask, half = np.uint64(M32), np.uint64(32)
    c0, c1, c2, c3 = i & mask, i >> half, np.zeros_like(i), np.zeros_like(i)
    k0, k1 = key & M32, key >> 32
    for _ in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = p1 >> half ^ c1 ^ np.uint64(k0), p1 & mask, p0 >> half ^ c3 ^ np.uint64(k1), p0 & mask
        k0, k1 = k0 + 0x9E3779B9 & M32, k1 + 0xBB67AE85 & M32
    return c1 << half | c0


def unit(d):
    """Draws to the middles of 2^53 cells of (0, 1)."""
    return (d >> np.uint64(11)).astype(np.float64) + 0.5


def inverse_normal(u):
    return math.sqrt(2) * torch.special.erfinv(torch.from_numpy(2 * u - 1)).numpy()


def normal(d):
    return inverse_normal(unit(d) / 2.0**53)


def truncated_normal(d, low, high):
    lo, hi = (0.5 * math.erfc(-x / math.sqrt(2)) for x in (low, high))
    return np.clip(inverse_normal(lo + (hi - lo) * unit(d) / 2.0**53), low, high)


def pick(seed, name, n, count):
    """count indices below n."""
    return (draws(philox_key(seed, name), count) % np.uint64(n)).astype(np.int64)


# ---------------------------------------------------------------- parameters and batch

def parameter_table(c):
    """name -> (shape, initial value from draws). Inits are torchtitan's."""
    def trunc(std, cut):
        return lambda d: std * truncated_normal(d, -cut / std, cut / std)

    def ones(d):
        return np.ones(len(d))

    D, C = c["Dim"], c["HeadDim"]
    linear = trunc(0.02, 2)
    t = {"tok_embeddings.weight": ((c["Vocab"], D), normal)}
    for l in range(c["Layers"]):
        p, deep = f"layers.{l}.", trunc(0.02 / math.sqrt(2 * (l + 1)), 2)
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


def parameters(c, seed, dtype):
    out = {}
    for name, (shape, init) in parameter_table(c).items():
        x = init(draws(philox_key(seed, name), math.prod(shape))).reshape(shape)
        out[name] = torch.from_numpy(x).to(dtype).requires_grad_()
    return out


def batch(c, seed, B, T):
    """Rows of documents of about 10 tokens. A label is the next token of the document; the document's last
    token has none, nor has one token in eight."""
    stream = lambda name, n: draws(philox_key(seed, name), B * n).reshape(B, n)
    tokens = (stream("golden.tokens", T + 1) % np.uint64(c["Vocab"])).astype(np.int64)
    begins = stream("golden.documents", T + 1) % np.uint64(10) == 0
    begins[:, 0] = True
    start = np.maximum.accumulate(np.where(begins, np.arange(T + 1), 0), axis=1)
    drop = begins[:, 1:] | (stream("golden.ignored", T) % np.uint64(8) == 0)
    labels = np.where(drop, IGNORE, tokens[:, 1:])
    position = np.arange(T + 1) - start
    return tuple(torch.from_numpy(x) for x in (tokens[:, :T], labels, position[:, :T], start[:, :T]))


# ---------------------------------------------------------------- model

def rope_frequencies(c):
    """Llama 3.1's: long wavelengths are stretched by the factor, short ones kept, those between blended."""
    f = c["RopeTheta"] ** (-torch.arange(0, c["HeadDim"], 2, dtype=torch.float64) / c["HeadDim"])
    if c["RopeFactor"] == 1:
        return f
    turns = c["RopeOriginal"] * f / (2 * math.pi)
    keep = ((turns - c["RopeLowFreq"]) / (c["RopeHighFreq"] - c["RopeLowFreq"])).clamp(0, 1)
    return keep * f + (1 - keep) * f / c["RopeFactor"]


def rotate(x_BTHC, angle_BTf):
    """Adjacent pairs as complex numbers."""
    cos, sin = (t[:, :, None, :].to(x_BTHC.dtype) for t in (angle_BTf.cos(), angle_BTf.sin()))
    a, b = x_BTHC[..., 0::2], x_BTHC[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


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


def feed_forward(p, at, x):
    w1, w2, w3 = (p[f"{at}.w{n}.weight"] for n in "123")
    return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)


def loss_of(c, p, tokens, labels, position, start):
    """Sum of cross-entropies over the number of labels."""
    T, eps = tokens.shape[1], c["NormEps"]
    angle = position[..., None] * rope_frequencies(c)
    column = torch.arange(T)
    visible = (column[None, :] <= column[:, None]) & (column >= start[..., None])
    x = p["tok_embeddings.weight"][tokens]
    for l in range(c["Layers"]):
        at = f"layers.{l}."
        h = rms_norm(x, p[at + "attention_norm.weight"], eps)
        x = x + attention(c, p, at + "attention", h, angle, visible[:, None])
        h = rms_norm(x, p[at + "ffn_norm.weight"], eps)
        x = x + feed_forward(p, at + "feed_forward", h)
    logits = F.linear(rms_norm(x, p["norm.weight"], eps), p["output.weight"])
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
    return total / (labels != IGNORE).sum()


# ---------------------------------------------------------------- goldens

def norm_of(tensors):
    return math.sqrt(sum(t.double().square().sum().item() for t in tensors))


def entries(x, seed, name, count):
    """Values at drawn indices; the reader draws the same ones."""
    return x.detach().flatten()[torch.from_numpy(pick(seed, "golden.sample." + name, x.numel(), count))].tolist()


def projection(x, seed, name):
    """Sum of all entries times drawn numbers in [-1, 1): one number that every entry and its place changes."""
    r = 2 * (draws(philox_key(seed, "golden.projection." + name), x.numel()) >> np.uint64(11)).astype(np.float64) / 2.0**53 - 1
    return float((x.detach().double().flatten().numpy() * r).sum())


def gradients(c, seed, data, dtype):
    p = parameters(c, seed, dtype)
    loss = loss_of(c, p, *data)
    loss.backward()
    return p, loss.item()


def train(c, seed, data, steps):
    """AdamW with clipping, on the same batch again and again."""
    o, p, out = OPTIMIZER, parameters(c, seed, torch.float64), []
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
    data = batch(c, seed, batch_size, seq)
    p64, loss64 = gradients(c, seed, data, torch.float64)
    p32, loss32 = gradients(c, seed, data, torch.float32)
    out = dict(seed=seed, batch=batch_size, seq=seq, config=c, labels=int((data[1] != IGNORE).sum()),
               documents=int((data[2] == 0).sum()),
               loss=loss64, loss_float32=loss32, grad_norm=norm_of(x.grad for x in p64.values()),
               parameters={})
    for n, x in p64.items():
        g = x.grad
        out["parameters"][n] = dict(
            shape=list(x.shape), initial=entries(x, seed, n, FEW), grad_norm=norm_of([g]),
            grad_projection=projection(g, seed, n), grad_samples=entries(g, seed, n, SAMPLES),
            # How far PyTorch's own float32 gradient is from its float64 one, as a share of the norm.
            float32_error=norm_of([p32[n].grad.double() - g]) / norm_of([g]))
    if steps:
        out["optimizer"], out["steps"] = OPTIMIZER, train(c, seed, data, steps)
    return out


def pretty(v, indent=0):
    """JSON with one line for every list and every leaf object, so that a change shows in a diff."""
    if isinstance(v, dict) and any(isinstance(x, (dict, list)) for x in v.values()):
        pad = "\n" + " " * (indent + 1)
        return "{" + ",".join(f"{pad}{json.dumps(k)}: {pretty(x, indent + 1)}" for k, x in v.items()) + "\n" + " " * indent + "}"
    if isinstance(v, list) and v and isinstance(v[0], dict):
        return "[" + ", ".join(pretty(x, indent) for x in v) + "]"
    return json.dumps(v)


def main():
    for name, m in MODELS.items():
        g = golden(m["seed"], m["batch"], m["seq"], m["steps"], m["config"])
        path = pathlib.Path(__file__).with_name(name + ".json")
        path.write_text(pretty(g) + "\n")
        worst = max(p["float32_error"] for p in g["parameters"].values())
        count = sum(math.prod(p["shape"]) for p in g["parameters"].values())
        print(f"{path.name}: {count:,} parameters, loss {g['loss']:.12f} (float32 {g['loss_float32']:.9f}), "
              f"grad_norm {g['grad_norm']:.9f}, float32 gradients off by at most {worst:.1e}")


if __name__ == "__main__":
    main()
