"""Another simulator's times, or a profile's, in the place of ours."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base.errors import ConfigError, did_you_mean
from presilicon.records import Cost, Coverage, ForeignTime, ForeignTimes, OpCost, StepGraph

_STANDING = ("leakage", "static")
"""Parts of the energy that time alone decides."""


class OpTime(Struct, frozen=True, kw_only=True):
    """What an op is to take, by someone else's account."""

    time_s: float
    energy_j: float | None = None
    cycles: int | None = None


class MatchedTimes(Struct, frozen=True, kw_only=True):
    """The times of a file, each with the op that it is for."""

    times: ForeignTimes
    ops: dict[str, OpTime]
    """By the name of the op."""
    unmatched: tuple[str, ...] = ()
    unmatched_s: float = 0.0


def match_times(graph: StepGraph, cost: Cost, times: ForeignTimes) -> MatchedTimes:
    """Find the op of each figure; `cost` is what `simulate` gave for the graph, with no op skipped.

    - by op: names must be ops of the step, each at most once.
    - by order: as many figures as the step has matrix products, or as its forward pass has. An op of several equal
      products counts its figure as often.
    - by operator: where a step of the profile calls an operator as often as ours does, call by call; where it does so
      as often as there are layers that use it, layer by layer; or else its whole time. What several of our ops share
      is divided as our own times are.
    - a whole step: its time is divided among all ops as our own times are.

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
            (whole,) = times.entries
            energies = None if whole.energy_j is None else [op.energy_j for op in cost.ops]
            return MatchedTimes(times=times, ops=_divide(cost.ops, whole.time_s, whole.energy_j, energies))


def put_times(cost: Cost, matched: MatchedTimes) -> tuple[Cost, Coverage]:
    """The cost with the given times in place, and how much of it they are.

    Ops keep their order and the gaps between them. An op with a given time counts as computing all that time, bound by
    `given`. Its energy is the given one, or ours with the standing power (leakage) of the new time. Given energies
    cannot be split by component: they are their own, `given`, and ours are scaled down to what is left of them.
    """
    standing = [name for name in _STANDING if cost.energy_by_component_j.get(name)]
    watts = {name: cost.energy_by_component_j[name] / cost.time_s for name in standing} if cost.time_s else {}
    later_s = theirs_s = longer_s = given_j = replaced_j = 0.0
    ops: list[OpCost] = []
    present = [op for op in cost.ops if op.name in matched.ops]
    for op in cost.ops:
        found = matched.ops.get(op.name)
        if found is None:
            ops.append(replace(op, start_s=op.start_s + later_s))
            continue
        more_s = found.time_s - op.time_s
        if found.energy_j is None:
            energy_j = op.energy_j + sum(watts.values()) * more_s
            longer_s += more_s
        else:
            energy_j = found.energy_j
            given_j += found.energy_j
            replaced_j += op.energy_j
        ops.append(
            replace(
                op,
                start_s=op.start_s + later_s,
                time_s=found.time_s,
                compute_s=found.time_s,
                prefetched_s=0.0,
                energy_j=energy_j,
                cycles=op.cycles if found.cycles is None else found.cycles,
                utilization=_utilization(op, found.time_s),
                bound="given",
            )
        )
        later_s += more_s
        theirs_s += found.time_s
    time_s = cost.time_s + later_s
    kept_j = sum(op.energy_j for op in cost.ops if op.name not in matched.ops or matched.ops[op.name].energy_j is None)
    kept = kept_j / (kept_j + replaced_j) if kept_j + replaced_j else 1.0
    components = {name: joules * kept for name, joules in cost.energy_by_component_j.items()}
    for name, power_w in watts.items():
        components[name] += power_w * longer_s
    energies = sum(matched.ops[op.name].energy_j is not None for op in present)
    if energies:
        components["given"] = given_j
    changed = replace(
        cost,
        time_s=time_s,
        energy_j=sum(components.values()),
        cycles=sum(op.cycles for op in ops),
        energy_by_component_j=components,
        ops=tuple(ops),
    )
    return changed, Coverage(
        source=matched.times.source,
        kind=matched.times.kind,
        ops_given=len(present),
        ops=len(cost.ops),
        time_share=theirs_s / time_s if time_s else 0.0,
        energies_given=energies,
        unmatched=matched.unmatched,
        unmatched_s=matched.unmatched_s,
    )


def _utilization(op: OpCost, time_s: float) -> float:
    """The same useful work over what the unit could have done in the new time."""
    return min(1.0, op.utilization * op.compute_s / time_s) if time_s else op.utilization


def _match_names(cost: Cost, times: ForeignTimes) -> MatchedTimes:
    known = {op.name for op in cost.ops}
    found: dict[str, OpTime] = {}
    for entry in times.entries:
        (name,) = entry.names
        if name not in known:
            raise ConfigError(f'{entry.place}: the step has no op "{name}": {_near(name, known)}')
        if name in found:
            raise ConfigError(f'{entry.place}: the op "{name}" was given before; give each op once')
        found[name] = OpTime(time_s=entry.time_s, energy_j=entry.energy_j, cycles=entry.cycles)
    return MatchedTimes(times=times, ops=found)


def _near(name: str, known: set[str]) -> str:
    """The nearest name, without the hundreds of others that a step may have."""
    hint = did_you_mean(name, known).partition(" Allowed: ")[0]
    return hint if hint.startswith("did you mean") else "`presilicon simulate --json` prints the names of all ops"


def _match_order(graph: StepGraph, times: ForeignTimes) -> MatchedTimes:
    products = [op for op in graph.ops if op.gemm]
    forward = [op for op in products if op.phase == "forward"]
    rows = len(times.entries)
    if rows not in (len(products), len(forward)):
        raise ConfigError(
            f"{times.source}: it has {rows} layers, but the step has {len(products)} matrix products, {len(forward)} "
            "of them forward: give one layer for each, in the order of the step"
        )
    found = {}
    for op, entry in zip(products if rows == len(products) else forward, times.entries, strict=True):
        assert op.gemm is not None
        count = op.gemm.count
        found[op.name] = OpTime(
            time_s=count * entry.time_s,
            energy_j=None if entry.energy_j is None else count * entry.energy_j,
            cycles=None if entry.cycles is None else count * entry.cycles,
        )
    return MatchedTimes(times=times, ops=found)


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
    found: dict[str, OpTime] = {}
    for operator, entries in theirs.items():
        for ops, shared_s in _share_calls(ours[operator], _calls_s(operator, entries), times.steps):
            found |= _divide(ops, shared_s, None, None)
    return MatchedTimes(
        times=times,
        ops=found,
        unmatched=tuple(sorted(others, key=lambda name: -others[name])),
        unmatched_s=sum(others.values()),
    )


def _calls_s(operator: str, entries: Sequence[ForeignTime]) -> list[float]:
    """Seconds of each call of an operator, where calls can be told apart."""
    calls: dict[int, float] = defaultdict(float)
    for number, entry in enumerate(entries):
        run = entry.runs[entry.names.index(operator)] if entry.runs else -1 - number
        calls[run] += entry.time_s
    return list(calls.values())


def _share_calls(ops: Sequence[OpCost], calls_s: Sequence[float], steps: int) -> list[tuple[Sequence[OpCost], float]]:
    """Ops, and the time of a step that they share."""
    layers = [list(run) for _, run in groupby(ops, key=lambda op: op.layer)]
    for groups in ([[op] for op in ops], layers):
        if len(calls_s) == steps * len(groups):
            return [(group, sum(calls_s[at :: len(groups)]) / steps) for at, group in enumerate(groups)]
    return [(ops, sum(calls_s) / steps)]


def _divide(
    ops: Sequence[OpCost], time_s: float, energy_j: float | None, energies: Sequence[float] | None
) -> dict[str, OpTime]:
    """Time and energy divided as ours are; evenly where ours are all nothing."""
    shares = _shares([op.time_s for op in ops])
    energy_shares = None if energies is None else _shares(energies)
    return {
        op.name: OpTime(
            time_s=time_s * shares[number],
            energy_j=None if energy_j is None or energy_shares is None else energy_j * energy_shares[number],
        )
        for number, op in enumerate(ops)
    }


def _shares(values: Sequence[float]) -> list[float]:
    total = sum(values)
    return [value / total for value in values] if total else [1 / len(values)] * len(values)
