"""The debug instrument of a design: its hardware and its taps. docs/firmware.md defines what it computes."""

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr, replace

from presilicon.base import ConfigError, located
from presilicon.formats import Fixed, Format

Block = Literal["filter_reduce", "vector_alu", "scalar_reduce"]
AluFunction = Literal["add", "sub", "mul", "max", "min", "abs"]
ReduceFunction = Literal["sum", "product", "max", "min"]

BLOCKS: tuple[Block, ...] = ("filter_reduce", "vector_alu", "scalar_reduce")
ALU_FUNCTIONS: tuple[AluFunction, ...] = ("add", "sub", "mul", "max", "min", "abs")
REDUCE_FUNCTIONS: tuple[ReduceFunction, ...] = ("sum", "product", "max", "min")
WIDEST_WORD = 48
USUAL_RANGES = 32

Rows = Annotated[int, Meta(ge=1, le=256)]


class Hardware(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An instrument's size, number format and functions.

    >>> from presilicon.formats import parse
    >>> hardware = Hardware(lanes=8, ranges=4, element=parse("fixed(16, 16)"))
    >>> hardware.word_bits, hardware.fraction_bits, hardware.is_float
    (32, 16, False)
    >>> Hardware(lanes=8).ranges, Hardware(lanes=64).ranges
    (8, 32)
    >>> Hardware(element=parse("bfloat16"), accumulator_bits=32).word_mantissa
    23
    """

    lanes: Annotated[int, Meta(ge=1, le=256)] = 32
    """Elements per vector: N, a power of two."""
    ranges: Annotated[int, Meta(ge=1, le=256)] = 0
    """Ranges that an element is compared with in one pass: M, a power of two, at most N. By default 32, or N if that is
    less."""
    buffer: Annotated[int, Meta(ge=2, le=4096)] = 32
    """Capacity of the input buffer in vectors, a power of two."""
    range_rows: Rows = 8
    scratchpad_rows: Rows = 16
    chains: Rows = 16
    """Length of the longest firmware, in passes."""
    blocks: tuple[Block, ...] = BLOCKS
    """Blocks of a pass in order. A block that is left out is not built."""
    alu: tuple[AluFunction, ...] = ALU_FUNCTIONS
    """Functions of the vector unit."""
    reduce: tuple[ReduceFunction, ...] = REDUCE_FUNCTIONS
    """Functions of the reduction to a scalar."""
    element: Format = Fixed(16, 16)
    """Format of the tapped numbers: signed fixed(i, f), an integer of scale 1, or an IEEE-like float."""
    accumulator_bits: Annotated[int, Meta(ge=2, le=WIDEST_WORD)] | None = None
    """Width of the words after the input buffer; by default the element's width. Fixed point and integers get more high
    bits, floats more mantissa."""
    taps: Annotated[int, Meta(ge=1, le=64)] = 1
    """Number of vectors of the user's circuit that can be tapped; the first has the highest priority."""
    flush: Literal["frame", "never"] | None = None
    """When the packer outputs a block that is not full: at the end of every outer frame, or never. By default never
    with one tap, and at every frame with several, because their results must not share a block."""
    controls: Annotated[int, Meta(ge=0, le=32)] = 4
    """Number of 32-bit registers that the host writes and the user's circuit reads, such as a learning rate."""

    def __post_init__(self) -> None:
        """Set the default number of ranges."""
        if self.ranges == 0:
            force_setattr(self, "ranges", min(USUAL_RANGES, self.lanes))

    def check(self) -> None:
        """Check that sizes are powers of two, that blocks are unique, and that the circuit supports the number
        format."""
        for name in ("lanes", "ranges", "buffer"):
            value = getattr(self, name)
            if value & (value - 1):
                raise ConfigError(f"{name} must be a power of two, not {value}")
        if self.ranges > self.lanes:
            raise ConfigError(
                f"ranges must be at most {self.lanes}, the number of lanes that carry their counts, not {self.ranges}"
            )
        for name in ("blocks", "alu", "reduce"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ConfigError(f"{name} must not repeat an entry: {', '.join(values)}")
        if self.taps > 1 and self.flush == "never":
            raise ConfigError(
                f'flush must be "frame", not "never": the results of {self.taps} taps must not share a block'
            )
        self._check_element()

    def _check_element(self) -> None:
        allowed = (
            "allowed: fixed(i, f) that saturates, an integer of scale 1, a float with IEEE specials and subnormals"
        )
        element = self.element
        if not (element.is_twos_complement or element.is_ieee):
            raise ConfigError(f"element: the instrument does not support {element}; {allowed}")
        width = self.accumulator_bits
        if width is not None and width < self.element_bits:
            raise ConfigError(
                f"accumulator_bits must be at least {self.element_bits}, the element's width, not {width}"
            )
        if self.is_float and self.word_mantissa > 23:
            raise ConfigError(
                f"accumulator_bits must leave at most 23 mantissa bits in a float word, not {self.word_mantissa}"
            )

    @property
    def is_float(self) -> bool:
        """Whether elements are floats."""
        return self.element.is_float

    @property
    def element_bits(self) -> int:
        """Width of a tapped element."""
        return self.element.bits

    @property
    def word_bits(self) -> int:
        """Width of a word inside the instrument."""
        return self.accumulator_bits or self.element_bits

    @property
    def fraction_bits(self) -> int:
        """Bits after the point of a fixed-point word; 0 for floats."""
        return self.element.fraction_bits

    @property
    def exponent_bits(self) -> int:
        """Exponent bits of a float word; 0 for fixed point."""
        return self.element.exponent_bits

    @property
    def word_mantissa(self) -> int:
        """Mantissa bits of a float word; 0 for fixed point."""
        return self.word_bits - 1 - self.exponent_bits if self.is_float else 0

    @property
    def key_bits(self) -> int:
        """Width of a range boundary: one bit more than a word, so that a boundary can lie below every word."""
        return self.word_bits + 1

    @property
    def flushes(self) -> bool:
        """Whether the packer empties at the end of every outer frame."""
        return self.flush == "frame" or (self.flush is None and self.taps > 1)

    @property
    def multiply_latency(self) -> int:
        """Cycles until another pass can use a product."""
        return 6

    @property
    def add_latency(self) -> int:
        """Cycles until another pass can use a sum or difference."""
        return 6 if self.is_float else 1


TapRole = Literal["weight", "activation", "error", "gradient"]


class Tap(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tensors of a training step that the instrument is wired to: one role of one layer or of several."""

    name: str
    """Name by which the tap is programmed and shown; the taps of several layers are called `name.layer`."""
    layers: str
    """A pattern of qualified names, as in "layers.*": the layers that multiply by weights and match it."""
    role: TapRole = "activation"
    """`activation` is the input of the layer's product, `error` the gradient of its output."""
    aggregation: str = "summary"
    """Name of the aggregation: see `presilicon instrument list`."""
    options: dict[str, Any] = {}
    """Options of the aggregation."""
    every: Annotated[int, Meta(ge=1, le=65535)] = 10
    """Period in training steps."""
    vectors: Annotated[int, Meta(ge=1)] | Literal["all"] = 64
    """Largest number of vectors per tensor, evenly spaced, or all of them."""

    def check(self) -> None:
        """Check that the name and the pattern are printable and not empty."""
        for field in ("name", "layers"):
            value = getattr(self, field)
            if not value.strip() or not value.isprintable() or len(value) > 100:
                raise ConfigError(f"{field} must be printable text of 1 to 100 characters, not {value[:120]!r}")

    def matches(self, layer: str) -> bool:
        """Whether a layer of that name is tapped."""
        return fnmatchcase(layer, self.layers)


class Instrument(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The instrument of a design: hardware, taps, clock and link."""

    hardware: Hardware = Hardware()
    taps: tuple[Tap, ...] = ()
    """The first has the highest priority."""
    clock_mhz: Annotated[float, Meta(gt=0)] = 100.0
    link_bytes_per_s: Annotated[float, Meta(gt=0)] = 12.5e6
    """Bandwidth of the link; 12.5e6 is 100 Mbit/s Ethernet."""
    output_bytes: Annotated[int, Meta(ge=64)] = 16384
    """Capacity of the output buffer."""
    vectors_per_s: Annotated[float, Meta(gt=0)] | None = None
    """Rate at which the tapped circuit offers the vectors of a frame; by default as fast as the instrument takes
    them."""
    step_s: Annotated[float, Meta(gt=0)] | None = None
    """Duration of a training step on the machine; by default the simulated one."""
    seeds: Literal["first", "all"] = "first"
    """Seeds of an evaluation that are watched."""
    listen: str | None = None
    """`HOST:PORT` at which hosts can connect to the stream; port 0 is any free port. By default none."""
    accept_images: bool = False
    """Whether hosts at `listen` may program the instrument and write its control registers; otherwise they only
    read."""
    record: bool = True
    """Whether the stream is stored in the run's directory."""

    def check(self) -> None:
        """Check that names are unique and that the hardware flushes every frame."""
        for tap in self.taps:
            with located(f'tap "{tap.name[:100]}"'):
                tap.check()
        names = [tap.name for tap in self.taps]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f'tap names must be unique, but two are called "{twice}"')
        if self.hardware.flush == "never":
            raise ConfigError(
                'hardware.flush must be "frame", not "never": a stream needs results at the end of every frame'
            )

    @property
    def built(self) -> Hardware:
        """The hardware with its stream, which flushes at every frame even with one tap."""
        return self.hardware if self.hardware.flushes else replace(self.hardware, flush="frame")
