"""Formats whose numbers share an exponent or a scale: block float, OCP MX, NVFP4.

Groups run along `axis`, counted as in torch; the last group of a row may be shorter. A GEMM operand is grouped along
its reduction axis: `fmt.along(axis)` gives the same format grouped along another one.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from presilicon.formats.fixed import Fixed
from presilicon.formats.float import Float
from presilicon.formats.format import Format, require, require_integer, require_word


def _check_axis(name: str, axis: object) -> None:
    require_integer(name, "axis", axis, -8, 7)


@dataclass(frozen=True, slots=True)
class BlockFloat(Format):
    """Block floating point: sign and `mantissa` magnitude bits each, one exponent per group.

    The shared exponent is that of the group's largest magnitude, E = floor(log2 max|x|); the step is
    2^(E - mantissa + 1) and magnitudes stop at 2^mantissa - 1 steps. An infinity counts as the largest float32 and
    saturates, NaN counts as 0. E is at least -126.

    >>> fmt = BlockFloat(mantissa=4, exponent=8, group=16)
    >>> fmt.bits_per_element, str(fmt)
    (5.5, 'bfp(mantissa=4)')
    """

    kind: ClassVar[str] = "bfp"

    mantissa: int
    """Magnitude bits, the leading one included, 1 to 23."""
    exponent: int = 8
    """Shared-exponent bits. Fewer than 8 leave a window of 2^exponent exponents below `top`."""
    group: int = 16
    """Numbers in a group, or rows and columns of a square tile."""
    axis: int = -1
    square: bool = False
    """True: groups are tiles of `group` x `group` over the last two axes, and `axis` has no say."""
    top: int | None = None
    """The window's largest exponent; None: the largest of the tensor. Groups above it saturate."""
    below: Literal["denormal", "flush"] = "denormal"
    """Groups below the window: `denormal` keeps them at the window's lowest exponent, `flush` makes them zero."""

    def __post_init__(self) -> None:
        name = f"bfp(mantissa={self.mantissa}, exponent={self.exponent}, group={self.group})"
        require_integer(name, "mantissa", self.mantissa, 1, 23)
        require_integer(name, "exponent", self.exponent, 1, 8)
        require_integer(name, "group", self.group, 1, 1 << 20)
        _check_axis(name, self.axis)
        require(isinstance(self.square, bool), name, f"square={self.square!r}", "true, false")
        require_word(name, "below", self.below, ("denormal", "flush"))
        if self.top is not None:
            require_integer(name, "top", self.top, -126, 127)

    @property
    def is_blocked(self) -> bool:
        """True: a group shares its exponent or scale."""
        return True

    @property
    def turns(self) -> bool:
        """Not when groups are square tiles."""
        return not self.square

    def along(self, axis: int) -> "BlockFloat":
        """The same format with groups along another axis."""
        return replace(self, axis=axis)

    @property
    def bits(self) -> int:
        """Width of an element's code: sign and magnitude."""
        return 1 + self.mantissa

    @property
    def bits_per_element(self) -> float:
        """Sign, mantissa, and the group's exponent divided by its size."""
        return self.bits + self.exponent / self.group ** (2 if self.square else 1)

    @property
    def significand_bits(self) -> int:
        """Magnitude bits."""
        return self.mantissa

    @property
    def exponent_bits(self) -> int:
        """None of its own: 0."""
        return 0


