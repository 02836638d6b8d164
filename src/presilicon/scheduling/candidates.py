"""Ops that may leave the GPU: thresholds on memory bandwidth and IPC, learned from a characterization table."""

from typing import Literal

from msgspec import Struct

from presilicon.base import ConfigError
from presilicon.designs import Row, System
from presilicon.records import Problem

Rule = Literal["paper", "and", "all"]
LEARNED_FROM = ("MatMul", "Conv2D")


class Thresholds(Struct, frozen=True, kw_only=True):
    """Largest bandwidth and IPC on the reference device at which an op is a candidate."""

    bandwidth_gb_s: float
    ipc: float


class Judged(Struct, frozen=True, kw_only=True):
    """Rows of a table that a rule admits, and its mistakes."""

    rule: Rule
    thresholds: Thresholds
    admitted: tuple[tuple[str, str], ...]
    """Kind and size."""
    wrongly: tuple[tuple[str, str], ...]
    """Admitted although not faster on the other device."""
    missed: tuple[tuple[str, str], ...]
    """Not admitted although faster on the other device."""


def learn(system: System, device: str = "fpga") -> Thresholds:
    """The largest bandwidth and the largest IPC at which `MatMul` or `Conv2D` is faster on the device.

    The publication takes the larger of the two ops' thresholds and calls it conservative, although it admits more ops.

    Raises:
        ConfigError: the table has no such rows, or no bandwidth and IPC.
    """
    faster = [row for row, other in _pairs(system, device) if row.kind in LEARNED_FROM and other.time_ms < row.time_ms]
    bandwidths = [row.bandwidth_gb_s for row in faster if row.bandwidth_gb_s is not None]
    counts = [row.ipc for row in faster if row.ipc is not None]
    if not bandwidths or not counts:
        raise ConfigError(
            f"{system.name}: the table must have rows of {' or '.join(LEARNED_FROM)} with bandwidth_gb_s and ipc on "
            f"{system.reference} that are faster on {device}, to learn thresholds from; it has none"
        )
    return Thresholds(bandwidth_gb_s=max(bandwidths), ipc=max(counts))


def judge(system: System, rule: Rule, device: str = "fpga") -> Judged:
    """Apply a rule to a table, and compare its decisions with the measured times.

    >>> from presilicon.designs import load_system
    >>> judged = judge(load_system("v100-3xs10"), "paper")
    >>> len(judged.admitted), len(judged.wrongly)
    (19, 13)
    """
    thresholds = learn(system, device)
    pairs = list(_pairs(system, device))
    admitted = [(row, other) for row, other in pairs if admits(row, thresholds, rule)]
    return Judged(
        rule=rule,
        thresholds=thresholds,
        admitted=tuple((row.kind, row.size) for row, _ in admitted),
        wrongly=tuple((row.kind, row.size) for row, other in admitted if other.time_ms >= row.time_ms),
        missed=tuple(
            (row.kind, row.size)
            for row, other in pairs
            if not admits(row, thresholds, rule) and other.time_ms < row.time_ms
        ),
    )


def admits(row: Row, thresholds: Thresholds, rule: Rule) -> bool:
    """Whether a row of the reference device is a candidate; a row without bandwidth and IPC always is."""
    if rule == "all" or row.bandwidth_gb_s is None or row.ipc is None:
        return True
    low = row.bandwidth_gb_s <= thresholds.bandwidth_gb_s, row.ipc <= thresholds.ipc
    return any(low) if rule == "paper" else all(low)


def candidates(system: System, problem: Problem, rule: Rule, device: str = "fpga") -> frozenset[int]:
    """The ops of a problem that a rule admits.

    An op without a size class is admitted if any size of its kind is. An op that is not in the table is admitted.
    """
    if rule == "all" or device not in system.devices:
        return frozenset(range(len(problem.tasks)))
    thresholds = learn(system, device)
    kinds: dict[str, list[Row]] = {}
    for row in system.rows:
        if row.device == system.reference:
            kinds.setdefault(row.kind, []).append(row)
    admitted = set()
    for task in problem.tasks:
        rows = [row for row in kinds.get(task.kind, []) if task.size in ("", row.size)]
        if not rows or any(admits(row, thresholds, rule) for row in rows):
            admitted.add(task.id)
    return frozenset(admitted)


def _pairs(system: System, device: str) -> list[tuple[Row, Row]]:
    pairs = []
    for row in system.rows:
        other = system.row(row.kind, row.size, device)
        if row.device == system.reference and other is not None:
            pairs.append((row, other))
    return pairs
