#!/usr/bin/env python3
"""Golden losses, gradients and expert loads of the deepseekv3 model, from PyTorch.

    pip install torch numpy
    python generate.py            # rewrites debugmodel.json and tiny.json beside this file

The model is written out in plain PyTorch operations, without sorting or grouping
tokens, and shares nothing with the Go code but the definitions of the papers and the
random numbers, see golden.py in model/testdata.

A choice of experts must not hang on rounding: of every token in every layer, the
worst expert that is chosen must be ahead of the best that is not by MARGIN of its
score, and so must groups. With torchtitan's initial gates almost no batch is like
that, so gates are multiplied by GateScale, a power of two, and batches are drawn
until one is.

Shape letters: B batch, T sequence, N = B*T tokens, D dim, H heads, E experts, F expert hidden, K experts of a token.
"""
import math
import pathlib
import sys

import torch
import torch.nn.functional as F

sys.path.append(str(pathlib.Path(__file__).parents[2] / "testdata"))
from golden import (batch, cross_entropy, draws, feed_forward, normal, ones, parameters, philox_key, record, rms_norm,
                    rotate, trunc, visible_BTT, write)

MARGIN = 1e-3

MODELS = {
    "debugmodel": dict(
        seed=20240602, batch=2, seq=48,
        config=dict(Dim=256, Layers=6, DenseLayers=1, Vocab=2048, Heads=16, QLoRA=0, KVLoRA=512, NoPEDims=128,
                    RoPEDims=64, ValueDim=128, MScale=0.70, Hidden=1024, ExpertHidden=256, Experts=8, TopK=3,
                    SharedExperts=2, Score="softmax", RouteNorm=False, RouteScale=1.0, Groups=0, LimitedGroups=0,
                    NormEps=1e-5, RopeTheta=1e4, YarnFactor=40, YarnOriginal=4096, GateScale=16, Bias=0)),
    "tiny": dict(  # latent queries, sigmoid scores, norm, scale, groups, biases, and a short context before YaRN
        seed=11, batch=2, seq=48,
        config=dict(Dim=48, Layers=3, DenseLayers=1, Vocab=97, Heads=3, QLoRA=24, KVLoRA=20, NoPEDims=12,
                    RoPEDims=8, ValueDim=10, MScale=1.0, Hidden=64, ExpertHidden=20, Experts=12, TopK=3,
                    SharedExperts=1, Score="sigmoid", RouteNorm=True, RouteScale=2.5, Groups=4, LimitedGroups=2,
                    NormEps=1e-5, RopeTheta=1e4, YarnFactor=4, YarnOriginal=64, GateScale=16, Bias=0.1)),
}


# ---------------------------------------------------------------- parameters

def parameter_table(c):
    """name -> (shape, initial value from draws). Inits are torchtitan's."""
    D, H, E, Fe = c["Dim"], c["Heads"], c["Experts"], c["ExpertHidden"]
    query, key_value = H * (c["NoPEDims"] + c["RoPEDims"]), H * (c["NoPEDims"] + c["ValueDim"])
    linear = trunc(0.02)
    t = {"tok_embeddings.weight": ((c["Vocab"], D), normal)}
    for l in range(c["Layers"]):
        p, deep = f"layers.{l}.", trunc(0.02 / math.sqrt(2 * (l + 1)))
        at = p + "attention."
        t[p + "attention_norm.weight"] = (D,), ones
        if c["QLoRA"]:
            t[at + "wq_a.weight"] = (c["QLoRA"], D), linear
            t[at + "q_norm.weight"] = (c["QLoRA"],), ones
            t[at + "wq_b.weight"] = (query, c["QLoRA"]), linear
        else:
            t[at + "wq.weight"] = (query, D), linear
        t[at + "wkv_a.weight"] = (c["KVLoRA"] + c["RoPEDims"], D), linear
        t[at + "kv_norm.weight"] = (c["KVLoRA"],), ones
        t[at + "wkv_b.weight"] = (key_value, c["KVLoRA"]), linear
        t[at + "wo.weight"] = (D, H * c["ValueDim"]), deep
        t[p + "ffn_norm.weight"] = (D,), ones
        ffn, hidden = p + "feed_forward.", c["Hidden"]
        if l >= c["DenseLayers"]:
            t[p + "moe.router.gate.weight"] = (E, D), lambda d, deep=deep: c["GateScale"] * deep(d)
            t[p + "moe.experts.w1"] = (E, Fe, D), linear
            t[p + "moe.experts.w2"] = (E, D, Fe), deep
            t[p + "moe.experts.w3"] = (E, Fe, D), deep
            ffn, hidden = p + "moe.shared_experts.", Fe * c["SharedExperts"]
        t[ffn + "w1.weight"] = (hidden, D), linear
        t[ffn + "w2.weight"] = (D, hidden), deep
        t[ffn + "w3.weight"] = (hidden, D), deep
    t["norm.weight"] = (D,), ones
    t["output.weight"] = (c["Vocab"], D), trunc(D**-0.5, 3 * D**-0.5)
    return t


