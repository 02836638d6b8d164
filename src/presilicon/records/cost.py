"""Cost of a training step on a machine, and the area of a chip."""

from typing import Literal

from msgspec import Struct

from presilicon.records.graph import OpKind, Phase


class Area(Struct, frozen=True, kw_only=True):
    """The area of a design by its parts, or why it is not known."""

    parts_mm2: dict[str, float]
    """Square millimetres by part; empty where the area is not known."""
    how: str
    """Origin of the parts, or the reason why there are none."""

    @property
    def mm2(self) -> float | None:
        """The whole; None where it is not known."""
        return sum(self.parts_mm2.values()) if self.parts_mm2 else None


Bound = Literal["compute", "memory", "network", "none", "given"]
"""Resource that limits an op; `given` if its time comes from elsewhere (see `records.foreign`)."""


class OpCost(Struct, frozen=True, kw_only=True, gc=False):
    """Cost of one op of a step, and its position on the timeline."""

    index: int
    name: str
    kind: OpKind
    phase: Phase
    layer: str
    unit: str
    """The part of the machine that runs it: `array`, `vector`."""
    start_s: float
    time_s: float
    cycles: int
    """Compute cycles, without waiting for memory."""
    energy_j: float
    bytes_dram: float
    bytes_sram: float
    flops: int
    utilization: float
    """Useful multiply-adds over what the array could have done in `cycles`; zero for ops off the array."""
    compute_s: float
    """Time of the compute unit alone."""
    memory_s: float
    """Time of the DRAM traffic alone."""
    prefetched_s: float
    """Part of the DRAM traffic that was prefetched while the previous op computed."""
    intensity: float
    """FLOPs per byte of DRAM traffic; zero when nothing moves."""
    roof_flops_s: float
    """FLOPs per second that the unit and the DRAM bandwidth allow at this intensity."""
    bound: Bound
    group: str = ""
    """Name of the first op of the group that it is fused into; empty if it runs on its own. The time of a group is
    divided among its ops, and data that several of them load is charged to the first."""
    bytes_noc: float = 0.0
    """Bytes on the links between cores: data that crosses several counts on each."""
    algorithm: str = ""
    """The algorithm by which a product runs above the peak, because it multiplies less; empty for the plain one."""

    @property
    def flops_s(self) -> float:
        """FLOPs per second that it reaches, to hold against `roof_flops_s`.

        Ops of a group run at the same time, so one of them is measured over the time that its own work needs.
        """
        seconds = max(self.time_s, self.compute_s, self.memory_s) if self.group else self.time_s
        return self.flops / seconds if seconds else 0.0

    @property
    def end_s(self) -> float:
        """End of the op, counted from the start of the step."""
        return self.start_s + self.time_s


class DramBounds(Struct, frozen=True, kw_only=True):
    """DRAM traffic that no schedule of a step falls below, each op running once."""

    separate_bytes: float
    """Every op on its own: each reads what it uses once and writes its results."""
    compulsory_bytes: float
    """All ops fused: weights, state and the batch are read once, what the next step needs is written once."""
    buffered_bytes: float
    """The same, with what the on-chip buffer cannot hold where all data must pass through it."""


class CoresUse(Struct, frozen=True, kw_only=True):
    """How the cores of a chip divide a step."""

    parallel: str
    """`data`, `tile` or `layer`; `none` where one core does all."""
    used: int
    count: int
    network: str
    """Kind and size of the network: `4 x 4 mesh`."""
    bytes_noc: float
    """Bytes on all links together: data that crosses several counts on each."""
    busiest_s: float
    """Time for which the busiest link carries data."""
    alone_s: float
    """Time of the step on one core of the same chip."""

    @property
    def way(self) -> str:
        """The cores in use and how they divide the step, in words."""
        ways = {"data": "by samples", "tile": "by tiles of products", "layer": "by layers", "none": "one alone"}
        return f"{self.used} of {self.count}, {ways[self.parallel]}"


class StepChecks(Struct, frozen=True, kw_only=True):
    """How far predictions of whole steps were off where they were measured, for steps that are alike."""

    known: float
    """The least share of known layers (see `MeasuredBasis`) among them."""
    steps: int
    mean_error: float
    usual_error: float
    """Nine of ten were within it."""


