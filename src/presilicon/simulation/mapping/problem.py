"""A product of a training step as loops over three tensors, of which one is the result."""

from math import prod
from typing import Literal

from msgspec import Struct

from presilicon.records import Convolution, Gemm, Op, Phase

Dim = Literal["g", "b", "k", "c", "y", "x", "r", "s"]
DIMS: tuple[Dim, ...] = ("g", "b", "k", "c", "y", "x", "r", "s")
"""Groups, batch, output channels, input channels, output rows and columns, kernel rows and columns."""

Tensor = Literal["X", "W", "Y"]
TENSORS: tuple[Tensor, ...] = ("X", "W", "Y")
"""Inputs, weights and outputs of a layer; in a backward pass, one of them is a gradient of the same shape."""

RELEVANT: dict[Tensor, frozenset[Dim]] = {
    "X": frozenset(("g", "b", "c", "y", "x", "r", "s")),
    "W": frozenset(("g", "k", "c", "r", "s")),
    "Y": frozenset(("g", "b", "k", "y", "x")),
}
"""The dimensions that tell the elements of a tensor apart."""

RESULTS: dict[Phase, Tensor] = {"forward": "Y", "input_grad": "X", "weight_grad": "W", "update": "Y"}


class Contraction(Struct, frozen=True, kw_only=True):
    """Y[g, b, k, y, x] = sum of X[g, b, c, y * stride + r * dilation, ...] W[g, k, c, r, s], or one of its gradients.

    A matrix product has rows b, columns k and the reduction c. All three products of a layer run through the same
    loops, and differ in the tensor that is their result.

    >>> forward = Contraction.of_gemm(Gemm(m=4, k=8, n=2))
    >>> forward.elements("X"), forward.elements("W"), forward.elements("Y"), forward.macs
    (32, 16, 8, 64)
    """

    sizes: tuple[int, int, int, int, int, int, int, int]
    """The length of each of `DIMS`."""
    result: Tensor = "Y"
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    input_size: tuple[int, int] | None = None
    """Rows and columns of X that exist; what a kernel reads beside them is padding, and is not fetched."""

    @classmethod
    def of_gemm(cls, gemm: Gemm) -> "Contraction":
        """A product C[m, n] = A[m, k] B[k, n] as a forward product: A is X and B is W."""
        return cls(sizes=(gemm.count, gemm.m, gemm.n, gemm.k, 1, 1, 1, 1))

    @classmethod
    def of_op(cls, op: Op) -> "Contraction":
        """A product of a captured step; the result depends on its phase."""
        assert op.gemm is not None
        result = RESULTS[op.phase]
        if op.convolution is not None:
            return cls._of_convolution(op.convolution, result)
        gemm = op.gemm
        match result:
            case "Y":
                rows, columns, depth = gemm.m, gemm.n, gemm.k
            case "X":  # E[m, n] W^T[n, k]
                rows, columns, depth = gemm.m, gemm.k, gemm.n
            case "W":  # A^T[k, m] E[m, n]
                rows, columns, depth = gemm.k, gemm.n, gemm.m
        return cls(sizes=(gemm.count, rows, columns, depth, 1, 1, 1, 1), result=result)

    @classmethod
    def _of_convolution(cls, convolution: Convolution, result: Tensor) -> "Contraction":
        """A transposed convolution is a convolution whose inputs and outputs have changed places.

        Slices along the depth of a 3-D one are further samples, and those of its kernel further channels, so that what
        neighbouring windows share along the depth is fetched for each of them.
        """
        into, out = convolution.in_channels, convolution.out_channels
        small, large = convolution.output_size, convolution.input_size
        if convolution.transposed:
            into, out, small, large = out, into, large, small
            result = {"X": "Y", "Y": "X", "W": "W"}[result]  # type: ignore[assignment]
        groups, extra = convolution.groups, len(small) - 2
        depth, kernel_depth = (prod(sizes[: max(extra, 0)]) for sizes in (small, convolution.kernel))
        one = (1,) * -extra
        plane = slice(max(extra, 0), None)
        return cls(
            sizes=(  # type: ignore[arg-type]
                groups,
                convolution.batch * depth,
                out // groups,
                into // groups * kernel_depth,
                *(*one, *small[plane]),
                *(*one, *convolution.kernel[plane]),
            ),
            result=result,
            stride=(*one, *convolution.stride[plane]),  # type: ignore[arg-type]
            dilation=(*one, *convolution.dilation[plane]),  # type: ignore[arg-type]
            input_size=(*one, *large[plane]),  # type: ignore[arg-type]
        )

    @property
    def macs(self) -> int:
        """Multiply-adds."""
        return prod(self.sizes)

    def size(self, dim: Dim) -> int:
        """The length of a dimension."""
        return self.sizes[DIMS.index(dim)]

    def elements(self, tensor: Tensor) -> int:
        """Elements of a whole tensor that the product touches."""
        return self.footprint(tensor, dict(zip(DIMS, self.sizes, strict=True)))

    def footprint(self, tensor: Tensor, tile: "dict[Dim, int]") -> int:
        """Elements of a tensor that a tile of the loops touches."""
        g, b, k, c, y, x, r, s = (tile.get(dim, 1) for dim in DIMS)
        match tensor:
            case "W":
                return g * k * c * r * s
            case "Y":
                return g * b * k * y * x
        rows, columns = (
            _window(positions, kernel, stride, dilation)
            for positions, kernel, stride, dilation in zip((y, x), (r, s), self.stride, self.dilation, strict=True)
        )
        if self.input_size is not None:
            rows, columns = min(rows, self.input_size[0]), min(columns, self.input_size[1])
        return g * b * c * rows * columns


def _window(positions: int, kernel: int, stride: int, dilation: int) -> int:
    """Rows that some positions of a kernel read: with a wide stride, or dilation, some rows between are skipped.

    >>> _window(4, 3, 1, 1), _window(4, 1, 2, 1), _window(1, 3, 1, 2)
    (6, 4, 3)
    """
    return min((positions - 1) * stride + (kernel - 1) * dilation + 1, positions * kernel)
