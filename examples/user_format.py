"""Training with a user-defined number format.

The format is a struct of bit fields (sign 1, exponent 5, mantissa 2), the functions that convert to and from it, and
`add` and `mad` on codes, as an FPGA engineer would write them. The emulator uses them for every matrix product of a
training run. Here `mad` truncates instead of rounding, as cheap hardware does: sums stall, and short chunks restore
most of the accuracy.

    python examples/user_format.py
"""

import math

import numba
import torch

import presilicon as ps
from presilicon.designs import Numerics, RoleFormat
from presilicon.formats import MacUnit, UserFormat, register

BIAS = 15
TOP = 0b11110  # the largest exponent of a number; 0b11111 would be infinity, which this hardware does not have


@numba.njit
def as_float(code):
    """The value of a code: subnormals below, no infinities and no NaN above."""
    sign = -1.0 if code >> 7 else 1.0
    exponent, mantissa = (code >> 2) & 31, code & 3
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - BIAS - 2)
    return sign * (4 + mantissa) * 2.0 ** (exponent - BIAS - 2)


@numba.njit
def truncate(value):
    """The code of the largest representable magnitude that does not exceed that of `value`; saturates."""
    sign = 128 if value < 0 or (value == 0 and math.copysign(1.0, value) < 0) else 0
    magnitude = abs(value)
    if not magnitude < 2.0 ** (TOP - BIAS + 1):
        return sign | (TOP << 2) | 3
    if magnitude < 2.0 ** (1 - BIAS):
        return sign | int(magnitude * 2.0 ** (BIAS - 1 + 2))
    exponent = math.floor(math.log2(magnitude))
    if 2.0**exponent > magnitude:
        exponent -= 1
    elif 2.0 ** (exponent + 1) <= magnitude:
        exponent += 1
    mantissa = int(magnitude * 2.0 ** (2 - exponent)) - 4
    return sign | ((exponent + BIAS) << 2) | mantissa


@numba.njit
def convert(value):
    """The code nearest to a number, found by comparing its two neighbours."""
    code = truncate(value)
    if code & 127 == (TOP << 2) | 3:
        return code
    low, high = as_float(code), as_float(code + 1)
    middle = (low + high) / 2
    above = abs(value) > abs(middle) or (value == middle and code & 1)
    return code + 1 if above else code


@numba.njit
def add(a, b):
    """The truncated sum of two codes."""
    return truncate(as_float(a) + as_float(b))


@numba.njit
def mad(a, b, c):
    """a * b + c, truncated once at the end."""
    return truncate(as_float(a) * as_float(b) + as_float(c))


NEW_FP = register(
    UserFormat("new_fp", fields=(("s", 1), ("e", 5), ("m", 2)), as_float=as_float, convert=convert, add=add, mad=mad)
)


def numerics(mac: MacUnit) -> Numerics:
    """new_fp for weights, activations and errors."""
    role = RoleFormat(NEW_FP)
    return Numerics(weight=role, activation=role, error=role, mac=mac)


def main() -> None:
    from dataclasses import replace

    torch.set_num_threads(1)
    workload = replace(ps.load_workload("digits-mlp"), max_steps=300)
    rows = [
        ("float32", Numerics()),
        ("new_fp, float32 sums", numerics(MacUnit())),
        ("new_fp, its own mad", numerics(MacUnit(accumulate=NEW_FP))),
        ("new_fp, its own mad, chunks of 8", numerics(MacUnit(accumulate=NEW_FP, order="chunked", chunk=8))),
    ]
    print(f"{'digits-mlp, 300 steps, seed 0':34} {'last loss':>10} {'validation':>11} {'test':>7}")
    for name, row_numerics in rows:
        trace = ps.train(workload, row_numerics, seed=0)
        best = max(point.value for point in trace.evaluations)
        print(f"{name:34} {trace.losses[-1]:10.3f} {best:11.1%} {trace.test_value:7.1%}")


if __name__ == "__main__":
    main()
