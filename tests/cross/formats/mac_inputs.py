"""Operands that bring a MAC unit into trouble, and the comparison with the scalar reference."""

import numpy as np
import torch
from inputs import same_bits

from oracles.mac_units import multiply_matrices
from presilicon.formats import Format, Key, MacUnit, matmul, parse, quantize

SPECIALS = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 2.0**-149, -(2.0**-126), 3.4e38, -65504.0]
KINDS = ["bits", "close", "ties", "specials", "tiny", "huge", "e5m2", "e4m3", "float16", "bfloat16", "float32"]


def operand(kind: str, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """A float32 tensor of a kind of trouble."""
    random = np.random.default_rng(seed)
    match kind:
        case "bits":
            x = random.integers(0, 1 << 32, shape, dtype=np.uint32).view(np.float32)
        case "close":
            # One or two bits set, near 1: sums cancel, or lie on and just beside midpoints.
            x = np.sign(random.normal(size=shape)) * (1 + 2.0 ** -random.integers(1, 24, shape))
        case "ties":
            x = (
                np.sign(random.normal(size=shape))
                * random.integers(1, 8, shape)
                * 2.0 ** -random.integers(0, 14, shape)
            )
        case "specials":
            x = random.choice(SPECIALS, shape)
        case "tiny":
            x = random.normal(size=shape) * 2.0 ** random.integers(-150, -60, shape)
        case "huge":
            x = random.normal(size=shape) * 2.0 ** random.integers(4, 70, shape)
        case _:
            normal = torch.from_numpy(random.normal(size=shape).astype(np.float32))
            return quantize(normal, parse(kind))
    return torch.from_numpy(np.asarray(x, dtype=np.float32))


def reference(a: torch.Tensor, b: torch.Tensor, mac: MacUnit, key: Key | None = None) -> torch.Tensor:
    """The product by the scalar reference."""
    rows = multiply_matrices(a.tolist(), b.tolist(), mac, key)
    return torch.tensor(rows, dtype=torch.float32).reshape(a.shape[0], b.shape[1])


def count_differences(a: torch.Tensor, b: torch.Tensor, mac: MacUnit, key: Key | None = None) -> int:
    """How many outputs differ, in any bit, from those of the reference."""
    result = matmul(a, b, mac, key=key, library=False)
    return int((~same_bits(result, reference(a, b, mac, key))).sum())


def units(accumulates: list[Format], rounding: str = "nearest-even") -> list[MacUnit]:
    """One unit per accumulate format and order."""
    orders: list[dict[str, object]] = [
        {"order": "sequential"},
        {"order": "sequential", "width": 3},
        {"order": "chunked", "chunk": 4},
        {"order": "chunked", "chunk": 5, "width": 2},
        {"order": "pairwise"},
        {"order": "pairwise", "chunk": 3},
        {"order": "systolic", "rows": 4},
        {"order": "aligned", "width": 4, "align_bits": 24},
        {"order": "aligned", "width": 3, "align_bits": 7, "chunk": 7},
    ]
    return [MacUnit(accumulate=fmt, rounding=rounding, **order) for fmt in accumulates for order in orders]  # type: ignore[arg-type]