@dataclass(frozen=True, slots=True)
class Mx(Format):
    """OCP microscaling: `element` numbers with one power-of-two scale (E8M0) per block.

    The scale is 2^k, k from -127 to 127, found from the block's largest magnitude amax and the element's largest value
    M with exponent emax. Elements saturate, whatever the element format does alone; where M * 2^k exceeds float32
    they stop at the largest float32 with the element's precision. A block that holds NaN or an infinity has the scale
    code NaN: all its values are NaN.

    >>> from presilicon.formats import parse
    >>> parse("mxfp4").bits_per_element, str(parse("mxfp8_e4m3(scale=rceil)"))
    (4.25, 'mx(element=e4m3fn, scale=rceil)')
    """

    kind: ClassVar[str] = "mx"

    element: Float | Fixed
    block: int = 32
    scale: Literal["floor", "ceil", "even", "rceil"] = "floor"
    """k is `floor`: floor(log2 amax) - emax, the OCP text. `ceil`: ceil(log2 amax) - emax. `even`: as floor, with amax
    first rounded half up to the element's mantissa bits. `rceil`: ceil(log2(amax / M)), the smallest that does not
    saturate."""
    axis: int = -1

    def __post_init__(self) -> None:
        if isinstance(self.element, str):  # type: ignore[unreachable]
            from presilicon.formats.grammar import parse  # type: ignore[unreachable]

            object.__setattr__(self, "element", parse(self.element))
        name = f"mx(block={self.block})"
        usable = isinstance(self.element, Float) or (
            isinstance(self.element, Fixed) and self.element.signed and self.element.overflow == "saturate"
        )
        require(usable, name, f"element={self.element!r}", "a float or a signed, saturating fixed format")
        require(self.element.significand_bits <= 16, name, f"element={self.element!r}", "at most 16 significant bits")
        inside = not isinstance(self.element, Float) or self.element.exponent <= 5
        require(inside, name, f"element={self.element!r}", "at most 5 exponent bits")
        require_integer(name, "block", self.block, 1, 1 << 20)
        require_word(name, "scale", self.scale, ("floor", "ceil", "even", "rceil"))
        _check_axis(name, self.axis)

    @property
    def is_blocked(self) -> bool:
        """True: a group shares its exponent or scale."""
        return True

    def along(self, axis: int) -> "Mx":
        """The same format with blocks along another axis."""
        return replace(self, axis=axis)

    @property
    def bits(self) -> int:
        """Width of an element's code."""
        return self.element.bits

    @property
    def bits_per_element(self) -> float:
        """The element's bits and the scale's 8 divided by the block size."""
        return self.element.bits_per_element + 8 / self.block

    @property
    def significand_bits(self) -> int:
        """The element's."""
        return self.element.significand_bits

    @property
    def exponent_bits(self) -> int:
        """The element's."""
        return self.element.exponent_bits


@dataclass(frozen=True, slots=True)
class Nvfp4(Format):
    """NVFP4: fp4_e2m1 elements, an e4m3fn scale per block of 16, a float32 scale per tensor.

    With A the tensor's and a the block's largest magnitude: t = A / 2688, s = e4m3fn(a / 6 / t) held within
    [2^-9, 448], x becomes fp4(x / (s * t)) * (s * t), every operation rounded to float32. The scales are rounded to
    nearest-even; the asked rounding is that of the elements. NaN counts as 0 and infinities saturate; a tensor of
    zeros has t = 1.

    >>> Nvfp4().bits_per_element
    4.5
    """

    kind: ClassVar[str] = "nvfp"

    block: int = 16
    axis: int = -1
    tensor_scale: bool = True
    """False: t = 1."""

    def __post_init__(self) -> None:
        name = f"nvfp(block={self.block})"
        require_integer(name, "block", self.block, 1, 1 << 20)
        _check_axis(name, self.axis)
        require(isinstance(self.tensor_scale, bool), name, f"tensor_scale={self.tensor_scale!r}", "true, false")

    @property
    def is_blocked(self) -> bool:
        """True: a group shares its exponent or scale."""
        return True

    def along(self, axis: int) -> "Nvfp4":
        """The same format with blocks along another axis."""
        return replace(self, axis=axis)

    @property
    def bits(self) -> int:
        """Width of an element's code."""
        return 4

    @property
    def bits_per_element(self) -> float:
        """4 bits and the scale's 8 divided by the block size; the tensor's scale is left out."""
        return 4 + 8 / self.block

    @property
    def significand_bits(self) -> int:
        """The element's."""
        return 2

    @property
    def exponent_bits(self) -> int:
        """The element's."""
        return 2
