"""Number formats and MAC units at the same silicon area: time- and energy-to-accuracy, paired by seed."""

from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from math import inf

from msgspec.structs import replace

from presilicon.base import cache_directory, meaning
from presilicon.designs import Design, load_design
from presilicon.records import (
    Comparison,
    Curve,
    DesignEvent,
    Event,
    Interval,
    Panel,
    Reproduced,
    Reproduction,
    Result,
    SeedEvent,
)
from presilicon.simulation import fit_area
from presilicon.study import compare
from presilicon_evidence.reproductions.verdicts import OUR_OWN, Rows, Statement, conclude

BASE, TECHNOLOGY = "edge-fp32", "horowitz-45nm-synthesized"
WORKLOADS = ("digits-mlp", "digits-cnn")
SEEDS = 6
"""As few as a 95% interval of a median needs."""

_BLOCKS = "mantissa={}, exponent=8, group=16"


def _operands(forward: str, error: str | None = None, **more: str) -> dict[str, str]:
    roles = {"weight": forward, "activation": forward, "error": error or forward, "gradient": "bfloat16"}
    return {f"numerics.{name}": value for name, value in (roles | more).items()}


def _sums(fmt: str) -> dict[str, str]:
    return {"mac.accumulate": fmt, "mac.order": "chunked", "mac.chunk": "64"}


_SCALED = {"loss_scale.kind": "dynamic", "loss_scale.initial": "1024"}
_LIFTED = {"loss_scale.kind": "static", "loss_scale.initial": "4"}
"""Fixed point saturates instead of overflowing, so that a dynamic scale would not notice."""

FORMATS: Mapping[str, Mapping[str, str]] = {
    "fp32": {},
    "tf32": _operands("tf32"),
    "bf16": _operands("bfloat16"),
    "bf16, bf16 sums": _operands("bfloat16", **_sums("bfloat16")),
    "fp16": _operands("float16", **_SCALED),
    "fp16, fp16 sums": _operands("float16", **_sums("float16"), **_SCALED),
    "dlfloat, its own sums": _operands("float(6, 9)", **_sums("float(6, 9)")),
    "e4m3": _operands("e4m3", **_SCALED),
    "e5m2": _operands("e5m2", **_SCALED),
    "e4m3/e5m2": _operands("e4m3", "e5m2", **_SCALED),
    "e4m3/e5m2, fp16 sums": _operands("e4m3", "e5m2", **_sums("float16"), **_SCALED),
    "fixed(4, 12)": _operands("fixed(4, 12)", **_sums("fixed(13, 12)"), **_LIFTED),
    "BFP m=2": _operands(f"bfp({_BLOCKS.format(2)})"),
    "BFP m=3": _operands(f"bfp({_BLOCKS.format(3)})"),
    "BFP m=4": _operands(f"bfp({_BLOCKS.format(4)})"),
    "BFP m=8": _operands(f"bfp({_BLOCKS.format(8)})"),
    "fMAC m=4": _operands(f"bfp({_BLOCKS.format(4)})", **{"mac.slice_bits": "2"}),
    "MXFP8": _operands("mxfp8_e4m3"),
    "MXFP6": _operands("mxfp6_e3m2"),
    "MXFP4": _operands("mxfp4"),
    "NVFP4": _operands("nvfp(tensor_scale=false)"),
}
"""Settings of each design; the first is the one whose area all have."""
DRAWN = ("fp32", "bf16", "e4m3/e5m2", "BFP m=2", "BFP m=4", "MXFP8", "NVFP4", "fMAC m=4")
"""Formats whose curves are drawn."""

_ASSUMPTIONS = (
    f"Every design is {BASE} with other numerics and as many rows and columns as fit its area (`presilicon design "
    "fit-area`): the same memory, DRAM, vector unit and clock. Units are pipelined to that clock.",
    f"Areas and energies of multiply-adds are those of synthesized circuits, scaled ({TECHNOLOGY}, docs/area.md); "
    "wires and glitches are left out. Blocks of MX have 32 elements in emulation and groups of 16 in the circuit.",
    "Weight gradients enter the optimizer in bfloat16, master weights and state are float32, but for fp32 itself. "
    "Formats with 5 exponent bits or fewer have a dynamic loss scale, fixed point one of 4. Nothing else was tuned.",
    f"{SEEDS} seeds, the same for all designs: the same initial weights and batches. Ratios are medians over the seeds "
    "of design over fp32, seed by seed.",
)


def designs() -> list[Design]:
    """All designs at the area of the first one."""
    technology = f"machine.technology={TECHNOLOGY}"
    reference = load_design(BASE, [technology])
    fitted = []
    for name, settings in FORMATS.items():
        design = load_design(BASE, [technology, *(f"{field}={value}" for field, value in settings.items())])
        sized = design if design.numerics == reference.numerics else fit_area(design, reference).design
        fitted.append(replace(sized, name=name, description=""))
    return fitted


