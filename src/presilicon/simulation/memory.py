"""Memory of a training step: every storage from its first write to its last use, by purpose."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from msgspec import Struct

from presilicon.designs import Design, StepFormats
from presilicon.records import (
    MEMORY_PARTS,
    Cost,
    MemoryPart,
    MemoryPoint,
    MemoryTimeline,
    Op,
    OpCost,
    StepFacts,
    StepGraph,
    TensorRef,
)
from presilicon.simulation.execution import executed_ops
from presilicon.simulation.lifetimes import find_lifetimes
from presilicon.simulation.recent import Recent

_BACKWARD = ("input_grad", "weight_grad")
_INITIAL = ("weight", "state", "activation")
"""Roles of data that may exist before the step: frozen weights, running statistics, the batch."""


class Holding(NamedTuple):
    """A storage with its purpose, and the positions of the first and last op during which it is held."""

    part: MemoryPart
    size_bytes: float
    first: int
    last: int


def memory_timeline(graph: StepGraph, design: Design, cost: Cost, facts: StepFacts = StepFacts()) -> MemoryTimeline:
    """Memory held while each op of `cost` runs, and the lifetimes of the step's data.

    `cost` is the result of `simulate` for the same graph, design and facts; its `memory_bytes` is the peak of this.

    >>> from presilicon.designs import load_design
    >>> from presilicon.simulation import simulate
    >>> double = Op(index=0, name="double", kind="elementwise", operator="aten.mul", phase="forward", layer="",
    ...             inputs=(TensorRef(0, (8,), "activation"),), outputs=(TensorRef(1, (8,), "activation"),), flops=8)
    >>> graph = StepGraph(name="tiny", batch_size=1, ops=(double,))
    >>> design = load_design("fp32-systolic")
    >>> timeline = memory_timeline(graph, design, simulate(graph, design))
    >>> timeline.peak.name, timeline.peak_bytes
    ('double', 64.0)
    """
    formats = StepFormats(design.numerics, facts, graph)
    executed = executed_ops(graph, formats, facts)
    course = course_of(executed, cost.ops)
    holdings = find_holdings(graph, course, formats)
    points = tuple(
        MemoryPoint(
            name=op.name,
            phase=op.phase,
            start_s=op.start_s,
            end_s=op.end_s,
            **{f"{part}_bytes": size for part, size in zip(MEMORY_PARTS, sizes, strict=True)},
        )
        for op, sizes in zip(
            sorted(cost.ops, key=lambda op: op.start_s),
            held_by_part(list(holdings.values()), len(executed)),
            strict=True,
        )
    )
    parts = {storage: holding.part for storage, holding in holdings.items()}
    return MemoryTimeline(points=points, lifetimes=find_lifetimes(executed, cost, parts, formats))


class Course(NamedTuple):
    """The ops of a step in the order in which they start."""

    ops: Sequence[Op]
    until: tuple[int, ...] | None = None
    """For each op, the last one that starts before it ends; None where none overlap."""


_ORDERED = Recent[tuple[Op, ...]](32)


def course_of(executed: Sequence[Op], costs: Sequence[OpCost]) -> Course:
    """The course of a step whose ops start and end as their costs say."""
    starts = [cost.start_s for cost in costs]
    ops: Sequence[Op] = executed
    order = list(range(len(starts)))
    if any(before > after for before, after in pairwise(starts)):
        order.sort(key=lambda position: starts[position])
        ops = _ORDERED.find(executed, tuple(order), lambda: tuple(executed[position] for position in order))
        starts = [starts[position] for position in order]
    ends = [costs[position].end_s for position in order]
    slack = 1e-9 * max(ends, default=0.0)  # an op that starts where another ends does not overlap it
    if all(end <= start + slack for end, start in zip(ends, starts[1:], strict=False)):
        return Course(ops)
    return Course(ops, tuple(max(p, bisect_left(starts, end - slack) - 1) for p, end in enumerate(ends)))


def peak_bytes(graph: StepGraph, course: Course, formats: StepFormats) -> float:
    """Peak memory of the step."""
    change = [0.0] * (len(course.ops) + 1)
    for _, holding in _walk_holdings(graph, course, formats):
        change[holding.first] += holding.size_bytes
        change[holding.last + 1] -= holding.size_bytes
    return max(accumulate(change[: len(course.ops)]), default=0.0)


def held_by_part(holdings: Sequence[Holding], count: int) -> list[list[float]]:
    """Bytes of each of `MEMORY_PARTS` while each of `count` ops runs."""
    change = [[0.0] * len(MEMORY_PARTS) for _ in range(count + 1)]
    for holding in holdings:
        column = MEMORY_PARTS.index(holding.part)
        change[holding.first][column] += holding.size_bytes
        change[holding.last + 1][column] -= holding.size_bytes
    held = [0.0] * len(MEMORY_PARTS)
    rows = []
    for row in change[:count]:
        held = [before + delta for before, delta in zip(held, row, strict=True)]
        rows.append(held)
    return rows


def find_holdings(graph: StepGraph, course: Course, formats: StepFormats) -> dict[tuple[int, bool], Holding]:
    """Every storage of the step, by its id and whether it is the rounded copy of a weight.

    Views and in-place results share the storage of what they came from, so they are counted once, at the largest size
    that an op saw. Weights and state are held throughout, the batch from the start to its last use, and anything else
    from its first write to its last use.
    """
    return dict(_walk_holdings(graph, course, formats))


class _Life(Struct):
    """The uses of a storage."""

    first: int
    last: int
    seen: list[tuple[TensorRef, str]]
    """As ops saw it, with their layers: each role, layer and number of elements once, the first use first."""


_USES = Recent[tuple[set[int], set[int], dict[int, _Life]]](32)


def _find_uses(course: Course, held_throughout: set[int]) -> tuple[set[int], set[int], dict[int, _Life]]:
    """Storages that the step begins with, those that its backward pass reads, and the uses of all but resident ones."""
    initial: set[int] = set()
    used_backward: set[int] = set()
    lives: dict[int, _Life] = {}
    known: set[tuple[int, str, str, int]] = set()
    for position, op in enumerate(course.ops):
        end = position if course.until is None else course.until[position]
        for tensor in op.inputs:
            if tensor.id not in lives and tensor.role in _INITIAL:
                initial.add(tensor.id)
            if op.phase in _BACKWARD:
                used_backward.add(tensor.id)
        for tensor in op.inputs + op.outputs:
            if tensor.id in held_throughout:
                continue
            life = lives.setdefault(tensor.id, _Life(position, position, []))
            life.last = max(life.last, end)
            key = (tensor.id, tensor.role, op.layer, tensor.elements)
            if key not in known:
                known.add(key)
                life.seen.append((tensor, op.layer))
    return initial, used_backward, lives


def _walk_holdings(
    graph: StepGraph, course: Course, formats: StepFormats
) -> Iterator[tuple[tuple[int, bool], Holding]]:
    """The holdings one by one: a step may have very many, and finding the peak needs no list of them."""
    executed = course.ops
    end = len(executed) - 1
    if end < 0:
        return
    resident: dict[tuple[int, bool], Holding] = {}
    for tensor in graph.state:
        resident[tensor.id, False] = Holding("state", formats.bytes_of(tensor, ""), 0, end)
    for tensor in graph.parameters:
        master = TensorRef(tensor.id, tensor.shape, "master")
        resident[tensor.id, False] = Holding("weights", formats.bytes_of(master, ""), 0, end)
        if formats.copies_weights:
            resident[tensor.id, True] = Holding("rounded_weights", formats.written_bytes(tensor, ""), 0, end)
    yield from resident.items()
    held_throughout = {storage for storage, _ in resident}
    backward_start = next((position for position, op in enumerate(executed) if op.phase in _BACKWARD), len(executed))
    initial, used_backward, lives = _USES.find(executed, course.until, lambda: _find_uses(course, held_throughout))
    last = {storage: life.last for storage, life in lives.items()}
    for storage, life in lives.items():
        size_bytes = max([formats.written_bytes(tensor, layer) for tensor, layer in life.seen])
        first_use, tensor = life.first, life.seen[0][0]
        if storage in initial and tensor.role in ("weight", "state"):
            part: MemoryPart = "weights" if tensor.role == "weight" else "state"
            yield (storage, False), Holding(part, size_bytes, 0, end)
            continue
        phase = executed[first_use].phase
        if (
            phase == "forward"
            and tensor.role in _INITIAL
            and (storage in used_backward or first_use < backward_start <= last[storage])
        ):
            part = "activations"
        elif tensor.role == "gradient" and phase in _BACKWARD:
            part = "gradients"
        else:
            part = "transients"
        yield (storage, False), Holding(part, size_bytes, 0 if storage in initial else first_use, last[storage])