# ---------------------------------------------------------------- model

def rope_frequencies(c):
    """YaRN's: pairs that turn often are kept, those that turn less than once stretched, with a ramp between."""
    d, theta, length = c["RoPEDims"], c["RopeTheta"], c["YarnOriginal"]
    i = torch.arange(d // 2, dtype=torch.float64)
    f = theta ** (-2 * i / d)
    pair = lambda turns: d * math.log(length / (2 * math.pi * turns)) / (2 * math.log(theta))
    low, high = max(math.floor(pair(32)), 0), min(math.ceil(pair(1)), d - 1)
    ramp = ((i - low) / (high - low)).clamp(0, 1)
    return f / c["YarnFactor"] * ramp + f * (1 - ramp)


def attention(c, p, at, x_BTD, angle_BTf, visible_B1TT):
    B, T, _ = x_BTD.shape
    nope, rope = c["NoPEDims"], c["RoPEDims"]
    if c["QLoRA"]:
        latent = rms_norm(F.linear(x_BTD, p[at + ".wq_a.weight"]), p[at + ".q_norm.weight"], c["NormEps"])
        q = F.linear(latent, p[at + ".wq_b.weight"])
    else:
        q = F.linear(x_BTD, p[at + ".wq.weight"])
    q_nope, q_pe = q.view(B, T, c["Heads"], nope + rope).split((nope, rope), -1)
    latent, k_pe = F.linear(x_BTD, p[at + ".wkv_a.weight"]).split((c["KVLoRA"], rope), -1)
    latent = rms_norm(latent, p[at + ".kv_norm.weight"], c["NormEps"])
    kv = F.linear(latent, p[at + ".wkv_b.weight"]).view(B, T, c["Heads"], nope + c["ValueDim"])
    k_nope, v = kv.split((nope, c["ValueDim"]), -1)
    # Two products instead of one over joined heads: the rotated key is the same for all heads.
    score_BHTT = torch.einsum("bthc,bshc->bhts", q_nope, k_nope)
    score_BHTT = score_BHTT + torch.einsum("bthc,bsc->bhts", rotate(q_pe, angle_BTf), rotate(k_pe[:, :, None], angle_BTf)[:, :, 0])
    sharpen = 0.1 * c["MScale"] * math.log(c["YarnFactor"]) + 1
    score_BHTT = score_BHTT * ((nope + rope) ** -0.5 * sharpen**2)
    weight_BHTT = score_BHTT.masked_fill(~visible_B1TT, -math.inf).softmax(-1)
    return F.linear(torch.einsum("bhts,bshc->bthc", weight_BHTT, v).flatten(2), p[at + ".wo.weight"])


class Routing:
    """What routers did in one pass: tokens of every expert of a layer, and the narrowest choice."""

    def __init__(self):
        self.loads, self.margin = {}, math.inf

    def choose(self, scores, k):
        """The k best columns of every row."""
        best = scores.topk(k + 1 if k < scores.shape[1] else k, -1)
        if k < scores.shape[1]:
            ahead = (best[0][:, k - 1] - best[0][:, k]) / best[0][:, k - 1].abs()
            self.margin = min(self.margin, ahead.min().item())
        return best[1][:, :k]


def choose(c, score_NE, bias_E, routing):
    choice = score_NE + bias_E
    if c["Groups"] > 1:
        group = choice.view(len(choice), c["Groups"], -1)
        kept = routing.choose(group.topk(2, -1)[0].sum(-1), c["LimitedGroups"])
        hidden = torch.ones(group.shape[:2], dtype=torch.bool).scatter(1, kept, False)
        choice = group.masked_fill(hidden[..., None], -math.inf).flatten(1)
    return routing.choose(choice, c["TopK"])


def mixture(c, p, at, x_ND, bias_E, routing):
    logits = F.linear(x_ND, p[at + ".router.gate.weight"])
    score_NE = logits.sigmoid() if c["Score"] == "sigmoid" else logits.softmax(-1)
    chosen_NE = torch.zeros_like(score_NE).scatter(1, choose(c, score_NE.detach(), bias_E, routing), 1)
    weight_NE = score_NE * chosen_NE
    if c["RouteNorm"]:
        weight_NE = weight_NE / (weight_NE.sum(-1, keepdim=True) + 1e-20)
    weight_NE = weight_NE * c["RouteScale"]
    routing.loads[at] = [int(n) for n in chosen_NE.sum(0)]
    # Every expert sees every token, and most weights are 0: slow, and nothing to get wrong.
    hidden_NEF = F.silu(torch.einsum("nd,efd->nef", x_ND, p[at + ".experts.w1"]))
    hidden_NEF = hidden_NEF * torch.einsum("nd,efd->nef", x_ND, p[at + ".experts.w3"])
    return torch.einsum("nef,edf,ne->nd", hidden_NEF, p[at + ".experts.w2"], weight_NE) + feed_forward(p, at + ".shared_experts", x_ND)


def loss_of(c, p, biases, tokens, labels, position, start):
    eps, routing = c["NormEps"], Routing()
    angle = position[..., None] * rope_frequencies(c)
    visible = visible_BTT(start)
    x = p["tok_embeddings.weight"][tokens]
    for l in range(c["Layers"]):
        at = f"layers.{l}."
        h = rms_norm(x, p[at + "attention_norm.weight"], eps)
        x = x + attention(c, p, at + "attention", h, angle, visible[:, None])
        h = rms_norm(x, p[at + "ffn_norm.weight"], eps)
        if l < c["DenseLayers"]:
            x = x + feed_forward(p, at + "feed_forward", h)
        else:
            x = x + mixture(c, p, at + "moe", h.flatten(0, 1), biases[at + "moe"].to(x.dtype), routing).view_as(x)
    return cross_entropy(F.linear(rms_norm(x, p["norm.weight"], eps), p["output.weight"]), labels), routing


# ---------------------------------------------------------------- goldens

def expert_biases(c, seed):
    """Biases of the choice as training would have left them: multiples of 2^-8, which every dtype holds."""
    def bias(at):
        d = normal(draws(philox_key(seed, f"golden.bias.{at}"), c["Experts"]))
        return (torch.from_numpy(d) * c["Bias"] * 256).round() / 256
    return {at: bias(at) for at in (f"layers.{l}.moe" for l in range(c["DenseLayers"], c["Layers"]))}


def golden(seed, batch_size, seq, c):
    table, biases = parameter_table(c), expert_biases(c, seed)
    p64, p32 = (parameters(table, seed, dtype) for dtype in (torch.float64, torch.float32))
    for call in range(2000):
        data = batch(c["Vocab"], seed, batch_size, seq, call)
        with torch.no_grad():
            margin = loss_of(c, p64, biases, *data)[1].margin
        if margin > MARGIN:
            break
    assert margin > MARGIN, f"no batch with a margin above {MARGIN}"
    loss64, routing = loss_of(c, p64, biases, *data)
    loss64.backward()
    loss32, routing32 = loss_of(c, p32, biases, *data)
    loss32.backward()
    assert routing.loads == routing32.loads
    out = record(seed, batch_size, seq, c, data, p64, loss64.item(), p32, loss32.item())
    return out | dict(batch_call=call, margin=margin, loads=routing.loads)


def main():
    for name, m in MODELS.items():
        g = golden(m["seed"], m["batch"], m["seq"], m["config"])
        write(pathlib.Path(__file__).with_name(name + ".json"), g)
        print(f"  batch {g['batch_call']}, margin {g['margin']:.1e}, loads {list(g['loads'].values())}")


if __name__ == "__main__":
    main()