class MeasuredBasis(Struct, frozen=True, kw_only=True):
    """The share of a predicted step that rests on measured layers."""

    device: str
    """On which they were measured."""
    known: float
    """Share of the time of products in layers that were measured themselves, in their format, at some batch size."""
    is_transferred: bool
    """Whether the step runs on another chip than that."""
    unmeasured: tuple[str, ...] = ()
    """Formats of products of the step that were not measured on any chip: they are taken to stay as far behind their
    limits as bfloat16."""
    has_fp8: bool = False
    """Whether one of them has 8 bits and an exponent."""
    checks: StepChecks | None = None
    """Measured steps of networks with such a share; None if there are none on this chip, launched in this way."""

    @property
    def text(self) -> str:
        """The basis as a sentence."""
        text = f"{self.known:.0%} of the time of products is in layers that were measured on {self.device}"
        if self.is_transferred:
            text += ", and how far they stay behind their limits is carried over to this chip"
        if self.unmeasured:
            fp8 = "; FP8 is not measured here, and published whole layers take about 2.3 times as long as this"
            names = " and ".join(self.unmeasured)
            text += f"; none is in {names}, which is taken to stay as far behind its limits as bfloat16"
            return text + (fp8 if self.has_fp8 else "")
        if self.is_transferred:
            return text
        if self.known < 0.99:
            text += " (`characterize-gpu --workload`, or `-cpu`, measures the others)"
        if self.checks is None:
            return f"{text}; whole steps were not compared with measured ones"
        return (
            f"{text}; {self.checks.steps} measured steps with such a share were {self.checks.mean_error:.0%} off on "
            f"average, nine of ten within {self.checks.usual_error:.0%}"
        )


class Cost(Struct, frozen=True, kw_only=True):
    """Time, energy, memory and cycles of one training step, and of each op in it."""

    time_s: float
    energy_j: float
    cycles: int
    memory_bytes: float
    """Peak of what must be held at once: weights, gradients, optimizer state, saved activations, transients."""
    energy_by_component_j: dict[str, float]
    """The same joules by where they went: `mac`, `vector`, `register`, `sram`, `dram`, and `leakage` where the
    technology has a figure for it; a kind of machine may have parts of its own."""
    ops: tuple[OpCost, ...]
    dram_bounds: DramBounds | None = None
    """Lower bounds of the DRAM traffic, for kinds of machines that give them."""
    cores: CoresUse | None = None
    """For a chip with several cores."""
    measured: MeasuredBasis | None = None
    """For a chip whose layers were measured."""
    unknown_operators: tuple[str, ...] = ()
    """Operators of the step that the op table does not have: they are priced by their kind."""
    chips: int = 1
    """Chips that share the batch: energy is that of all, memory and the work and traffic of ops are those of each."""
    batch_per_chip: int = 0
    samples_per_update: int = 0
    """Samples of all chips whose gradients make one update of the weights."""
    link_gb_s: float | None = None
    """Bandwidth from each of several chips to the next, in one direction."""
    host_s: float = 0.0
    """Time that the host takes to launch the step's ops, during which the chip works; 0 where it launches none."""

    @property
    def batch_size(self) -> int:
        """Samples of the step, on all chips together."""
        return self.chips * self.batch_per_chip

    @property
    def batch_text(self) -> str:
        """The samples of the step in words."""
        share = f" ({self.batch_per_chip} on each of {self.chips} chips)" if self.chips > 1 else ""
        return f"batch {self.batch_size}{share}"

    @property
    def chips_text(self) -> str:
        """How several chips share a step, in words."""
        link = "" if self.link_gb_s is None else f" over links of {self.link_gb_s:g} GB/s"
        return f"{self.chips} with {self.batch_per_chip} samples each, which add up their gradients{link}"

    @property
    def bytes_dram(self) -> float:
        """DRAM traffic of all ops."""
        return sum(op.bytes_dram for op in self.ops)

    @property
    def timeline(self) -> tuple[tuple[str, float, float], ...]:
        """Name, start and end in seconds of each op, in order of start."""
        return tuple((op.name, op.start_s, op.end_s) for op in sorted(self.ops, key=lambda op: op.start_s))

    @property
    def utilization(self) -> float:
        """Useful multiply-adds over what the array could have done while it was busy."""
        busy_s = sum(op.compute_s for op in self.ops if op.unit != "vector")
        useful_s = sum(op.utilization * op.compute_s for op in self.ops if op.unit != "vector")
        return useful_s / busy_s if busy_s else 0.0

    def order(self) -> list[int]:
        """Positions of the ops in the order in which they run; fused ones may run in another than the step's."""
        positions = list(range(len(self.ops)))
        if any(op.group for op in self.ops):
            positions.sort(key=lambda position: self.ops[position].start_s)
        return positions

    def lanes(self) -> tuple[int, ...]:
        """Row of each op on a timeline on which overlapping ops have rows of their own; all zero if none overlap."""
        ends_s: list[float] = []
        rows = [0] * len(self.ops)
        for position in self.order():
            op = self.ops[position]
            free = [lane for lane, end_s in enumerate(ends_s) if end_s <= op.start_s + 1e-12 * self.time_s]
            lane = max(free, key=ends_s.__getitem__, default=len(ends_s))
            ends_s[lane : lane + 1] = [op.end_s]
            rows[position] = lane
        return tuple(rows)

    def time_by_phase_s(self) -> dict[str, float]:
        """Seconds spent in each phase."""
        totals: dict[str, float] = {}
        for op in self.ops:
            totals[op.phase] = totals.get(op.phase, 0.0) + op.time_s
        return totals
