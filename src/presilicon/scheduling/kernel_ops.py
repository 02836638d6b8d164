"""Ops that an FPGA kernel computes, and the build parameters of a kernel."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from presilicon.base import ConfigError, unknown


class KernelConfig(NamedTuple):
    """Build parameters of a kernel."""

    compute_units: int
    simd: int
    work_group: int
    unroll: int

    @property
    def lanes(self) -> int:
        """Loop iterations that start in one clock cycle."""
        return self.compute_units * self.simd * self.unroll


SHAPES: dict[str, tuple[str, tuple[int, ...]]] = {
    "MatMul": ("MxKxN", (2048, 1024, 1024)),
    "Conv2D": ("BATCHxCHANNELSxHEIGHTxWIDTHxFILTERSxRxS of the output", (32, 64, 56, 56, 64, 3, 3)),
    "Conv2DBackpropFilter": ("as for Conv2D", (32, 64, 56, 56, 64, 3, 3)),
    "Conv2DBackpropInput": ("as for Conv2D", (32, 64, 56, 56, 64, 3, 3)),
    "MaxPool": ("BATCHxCHANNELSxHEIGHTxWIDTHxRxS of the output", (32, 64, 56, 56, 3, 3)),
    "BiasAddGrad": ("ROWSxCOLUMNS", (2048, 2048)),
    "Mul": ("any", (2048, 2048)),
    "Transpose": ("any", (2048, 2048)),
}
"""Op kinds: meaning of their shape, and an example of medium size. The work is the product of the sides."""


class KernelProduct(NamedTuple):
    """A matrix product and the words of its operands in memory."""

    rows: int
    reduction: int
    columns: int
    left_words: int
    """A convolution reads its image, not the larger matrix of its windows."""
    right_words: int


class Input(NamedTuple):
    """Kind and shape of the op that a kernel computes."""

    kind: str
    sides: tuple[int, ...]

    @property
    def work(self) -> int:
        """Multiply-adds, comparisons or elements."""
        return prod(self.sides)

    @property
    def product(self) -> KernelProduct | None:
        """The matrix product that the op is, strides of convolutions taken as 1; None for other ops."""
        if self.kind == "MatMul":
            rows, reduction, columns = self.sides
            return KernelProduct(rows, reduction, columns, rows * reduction, reduction * columns)
        if not self.kind.startswith("Conv2D"):
            return None
        batch, channels, height, width, filters, *window = self.sides
        results, weights = batch * height * width, channels * filters * prod(window)
        image = batch * (height + window[0] - 1) * (width + window[1] - 1)
        if self.kind == "Conv2DBackpropInput":
            return KernelProduct(results, filters * prod(window), channels, image * filters, weights)
        if self.kind == "Conv2DBackpropFilter":
            return KernelProduct(channels * prod(window), results, filters, image * channels, results * filters)
        return KernelProduct(results, channels * prod(window), filters, image * channels, weights)

    @property
    def longest_loop(self) -> int:
        """Length of the unrolled loop: the reduction of a product or a bias gradient, a pooling window, or a row."""
        if self.product is not None:
            return self.product.reduction
        if self.kind == "BiasAddGrad":
            return self.sides[0]
        return prod(self.sides[4:]) if self.kind == "MaxPool" else self.sides[-1]

    @property
    def items(self) -> int:
        """Number of independent results, or of rows; a work group cannot be larger."""
        return max(1, self.work // self.longest_loop)

    @property
    def streamed_words(self) -> int:
        """Words that an op which is no product reads and writes, each once; strides of poolings taken as 1."""
        if self.kind == "MaxPool":
            images, (height, width, *window) = prod(self.sides[:2]), self.sides[2:]
            return images * ((height + window[0] - 1) * (width + window[1] - 1) + height * width)
        if self.kind == "BiasAddGrad":
            return self.work + self.sides[1]
        return self.work * (3 if self.kind == "Mul" else 2)


def make_input(kind: str, sides: Sequence[int]) -> Input:
    """An op of a kind and a shape.

    Raises:
        ConfigError: the kind is not known, or the shape has too few or too many sides.
    """
    if kind not in SHAPES:
        raise unknown("kind", kind, SHAPES)
    meaning, example = SHAPES[kind]
    if meaning != "any" and len(sides) != len(example):
        raise ConfigError(f"the shape of {kind} is {meaning}, as in {'x'.join(map(str, example))}, not {list(sides)}")
    if not sides or min(sides) < 1:
        raise ConfigError(f"the sides of {kind} must be at least 1, not {list(sides)}")
    return Input(kind, tuple(sides))
