"""Golden values of the optimizers: what PyTorch makes of drawn parameters and gradients in 50 steps.

Run it in this folder: python3 optimizer_golden.py > optimizer.json. It needs torch, numpy and model/testdata/golden.py.

Parameters and gradients are drawn with the counter-based numbers of device/philox on both sides, so the golden holds
seeds, the configuration as Lethe reads it, and results. All is float64. torch.optim.Muon casts to bfloat16 for its
Newton-Schulz iterations; here that one cast is to float64, and nothing else of it is changed.
"""
import math
import pathlib
import sys

import torch
from torch.optim import SGD, Adam, AdamW, Muon
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "model" / "testdata"))
import golden

torch.set_default_dtype(torch.float64)
torch.bfloat16 = torch.float64  # of torch.optim.Muon, see above

SEED, STEPS = 7, 50
SHAPES = {
    "tok_embeddings.weight": (5, 4),
    "layers.0.norm.weight": (4,),
    "layers.0.wq.weight": (6, 4),
    "layers.0.wq.bias": (6,),
    "layers.0.wo.weight": (4, 6),
    "layers.0.experts.w1": (2, 3, 5),
    "output.weight": (5, 4),
}
MATRICES = ["layers.0.wq.weight", "layers.0.wo.weight", "layers.0.experts.w1"]
NORMS_EMBEDDING = ["tok_embeddings.weight", "layers.0.norm.weight", "layers.0.wq.bias"]


def drawn(name, call):
    shape = SHAPES[name]
    d = golden.draws(golden.philox_key(SEED, name if call == 0 else "gradient." + name, call), math.prod(shape))
    return torch.from_numpy(golden.normal(d).reshape(shape))


def factor(warmup, decay, kind, least):
    """torchtitan's factor on the learning rate of a 0-based step."""
    stable = STEPS + 1 - warmup - decay

    def f(s):
        if s < warmup:
            return (s + 1) / warmup
        if s < warmup + stable or s >= STEPS:  # LambdaLR asks for one step more than there are
            return 1.0
        p = (s + 1 - warmup - stable) / decay
        curve = {"linear": 1 - p, "sqrt": 1 - math.sqrt(p), "cosine": (1 + math.cos(math.pi * p)) / 2}[kind]
        return least + (1 - least) * curve

    return f


class Stack:
    """A parameter, and as what PyTorch's Muon takes it: one leaf for each of its matrices."""

    def __init__(self, name):
        whole = drawn(name, 0)
        self.name = name
        self.leaves = [m.clone().requires_grad_() for m in (whole if whole.ndim == 3 else [whole])]

    def set(self, gradient):
        for p, g in zip(self.leaves, gradient if gradient.ndim == 3 else [gradient]):
            p.grad = g.clone()

    def value(self):
        return [x for p in self.leaves for x in p.detach().flatten().tolist()]


def case(name, toml, groups, max_norm, schedule, ema=None):
    """groups lists (optimizer class, names of parameters, its arguments); every parameter is in one."""
    stacks = {n: Stack(n) for n in SHAPES}
    assert sorted(n for _, names, _ in groups for n in names) == sorted(SHAPES)
    optimizers = [cls([p for n in names for p in stacks[n].leaves], **kw) for cls, names, kw in groups]
    schedulers = [LambdaLR(o, factor(*schedule)) for o in optimizers]
    leaves = [p for s in stacks.values() for p in s.leaves]
    module = torch.nn.ParameterList(leaves)
    average = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(ema)) if ema else None
    rates, norms = [], []
    for t in range(1, STEPS + 1):
        for n, s in stacks.items():
            s.set(drawn(n, t))
        norm = torch.nn.utils.clip_grad_norm_(leaves, max_norm if max_norm else math.inf)
        norms.append(norm.item())
        rates.append(optimizers[0].param_groups[0]["lr"])
        for o in optimizers:
            o.step()
        if average:
            average.update_parameters(module)
        for s in schedulers:
            s.step()
    out = {"name": name, "config": toml, "learning_rates": rates, "grad_norms": norms,
           "parameters": {n: s.value() for n, s in stacks.items()}}
    if average:
        means = iter(average.module)
        out["averages"] = {n: [x for _ in s.leaves for x in next(means).detach().flatten().tolist()]
                           for n, s in stacks.items()}
    return out


ALL = list(SHAPES)
REST = [n for n in ALL if n not in MATRICES]
LINEAR, COSINE, SQRT = (5, 45, "linear", 0.0), (10, 30, "cosine", 0.1), (0, 40, "sqrt", 0.05)
LINEAR_TOML = "[lr_scheduler]\nwarmup_steps = 5\n"
COSINE_TOML = '[lr_scheduler]\nwarmup_steps = 10\ndecay_ratio = 0.6\ndecay_type = "cosine"\nmin_lr_factor = 0.1\n'
SQRT_TOML = '[lr_scheduler]\nwarmup_steps = 0\ndecay_ratio = 0.8\ndecay_type = "sqrt"\nmin_lr_factor = 0.05\n'


