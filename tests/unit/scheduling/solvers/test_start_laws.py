"""Laws of the steps of a search: the limits of the linear programs, and what each piece of annealing is handed."""

import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from presilicon.base import ConfigError
from presilicon.records import Mode, Pool, Problem, Task
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solvers import anytime, starts
from presilicon.scheduling.solvers.annealing import value_of
from presilicon.scheduling.solvers.anytime import COOLING, HEAT, relax, search
from presilicon.scheduling.solvers.bounds import RelaxedSolution
from presilicon.scheduling.solvers.placing import place
from presilicon.scheduling.solvers.tables import empty_moves, tables

LIMIT_S = 4.0
GOAL = Goal(limit_s=LIMIT_S, cap_w=9.0)


def one_op(spans: list[float]) -> Problem:
    """An op with a mode for each length of the step."""
    modes = tuple(Mode(device="gpu", time_s=span, average_w=2.0, peak_w=3.0) for span in spans)
    return Problem(
        name="one", tasks=(Task(id=0, kind="op", modes=modes),), pools=(Pool(name="gpu", units=1, idle_w=1.0),)
    )


def limits_asked(
    monkeypatch: pytest.MonkeyPatch, answers: list[float | None], most_s: float = 1e6
) -> tuple[list[float], list[float]]:
    """The limits that programs were solved for, and the lengths of the schedules, when the answers round to these.

    All are shares of the limit. The first answer is known from the start; None: no schedule is that short.
    """
    problem = one_op([LIMIT_S * span for span in answers if span is not None])
    place_of = iter(range(1, len(problem.tasks[0].modes)))
    rest, asked = iter(answers[1:]), []

    def answer(number: int) -> RelaxedSolution:
        return RelaxedSolution(0.0, np.eye(len(problem.tasks[0].modes))[number])

    def solve(_: Problem, limit_s: float, cap_w: float | None, *, cuts: int, time_limit_s: float) -> RelaxedSolution:
        assert (cap_w, cuts, time_limit_s) == (GOAL.cap_w, 50, most_s)
        asked.append(limit_s / LIMIT_S)
        span = next(rest)
        if span is None:
            raise ConfigError("nothing is that short")
        return answer(next(place_of))

    monkeypatch.setattr(starts, "energy_bound", solve)
    found = list(starts.rounded(problem, GOAL, answer(0), 50, most_s))
    return asked, [schedule.makespan_s / LIMIT_S for schedule in found]


def test_a_limit_is_where_the_line_through_the_nearest_known_ones_meets_the_real_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = random.Random(4)
    for _ in range(30):
        long, short, third = draw.uniform(1.01, 1.19), draw.uniform(0.5, 0.98), draw.uniform(0.96, 1.04)
        first = 1 - (long - 1)  # as much shorter as the schedule is too long
        second = float(np.interp(1.0, [short, long], [first, 1.0]))
        answers = [long, short, third, 1.0]
        low, high = ((third, second), (long, 1.0)) if third <= 1 else ((short, first), (third, second))
        expected = [first, second]
        if not starts.NEAR <= third <= 1:
            expected.append(float(np.interp(1.0, [low[0], high[0]], [low[1], high[1]])))
        asked, spans = limits_asked(monkeypatch, answers)
        assert asked == pytest.approx(expected)
        assert spans == pytest.approx(answers[: len(spans)])
        assert len(spans) == len(expected) + 1
        # A schedule whose length follows the limit evenly meets it at the first try between two known ones.
        assert limits_asked(monkeypatch, [long, short, 1.0])[1] == pytest.approx([long, short, 1.0])


def test_limits_fall_in_growing_steps_until_one_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = limits_asked(monkeypatch, [1.02, 1.02, 1.02, 1.02, 1.02])
    assert asked == pytest.approx([0.98, 0.98 * 0.96, 0.98 * 0.96 * 0.92, 0.98 * 0.96 * 0.92 * 0.84])
    asked, _ = limits_asked(monkeypatch, [2.0, 2.0, 2.0, 2.0, 2.0])
    assert asked == pytest.approx([0.8, 0.64, 0.512, 0.4096])  # never by more than a fifth
    asked, spans = limits_asked(monkeypatch, [1.1, None, None, 1.0])
    assert asked == pytest.approx([0.9, 0.95, 0.975])  # half of the way back where nothing is that short
    assert spans == pytest.approx([1.1, 1.0])
    assert limits_asked(monkeypatch, [0.5]) == ([], [0.5])  # it fits as it is
    assert limits_asked(monkeypatch, [1.1], most_s=-1.0) == ([], [1.1])


def test_a_schedule_near_the_limit_is_near_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limits_asked(monkeypatch, [1.1, starts.NEAR])[1] == [pytest.approx(1.1), starts.NEAR]
    assert len(limits_asked(monkeypatch, [1.1, starts.NEAR - 1e-6, 1.0])[1]) == 3


@pytest.mark.parametrize(("most_s", "programs"), [(0.0, 1), (12.4, 1), (12.5, 2), (17.4, 2), (17.5, 3), (100.0, 4)])
def test_no_program_begins_that_might_outlast_the_time(
    monkeypatch: pytest.MonkeyPatch, most_s: float, programs: int
) -> None:
    """Each takes five seconds of a clock that is read before and after it; the next may take half as long again."""
    ticks = iter([100.0, *(100.0 + 5.0 * number + part for number in range(9) for part in (0.0, 5.0))])
    monkeypatch.setattr(starts, "time", SimpleNamespace(perf_counter=lambda: next(ticks)))
    with monkeypatch.context() as patch:
        asked, _ = limits_asked(patch, [1.02] * 5, most_s)
    assert len(asked) == programs


