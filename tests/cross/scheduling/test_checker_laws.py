"""The checker objects to a schedule exactly if a judge that goes tick by tick does: valid ones and spoilt ones."""

import random
from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from msgspec.structs import replace

from oracles.schedule_judge import objections, peak_bytes, peak_w
from presilicon.base import RunFailedError
from presilicon.records import HostInput, Mode, Pool, Problem, Schedule, Started, Task, TensorMove
from presilicon.scheduling.accounting import cost
from presilicon.scheduling.checker import check, faults

TICK_S = Fraction(1, 2**10)
"""A power of two, so that times are exact."""
RATE = 2.0**20
"""Bytes per second of the slowest link: a tick carries 1024 bytes."""


def random_problem(draw: random.Random) -> Problem:
    """Six to nine ops on three or four pools of several units, with links of different speeds."""
    pools = tuple(
        Pool(name=name, units=draw.randint(1, 3), idle_w=draw.choice((0.0, 4.0, 16.0)),
             bytes_per_s=draw.choice((RATE, 2 * RATE, 4 * RATE, None)),
             kernels=draw.choice((None, None, ("Mul", "Add"))))
        for name in ("cpu", "gpu", "fpga", "npu")[: draw.randint(3, 4)]
    )  # fmt: skip
    count = draw.randint(6, 9)

    def mode(pool: Pool) -> Mode:
        units = draw.randint(1, pool.units)
        average = units * pool.idle_w + draw.randint(1, 40)
        return Mode(device=pool.name, units=units, time_s=float(draw.randint(1, 6) * TICK_S), average_w=average,
                    peak_w=average + draw.randint(0, 20))  # fmt: skip

    tasks = tuple(
        Task(
            id=place, kind=draw.choice(("Mul", "Add")), bytes_out=draw.choice((0, 4096, 8192)),
            deps=tuple(dep for dep in range(place) if draw.random() < 0.3),
            next_readers=tuple(reader for reader in range(place) if draw.random() < 0.1),
            held_bytes=draw.choice((0, 0, 512)),
            modes=tuple(mode(pool) for pool in draw.sample(pools, draw.randint(1, len(pools)))),
        )
        for place in range(count)
    )  # fmt: skip
    inputs = tuple(
        HostInput(bytes=draw.choice((4096, 16384)), readers=tuple(sorted(draw.sample(range(count), 2))))
        for _ in range(draw.randint(0, 3))
    )
    return Problem(name="random", tasks=tasks, pools=pools, base_w=draw.choice((0.0, 8.0)), inputs=inputs,
                   links_queue=draw.random() < 0.8)  # fmt: skip


