"""MAC units: how the products of a matrix multiplication are added up."""

from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from presilicon.base import FormatError, did_you_mean
from presilicon.formats.families.float import Float
from presilicon.formats.format import Format
from presilicon.formats.grammar import parse_rounding
from presilicon.formats.mac.processing import ProcessingUnit, VectorUnit
from presilicon.formats.rounding import Mode, Stochastic

Order = Literal["sequential", "chunked", "pairwise", "systolic", "aligned"]
ORDERS: tuple[str, ...] = get_args(Order)

FLOAT32 = Float(8, 23)

MOST_WIDTH = 1024
MOST_ALIGN_BITS = 40


class MacUnit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A multiply-accumulate unit: what is rounded, to which format, and in which order products are added.

    Every sum starts from +0. Each product and each sum is computed exactly and rounded once. NaN has no sign; an exact
    zero sum is +0 unless both terms are -0, or the rounding is `down`, as in IEEE 754 (`aligned`: always +0).

    The orders, for products p[0], p[1], ... along the reduction axis:

    - `sequential`: one after another. With `width` W, as many lanes run side by side: lane l adds p[l], p[l+W], ...,
      and in the end the lanes are added pairwise.
    - `chunked`: `sequential` within chunks of `chunk` products; the chunks' sums are then added one after another,
      beginning with the first chunk's sum.
    - `pairwise`: a tree that adds neighbours, level by level; an odd one moves up a level unchanged.
    - `systolic`: an array of `rows` rows whose weights or inputs stay in place. The reduction axis is folded in tiles
      of `rows`; partial sums enter a tile at zero and move down one row per product; the tiles' sums are added one
      after another. (An array whose outputs stay in place adds sequentially.)
    - `aligned`: as tensor cores do. The running sum and the next `width` products are aligned to the largest exponent
      among them, each is cut toward zero to `align_bits` bits below that exponent, and they are added as integers;
      the result is rounded once. The exponent of a product is the sum of its operands' exponents. With `left` and
      `right`, the unit is a tensor core whose operands have these formats: a subnormal number has the exponent of the
      smallest normal one, a zero that of 2^-133, and a sum beyond the range is infinite in every rounding mode.

    `pairwise` and `aligned` may be chunked too.

    >>> str(MacUnit(accumulate=Float(6, 9), order="chunked", chunk=64))
    'float(exponent=6, mantissa=9), chunked(chunk=64)'
    >>> str(MacUnit(order="sequential")), str(MacUnit())
    ('float32, sequential', 'float32, any order')
    """

    multiply: Format | None = None
    """The format of each product; None keeps products exact (but see `fused`)."""
    accumulate: Format = FLOAT32
    """The format of every sum."""
    partial: Format | None = None
    """The format of sums inside a chunk or a tile, rounded to `partial_rounding`; None is `accumulate`, with its
    `rounding`. With `partial=float32` rounding happens at chunk boundaries only."""
    partial_rounding: str | None = None
    """A rounding mode for sums in the format `partial`; nearest-even if none is named."""
    order: Order | None = None
    """None is `sequential`, except that a unit that just adds in float32 leaves the order to the library."""
    chunk: int | None = None
    """Products per chunk; None does not chunk. A `sequential` unit with chunks is a `chunked` one."""
    width: int = 1
    """Lanes of a vector unit (`sequential`, `chunked`), or products added at once (`aligned`)."""
    rows: int | None = None
    """Rows of the array (`systolic`)."""
    fused: bool | None = None
    """True: the product enters its sum exactly. False: it is rounded first, to `multiply` or, without one, to the
    format of the sum. None: whether `multiply` is None."""
    align_bits: int | None = None
    """Bits kept below the largest exponent (`aligned`)."""
    left: Format | None = None
    """The format in which the first operand enters a tensor core (`aligned`)."""
    right: Format | None = None
    """The format in which the second operand enters a tensor core (`aligned`)."""
    rounding: str = "nearest-even"
    """A rounding mode for products and sums; `stochastic(bits=8, source=lfsr)` names the random source."""
    slice_bits: int | None = None
    """Mantissa bits that the multiplier takes at once, 2 in FAST's fMAC (Zhang, McDanel and Kung, HPCA 2022); None is
    all. Products stay exact but take more passes."""
    unit: VectorUnit | None = None
    """A vector unit of the user's own, by its name in a file. Its format accumulates, and its lanes are the chunk or
    the width; those fields are left out."""

    def __post_init__(self) -> None:
        if isinstance(self.unit, ProcessingUnit):
            for name, value in _fields_of(self.unit).items():
                if getattr(self, name) not in (_DEFAULTS[name], value):
                    raise FormatError(
                        f"unit={self.unit.name} has its own {name}; leave out {name}={getattr(self, name)}"
                    )
                force_setattr(self, name, value)
        if self.order is None and not self.is_float32:
            force_setattr(self, "order", "sequential")

    def check(self) -> None:
        """Raise `FormatError` if fields are out of range or contradict each other."""
        parse_rounding(self.rounding)
        if self.partial_rounding is not None and (
            self.partial is None or isinstance(parse_rounding(self.partial_rounding), Stochastic)
        ):
            raise FormatError("partial_rounding is the deterministic rounding of sums in the format partial; name both")
        if self.order is not None and self.order not in ORDERS:
            raise FormatError(f'order="{self.order}": {did_you_mean(str(self.order), ORDERS)}')
        self._check_number("chunk", self.chunk, 2**31)
        if self.width is None:
            raise FormatError("width must be an integer of at least 1, not None; 1 is a single lane")
        if self.fused not in (None, True, False) or isinstance(self.fused, float):
            raise FormatError(f"fused must be true, false, or none to follow from multiply, not {self.fused!r}")
        self._check_number("width", self.width, MOST_WIDTH)
        self._check_number("rows", self.rows, 2**31)
        self._check_number("align_bits", self.align_bits, MOST_ALIGN_BITS)
        self._check_number("slice_bits", self.slice_bits, 24)
        self._check_order()
        self._check_operands()
        if self.fused and self.multiply is not None:
            raise FormatError(
                f"fused=true and multiply={self.multiply} exclude each other: a fused unit does not round the product"
            )
        if self.unit is not None and not isinstance(self.unit, ProcessingUnit):
            raise FormatError(f"unit must be a ProcessingUnit, or the name of one in a file, not {self.unit!r}")
        if self.unit is not None and self.slice_bits is not None:
            raise FormatError(f"slice_bits must be left out: {self.unit.name} takes whole operands")
        if self.is_user_defined:
            from presilicon.formats.mac.user import check_user

            check_user(self)
            return
        from presilicon.formats.mac.plan import sum_grid

        for name in ("multiply", "accumulate", "partial"):
            fmt = getattr(self, name)
            if fmt is not None:
                sum_grid(name, fmt)

    def _check_number(self, name: str, value: int | None, most: int) -> None:
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_integer and 1 <= value <= most):
            raise FormatError(f"{name} must be an integer from 1 to {most}, not {value!r}")

    def _check_order(self) -> None:
        wanted = {"chunked": "chunk", "systolic": "rows", "aligned": "align_bits"}.get(self.order or "")
        if wanted and getattr(self, wanted) is None:
            example = {"chunk": 64, "rows": 128, "align_bits": 24}[wanted]
            raise FormatError(f"order={self.order} needs {wanted}, as in {wanted}={example}")
        unused = {
            "rows": self.rows is not None and self.order != "systolic",
            "align_bits": self.align_bits is not None and self.order != "aligned",
            "chunk": self.chunk is not None and self.order == "systolic",
            "width": self.width != 1 and self.order in ("pairwise", "systolic"),
            "left": self.left is not None and self.order != "aligned",
            "right": self.right is not None and self.order != "aligned",
        }
        for name, is_unused in unused.items():
            if is_unused:
                raise FormatError(f"order={self.order} has no {name}; leave out {name}={getattr(self, name)}")

    def _check_operands(self) -> None:
        if (self.left is None) != (self.right is None):
            raise FormatError("left and right are the formats of a tensor core's operands; name both")
        for name, fmt in (("left", self.left), ("right", self.right)):
            if fmt is not None and not isinstance(fmt, Float):
                raise FormatError(f"{name} must be a floating-point format, not {fmt}")

    @property
    def rounding_mode(self) -> Mode:
        """The rounding as `quantize` takes it."""
        return parse_rounding(self.rounding)

    @property
    def is_user_defined(self) -> bool:
        """Whether products or sums are computed by a user's functions on codes."""
        return any(fmt is not None and fmt.arithmetic is not None for fmt in (self.multiply, self.accumulate))

    @property
    def lanes(self) -> int:
        """Multiply-adds that the unit starts at once."""
        return 1 if self.unit is None else self.unit.lanes

    @property
    def widest_sum(self) -> Format:
        """The wider of the formats of sums, which adders and registers are built for.

        >>> str(MacUnit(accumulate=Float(5, 10), partial=FLOAT32, order="chunked", chunk=64).widest_sum)
        'float32'
        """
        partial = self.accumulate if self.partial is None else self.partial
        return max(partial, self.accumulate, key=lambda fmt: fmt.bits_per_element)

    @property
    def has_parts_beside_sums(self) -> bool:
        """Whether a product takes more than one exact multiplier and one adder that rounds; not asked of a `unit`."""
        is_plain = self.multiply is None and self.width == 1 and self.order not in ("pairwise", "aligned")
        return self.unit is None and not (is_plain and not isinstance(self.rounding_mode, Stochastic))

    @property
    def is_stochastic(self) -> bool:
        """Whether rounding, or the state of a user's functions, draws random numbers."""
        return isinstance(self.rounding_mode, Stochastic) or (self.is_user_defined and self.accumulate.draws)

    @property
    def is_float32(self) -> bool:
        """Whether the unit only adds in float32, as a library's matmul does in an order of its own.

        >>> MacUnit().is_float32, MacUnit(order="sequential").is_float32, MacUnit(chunk=64).is_float32
        (True, False, False)
        """
        free = {"slice_bits", "fused"} if self.fused is not False else {"slice_bits"}
        return all(getattr(self, name) == default for name, default in _DEFAULTS.items() if name not in free)

    def of_one_chunk(self) -> "MacUnit":
        """The unit that adds up a chunk of this one, and rounds no further."""
        if self.partial is None:
            return replace(self, chunk=None)
        return replace(
            self, chunk=None, accumulate=self.partial, rounding=self.partial_rounding or self.rounding,
            partial=None, partial_rounding=None,
        )  # fmt: skip

    def passes(self, mantissa_a: int, mantissa_b: int) -> int:
        """Passes of the multiplier for one product of two significands of these widths.

        >>> fmac = MacUnit(slice_bits=2)
        >>> fmac.passes(2, 2), fmac.passes(2, 4), fmac.passes(4, 4), fmac.passes(3, 4)
        (1, 2, 4, 4)
        """
        if self.slice_bits is None:
            return 1
        return -(-mantissa_a // self.slice_bits) * -(-mantissa_b // self.slice_bits)

    def __str__(self) -> str:
        if self.unit is not None:
            return self.unit.describe()
        order = "chunked" if self.order == "sequential" and self.chunk is not None else self.order or "any order"
        details = {
            "chunk": self.chunk,
            "width": self.width if self.width != 1 else None,
            "rows": self.rows,
            "align_bits": self.align_bits,
        }
        inside = ", ".join(f"{name}={value}" for name, value in details.items() if value is not None)
        parts = [str(self.accumulate), f"{order}({inside})" if inside else order]
        if self.multiply is not None:
            parts.append(f"products in {self.multiply}")
        elif self.fused is False:
            parts.append("products rounded")
        if self.partial is not None:
            mode = "" if self.partial_rounding is None else f" ({self.partial_rounding})"
            parts.append(f"partial sums in {self.partial}{mode}")
        if self.left is not None:
            parts.append(f"operands {self.left} by {self.right}")
        if self.rounding != "nearest-even":
            parts.append(self.rounding)
        if self.slice_bits is not None:
            parts.append(f"{self.slice_bits}-bit slices")
        return ", ".join(parts)


def _fields_of(unit: ProcessingUnit) -> dict[str, object]:
    """The fields of the MAC unit that a processing unit is."""
    fields: dict[str, object] = {"accumulate": unit.format}
    if unit.mad is None and unit.order == "lanes":
        return fields | {"order": "sequential", "width": unit.lanes}
    order = "pairwise" if unit.mad is None and unit.order == "tree" else "chunked"
    return fields | {"order": order, "chunk": unit.lanes}


_DEFAULTS = dict(zip(MacUnit.__struct_fields__, MacUnit.__struct_defaults__, strict=True))
