"""Activations and norms with loops, of the kinds that docs/operators.md shows."""

import math

from presilicon.ops import operator

SLOPES, OFFSETS, ROOTS = (0.1, -0.5, 1.5), (0.0, 0.3, -1.0), (-0.4, 0.1, 0.9)


@operator
def pieces(x):
    return max(SLOPES[k] * x + OFFSETS[k] for k in range(3))


@operator
def smooth(x):
    return math.log(sum(math.exp(SLOPES[k] * x + OFFSETS[k]) for k in range(3)))


@operator
def polynomial(x):
    return math.prod(x - ROOTS[k] for k in range(3))


@operator("layer_norm")
def norm(x: "... n", eps=1e-5) -> "... n":
    mean = sum(x[..., k] for k in range(N)) / N
    spread = sum((x[..., k] - mean) ** 2 for k in range(N)) / N
    return (x[..., n] - mean) / math.sqrt(spread + eps)
