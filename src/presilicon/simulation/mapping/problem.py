"""A product of a training step as loops over three tensors, of which one is the result."""

from math import prod
from typing import Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from presilicon.records import Convolution, Gemm, Op, Phase

Dim = Literal["g", "b", "k", "c", "y", "x", "r", "s", "z", "t"]
DIMS: tuple[Dim, ...] = ("g", "b", "k", "c", "y", "x", "r", "s", "z", "t")
"""Groups, batch, output channels, input channels, output rows and columns, kernel rows and columns; output planes and
kernel planes."""

Tensor = Literal["X", "W", "Y"]
TENSORS: tuple[Tensor, ...] = ("X", "W", "Y")
"""Inputs, weights and outputs of a layer; in a backward pass, one of them is a gradient of the same shape."""

RELEVANT: dict[Tensor, frozenset[Dim]] = {
    "X": frozenset(("g", "b", "c", "y", "x", "r", "s", "z", "t")),
    "W": frozenset(("g", "k", "c", "r", "s", "t")),
    "Y": frozenset(("g", "b", "k", "y", "x", "z")),
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

    sizes: tuple[int, ...]
    """The length of each of `DIMS`; planes may be left out."""
    result: Tensor = "Y"
    stride: tuple[int, ...] = (1, 1, 1)
    """Along rows, columns and planes, which may be left out, as in `dilation` and `input_size`."""
    dilation: tuple[int, ...] = (1, 1, 1)
    input_size: tuple[int, ...] | None = None
    """Rows, columns and planes of X that exist; what a kernel reads beside them is padding, and is not fetched."""

    def __post_init__(self) -> None:
        """Write a flat problem as one with a single plane."""
        force_setattr(self, "sizes", (*self.sizes, *(1,) * (len(DIMS) - len(self.sizes))))
        for name in ("stride", "dilation", "input_size"):
            given = getattr(self, name)
            if given is not None:
                force_setattr(self, name, (*given, *(1,) * (3 - len(given))))

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

        Positions along an axis on which windows neither overlap nor skip are further samples. So a 3-D convolution of
        flat kernels is a 2-D one of each plane, and one whose kernels are single lines along the depth is a 2-D one of
        planes and pixels.
        """
        into, out = convolution.in_channels, convolution.out_channels
        small, large = convolution.output_size, convolution.input_size
        if convolution.transposed:
            into, out, small, large = out, into, large, small
            result = {"X": "Y", "Y": "X", "W": "W"}[result]  # type: ignore[assignment]
        groups = convolution.groups
        axes = [
            _Axis(*sizes)
            for sizes in zip(small, large, convolution.kernel, convolution.stride, convolution.dilation, strict=True)
        ]
        axes = [_FLAT] * (2 - len(axes)) + axes
        *deep, rows, columns = axes
        batch, planes = convolution.batch, _FLAT
        if deep and not deep[0].has_windows:
            batch *= deep[0].small
        elif deep and not rows.has_windows and not columns.has_windows:
            pixels = rows.small * columns.small
            rows, columns = deep[0], _Axis(pixels, pixels, 1, 1, 1)
        elif deep and not columns.has_windows:
            rows, columns, batch = deep[0], rows, batch * columns.small
        elif deep and not rows.has_windows:
            rows, batch = deep[0], batch * rows.small
        elif deep:
            planes = deep[0]
        return cls(
            sizes=(
                *(groups, batch, out // groups, into // groups),
                *(rows.small, columns.small, rows.kernel, columns.kernel, planes.small, planes.kernel),
            ),
            result=result,
            stride=(rows.stride, columns.stride, planes.stride),
            dilation=(rows.dilation, columns.dilation, planes.dilation),
            input_size=(rows.large, columns.large, planes.large),
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
        g, b, k, c, y, x, r, s, z, t = (tile.get(dim, 1) for dim in DIMS)
        match tensor:
            case "W":
                return g * k * c * r * s * t
            case "Y":
                return g * b * k * y * x * z
        windows = [
            _window(positions, kernel, stride, dilation)
            for positions, kernel, stride, dilation in zip(
                (y, x, z), (r, s, t), self.stride, self.dilation, strict=True
            )
        ]
        if self.input_size is not None:
            windows = list(map(min, windows, self.input_size))
        return g * b * c * prod(windows)


class _Axis(NamedTuple):
    """An axis of a convolution: positions of its windows, of what they read, and how they lie there."""

    small: int
    large: int
    kernel: int
    stride: int
    dilation: int

    @property
    def has_windows(self) -> bool:
        """Whether a window reads more than its own position, or skips some."""
        return self.kernel > 1 or self.stride > 1 or self.small != self.large


_FLAT = _Axis(1, 1, 1, 1, 1)


def _window(positions: int, kernel: int, stride: int, dilation: int) -> int:
    """Rows that some positions of a kernel read: with a wide stride, or dilation, some rows between are skipped.

    >>> _window(4, 3, 1, 1), _window(4, 1, 2, 1), _window(1, 3, 1, 2)
    (6, 4, 3)
    """
    return min((positions - 1) * stride + (kernel - 1) * dilation + 1, positions * kernel)
