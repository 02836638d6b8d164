"""Area of the programmable instrument relative to a fixed-function one, over lanes, ranges and bit widths."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from presilicon.designs import Hardware
from presilicon.formats import Fixed
from presilicon.instrument import AGGREGATIONS, aggregation, compile_firmware
from presilicon.records import Reproduced, Reproduction
from presilicon.rtl import ChipResources, Timing, core_parameters, known_area, known_clock, synthesize
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude, stated

LANES = (16, 32, 64, 128)
NEAR = 0.25
"""Part of a published figure by which ours may differ."""
WIDTHS = (8, 16, 32)
BINS = 64
VARIANTS = {"A": 1, "B": 4, "C": 16, "D": 0}
"""Lanes per range; variant D has one range, however many lanes."""
PUBLISHED = {
    "A": (0.69, 1.03, 1.78, 3.21),
    "B": (0.43, 0.51, 0.71, 1.07),
    "C": (0.35, 0.39, 0.44, 0.53),
    "D": (0.35, 0.37, 0.38, 0.37),
}
"""Area over that of previous work, at 16, 32, 64 and 128 lanes."""
PUBLISHED_MHZ = {"A": 191.0, "B": 177.0, "C": 178.0, "D": 178.0}
"""On a Stratix 10, at 16 lanes."""
CLOCKED_LANES = 16
WORKLOADS = ("distribution", "sparsity", "summary", "norm_check", "predictiveness", "invalidity")
SMALL = ("B", 16)
"""Variant and lanes at which flat and composed areas are compared."""
SMALL_LANES = 32
"""Up to this number of lanes, missing areas are synthesized, which takes minutes per variant."""
WIDTH_LANES = 16
"""Lanes of the comparison of bit widths (64 in the source)."""
MORE = "not synthesized yet: python benchmarks/synthesize_instruments.py"
CHAINS = SCRATCHPAD_ROWS = 64
"""Room for distributions of 64 bins in every variant."""


class Part(NamedTuple):
    """One synthesis: a module with its parameters, the modules below it each once."""

    top: str
    parameters: dict[str, int]
    flat: bool = False

    @property
    def area(self) -> ChipResources:
        """Area on a Cyclone V; synthesized if it is not known yet."""
        return synthesize(self.top, self.parameters, "cyclonev", flat=self.flat)

    @property
    def known(self) -> ChipResources | None:
        """Area on a Cyclone V if it has been synthesized already."""
        return known_area(self.top, self.parameters, "cyclonev", flat=self.flat)


class Clocked(NamedTuple):
    """A circuit whose clock is estimated."""

    top: str
    parameters: dict[str, int]

    @property
    def known(self) -> Timing | None:
        """The estimate if it has been made already."""
        return known_clock(self.top, self.parameters)


def variant(name: str, lanes: int, bits: int = 32) -> Hardware:
    """A variant of the instrument with room for every aggregation of the comparison, distributions of 64 bins too."""
    per_range = VARIANTS[name]
    ranges = max(lanes // per_range, 1) if per_range else 1
    return Hardware(
        lanes=lanes,
        ranges=ranges,
        element=Fixed(bits, 0),
        range_rows=max(BINS // ranges, 1) + 2,
        scratchpad_rows=SCRATCHPAD_ROWS,
        chains=CHAINS,
        alu=("add", "sub", "mul", "max"),
        reduce=("sum", "max"),
    )


def clocked(name: str, *, is_roomy: bool = False) -> Clocked:
    """A variant whose clock is estimated in one piece, with memories of default size or (`is_roomy`) as in the
    areas."""
    hardware, usual = variant(name, CLOCKED_LANES), Hardware()
    if not is_roomy:
        rows = {"range_rows": usual.range_rows, "scratchpad_rows": usual.scratchpad_rows}
        hardware = replace(hardware, **rows, chains=usual.chains)
    return Clocked("presilicon_bare", core_parameters(hardware))


def every_clock() -> Iterator[Clocked]:
    """Every estimate of the reproduction."""
    yield from map(clocked, PUBLISHED_MHZ)
    yield clocked("D", is_roomy=True)


def parts(name: str, lanes: int, bits: int = 32) -> list[Part]:
    """The parts of a variant: filter, vector unit, scalar reduction, packer, sequencer, loader.

    Taps and stream are left out, as in the baseline; so is the wiring between the parts.
    """
    sizes = core_parameters(variant(name, lanes, bits))
    word = {key: sizes[key] for key in ("LANES", "WORD", "FRACTION")}
    return [
        Part("presilicon_filter", word | {"RANGES": sizes["RANGES"], "ROWS": sizes["RANGE_ROWS"]}),
        Part("presilicon_vector_alu", word | {"FUNCTIONS": sizes["ALU"], "ROWS": SCRATCHPAD_ROWS}),
        Part("presilicon_scalar_reduce", word | {"FUNCTIONS": sizes["REDUCE"]}),
        Part("presilicon_packer", {"LANES": lanes, "RANGES": 1, "WORD": bits}),
        Part("presilicon_sequencer", {"LANES": lanes, "ELEMENT": bits, "WORD": bits, "CHAINS": CHAINS}),
        Part(
            "presilicon_loader",
            {"RANGE_ROWS": 64, "SCRATCHPAD_ROWS": 64, "CHAINS": CHAINS, "WORD": bits, "FRACTION": 0},
        ),
    ]


def area_of(name: str, lanes: int, bits: int = 32) -> ChipResources | None:
    """Sum of the areas of a variant's parts; None if parts of a large variant have not been synthesized yet."""
    part_areas = [part.area if lanes <= SMALL_LANES else part.known for part in parts(name, lanes, bits)]
    if not all(part_areas):
        return None
    areas = [area for area in part_areas if area is not None]
    cells: Counter[str] = Counter()
    for area in areas:
        cells.update(area.cells)
    return ChipResources(
        sum(area.luts for area in areas),
        sum(area.registers for area in areas),
        sum(area.memories for area in areas),
        sum(area.multipliers for area in areas),
        dict(cells),
    )


