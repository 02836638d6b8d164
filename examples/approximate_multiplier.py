"""Training with approximate 4-bit multipliers, given by their truth tables.

Weights and activations have a sign and four bits. The forward products multiply magnitudes by a table of 16 x 16
results and add them in a 16-bit register; the backward products are exact. The underdesigned multiplier of Kulkarni,
Gupta and Ercegovac (VLSI Design 2011) is built of 2 x 2 blocks in which 3 x 3 is 7; the truncated one leaves out the
lowest columns of partial products and adds a constant for them.

    python examples/approximate_multiplier.py
"""

from dataclasses import replace

import torch

import presilicon as ps
from presilicon.designs import Numerics, ProductNumerics, RoleFormat
from presilicon.formats import MacUnit, UserFormat, parse

ACTIVATION = RoleFormat(parse("fixed(integer=2, fraction=3)"))  # -2 to 1.875 in steps of 1/8
WEIGHT = RoleFormat(parse("int(bits=5, scale=0.03125)"))  # -0.5 to 0.47 in steps of 1/32


def block(a: int, b: int) -> int:
    """A 2 x 2 multiplier with three output bits."""
    return 7 if a == b == 3 else a * b


def underdesigned(a: int, b: int) -> int:
    low, high = (a & 3, b & 3), (a >> 2, b >> 2)
    return block(*low) + 4 * (block(low[0], high[1]) + block(high[0], low[1])) + 16 * block(*high)


def truncated(a: int, b: int) -> int:
    """Without the three lowest columns of partial products."""
    kept = sum((a >> i & 1) * (b >> j & 1) << i + j for i in range(4) for j in range(4) if i + j >= 3)
    return kept + 4 if a and b else 0


def as_float(code):
    """A register of 16 bits in steps of 1/256, the product of two operands' steps."""
    return (code - ((code & 0x8000) << 1)) / 256.0


def convert(value):
    return int(max(min(value * 256.0, 32767.0), -32768.0)) & 0xFFFF


def add(a, b):
    total = (a - ((a & 0x8000) << 1)) + (b - ((b & 0x8000) << 1))
    return max(min(total, 32767), -32768) & 0xFFFF


def multiply_add(truth: list[int]):
    """A `mad` that reads its product from a truth table."""

    def mad(a, b, c):
        x, y = (a - ((a & 0x8000) << 1)) >> 5, (b - ((b & 0x8000) << 1)) >> 3  # in steps of 1/8 and 1/32
        product = truth[min(abs(x), 15) * 16 + min(abs(y), 15)]
        product = -product if (x < 0) != (y < 0) else product
        total = product + (c - ((c & 0x8000) << 1))
        return max(min(total, 32767), -32768) & 0xFFFF

    return mad


def numerics(name: str, truth: list[int]) -> Numerics:
    """Forward products by a truth table."""
    fmt = UserFormat(f"sum_{name}", (("x", 16),), as_float, convert, add=add, mad=multiply_add(truth))
    forward = ProductNumerics(mac=MacUnit(accumulate=fmt))
    return Numerics(weight=WEIGHT, activation=ACTIVATION, forward=forward)


def main() -> None:
    torch.set_num_threads(2)
    workload = replace(ps.load_workload("digits-mlp"), max_steps=120)
    pairs = [(a, b) for a in range(16) for b in range(16)]
    multipliers = {"exact": lambda a, b: a * b, "underdesigned": underdesigned, "truncated": truncated}
    print(f"{'digits-mlp, 120 steps':24} {'wrong':>6} {'mean error':>11} {'worst':>6} {'last loss':>10} {'test':>7}")
    trace = ps.train(workload, Numerics(), seed=0)
    print(f"{'float32':24} {'':>6} {'':>11} {'':>6} {trace.losses[-1]:10.3f} {trace.test_value:7.1%}")
    for name, multiplier in multipliers.items():
        truth = [multiplier(a, b) for a, b in pairs]
        errors = [abs(found - a * b) for found, (a, b) in zip(truth, pairs, strict=True)]
        trace = ps.train(workload, numerics(name, truth), seed=0)
        wrong, mean = sum(error > 0 for error in errors) / 256, sum(errors) / 256
        figures = f"{wrong:6.1%} {mean:11.2f} {max(errors):6d}"
        print(f"{name:24} {figures} {trace.losses[-1]:10.3f} {trace.test_value:7.1%}")


if __name__ == "__main__":
    main()