@dataclass
class _Placing:
    """Ops and moves, each placed at the first tick with room that is not before it may be."""

    problem: Problem
    draw: random.Random
    busy: dict[tuple[str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    carried: dict[tuple[str, str], Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    moves: list[TensorMove] = field(default_factory=list)

    def op(self, mode: Mode, ready: int) -> tuple[int, tuple[int, ...]]:
        length, units = int(Fraction(mode.time_s) / TICK_S), self.problem.pool[mode.device].units
        begin = ready
        while True:
            span = set(range(begin, begin + length))
            free = [unit for unit in range(units) if not self.busy[mode.device, unit] & span]
            if len(free) >= mode.units:
                chosen = tuple(self.draw.sample(free, mode.units))
                for unit in chosen:
                    self.busy[mode.device, unit] |= span
                return begin, chosen
            begin += 1

    def move(self, number: int, size: int, device: str, direction: str, ready: int, from_host: bool = False) -> int:
        pool = self.problem.pool[device]
        if pool.bytes_per_s is None or not size:
            return ready
        length, begin = int(Fraction(size) / Fraction(pool.bytes_per_s) / TICK_S), ready
        taken = self.carried[device, direction]
        while self.problem.links_queue and any(taken[tick] >= pool.units for tick in range(begin, begin + length)):
            begin += 1
        taken.update(range(begin, begin + length))
        self.moves.append(
            TensorMove(number, device, direction, float(begin * TICK_S), float((begin + length) * TICK_S), from_host)
        )
        return begin + length


def random_schedule(problem: Problem, draw: random.Random) -> Schedule:
    """A valid schedule: random modes, ops in order, each a little after it could begin."""
    placing, started = _Placing(problem, draw), []
    arrivals: list[dict[str, int]] = []
    modes = [draw.choice(task.modes) for task in problem.tasks]
    for task, mode in zip(problem.tasks, modes, strict=True):
        ready = max([0, *(arrivals[dep][mode.device] for dep in task.deps)]) + draw.choice((0, 0, 1, 3))
        begin, units = placing.op(mode, ready)
        end = begin + int(Fraction(mode.time_s) / TICK_S)
        started.append(Started(task.id, mode, units, float(begin * TICK_S)))
        readers = [other.id for other in problem.tasks if task.id in other.deps]
        away = {modes[reader].device for reader in (*readers, *task.next_readers)} - {mode.device}
        arrival = {mode.device: end}
        at_host = placing.move(task.id, task.bytes_out, mode.device, "out", end) if away else end
        for device in sorted(away):
            arrival[device] = placing.move(task.id, task.bytes_out, device, "in", at_host)
        arrivals.append(arrival)
    for number, data in enumerate(problem.inputs):
        for device in sorted({modes[reader].device for reader in data.readers}):
            placing.move(number, data.bytes, device, "in", draw.choice((0, 2, 8)), from_host=True)
    return Schedule(solver="random", started=tuple(started), moves=tuple(placing.moves))


def filled(problem: Problem, schedule: Schedule) -> Problem:
    """The problem with memories that the schedule fills to the byte, and pools that run what they run."""
    peaks = peak_bytes(problem, schedule, TICK_S)
    used = {name: {problem.tasks[slot.task].kind for slot in schedule.started if slot.mode.device == name}
            for name in peaks}  # fmt: skip
    pools = tuple(
        replace(
            pool, memory_bytes=peaks[pool.name] / pool.units,
            kernels=None if pool.kernels is None else tuple(sorted(used[pool.name])),
        )
        for pool in problem.pools
    )  # fmt: skip
    return replace(problem, pools=pools)


def spoil(
    problem: Problem, schedule: Schedule, cap_w: float, limit_s: float, draw: random.Random
) -> tuple[str, Problem, Schedule, float, float]:
    """One thing changed, most often for the worse; its name comes first."""
    ops, moves = list(schedule.started), list(schedule.moves)
    slot = draw.choice(ops)
    task, tick = problem.tasks[slot.task], float(TICK_S)
    kind = draw.choice(SPOILT)
    pool = draw.choice(problem.pools)
    if kind.startswith("move") and not moves:
        kind = "earlier"
    index = draw.randrange(len(moves)) if moves else 0
    match kind:
        case "move dropped":
            del moves[index]
        case "move shortened":
            moves[index] = replace(moves[index], end_s=moves[index].end_s - tick)
        case "move begun sooner":
            moves[index] = replace(moves[index], start_s=moves[index].start_s - tick, end_s=moves[index].end_s - tick)
        case "move delayed":
            moves[index] = replace(moves[index], start_s=moves[index].start_s + tick, end_s=moves[index].end_s + tick)
        case "earlier":
            ops[slot.task] = replace(slot, start_s=slot.start_s - tick)
        case "later":
            ops[slot.task] = replace(slot, start_s=slot.start_s + tick)
        case "other unit":
            units = tuple((unit + 1) % (problem.pool[slot.mode.device].units + 1) for unit in slot.units)
            ops[slot.task] = replace(slot, units=units)
        case "unit too few":
            ops[slot.task] = replace(slot, units=slot.units[1:])
        case "other mode":
            ops[slot.task] = replace(slot, mode=replace(slot.mode, peak_w=slot.mode.peak_w + 1))
        case "longer":
            longer = replace(slot.mode, time_s=slot.mode.time_s + 2 * tick)
            modes = tuple(longer if mode == slot.mode else mode for mode in task.modes)
            tasks = list(problem.tasks)
            tasks[slot.task] = replace(task, modes=modes)
            problem, ops[slot.task] = replace(problem, tasks=tuple(tasks)), replace(slot, mode=longer)
        case "op left out":
            del ops[slot.task]
        case "byte less":
            pools = tuple(
                replace(one, memory_bytes=max(one.memory_bytes * one.units - 1, 0) / one.units) if one is pool else one
                for one in problem.pools
            )
            problem = replace(problem, pools=pools)
        case "held":
            tasks = list(problem.tasks)
            tasks[slot.task] = replace(task, held_bytes=task.held_bytes + 1)
            problem = replace(problem, tasks=tuple(tasks))
        case "kernels":
            pools = tuple(replace(one, kernels=("Add",)) if one is pool else one for one in problem.pools)
            problem = replace(problem, pools=pools)
        case "cap":
            cap_w -= 0.01
        case "limit":
            limit_s -= tick / 2
    return kind, problem, replace(schedule, started=tuple(ops), moves=tuple(moves)), cap_w, limit_s


SPOILT = (
    *("move dropped", "move shortened", "move begun sooner", "move delayed", "earlier", "later", "other unit"),
    *("unit too few", "other mode", "longer", "op left out", "byte less", "held", "kernels", "cap", "limit"),
)


@pytest.mark.parametrize(
    "first", [0, pytest.param(40, marks=pytest.mark.slow), pytest.param(80, marks=pytest.mark.slow)]
)
def test_the_checker_agrees_with_a_judge_that_goes_tick_by_tick(first: int) -> None:
    noticed: Counter[str] = Counter()
    for seed in range(first, first + 40):
        draw = random.Random(seed)
        problem = random_problem(draw)
        schedule = random_schedule(problem, draw)
        problem = filled(problem, schedule)
        cap_w, limit_s = float(peak_w(problem, schedule, TICK_S)), schedule.makespan_s
        limits = {"cap_w": cap_w, "limit_s": limit_s}
        assert objections(problem, schedule, TICK_S, **limits) == []
        assert faults(problem, schedule, claimed=cost(problem, schedule), **limits) == []
        for _ in range(12):
            kind, changed, spoilt, cap, limit = spoil(problem, schedule, cap_w, limit_s, draw)
            judged = objections(changed, spoilt, TICK_S, cap_w=cap, limit_s=limit)
            found = faults(changed, spoilt, cap_w=cap, limit_s=limit)
            assert bool(found) is bool(judged), (seed, kind, judged, found)
            with pytest.raises(RunFailedError, match="of solver random is wrong") if judged else nullcontext():
                check(changed, spoilt, cap_w=cap, limit_s=limit)
            noticed.update([kind] if judged else [])
    assert set(noticed) == set(SPOILT)


def test_what_is_claimed_of_a_schedule_is_computed_again() -> None:
    draw = random.Random(4)
    problem = random_problem(draw)
    schedule = random_schedule(problem, draw)
    claimed = cost(problem, schedule)
    assert faults(problem, schedule, claimed=claimed) == []
    for name in ("makespan_s", "energy_per_step_j"):
        for factor in (1 + 3e-6, 1 - 3e-6):
            wrong = replace(claimed, **{name: getattr(claimed, name) * factor})
            [message] = faults(problem, schedule, claimed=wrong)
            assert name.split("_")[0] in message
            with pytest.raises(RunFailedError, match="is claimed to be"):
                check(problem, schedule, claimed=wrong)