def baseline(lanes: int) -> Part:
    """The fixed-function instrument, with 128 bins."""
    return Part("presilicon_baseline_instrument", {"N": lanes, "WIDTH": 32, "BINS": 128})


def whole(name: str, lanes: int) -> Part:
    """A variant synthesized in one piece, to check the sum of its parts."""
    return Part("presilicon_bare", core_parameters(variant(name, lanes)), flat=True)


def every_part() -> Iterator[Part]:
    """Every synthesis of the reproduction, small ones first."""
    for lanes in LANES:
        yield baseline(lanes)
        for name in reversed(VARIANTS):
            yield from parts(name, lanes)
    for bits in WIDTHS[:-1]:
        for name in reversed(VARIANTS):
            yield from parts(name, WIDTH_LANES, bits)
    yield from (Part("presilicon_block_accumulate", {"LANES": 64, "MANTISSA": bits}) for bits in (8, 12))
    yield from (Part("presilicon_fixed_accumulate", {"LANES": 64, "WORD": bits}) for bits in WIDTHS)
    yield whole(*SMALL)


def reproduce() -> Reproduction:
    """Table I, Figures 8 and 9 and the finding on block floating point, beside ours."""
    rows = (*_table(), *_clocks(), *_intervals(), *_widths(), *_blocks(), *_composition())
    return Reproduction(
        name="instrument-area",
        title="A programmable instrument beside a fixed-function one",
        source="Noronha et al., Flexible Instrumentation for Live On-Chip Debug of Machine Learning Training on FPGAs",
        rows=rows,
        assumptions=(
            "Published areas are ALMs of a Stratix 10 by Quartus; ours are ALUTs of a Cyclone V by Yosys, composed: "
            "every module is synthesized once and counted as often as it stands in the circuit.",
            "Both instruments are ours: the published baseline has no sources. Ours counts into a block of memory per "
            "lane, so that bins cost no look-up tables.",
            "Words of 32-bit integers; the vector unit adds, subtracts, multiplies and compares, the scalar reduction "
            "adds and compares; room for distributions of 64 bins in every variant; taps and stream are not counted.",
            "The clock is nextpnr's estimate after placement, out of context on the largest ECP5 of grade 8; where "
            "nothing else is said, with 8 rows of ranges, 16 of scratchpad and 16 chains.",
        ),
        verdict=conclude(statements, rows),
    )


def _luts(name: str, lanes: int, bits: int = 32) -> int | None:
    area = area_of(name, lanes, bits)
    return None if area is None else area.luts


def _over(one: float | None, other: float | None) -> float | None:
    return None if one is None or not other else one / other


_TO_BASELINE = "variant {}, N={}, M={}: area over the baseline's"


def _table() -> Iterator[Reproduced]:
    for name, published in PUBLISHED.items():
        for lanes, value in zip(LANES, published, strict=True):
            ours = area_of(name, lanes)
            below = baseline(lanes).area
            note = MORE
            if ours is not None:
                note = f"{ours.luts:,} ALUTs, {ours.registers:,} registers, {ours.multipliers} multipliers against "
                note += f"{below.luts:,} ALUTs"
            yield Reproduced(
                _TO_BASELINE.format(name, lanes, variant(name, lanes).ranges),
                "",
                value,
                None if ours is None else ours.luts / below.luts,
                note=note,
            )
    for name, (small, large) in _PUBLISHED_ALMS.items():
        yield Reproduced(
            f"variant {name}: area at N=32 over N=16",
            "",
            round(large / small, 2),
            _over(_luts(name, 32), _luts(name, 16)),
        )


_PUBLISHED_ALMS = {"A": (9.8, 28.7), "B": (6.2, 14.4), "C": (5.1, 10.9), "D": (5.1, 10.3)}
"""Thousands of ALMs at 16 and 32 lanes."""


