"""The cost of one training step, or one matrix product, for a terminal."""

from collections.abc import Callable
from typing import Any

from presilicon.base import (
    columns,
    format_bytes,
    format_count,
    format_joules,
    format_percent,
    format_seconds,
)
from presilicon.records import Cost, Coverage, Gemm, OpCost, StepGraph


def render_cost(cost: Cost, *, design: str, graph: StepGraph, ops: int) -> str:
    """Totals, time by phase, energy by component, and the `ops` most expensive ops, as plain text.

    Shares of time are relative to the step, waiting included; if ops overlap, to the sum of their busy times.
    """
    overlap = ops_overlap(cost)
    whole_s = sum(op.time_s for op in cost.ops) if overlap else cost.time_s
    lines = [
        f"{design}: one training step of {graph.name}, {cost.batch_text}",
        "",
        f"time         {format_seconds(cost.time_s)}",
        f"energy       {format_joules(cost.energy_j)}",
        f"memory       {format_bytes(cost.memory_bytes)}",
        *_traffic(cost),
        *_cores(cost),
        *([f"chips        {cost.chips_text}; memory is that of each"] if cost.chips > 1 else []),
        *([f"cycles       {format_count(cost.cycles)}{_SIDE_BY_SIDE if overlap else ''}"] if cost.cycles else []),
        f"utilization  {format_percent(cost.utilization)} of the {_unit(cost)} while it is busy",
        "",
        f"time by phase     {_phases(cost, whole_s)}" + (" (share of busy time: ops overlap)" if overlap else ""),
        "energy by part    " + _shares(cost.energy_by_component_j, cost.energy_j),
    ]
    if ops:
        dearest = sorted(cost.ops, key=lambda op: (-op.time_s, op.index))[:ops]
        rows = [
            ("op", "time", "of busy" if overlap else "share", "bound by", "util", "FLOP/B", "energy", "DRAM"),
            *(_row(op, whole_s) for op in dearest),
        ]
        lines += ["", *columns(rows)]
        if any(op.group for op in dearest):
            lines.append("* fused with others: the time of the group is divided among its ops")
        if len(dearest) < len(cost.ops):
            lines.append(f"... and {len(cost.ops) - len(dearest)} more (--ops N, or --json for all)")
    return "\n".join(lines) + "\n"


_SIDE_BY_SIDE = ", summed over cores that work side by side"


def _traffic(cost: Cost) -> list[str]:
    """DRAM traffic, and its lower bounds where the machine gives them."""
    bounds = cost.dram_bounds
    if bounds is None:
        return []
    fused = len({op.group for op in cost.ops if op.group})
    return [
        f"DRAM         {format_bytes(cost.bytes_dram)}; lower bounds: {format_bytes(bounds.buffered_bytes)} with this "
        f"buffer, {format_bytes(bounds.compulsory_bytes)} with any, {format_bytes(bounds.separate_bytes)} unfused"
        + (f"; {fused} fused groups" if fused else "")
    ]


def _cores(cost: Cost) -> list[str]:
    """How cores divide the step, what that gains, and the traffic between them."""
    use = cost.cores
    if use is None:
        return []
    gain = use.alone_s / cost.time_s if cost.time_s else 1.0
    busy = use.busiest_s / cost.time_s if cost.time_s else 0.0
    return [
        f"cores        {use.way}: {gain:.3g} times as fast as one, "
        f"{format_percent(gain / use.count)} of {use.count}; {use.network}",
        f"network      {format_bytes(use.bytes_noc)} on all links; the busiest carries data {format_percent(busy)} of "
        "the time",
    ]


def ops_overlap(cost: Cost) -> bool:
    """Whether ops of a step run at the same time."""
    return any(cost.lanes())


def waiting_s(cost: Cost) -> float:
    """Seconds in which no op runs, because the step waits for the host or for other chips."""
    left_s = cost.time_s - sum(op.time_s for op in cost.ops)
    return left_s if left_s > 1e-9 * cost.time_s and not ops_overlap(cost) else 0.0


def _phases(cost: Cost, whole_s: float) -> str:
    parts = {phase.replace("_", " "): time_s for phase, time_s in cost.time_by_phase_s().items()}
    return _shares(parts | {"waiting": waiting_s(cost)}, whole_s)