def adam(lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1):
    return dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)


CASES = [
    case("AdamW, linear, clipped", "[optimizer]\nlr = 1e-2\n" + LINEAR_TOML,
         [(AdamW, ALL, adam())], 1.0, LINEAR),
    case("AdamW, cosine", "[optimizer]\nlr = 3e-2\nbeta1 = 0.8\nbeta2 = 0.99\neps = 1e-6\n[training]\nmax_norm = 0\n" + COSINE_TOML,
         [(AdamW, ALL, adam(3e-2, (0.8, 0.99), 1e-6))], 0, COSINE),
    case("AdamW, no decay on norms and embeddings", "[optimizer]\nlr = 1e-2\nno_decay_norm_embedding = true\n" + LINEAR_TOML,
         [(AdamW, [n for n in ALL if n not in NORMS_EMBEDDING], adam()), (AdamW, NORMS_EMBEDDING, adam(weight_decay=0))], 1.0, LINEAR),
    case("AdamW, moving average", "[optimizer]\nlr = 1e-2\nema_decay = 0.9\n" + SQRT_TOML,
         [(AdamW, ALL, adam())], 1.0, SQRT, ema=0.9),
    case("Adam, square root, clipped", '[optimizer]\nname = "Adam"\nlr = 1e-2\n' + SQRT_TOML,
         [(Adam, ALL, adam())], 1.0, SQRT),
    case("SGD", '[optimizer]\nname = "SGD"\nlr = 1e-2\nmomentum = 0\n[training]\nmax_norm = 0\n' + LINEAR_TOML,
         [(SGD, ALL, dict(lr=1e-2, weight_decay=0.1))], 0, LINEAR),
    case("SGD, momentum, clipped", '[optimizer]\nname = "SGD"\nlr = 1e-2\nmomentum = 0.9\nnesterov = false\n' + COSINE_TOML,
         [(SGD, ALL, dict(lr=1e-2, weight_decay=0.1, momentum=0.9))], 1.0, COSINE),
    case("SGD, Nesterov", '[optimizer]\nname = "SGD"\nlr = 1e-2\nmomentum = 0.9\n' + LINEAR_TOML,
         [(SGD, ALL, dict(lr=1e-2, weight_decay=0.1, momentum=0.9, nesterov=True))], 1.0, LINEAR),
    case("Muon, original", '[optimizer]\nname = "Muon"\nlr = 2e-2\nmuon_adjust_lr = "original"\n' + LINEAR_TOML,
         [(Muon, MATRICES, dict(lr=2e-2, weight_decay=0.1)), (AdamW, REST, adam(2e-2))], 1.0, LINEAR),
    case("Muon, as AdamW's steps, no Nesterov", '[optimizer]\nname = "Muon"\nlr = 2e-2\nnesterov = false\nmomentum = 0.9\nweight_decay = 0\n[training]\nmax_norm = 0\n' + COSINE_TOML,
         [(Muon, MATRICES, dict(lr=2e-2, weight_decay=0, momentum=0.9, nesterov=False, adjust_lr_fn="match_rms_adamw")),
          (AdamW, REST, adam(2e-2, weight_decay=0))], 0, COSINE),
    case("groups", """[optimizer]
lr = 1e-2
[[optimizer.groups]]
pattern = "norm.weight"
lr = 0.1
weight_decay = 0
[[optimizer.groups]]
pattern = "layers.*.wq"
name = "SGD"
momentum = 0.5
lr = 3e-3
[[optimizer.groups]]
pattern = "layers"
name = "Muon"
weight_decay = 0.2
[[optimizer.groups]]
pattern = "tok_embeddings"
beta1 = 0.5
beta2 = 0.9
eps = 1e-5
""" + LINEAR_TOML,
         [(AdamW, ["output.weight"], adam()),
          (AdamW, ["layers.0.norm.weight"], adam(0.1, weight_decay=0)),
          (SGD, ["layers.0.wq.weight", "layers.0.wq.bias"], dict(lr=3e-3, weight_decay=0.1, momentum=0.5, nesterov=True)),
          (Muon, ["layers.0.wo.weight", "layers.0.experts.w1"], dict(lr=1e-2, weight_decay=0.2, adjust_lr_fn="match_rms_adamw")),
          (AdamW, ["tok_embeddings.weight"], adam(1e-2, (0.5, 0.9), 1e-5))], 1.0, LINEAR),
]

if __name__ == "__main__":
    print(golden.pretty({"torch": torch.__version__, "seed": SEED, "steps": STEPS, "shapes": {n: list(s) for n, s in SHAPES.items()},
                         "cases": CASES}))