def _clocks() -> Iterator[Reproduced]:
    chip = "another chip: an ECP5 of grade 8 against a Stratix 10"
    for name, published in PUBLISHED_MHZ.items():
        yield _clock(f"variant {name}, N={CLOCKED_LANES}: clock", clocked(name).known, published, chip)
    roomy = clocked("D", is_roomy=True)
    rows = roomy.parameters["RANGE_ROWS"]
    what = f"variant D, N={CLOCKED_LANES}, {rows} rows of ranges, {SCRATCHPAD_ROWS} of scratchpad: clock"
    yield _clock(what, roomy.known, None, "as in the areas above")


def _clock(quantity: str, timing: Timing | None, published: float | None, note: str) -> Reproduced:
    mhz = None if timing is None else timing.fmax_mhz
    return Reproduced(quantity, "MHz", published, mhz, note=MORE if timing is None else note)


def _intervals() -> Iterator[Reproduced]:
    for lanes in (32, 128):
        for workload in WORKLOADS:
            cycles = {name: _cycles(workload, variant(name, lanes)) for name in VARIANTS}
            shown = ", ".join(f"{name} {value}" for name, value in cycles.items())
            yield Reproduced(
                f"cycles per vector, N={lanes}: {workload.replace('_', ' ')} on variant A",
                ours=float(cycles["A"]),
                note=f"{shown}; the figure is drawn only; the baseline takes 1 for the first three",
            )


def _cycles(workload: str, hardware: Hardware) -> int:
    options = {"bins": BINS} if "bins" in AGGREGATIONS.load(workload).all_options else {}
    built = aggregation(workload, hardware, **options)
    return compile_firmware(built.firmware, hardware).initiation_interval(0)


def _widths() -> Iterator[Reproduced]:
    for bits in WIDTHS:
        areas = {name: _luts(name, WIDTH_LANES, bits) for name in VARIANTS}
        shown = ", ".join(f"{name} {value:,}" for name, value in areas.items())
        yield Reproduced(
            f"N={WIDTH_LANES}, {bits} bits: variant A over D",
            "",
            round(9.8 / 5.1, 2) if bits == 32 else None,
            _over(areas["A"], areas["D"]),
            note=f"ALUTs: {shown}",
        )


def _blocks() -> Iterator[Reproduced]:
    for bits in (8, 12):
        block = Part("presilicon_block_accumulate", {"LANES": 64, "MANTISSA": bits}).area.luts
        fixed = Part("presilicon_fixed_accumulate", {"LANES": 64, "WORD": 16}).area.luts
        yield Reproduced(
            f"a running sum of blocks with {bits}-bit mantissas over one of 16-bit words: area x cycles",
            ours=4 * block / fixed,
            note=f"{block:,} ALUTs and 4 cycles against {fixed:,} and 1; published: no good alternative",
        )


def _composition() -> Iterator[Reproduced]:
    flat, composed = whole(*SMALL).area.luts, _luts(*SMALL) or 0
    yield Reproduced(
        "variant B, N=16: composed of its parts over flat",
        ours=composed / flat,
        note=f"{composed:,} against {flat:,} ALUTs: what the larger sizes, which are only composed, rest on",
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Table I and the figures: ratios to the baseline, the order of the variants, growth, clocks, and blocks."""
    baseline_rows = rows.like("area over the baseline's")
    yield stated("areas over the baseline's", baseline_rows, NEAR)
    for lanes in LANES:
        areas = {row.quantity.split()[1].rstrip(","): row for row in baseline_rows if f"N={lanes}," in row.quantity}
        known = {name: row for name, row in areas.items() if row.ours is not None}
        ours = [row.ours for row in known.values() if row.ours is not None]
        yield Statement(
            len(known) == len(areas) and ours == sorted(ours, reverse=True),
            f"variants become smaller from {min(areas)} to {max(areas)} at N={lanes}",
            ", ".join(f"{name} {row.ours:.2f}, published {row.published:.2f}" for name, row in known.items())
            or "not synthesized yet",
        )
    yield stated("growth of the variants", rows.like(": area at N="), NEAR)
    yield stated("clocks, on another chip", [row for row in rows.like(": clock") if row.published], NEAR)
    yield stated("variant A over D by words", [row for row in rows.like("variant A over D") if row.published], NEAR)
    blocks = [row.ours or 0.0 for row in rows.like("running sum of blocks")]
    yield Statement(
        min(blocks) > 1,
        "block floating point is no good alternative: a running sum costs more than one of fixed-point words",
        ", ".join(f"{ratio:.2f} times the area and cycles" for ratio in blocks),
    )
    composed = rows.like("composed of its parts over flat")[0].ours or 0.0
    yield Statement(
        abs(composed - 1) <= NEAR,
        f"areas that are composed of parts are right within {NEAR:.0%}",
        f"{composed:.2f} of a synthesis in one piece",
        OUR_OWN,
    )
