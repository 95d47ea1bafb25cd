"""What the generators of golden values in model/*/testdata share: random numbers, batches, common layers, records.

A golden holds seeds, not tensors: parameters and batches are drawn here with the same counter-based numbers as in
Go (device/philox), so a golden also proves that both sides start from equal parameters.
"""
import json
import math

import numpy as np
import torch
import torch.nn.functional as F

SAMPLES = 64  # sampled entries of every gradient
FEW = 8       # sampled entries of every initial and updated parameter
IGNORE = -100


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

def trunc(std, cut=2):
    return lambda d: std * truncated_normal(d, -cut / std, cut / std)


def ones(d):
    return np.ones(len(d))


def parameters(table, seed, dtype):
    """Tensors of a table name -> (shape, initial value from draws)."""
    out = {}
    for name, (shape, init) in table.items():
        x = init(draws(philox_key(seed, name), math.prod(shape))).reshape(shape)
        out[name] = torch.from_numpy(x).to(dtype).requires_grad_()
    return out


def batch(vocab, seed, B, T, call=0):
    """Rows of documents of about 10 tokens. A label is the next token of the document; the document's last
    token has none, nor has one token in eight. Every call is another batch."""
    stream = lambda name, n: draws(philox_key(seed, name, call), B * n).reshape(B, n)
    tokens = (stream("golden.tokens", T + 1) % np.uint64(vocab)).astype(np.int64)
    begins = stream("golden.documents", T + 1) % np.uint64(10) == 0
    begins[:, 0] = True
    start = np.maximum.accumulate(np.where(begins, np.arange(T + 1), 0), axis=1)
    drop = begins[:, 1:] | (stream("golden.ignored", T) % np.uint64(8) == 0)
    labels = np.where(drop, IGNORE, tokens[:, 1:])
    position = np.arange(T + 1) - start
    return tuple(torch.from_numpy(x) for x in (tokens[:, :T], labels, position[:, :T], start[:, :T]))


# ---------------------------------------------------------------- layers, with shape letters B batch, T sequence, H heads, C head width

def rotate(x_BTHC, angle_BTf):
    """Adjacent pairs as complex numbers."""
    cos, sin = (t[:, :, None, :].to(x_BTHC.dtype) for t in (angle_BTf.cos(), angle_BTf.sin()))
    a, b = x_BTHC[..., 0::2], x_BTHC[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def feed_forward(p, at, x):
    w1, w2, w3 = (p[f"{at}.w{n}.weight"] for n in "123")
    return F.linear(F.silu(F.linear(x, w1)) * F.linear(x, w3), w2)


def visible_BTT(start):
    """Which keys a query may see: those before it in its document."""
    column = torch.arange(start.shape[1])
    return (column[None, :] <= column[:, None]) & (column >= start[..., None])


def cross_entropy(logits, labels):
    """Sum of cross-entropies over the number of labels."""
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
    return total / (labels != IGNORE).sum()


# ---------------------------------------------------------------- records

def norm_of(tensors):
    return math.sqrt(sum(t.double().square().sum().item() for t in tensors))


def entries(x, seed, name, count):
    """Values at drawn indices; the reader draws the same ones."""
    return x.detach().flatten()[torch.from_numpy(pick(seed, "golden.sample." + name, x.numel(), count))].tolist()


def projection(x, seed, name):
    """Sum of all entries times drawn numbers in [-1, 1): one number that every entry and its place changes."""
    r = 2 * (draws(philox_key(seed, "golden.projection." + name), x.numel()) >> np.uint64(11)).astype(np.float64) / 2.0**53 - 1
    return float((x.detach().double().flatten().numpy() * r).sum())


def record(seed, batch_size, seq, c, data, p64, loss64, p32, loss32):
    """The golden of a float64 and a float32 pass over data: of each parameter what Go compares."""
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
    return out


def pretty(v, indent=0):
    """JSON with one line for every list and every leaf object, so that a change shows in a diff."""
    if isinstance(v, dict) and any(isinstance(x, (dict, list)) for x in v.values()):
        pad = "\n" + " " * (indent + 1)
        return "{" + ",".join(f"{pad}{json.dumps(k)}: {pretty(x, indent + 1)}" for k, x in v.items()) + "\n" + " " * indent + "}"
    if isinstance(v, list) and v and isinstance(v[0], dict):
        return "[" + ", ".join(pretty(x, indent) for x in v) + "]"
    return json.dumps(v)


def write(path, g):
    path.write_text(pretty(g) + "\n")
    worst = max(p["float32_error"] for p in g["parameters"].values())
    count = sum(math.prod(p["shape"]) for p in g["parameters"].values())
    print(f"{path.name}: {count:,} parameters, loss {g['loss']:.12f} (float32 {g['loss_float32']:.9f}), "
          f"grad_norm {g['grad_norm']:.9f}, float32 gradients off by at most {worst:.1e}")
