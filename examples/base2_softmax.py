"""Training an attention model with a softmax of base 2 and two tables of eight entries.

Hardware computes 2^x more easily than e^x: the whole part of x only moves the exponent, and the fraction, between 0 and
1, is looked up. The division by the sum becomes a second table: the sum is m 2^e with m between 1 and 2, and 1/m is
looked up. Both tables are steps, whose derivative is 0 everywhere; the backward pass is therefore written out: that of
softmax, from the probabilities that the forward pass computes. One Python function is the operator on CPU and GPU, its
gradient, and its cost.

    python examples/base2_softmax.py
"""

from dataclasses import replace
from math import exp, exp2, floor, ldexp, log, log2

import torch
from torch import nn
from torch.nn import functional

import presilicon as ps
from presilicon.designs import Numerics
from presilicon.ops import Operator, operator

POWERS = [2 ** ((entry + 0.5) / 8) for entry in range(8)]
"""2^f at the middle of each eighth of 0 <= f < 1."""
INVERSES = [1 / (1 + (entry + 0.5) / 8) for entry in range(8)]
"""1/m at the middle of each eighth of 1 <= m < 2."""
LN2 = log(2)


@operator
def power(y):
    """2^y: an entry for the fraction, and a shift for the whole part."""
    return ldexp(POWERS[8 * (y - floor(y))], floor(y))


@operator
def inverse(total):
    """1/total: an entry for the significand, and a shift for the exponent."""
    exponent = floor(log2(total))
    return ldexp(INVERSES[8 * (ldexp(total, -exponent) - 1)], -exponent)


def gradient(error: "... n", x: "... n") -> "... n":
    """Softmax's gradient, from the approximate probabilities."""
    top = max(x[..., j] for j in range(N))
    share = inverse(sum(power(x[..., j] - top) for j in range(N)))
    mean_error = sum(error[..., j] * power(x[..., j] - top) for j in range(N)) * share
    return LN2 * power(x[..., n] - top) * share * (error[..., n] - mean_error)


@operator("softmax", custom_backward=gradient)
def with_tables(x: "... n") -> "... n":
    top = max(x[..., j] for j in range(N))
    return power(x[..., n] - top) * inverse(sum(power(x[..., j] - top) for j in range(N)))


@operator("softmax")
def of_base_2(x: "... n") -> "... n":
    top = max(x[..., j] for j in range(N))
    return exp2(x[..., n] - top) / sum(exp2(x[..., j] - top) for j in range(N))


@operator("softmax")
def of_base_e(x: "... n") -> "... n":
    top = max(x[..., j] for j in range(N))
    return exp(x[..., n] - top) / sum(exp(x[..., j] - top) for j in range(N))


class Attention(nn.Module):
    """One layer of attention over the rows of a digit, with four heads, and a linear classifier."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embed = nn.Linear(8, width)
        self.position = nn.Parameter(0.1 * torch.randn(1, 8, width))
        self.project = nn.Linear(width, 3 * width)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.embed(images.reshape(-1, 8, 8)) + self.position
        q, k, v = self.project(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = functional.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        mixed = (weights @ v).transpose(1, 2).flatten(2)
        return self.head((x + mixed).flatten(1))


OPERATORS: dict[str, Operator | None] = {
    "torch's softmax": None,
    "base e, as an operator": of_base_e,
    "base 2": of_base_2,
    "base 2, tables of 8": with_tables,
}


def main() -> None:
    torch.set_num_threads(1)
    workload = replace(ps.load_workload("digits-mlp"), name="digits-attention", model=Attention, max_steps=300)
    rows = torch.randn(2000, 8)
    columns = f"{'max error':>10} {'cycles':>7} {'mult':>5} {'add':>5} {'special':>8} {'reads':>6}"
    print(f"{'attention on digits, 300 steps':31} {'loss':>7} {'test':>7} {columns}")
    for name, replacement in OPERATORS.items():
        trace = ps.train(workload, Numerics(), seed=0, operators=[replacement] if replacement else [])
        line = f"{name:31} {trace.losses[-1]:7.3f} {trace.test_value:7.1%}"
        if replacement is not None:
            scale = 1.0 if replacement is of_base_e else LN2
            error = float((replacement(rows) - functional.softmax(scale * rows, -1)).abs().max())
            ops = ps.capture(Row(replacement), torch.empty(1, 8)).ops
            (work,) = [op.work for op in ops if op.work is not None and op.phase == "forward"]
            line += f" {error:10.4f} {work.lane_cycles:7} {work.multiplications:5} {work.additions:5}"
            line += f" {work.special:8} {work.lookups:6}"
        print(line)
    print("cycles and operations: one row of eight, on one lane; errors: against the exact softmax of the same base")


class Row(nn.Module):
    """The operator alone, for its cost."""

    def __init__(self, function: Operator) -> None:
        super().__init__()
        self.function, self.gain = function, nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.gain * x)


if __name__ == "__main__":
    main()
