"""Output of `presilicon schedule kernels`."""

from pathlib import Path
from typing import Any

import click

from presilicon.base import (
    ConfigError,
    Source,
    apply_settings,
    decode_config,
    format_bytes,
    format_seconds,
    read_json,
    to_plain,
    unknown,
)
from presilicon.cli.options import print_json
from presilicon.cli.schedule import KernelOptions
from presilicon.scheduling import (
    SHAPES,
    Estimate,
    Fmax,
    FpgaBoard,
    KernelConfig,
    Ranked,
    Space,
    estimate,
    explore,
    latency_indicator,
    make_input,
    synthetic_fmax,
    table_fmax,
)

_CONTRADICTION = 1.1
"""Ratio of estimated times above which the indicator contradicts the estimate."""


def print_kernels(options: KernelOptions, as_json: bool) -> None:
    """Rank configurations, or print estimate and indicator of one."""
    kind, shape, settings = options.kind or "MatMul", options.shape, options.settings
    if kind not in SHAPES:
        raise unknown("kind", kind, SHAPES)
    op = make_input(kind, SHAPES[kind][1] if shape is None else read_numbers("--shape", shape, "x"))
    source = Source(f"the board with {' '.join(settings)}" if settings else "the board")
    board = decode_config(apply_settings({}, settings, FpgaBoard, source), FpgaBoard, source)
    document: dict[str, Any] = {"op": kind, "shape": list(op.sides), "work": op.work, "board": to_plain(board)}
    if options.config is not None and options.fmax_mhz is not None:
        numbers, fmax_mhz = read_numbers("--config", options.config, ","), options.fmax_mhz
        if len(numbers) != 4:
            raise ConfigError(f"--config must be four numbers, as in 2,1,128,64, not {options.config[:60]}")
        value = latency_indicator(op.work, numbers[2], fmax_mhz)
        found = estimate(op, KernelConfig(*numbers), fmax_mhz, board)
        excess = found.excess(board)
        document |= {"config": list(numbers), "fmax_mhz": fmax_mhz, "latency_indicator": value}
        document |= {"fits": excess is None, "estimate": _fields(found)}
        if as_json:
            print_json(**document)
        else:
            click.echo(f"LI {value:.2f}; at least {_told(found)}")
            if excess is not None:
                click.echo(f"it does not fit: it needs {excess}")
        return
    fmax, label, monotone = _fmax(options.fmax_table)
    space = Space()
    exploration = explore(op, fmax, space, board=board, top=options.top, monotone=monotone)
    best, preferred = exploration.best[0], exploration.preferred
    slower = preferred.estimate.time_s / best.estimate.time_s
    document |= {
        "fmax": label,
        "space": exploration.space,
        "queries": exploration.queries,
        "pruned_infeasible": exploration.infeasible,
        "skipped": exploration.skipped,
        "pruned_close": exploration.close,
        "best": [_plain(ranked) for ranked in exploration.best],
        "preferred_by_indicator": _plain(preferred)
        | {"time_over_best": slower, "contradicts": slower > _CONTRADICTION},
    }
    if as_json:
        print_json(**document)
        return
    click.echo(f"{kind} {'x'.join(map(str, op.sides))}: {exploration.space:,} configurations, Fmax from {label}")
    click.echo(
        f"{exploration.queries:,} clocks evaluated; {exploration.infeasible:,} do not fit, "
        f"{exploration.skipped:,} lie between others, {exploration.close:,} have a neighbour within 10%"
    )
    click.echo("rank  units  simd  group  unroll   Fmax MHz  at least  limit          LI  rank by LI")
    for ranked in exploration.best:
        units, simd, group, unroll = ranked.config
        click.echo(
            f"{ranked.rank:4}  {units:5}  {simd:4}  {group:5}  {unroll:6}  {ranked.fmax_mhz:9.1f}  "
            f"{format_seconds(ranked.estimate.time_s):>8}  {ranked.estimate.limit:7}  {ranked.indicator:9.2f}  "
            f"{ranked.indicator_rank:10,}"
        )
    if slower > _CONTRADICTION:
        click.echo(
            f"the indicator prefers {','.join(map(str, preferred.config))} (LI {preferred.indicator:.2f}) and "
            f"contradicts the estimate: at least {_told(preferred.estimate)}, {slower:,.1f} times the best"
        )


def _told(found: Estimate) -> str:
    moved = f"{format_bytes(found.dram_bytes)} over the board's memory"
    return (
        f"{format_seconds(found.time_s)} ({moved if found.limit == 'memory' else f'{found.compute_cycles:,} cycles'})"
    )


def _fields(found: Estimate) -> dict[str, Any]:
    return {**to_plain(found), "time_s": found.time_s, "limit": found.limit}


def _plain(ranked: Ranked) -> dict[str, Any]:
    return {
        "rank": ranked.rank,
        **ranked.config._asdict(),
        "fmax_mhz": ranked.fmax_mhz,
        **_fields(ranked.estimate),
        "latency_indicator": ranked.indicator,
        "indicator_rank": ranked.indicator_rank,
    }


def _fmax(path: Path | None) -> tuple[Fmax, str, bool]:
    if path is None:
        return synthetic_fmax(), "a synthetic law (an assumption)", True
    try:
        clocks = {(int(cu), int(simd), int(unroll)): float(mhz) for cu, simd, unroll, mhz in read_json(path)}
    except (ValueError, TypeError):
        raise ConfigError(f"{path} must be [[cu, simd, unroll, MHz], ...] in JSON") from None
    if not clocks or min(clocks.values()) <= 0:
        raise ConfigError(f"{path} must have at least one clock, all above 0 MHz")
    return table_fmax(clocks), f"the table {path.name}", False


def read_numbers(option: str, text: str, mark: str) -> tuple[int, ...]:
    """The whole numbers of an option's text."""
    try:
        return tuple(int(part) for part in text.lower().split(mark))
    except ValueError:
        raise ConfigError(f"{option} must be whole numbers joined by {mark}, not {text[:60]!r}") from None