def render_checkpointing(plain: Cost, cost: Cost, segments: int, *, times: bool = True) -> str:
    """Memory saved by checkpointing and the cost of recomputation, as plain text.

    Without `times` only memory and FLOPs are compared, for a `cost` whose times come from another tool.
    """
    figures: list[tuple[str, Callable[[float], str], float, float]] = [
        ("memory", format_bytes, plain.memory_bytes, cost.memory_bytes)
    ]
    if times:
        figures.append(("time", format_seconds, plain.time_s, cost.time_s))
        figures.append(("energy", format_joules, plain.energy_j, cost.energy_j))
    before, after = (sum(op.flops for op in step.ops) for step in (plain, cost))
    figures.append(("FLOPs", format_count, before, after))
    noun = "segment" if segments == 1 else "segments"
    lines = [f"checkpointing in {segments} {noun}, against keeping all activations"]
    for name, write, was, now in figures:
        lines.append(f"  {name.ljust(9)}{write(was).rjust(9)} -> {write(now).rjust(9)}  {_change(was, now)}")
    if segments == 1:
        lines.append("  it saves nothing here: so short a chain gets one segment, which recomputes nothing; try 2")
    elif cost.memory_bytes >= plain.memory_bytes:
        dearer = cost.memory_bytes > plain.memory_bytes
        lines.append("  it saves nothing here" + (", and costs memory" if dearer else ": the peak is the same"))
    if not times:
        lines.append("  times and energies are not compared: those of the step above come from another tool")
    return "\n".join(lines) + "\n"


def render_coverage(coverage: Coverage) -> str:
    """Source of imported times and the share of the step that they cover, as plain text."""
    lines = [
        f"times of {coverage.ops_given} of {coverage.ops} ops are from {coverage.source} ({coverage.kind}): "
        f"{format_percent(coverage.time_share)} of the step's time",
        _ENERGIES[coverage.energies_given > 0].format(number=coverage.energies_given),
    ]
    if coverage.unmatched:
        some = ", ".join(coverage.unmatched[:_UNMATCHED])
        rest = len(coverage.unmatched) - _UNMATCHED
        lines.append(
            f"left out, {format_seconds(coverage.unmatched_s)} a step: {some}"
            + (f" and {rest} more" if rest > 0 else "")
        )
    return "\n".join(lines) + "\n"


_UNMATCHED = 8
_ENERGIES = {
    True: "energies of {number} of them are from there as well; the others are simulated",
    False: "energies are simulated, with leakage over the new times",
}


def _change(was: float, now: float) -> str:
    return f"{100 * (now / was - 1):+.1f}%" if was else "-"


def render_product(
    cost: OpCost, *, design: str, gemm: Gemm, settings: dict[str, Any], least_bytes: float | None = None
) -> str:
    """The cost of one matrix product as plain text; `least_bytes` is the lower bound of its DRAM traffic."""
    priced = ", ".join(f"{name.replace('_', ' ')} {_word(value)}" for name, value in settings.items())
    lines = [
        f"{design}: C[{gemm.m}, {gemm.n}] = A[{gemm.m}, {gemm.k}] B[{gemm.k}, {gemm.n}]",
        priced,
        "",
        f"time         {format_seconds(cost.time_s)}, bound by {cost.bound}",
        f"energy       {format_joules(cost.energy_j)}",
        *([f"cycles       {cost.cycles:,} of compute"] if cost.cycles else []),
        f"utilization  {format_percent(cost.utilization)} of the {_UNITS.get(cost.unit, cost.unit)} while it computes",
        f"DRAM         {format_bytes(cost.bytes_dram)}"
        + ("" if least_bytes is None else f"; at least {format_bytes(least_bytes)} with any mapping"),
        *([f"buffer       {format_bytes(cost.bytes_sram)}"] if cost.bytes_sram else []),
    ]
    return "\n".join(lines) + "\n"


_UNITS = {"matrix": "matrix unit", "core": "cores"}
"""Names of the units for matrix products in sentences."""


def _unit(cost: Cost) -> str:
    unit = next((op.unit for op in cost.ops if op.unit != "vector"), "array")
    return _UNITS.get(unit, unit)


def _word(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _row(op: OpCost, whole_s: float) -> tuple[str, ...]:
    return (
        f"{op.name} *" if op.group else op.name,
        format_seconds(op.time_s),
        format_percent(op.time_s / whole_s) if whole_s else "-",
        op.bound,
        format_percent(op.utilization) if op.unit != "vector" else "-",
        f"{op.intensity:.3g}" if op.intensity < 1000 else f"{op.intensity:,.0f}",
        format_joules(op.energy_j),
        format_bytes(op.bytes_dram),
    )


def _shares(parts: dict[str, float], total: float) -> str:
    ordered = sorted(parts.items(), key=lambda part: -part[1])
    return ", ".join(
        f"{name} {format_percent(value / total, decimals=0)}" for name, value in ordered if total and value
    )