def some_problem(draw: random.Random) -> Problem:
    """A few ops on two kinds of devices, one of which is slow and frugal."""

    def modes() -> tuple[Mode, ...]:
        fast, slow = draw.uniform(0.1, 1.0), draw.uniform(1.0, 4.0)
        return (
            Mode(device="gpu", time_s=fast, average_w=draw.uniform(50, 90), peak_w=100.0),
            Mode(device="board", time_s=slow, average_w=draw.uniform(3, 5), peak_w=6.0),
        )

    tasks = tuple(
        Task(id=number, kind=f"op{number}", deps=tuple(draw.sample(range(number), min(number, 1))), modes=modes())
        for number in range(6)
    )
    pools = Pool(name="gpu", units=1, idle_w=10.0), Pool(name="board", units=2, idle_w=1.0)
    return Problem(name="few", tasks=tasks, pools=pools, base_w=2.0)


Piece = tuple[np.ndarray, np.ndarray, float, int, int]


def pieces_of(
    monkeypatch: pytest.MonkeyPatch, problem: Problem, goal: Goal, relaxed: RelaxedSolution, count: int, **options: int
) -> list[Piece]:
    """The goals, state, heat, tries and seed of the first pieces of a search in which annealing changes nothing."""
    pieces: list[Piece] = []

    def look(table, mode, priority, best_mode, best_priority, state, goals, heat, tries, seed) -> int:
        if len(pieces) == count:
            raise KeyboardInterrupt
        span, excess = place(table, mode, priority, goals[0], np.empty(len(mode)), empty_moves(problem))
        value = value_of(span, excess, table.extra_j[mode].sum(), *goals[1:4], goals[4:])[0]
        assert state[0] == value  # what the present point is worth at the present goals
        pieces.append((goals.copy(), state.copy(), heat, tries, seed))
        return 0

    monkeypatch.setattr(anytime, "anneal", look)
    found = search(problem, goal, [], time_limit_s=1e6, relaxed=relaxed._replace(bound=0.0), **options)
    assert found.interrupted
    return pieces


@pytest.mark.parametrize("late", [1.0, 0.6], ids=["met", "missed"])
def test_a_second_too_long_costs_ever_more_and_changes_ever_less(monkeypatch: pytest.MonkeyPatch, late: float) -> None:
    monkeypatch.setattr(anytime, "CYCLE", 4 * anytime.PIECE)
    problem = some_problem(random.Random(8))
    limit_s = late * next(starts.rounded(problem, Goal(limit_s=LIMIT_S), relax(problem, Goal()), 50, 1.0)).makespan_s
    goal = Goal(limit_s=limit_s, cap_w=150.0)
    relaxed = relax(problem, goal)._replace(price_w=30.0)
    pieces = pieces_of(monkeypatch, problem, goal, relaxed, 12)
    dearest = float(tables(problem).extra_w.max()) + problem.idle_w
    highest = 4 * dearest * len(problem.pools)
    for cycle in (pieces[:4], pieces[4:]):  # the second cycle is twice as long
        shares = np.arange(len(cycle)) / len(cycle)
        low = np.array([goals[4] for goals, *_ in cycle])
        assert low == pytest.approx(np.exp(np.interp(shares, [0, 1], np.log([60.0, highest]))))
        heats = np.array([heat for *_, heat, _, _ in cycle])
        assert heats == pytest.approx(heats[0] * COOLING**shares)
        assert heats[0] == pytest.approx(HEAT * cycle[0][1][1])
    for goals, *_, tries, _ in pieces:
        expected = [goal.cap_w - problem.idle_w, problem.idle_w, limit_s, 0.0]
        assert goals[:4] == pytest.approx(expected)
        assert goals[5] == pytest.approx(highest)
        assert tries == anytime.PIECE // len(problem.tasks)
    seeds = [seed for *_, seed in pieces]
    assert all(after == before + 1 for before, after in pairwise(seeds))
    other = pieces_of(monkeypatch, problem, goal, relaxed, 12, seed=1)
    assert not {seed for *_, seed in other} & set(seeds)


def test_the_first_penalty_is_at_most_the_last_and_never_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = some_problem(random.Random(9))
    goal = Goal(limit_s=3.0)
    relaxed = relax(problem, goal)
    for price_w in (0.0, 1e9):
        [(goals, *_)] = pieces_of(monkeypatch, problem, goal, relaxed._replace(price_w=price_w), 1)
        assert goals[4] == goals[5]


def test_a_search_ends_at_the_bound_and_says_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, goal = some_problem(random.Random(10)), Goal()
    relaxed = relax(problem, goal)
    bound = 0.5 * relaxed.bound
    values = [bound * share for share in (4.0, 2.0, 1 + 1.5e-9, 1 + 0.5e-9, 0.9)]
    rest, seconds, seen = iter(values), iter(range(100)), []

    def anneal(table, mode, priority, best_mode, best_priority, state, goals, heat, tries, seed) -> int:
        state[1], state[0] = next(rest), 7.0
        return 0

    monkeypatch.setattr(anytime, "anneal", anneal)
    monkeypatch.setattr(anytime, "time", SimpleNamespace(perf_counter=lambda: float(next(seconds))))
    search(
        problem, goal, [], time_limit_s=50.0, relaxed=relaxed._replace(bound=bound),
        progress=lambda spent, value: seen.append((spent, value)),
    )  # fmt: skip
    assert seen == [((number + 1) / 50, value) for number, value in enumerate(values[:4])]
