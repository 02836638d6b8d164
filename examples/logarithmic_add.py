"""Training in a logarithmic number system whose adder is a table.

A number is a sign and the logarithm of its magnitude, so that a multiplication is an addition of codes. An addition
needs log2(1 + 2^-d) and log2(1 - 2^-d) of the distance d between two logarithms, which hardware reads from a ROM. How
many entries does the ROM need? The emulator uses `add`, `mul` and `neg` below for every product, bias, softmax, loss
and gradient of the training run.

    python examples/logarithmic_add.py
"""

import math
from dataclasses import replace

import torch

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import MacUnit, UserFormat

STEPS = 64  # codes per factor of two
ONE = 1024  # the code of 1.0
LARGEST = 2047
SIGN = 2048
REACH = 8 * STEPS  # terms smaller than 1/256 of the other are lost


def as_float(code):
    """The value of a code; the logarithm 0 stands for the number 0."""
    size = code & LARGEST
    if size == 0:
        return 0.0
    value = 2.0 ** ((size - ONE) / STEPS)
    return -value if code & SIGN else value


def convert(value):
    """The nearest logarithm; numbers below the smallest become 0, those beyond the largest saturate."""
    magnitude = abs(value)
    if not magnitude > 2.0**-16:
        return 0
    size = ONE + math.floor(math.log2(min(magnitude, 2.0**15.9)) * STEPS + 0.5)
    return (SIGN if value < 0 else 0) | max(min(size, LARGEST), 1)


def mul(a, b):
    """Logarithms are added."""
    size = (a & LARGEST) + (b & LARGEST) - ONE
    if (a & LARGEST) == 0 or (b & LARGEST) == 0 or size < 1:
        return 0
    return ((a ^ b) & SIGN) | min(size, LARGEST)


def neg(a):
    return a ^ SIGN if a & LARGEST else 0


def adder(entries: int):
    """An `add` with two ROMs of so many entries, each for a stretch of distances."""
    width = REACH // entries
    middles = [(k + 0.5) * width / STEPS if width > 1 else max(k, 0.25) / STEPS for k in range(entries)]
    plus = [round(STEPS * math.log2(1 + 2.0**-d)) for d in middles]
    minus = [round(STEPS * math.log2(1 - 2.0**-d)) for d in middles]

    def add(a, b):
        large, small = (a, b) if (a & LARGEST) >= (b & LARGEST) else (b, a)
        size, distance = large & LARGEST, (large & LARGEST) - (small & LARGEST)
        if (small & LARGEST) == 0 or distance >= REACH:
            return large
        if (a ^ b) & SIGN == 0:
            return (large & SIGN) | min(size + plus[distance // width], LARGEST)
        size += minus[distance // width]
        return 0 if distance == 0 or size < 1 else (large & SIGN) | size

    return add


def numerics(entries: int) -> Numerics:
    """The format with an adder of so many entries, in all roles of the passes."""
    fields = (("s", 1), ("log", 11))
    fmt = UserFormat(f"lns_{entries}", fields, as_float, convert, add=adder(entries), mul=mul, neg=neg)
    role = RoleFormat(fmt)
    return Numerics(weight=role, activation=role, error=role, gradient=role, mac=MacUnit(accumulate=fmt))


def main() -> None:
    torch.set_num_threads(2)
    workload = replace(ps.load_workload("digits-mlp"), max_steps=100)
    rows = [("float32", Numerics())] + [(f"{entries} entries", numerics(entries)) for entries in (512, 64, 16, 8)]
    print(f"{'digits-mlp, 100 steps, adder':30} {'last loss':>10} {'validation':>11} {'test':>7}")
    for name, row in rows:
        trace = ps.train(workload, row, seed=0)
        best = max(point.value for point in trace.evaluations)
        print(f"{name:30} {trace.losses[-1]:10.3f} {best:11.1%} {trace.test_value:7.1%}")


if __name__ == "__main__":
    main()
