"""The roofline machine: a real chip, as peaks, a bandwidth, and how far from them its ops were measured."""

from hashlib import sha256
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, FormatError
from presilicon.designs import (
    Design,
    Label,
    Machine,
    MachineStep,
    Numerics,
    StepPrice,
    Technology,
    UpdateRule,
    design_names,
    load_design,
)
from presilicon.formats import Format, MacUnit, parse
from presilicon.records import Area
from presilicon.simulation.roofline.efficiency import Peaks, load_efficiency, table_content

Positive = Annotated[float, Meta(ge=1e-6, le=1e9)]
Share = Annotated[float, Meta(ge=0, le=1)]
Microseconds = Annotated[float, Meta(ge=0, le=1e6)]

GUESSED_LINK_GB_S = 100.0
"""Bandwidth of a link that the machine does not give."""


class Provenance(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Provenance of some of the machine's figures."""

    what: str
    label: Label | Literal["measured"]
    source: str


class MatrixRate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Matrix products whose operands are in one number format."""

    tflops: Positive
    """Peak, dense."""
    pj_per_flop: Annotated[float, Meta(ge=0)] = 0.0


class HostTimes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Microseconds that the host takes to launch an op, without a captured graph."""

    step_us: Microseconds = 500.0
    """Once per step, whatever is in it."""
    forward_us: Microseconds = 10.0
    backward_us: Microseconds = 10.0
    update_us: Microseconds = 1.0
    """Per tensor of an optimizer that updates many tensors in one call."""
    cast_us: Microseconds = 5.0
    compiled_us: Microseconds = 6.0
    """Per kernel of a compiled step."""


class ChipEnergy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Energy of a step outside of products, which have their own figure in `MatrixRate`."""

    static: Share
    """Share of the machine's power that is always drawn, at the clock of a busy chip."""
    busy: dict[str, Share] = {}
    """Share drawn in addition while a kernel works, by its class in `ACTIVITIES`; products by the share of the cores
    that they fill."""
    pj_per_byte: Annotated[float, Meta(ge=0)]
    pj_per_flop: Annotated[float, Meta(ge=0)] = 0.0
    """Energy of arithmetic outside the matrix units."""


ACTIVITIES = (
    "gemm", "convolution", "depthwise", "attention", "recurrent", "normalization", "layer-normalization", "other"
)  # fmt: skip
"""Classes of kernels that draw a power of their own; `other` are element-wise ones, moves and all the rest."""
Launch = Literal["graph", "eager", "compile"]
Optimizer = Literal["foreach", "fused"]
ImageLayout = Literal["contiguous", "channels-last"]


class RooflineMachine(
    Machine, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="roofline"
):
    """A chip, or several side by side, that runs ops one after another as a framework launches them.

    The limit of an op is the longer of its arithmetic and its memory traffic at the peaks. Small products do not fill
    the chip: they are made of tiles, a wave of tiles at a time. How much longer than its limit an op takes was measured
    on layers of many kinds and shapes, on this chip or another one.
    """

    matrix: dict[str, MatrixRate]
    """Rates by the format of the operands. A product runs at the highest rate whose format holds both operands."""
    memory_gb_s: Positive
    memory_gib: Positive
    cache_mib: Annotated[float, Meta(ge=0, le=1 << 20)] = 64.0
    """Last cache of the chip: a kernel whose tensors exceed it takes at least as long as the rest at the bandwidth."""
    cores: Annotated[int, Meta(ge=1, le=1 << 20)]
    """Units that compute tiles of a product in parallel: streaming multiprocessors, or matrix units."""
    core_ghz: Annotated[float, Meta(ge=0, le=100)] = 0.0
    """Clock of the cores, by which efficiency is carried over from another chip; 0: as a share of the limits."""
    tile: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Rows and columns of the tile of a product that one core computes at a time."""
    measured: str = ""
    """Table of measured layers: the name of a shipped one or a file; empty for ops that reach their limits."""
    launch: Launch = "graph"
    """Launch of ops: by a captured graph of the whole step, by the host one by one, or by the host after torch.compile,
    which merges ops that are no products into loops, and lays images out channels last."""
    optimizer: Optimizer = "foreach"
    """Update of the weights: every op of it for many tensors in one launch, or all ops in one kernel."""
    latency_us: Microseconds = 2.0
    """Time of a launch on the chip, of kernels that were not measured."""
    host: HostTimes = HostTimes()
    fused_attention: bool = True
    """Whether scaled dot-product attention keeps its score matrix on the chip."""
    layout: ImageLayout = "contiguous"
    """Memory format of images and of the weights of 2-D convolutions; contiguous is torch's default."""
    energy: ChipEnergy | None = None
    """None: energy is the peak power times the time."""
    cap_w: Positive | None = None
    """Power limit in force, which lowers the clock where a step would exceed it; None: the rated power."""
    power_w: Positive
    """Rated power of a chip, to which the shares of `energy` refer."""
    area_mm2: Positive | None = None
    chips: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Chips that train the same model, each on its share of the batch, and add up their gradients around a ring."""
    link_gb_s: Positive | None = None
    """Bandwidth from each chip to the next, in one direction; None for a guess, which the result names."""
    figures: tuple[Provenance, ...] = ()

    def check(self) -> None:
        """There must be at least one matrix rate, of a format that exists, and the table of measured layers."""
        if not self.matrix:
            raise ConfigError("matrix is empty: give the rate of at least one format, as in [machine.matrix.bfloat16]")
        for name in self.matrix:
            try:
                parse(name)
            except FormatError as error:
                raise ConfigError(f"matrix.{name}: {error}") from None
        for name in self.energy.busy if self.energy else ():
            if name not in ACTIVITIES:
                raise ConfigError(f'energy.busy: no class "{name}". Allowed: {", ".join(ACTIVITIES)}')
        if self.energy is None and self.cap_w is not None and self.cap_w < self.power_w:
            raise ConfigError(
                f"cap_w = {self.cap_w:g} is below power_w = {self.power_w:g}, but without [machine.energy] it is not "
                "known what power a step takes at a lower clock: give energy, or leave cap_w out"
            )
        table = load_efficiency(self.measured).layers
        if table and table.is_processor and self.launch != "graph":
            raise ConfigError(
                f'launch = "{self.launch}" is for a chip beside its host; on a processor, ops run as torch calls them '
                '(launch = "graph"), and the loops that torch.compile writes for it are not modelled'
            )

    @property
    def peaks(self) -> Peaks:
        """The limits of its kernels."""
        tflops = {name: rate.tflops for name, rate in self.matrix.items()}
        return Peaks(memory_gb_s=self.memory_gb_s, issue=self.cores * self.core_ghz, tflops=tflops)

    def file_digests(self) -> dict[str, str]:
        """The table of measured layers."""
        return {"measured": sha256(table_content(self.measured)).hexdigest()[:16]} if self.measured else {}

    @property
    def update_rule(self) -> UpdateRule:
        """Chips share the batch."""
        return UpdateRule(chips=self.chips)

    def price(self, step: MachineStep) -> StepPrice:
        """See `price_roofline`."""
        from presilicon.simulation.roofline.pricing import price_roofline

        return price_roofline(step, self)

    def numerics_remarks(self, numerics: Numerics) -> tuple[str, ...]:
        """The chip's own units add up, and all products move data in the width of the activations."""
        remarks = super().numerics_remarks(numerics)
        if self.chips > 1 and self.link_gb_s is None:
            guess = f"the link between chips is a guess of {GUESSED_LINK_GB_S:g} GB/s: give machine.link_gb_s"
            remarks = (*remarks, guess)
        rated_w = _rated_w(self)
        if rated_w not in (None, self.power_w):
            remarks = (
                *remarks,
                f"power_w = {self.power_w:g} makes this another chip than {self.measured} with {rated_w:g} W: all "
                "energies scale with it; a limit on the power of the same chip is cap_w",
            )
        if self.energy and any(not rate.pj_per_flop for rate in self.matrix.values()):
            free = ", ".join(name for name, rate in self.matrix.items() if not rate.pj_per_flop)
            remarks = (*remarks, f"no energy of arithmetic in {free} is given (pj_per_flop): it is left out")
        units = "; ".join(str(mac) for mac in numerics.macs() if mac != MacUnit())
        if units:
            remarks = (*remarks, f"the MAC unit ({units}) is emulated; the price is that of the chip's own units")
        if all(part.has_formats_by_role for part in numerics.variants()):
            return remarks
        return (*remarks, "products with formats of their own run at their rate, but move data as wide as activations")

    def area(self, design: Design, technology: Technology | None) -> Area:
        """The area of all dies, where the machine gives it."""
        if self.area_mm2 is None:
            return Area(parts_mm2={}, how="not known: the machine gives none")
        return Area(parts_mm2={"dies": self.area_mm2 * self.chips}, how="as the machine gives it")

    def for_product(self) -> Machine:
        """A single product runs on one of its chips."""
        return replace(self, chips=1)

    def rate(self, a: Format, b: Format) -> tuple[str, MatrixRate]:
        """Name and rate of the fastest unit that holds both operands exactly.

        Raises:
            ConfigError: the chip has none.
        """
        fitting = [
            (name, rate)
            for name, rate in self.matrix.items()
            if all(_holds(parse(name), operand) for operand in (a, b))
        ]
        if not fitting:
            raise ConfigError(
                f"the machine multiplies in {', '.join(self.matrix)}: none of them holds {a} times {b}; "
                "give it numerics that one of them holds"
            )
        return max(fitting, key=lambda entry: entry[1].tflops)


def _rated_w(machine: RooflineMachine) -> float | None:
    """The rated power of the packaged chip whose own measured layers a machine has; None if it is another chip."""
    if machine.measured not in design_names():
        return None
    packaged = load_design(machine.measured).machine
    if isinstance(packaged, RooflineMachine) and packaged.peaks == machine.peaks:
        return packaged.power_w
    return None


def _holds(unit: Format, operand: Format) -> bool:
    return unit.significand_bits >= operand.value_bits and unit.exponent_bits >= operand.exponent_bits
