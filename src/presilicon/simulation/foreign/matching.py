"""Times of another simulator or a profiler, in place of ours."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from math import isfinite

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, did_you_mean
from presilicon.records import Cost, Coverage, ForeignTime, ForeignTimes, OpCost, StepGraph

_STANDING = ("leakage", "static")
"""Components of the energy that depend on time alone."""


class OpTime(Struct, frozen=True, kw_only=True):
    """Time, energy and cycles of an op from elsewhere."""

    time_s: float
    energy_j: float | None = None
    cycles: int | None = None


class WholeStep(Struct, frozen=True, kw_only=True):
    """Time and energy of a whole step from elsewhere, and how they stretch waits and the energy outside ops."""

    given: OpTime
    waits: float
    """Ratio of their time to ours."""
    rest: float
    """Ratio of their energy to ours; unused where no energy was given."""


class MatchedTimes(Struct, frozen=True, kw_only=True):
    """The times of a file, matched to ops."""

    times: ForeignTimes
    ops: dict[str, OpTime]
    """By the name of the op."""
    whole: WholeStep | None = None
    unmatched: tuple[str, ...] = ()
    unmatched_s: float = 0.0


def match_times(graph: StepGraph, cost: Cost, times: ForeignTimes) -> MatchedTimes:
    """Match each figure to an op; `cost` is the result of `simulate` for the graph, with no op skipped.

    - by op: names must be ops of the step, each at most once.
    - by order: as many figures as the step has matrix products, or as its forward pass has. An op of several equal
      products counts its figure as often.
    - by operator: call by call where a step of the profile calls an operator as often as ours; layer by layer where it
      does so once per layer that uses it; or else its whole time. A time that several of our ops share is divided in
      proportion to our own times.
    - a whole step: its time is divided among ops, and waits between and after them, in proportion to our own.

    Raises:
        ConfigError: a name is no op, or comes twice, or there are more or fewer figures than products.
    """
    match times.matching:
        case "op":
            return _match_names(cost, times)
        case "order":
            return _match_order(graph, times)
        case "operator":
            return _match_operators(graph, cost, times)
        case "step":
            return _match_step(cost, times)


def put_times(cost: Cost, matched: MatchedTimes) -> tuple[Cost, Coverage]:
    """The cost with the matched times in place of ours, and their share of it.

    Ops keep their order and the gaps between them. Ops that overlap (in a pipeline) do so row by row; the step ends
    with the longest row and the wait after it. A time for the whole step stretches gaps as well as ops. Gaps in which
    a chip waits for its host shrink or grow: the step takes as long as the slower of the two. An op with a
    given time, bound by `given`, computes for the same share of it as of ours, or in all of it if its cycles are other
    ones; our own figures change nothing.

    The energy of an op is the given one, or ours with leakage adjusted to the new time. Energy outside ops (waiting for
    the host, adding up gradients between chips) stays ours, unless the step was given as a whole. Given energies cannot
    be split by component: they are the component `given`, and ours are scaled down by their part.

    Raises:
        ConfigError: the figures add up to more than a float can hold.
    """
    if matched.whole is None and all(_is_ours(op, matched.ops.get(op.name)) for op in cost.ops):
        return cost, _coverage(cost, matched, sum(match.energy_j is not None for match in matched.ops.values()))
    timed, time_s = _lay_out(cost, matched)
    ops, components, energies = _put_energies(cost, timed, time_s, matched)
    energy_j = sum(components.values())
    figures = [time_s, energy_j, matched.unmatched_s, *(figure for op in ops for figure in (op.end_s, op.energy_j))]
    if not all(map(isfinite, figures)):
        raise ConfigError(
            f"{matched.times.source}: its figures add up to more than a float can hold; are they in seconds?"
        )
    whole = matched.whole
    cycles = sum(op.cycles for op in ops)
    present = [op for op in ops if op.name in matched.ops]
    if whole is not None and whole.given.cycles is not None and len(present) == len(matched.ops):
        cycles = whole.given.cycles
    changed = replace(
        cost, time_s=time_s, energy_j=energy_j, cycles=cycles, energy_by_component_j=components, ops=tuple(ops),
        measured=None,
    )  # fmt: skip
    return changed, _coverage(changed, matched, energies)


def _coverage(cost: Cost, matched: MatchedTimes, energies: int) -> Coverage:
    """The share of a step with the matched times that came from their file."""
    present = [op for op in cost.ops if op.name in matched.ops]
    share = _busy_s(present) / max(cost.time_s, _busy_s(cost.ops)) if cost.time_s else 0.0
    return Coverage(
        source=matched.times.source,
        kind=matched.times.kind,
        ops_given=len(present),
        ops=len(cost.ops),
        time_share=share if matched.whole is None else 1.0,
        energies_given=energies,
        unmatched=matched.unmatched,
        unmatched_s=matched.unmatched_s,
    )


def _is_ours(op: OpCost, match: OpTime | None) -> bool:
    """Whether what is given of an op is nothing or our own figures."""
    return match is None or (
        match.time_s == op.time_s and match.energy_j in (None, op.energy_j) and match.cycles in (None, op.cycles)
    )


def _busy_s(ops: Sequence[OpCost]) -> float:
    return sum(op.time_s for op in ops)


def _put_energies(
    cost: Cost, timed: Sequence[OpCost], time_s: float, matched: MatchedTimes
) -> tuple[list[OpCost], dict[str, float], int]:
    """The ops with their new energies, all joules by component, and the number of ops whose energy was given."""
    standing_j = sum(cost.energy_by_component_j.get(name, 0.0) for name in _STANDING)
    # Where ops overlap, the leakage of a second is shared by all that run in it: by more or fewer than before.
    old_s, new_s = max(cost.time_s, _busy_s(cost.ops)), max(time_s, _busy_s(timed))
    rate_w = standing_j / old_s if cost.time_s else 0.0
    overlap = old_s / cost.time_s if cost.time_s else 1.0
    thinner = overlap / (new_s / time_s) if time_s else 1.0
    given_j = replaced_j = changed_j = 0.0
    ops, energies = [], 0
    for old, new in zip(cost.ops, timed, strict=True):
        match = matched.ops.get(old.name)
        if match is not None and match.energy_j is not None:
            energy_j = match.energy_j
            given_j += energy_j
            replaced_j += old.energy_j
            energies += 1
        else:
            own_j = min(old.energy_j, rate_w * old.time_s)
            longer = new.time_s / old.time_s if old.time_s else 0.0
            more_j = own_j * (longer * thinner - 1) if old.time_s else rate_w * thinner * new.time_s
            energy_j = old.energy_j + more_j
            changed_j += more_j
        ops.append(replace(new, energy_j=energy_j))
    rest_j = max(0.0, cost.energy_j - sum(op.energy_j for op in cost.ops))
    whole = matched.whole
    if whole is not None and whole.given.energy_j is None:
        waited_s = max(0.0, cost.time_s - _busy_s(cost.ops))
        changed_j += min(rest_j, rate_w * waited_s) * (whole.waits - 1)
    elif whole is None and cost.host_s:
        before_s, after_s = _host_waits(cost, matched)
        changed_j += min(rest_j, rate_w * before_s) * (after_s / before_s - 1) if before_s else rate_w * after_s
    elif whole is not None and whole.given.energy_j is not None:
        given_j += rest_j * whole.rest
        replaced_j += rest_j
        if energies == len(matched.ops):
            given_j = whole.given.energy_j
    components = _components(cost, replaced_j, changed_j)
    return ops, components | ({"given": given_j} if energies else {}), energies


def _lay_out(cost: Cost, matched: MatchedTimes) -> tuple[list[OpCost], float]:
    """The ops with their new times and starts, and the end of the step."""
    whole = matched.whole
    waits, late_s = (1.0 if whole is None else whole.waits), 0.0
    if whole is None and cost.host_s:
        before_s, host_waits_s = _host_waits(cost, matched)
        waits, late_s = (host_waits_s / before_s, 0.0) if before_s else (1.0, host_waits_s)
    old_s: dict[int, float] = defaultdict(float)
    now_s: dict[int, float] = defaultdict(float)
    lanes, placed = cost.lanes(), list(cost.ops)
    for position in cost.order():
        op, lane = cost.ops[position], lanes[position]
        start_s = now_s[lane] + max(0.0, op.start_s - old_s[lane]) * waits
        match = matched.ops.get(op.name)
        new = replace(op, start_s=start_s)
        if match is not None and not (whole is None and _is_ours(op, match)):
            new = _retimed(op, match, start_s)
        old_s[lane], now_s[lane] = op.end_s, new.end_s
        placed[position] = new
    if whole is not None and len(matched.ops) == sum(op.name in matched.ops for op in placed):
        return placed, whole.given.time_s
    after_s = max(0.0, cost.time_s - max(old_s.values(), default=0.0)) * (1.0 if whole is None else waits)
    return placed, max(now_s.values(), default=0.0) + late_s + after_s


def _host_waits(cost: Cost, matched: MatchedTimes) -> tuple[float, float]:
    """Seconds for which the chip waits for its host, with our times and with the matched ones."""
    matches = ((op, matched.ops.get(op.name)) for op in cost.ops)
    given_s = sum(op.time_s if match is None else match.time_s for op, match in matches)
    return max(cost.host_s - _busy_s(cost.ops), 0.0), max(cost.host_s - given_s, 0.0)


def _retimed(op: OpCost, match: OpTime, start_s: float) -> OpCost:
    longer = match.time_s / op.time_s if op.time_s and match.time_s else 1.0
    compute_s = op.compute_s * longer
    if not op.time_s or match.cycles not in (
        None,
        0,
        op.cycles,
    ):  # it computes in all of its cycles
        compute_s = match.time_s
    return replace(
        op,
        start_s=start_s,
        time_s=match.time_s,
        compute_s=compute_s,
        prefetched_s=0.0,
        cycles=op.cycles if match.cycles is None else match.cycles,
        # The same useful work in another time.
        utilization=min(1.0, op.utilization * op.compute_s / compute_s) if compute_s else op.utilization,
        bound="given",
    )


def _components(cost: Cost, replaced_j: float, changed_j: float) -> dict[str, float]:
    """Our joules by component, without the replaced ones, and with the change of standing power."""
    remaining = max(0.0, 1 - replaced_j / cost.energy_j) if cost.energy_j else 1.0
    ours = {name: joules * remaining for name, joules in cost.energy_by_component_j.items()}
    standing = {name: ours[name] for name in _STANDING if ours.get(name)}
    total, standing_j = sum(ours.values()), sum(standing.values())
    if standing_j and standing_j + changed_j >= 0:
        return ours | {name: joules * (1 + changed_j / standing_j) for name, joules in standing.items()}
    return {name: joules * max(0.0, 1 + changed_j / total) for name, joules in ours.items()} if total else ours


def _match_names(cost: Cost, times: ForeignTimes) -> MatchedTimes:
    known = {op.name for op in cost.ops}
    matches: dict[str, OpTime] = {}
    for entry in times.entries:
        (name,) = entry.names
        if name not in known:
            raise ConfigError(f'{entry.place}: the step has no op "{name}": {_near(name, known)}')
        if name in matches:
            raise ConfigError(f'{entry.place}: the op "{name}" was given before; give each op once')
        matches[name] = OpTime(time_s=entry.time_s, energy_j=entry.energy_j, cycles=entry.cycles)
    return MatchedTimes(times=times, ops=matches)


def _near(name: str, known: set[str]) -> str:
    """A hint at the nearest name, without listing the hundreds of others that a step may have."""
    hint = did_you_mean(name, known).partition(" Allowed: ")[0]
    return hint if hint.startswith("did you mean") else "`presilicon simulate --json` prints the names of all ops"


def _match_step(cost: Cost, times: ForeignTimes) -> MatchedTimes:
    (entry,) = times.entries
    given = OpTime(time_s=entry.time_s, energy_j=entry.energy_j, cycles=entry.cycles)
    evenly = 1 / len(cost.ops) if cost.ops else 0.0
    ops = {}
    for op in cost.ops:
        share = op.time_s / cost.time_s if cost.time_s else evenly
        energy_share = op.energy_j / cost.energy_j if cost.energy_j else evenly
        ops[op.name] = OpTime(
            time_s=entry.time_s * share,
            energy_j=None if entry.energy_j is None else entry.energy_j * energy_share,
            cycles=None if entry.cycles is None else round(entry.cycles * share),
        )
    waits = entry.time_s / cost.time_s if cost.time_s else 1.0
    rest = entry.energy_j / cost.energy_j if cost.energy_j and entry.energy_j is not None else 1.0
    return MatchedTimes(times=times, ops=ops, whole=WholeStep(given=given, waits=waits, rest=rest))


def _match_order(graph: StepGraph, times: ForeignTimes) -> MatchedTimes:
    products = [op for op in graph.ops if op.gemm]
    forward = [op for op in products if op.phase == "forward"]
    rows = len(times.entries)
    if rows not in (len(products), len(forward)):
        raise ConfigError(
            f"{times.source}: it has {rows} layers, but the step has {len(products)} matrix products, {len(forward)} "
            "of them forward: give one layer for each, in the order of the step"
        )
    matches = {}
    for op, entry in zip(products if rows == len(products) else forward, times.entries, strict=True):
        assert op.gemm is not None
        count = op.gemm.count
        matches[op.name] = OpTime(
            time_s=count * entry.time_s,
            energy_j=None if entry.energy_j is None else count * entry.energy_j,
            cycles=None if entry.cycles is None else count * entry.cycles,
        )
    return MatchedTimes(times=times, ops=matches)


def _match_operators(graph: StepGraph, cost: Cost, times: ForeignTimes) -> MatchedTimes:
    operators = {op.name: op.operator.rsplit(".", 1)[0] for op in graph.ops}
    ours: dict[str, list[OpCost]] = defaultdict(list)
    for op in cost.ops:
        if op.name in operators:
            ours[operators[op.name]].append(op)
    theirs: dict[str, list[ForeignTime]] = defaultdict(list)
    others: dict[str, float] = defaultdict(float)
    for entry in times.entries:
        operator = next((name for name in entry.names if name in ours), None)
        if operator is None:
            others[entry.names[0]] += entry.time_s / times.steps
        else:
            theirs[operator].append(entry)
    matches: dict[str, OpTime] = {}
    for operator, entries in theirs.items():
        for ops, shared_s in _share_calls(ours[operator], _calls_s(operator, entries), times.steps):
            matches |= _divide(ops, shared_s)
    return MatchedTimes(
        times=times,
        ops=matches,
        unmatched=tuple(sorted(others, key=lambda name: -others[name])),
        unmatched_s=sum(others.values()),
    )


def _calls_s(operator: str, entries: Sequence[ForeignTime]) -> list[float]:
    """Seconds of each call of an operator, as far as calls can be distinguished."""
    calls: dict[int, float] = defaultdict(float)
    for number, entry in enumerate(entries):
        run = entry.runs[entry.names.index(operator)] if entry.runs else -1 - number
        calls[run] += entry.time_s
    return list(calls.values())


def _share_calls(ops: Sequence[OpCost], calls_s: Sequence[float], steps: int) -> list[tuple[Sequence[OpCost], float]]:
    """Groups of ops, each with the time per step that it shares."""
    layers = [list(run) for _, run in groupby(ops, key=lambda op: op.layer)]
    for groups in ([[op] for op in ops], layers):
        if len(calls_s) == steps * len(groups):
            return [(group, sum(calls_s[at :: len(groups)]) / steps) for at, group in enumerate(groups)]
    return [(ops, sum(calls_s) / steps)]


def _divide(ops: Sequence[OpCost], time_s: float) -> dict[str, OpTime]:
    """Time divided in proportion to ours; evenly where ours is zero."""
    total_s = sum(op.time_s for op in ops)
    return {op.name: OpTime(time_s=time_s * (op.time_s / total_s if total_s else 1 / len(ops))) for op in ops}