def reproduce(
    on_event: Callable[[Event], None] | None = None, *, workloads: tuple[str, ...] = WORKLOADS, seeds: int = SEEDS
) -> Reproduction:
    """Train every format on every workload and price it.

    Finished trainings are kept in the user's cache: a run that was interrupted continues when it is started again.
    """
    formats = sorted((name, sorted(settings.items())) for name, settings in FORMATS.items())
    content = sha256(repr((formats, meaning()["training"])).encode())
    folder = cache_directory("formats-at-equal-area") / content.hexdigest()[:12]
    comparisons = {}
    for name in workloads:
        named = None if on_event is None else _named(name, on_event)
        comparisons[name] = compare(designs(), name, seeds=seeds, checkpoints=folder / name, on_event=named)
    rows = tuple(row for name, comparison in comparisons.items() for row in _rows(name, comparison))
    return Reproduction(
        name="formats-at-equal-area",
        title="Number formats and MAC units at equal area",
        source="no publication has this table",
        rows=rows,
        assumptions=_ASSUMPTIONS,
        verdict=conclude(statements, rows),
        panels=tuple(_panel(name, comparison) for name, comparison in comparisons.items()),
    )


def _named(workload: str, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """Events with the workload before the design's name, since one run records several workloads."""

    def note(event: Event) -> None:
        if isinstance(event, SeedEvent | DesignEvent):
            event = replace(event, design=f"{workload}: {event.design}")
        on_event(event)

    return note


def _rows(workload: str, comparison: Comparison) -> Iterator[Reproduced]:
    arrays = {design.name: f"{design.machine.rows} x {design.machine.cols} cells" for design in designs()}  # type: ignore[attr-defined]
    for result in sorted(comparison.designs, key=lambda result: _rank(comparison, result, "time")):
        steps = "-" if result.steps_to_accuracy.median is None else f"{result.steps_to_accuracy.median:.0f}"
        note = f"{arrays[result.name]}, {steps} steps, reached {result.reached}, test {result.value:.1%}"
        for quantity in ("time", "energy"):
            ratio = _ratio(comparison, result, quantity)
            ends = [f"{end:.2f}" if end is not None else "never" for end in (ratio.low, ratio.high)]
            yield Reproduced(
                f"{workload}, {result.name}: {quantity}",
                "of fp32",
                ours=ratio.median,
                note=f"{ends[0]} to {ends[1]}; {note}" if quantity == "time" else f"{ends[0]} to {ends[1]}",
            )


def _ratio(comparison: Comparison, result: Result, quantity: str) -> Interval:
    """Ratio to the first design, seed by seed; without a median if too few seeds arrived."""
    first = comparison.designs[0]
    if result.name == first.name:
        return Interval(1.0, 1.0, 1.0)
    pair = next(pair for pair in comparison.pairs if (pair.first, pair.second) == (first.name, result.name))
    ratio: Interval | None = getattr(pair, f"{quantity}_ratio")
    return ratio or Interval(None, None, None)


def _rank(comparison: Comparison, result: Result, quantity: str) -> float:
    median = _ratio(comparison, result, quantity).median
    return inf if median is None else median


def statements(rows: Rows) -> Iterator[Statement]:
    """For each workload, whether a narrower format gains at the same area, which gains most, and which fail."""
    workloads = dict.fromkeys(row.quantity.partition(", ")[0] for row in rows)
    for workload in workloads:
        for quantity, best in (("time", "is fastest"), ("energy", "takes the least energy")):
            ratios = {
                row.quantity.removeprefix(f"{workload}, ").removesuffix(f": {quantity}"): row.ours
                for row in rows.like(f"{workload}, ", f": {quantity}")
            }
            known = {name: ratio for name, ratio in ratios.items() if ratio is not None}
            lost = ", ".join(name for name in ratios if name not in known)
            first = min(known, key=lambda name: known[name], default="")
            winner = f"{first} {best}, {known[first]:.2f} of fp32; " if first else ""
            yield Statement(
                bool(first) and known[first] < 1,
                f"a format takes less {quantity} than fp32 on {workload} at the same area",
                f"{winner}better than fp32: {sum(ratio < 1 for ratio in known.values())} of {len(ratios)}"
                + (f"; not at the target on most seeds: {lost}" if lost else ""),
                OUR_OWN,
            )


def _panel(workload: str, comparison: Comparison) -> Panel:
    curves = []
    for result in [result for result in comparison.designs if result.name in DRAWN]:
        points = result.seeds[0].curve
        times = tuple(1000 * point.time_s for point in points)
        curves.append(Curve(name=result.name, x=times, y=tuple(point.value for point in points)))
    return Panel(
        title=f"{workload} at the area of fp32",
        curves=tuple(curves),
        y_label="validation accuracy",
        x_label="milliseconds of training",
        percent=True,
        note="The first seed of some formats.",
    )
