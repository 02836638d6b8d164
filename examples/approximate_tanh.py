"""Training with an approximate tanh, written in the operator language.

tanh is costly in hardware; x (1 - |x| / 4), cut off at 1 beyond |x| = 2, needs one multiplier, and its pieces meet with
the same slope. The forward pass computes that approximation everywhere in the model, and the backward pass is derived
from the same source, piece by piece, or is the exact derivative of tanh. It is compared with ready-made tables and
piecewise linear functions, and with a coarse staircase whose pieces do not meet.

    python examples/approximate_tanh.py
"""

from dataclasses import replace

import torch
from torch import nn

import presilicon as ps
from presilicon.designs import Numerics
from presilicon.ops import Operator, operator, piecewise_linear, table

KNEE = 2.0


@operator("tanh")
def approximate_tanh(x):
    """Kwan's second-order approximation (Electronics Letters 28, 1992)."""
    size = abs(x)
    if size < KNEE:
        return x * (1 - size / (2 * KNEE))
    elif x > 0:
        return 1.0
    else:
        return -1.0


@operator("tanh", backward="exact")
def with_exact_backward(x):
    return approximate_tanh(x)


@operator("tanh", format="e4m3", cycles=2)
def in_eight_bits(x):
    return approximate_tanh(x)


@operator("tanh")
def staircase(x):
    """A few cases, each a straight line."""
    size = abs(x)
    match size:
        case _ if size < 0.5:
            return x
        case _ if size < 1.5:
            height = 0.5 * size + 0.25
        case _ if size < 2.5:
            height = 0.125 * size + 0.75
        case _:
            height = 1.0
    return height if x > 0 else -height


OPERATORS: dict[str, Operator | None] = {
    "exact tanh": None,
    "approximation": approximate_tanh,
    "approximation, exact backward": with_exact_backward,
    "approximation in e4m3": in_eight_bits,
    "staircase": staircase,
    "8 straight pieces": piecewise_linear("tanh", -4, 4, 8),
    "8 straight pieces, minimax": piecewise_linear("tanh", -4, 4, 8, fit="minimax"),
    "table of 16, nearest": table("tanh", -4, 4, 16),
    "table of 16, linear": table("tanh", -4, 4, 16, interpolation="linear"),
}


def model() -> nn.Module:
    """digits-mlp with tanh: 64 pixels, two hidden layers, 10 digits."""
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


def main() -> None:
    torch.set_num_threads(1)
    workload = replace(ps.load_workload("digits-mlp"), name="digits-mlp-tanh", model=model, max_steps=300)
    header = f"{'loss':>7} {'test':>7} {'max error':>10} {'cycles':>7} {'mult':>5} {'add':>4} {'cmp':>4} {'entries':>8}"
    print(f"{'digits-mlp with tanh, seed 0':31} {header}")
    for name, replacement in OPERATORS.items():
        trace = ps.train(workload, Numerics(), seed=0, operators=[replacement] if replacement else [])
        line = f"{name:31} {trace.losses[-1]:7.3f} {trace.test_value:7.1%}"
        if replacement is not None:
            cost, error = replacement.cost, replacement.largest_error(-8, 8).error
            line += f" {error:10.4f} {cost.cycles:7} {cost.multipliers:5} {cost.adders:4} {cost.comparators:4}"
            line += f" {cost.entries:8}"
        print(line)


if __name__ == "__main__":
    main()
