"""One way to all solvers: goals, limits, bounds, errors, interruption."""

import random

import pytest

from presilicon.base import ConfigError
from presilicon.records import Mode, Pool, Problem, Task
from presilicon.scheduling.checker import check
from presilicon.scheduling.goals import Goal
from presilicon.scheduling.solve import solve
from presilicon.scheduling.solvers import anytime


@pytest.mark.parametrize("solver", ["greedy", "heft", "anytime"])
def test_every_solver_gives_a_checked_schedule_with_a_bound(ideal, solver: str) -> None:
    found = solve(ideal("120-mix"), solver=solver, time_limit_s=1.0)
    check(found.problem, found.schedule, limit_s=found.baseline.cost.makespan_s, claimed=found.cost)
    assert found.bound is not None
    assert 0 < found.bound <= found.cost.energy_per_step_j <= found.baseline.cost.energy_per_step_j
    assert found.gap == pytest.approx(found.cost.energy_per_step_j / found.bound - 1)
    assert len(found.reasons) == 120


def test_exact_proves_and_auto_takes_it_for_small_problems(ideal) -> None:
    found = solve(ideal("39-M"), solver="auto", time_limit_s=60, workers=2)
    assert found.solver == "auto (exact)"
    assert found.cost.energy_per_step_j == pytest.approx(7.638576, abs=1e-6)
    assert found.gap is not None
    assert found.gap < 1e-6


def test_a_schedule_that_is_too_slow_is_replaced_and_said_to_be(real) -> None:
    found = solve(real("39-M"), solver="heft", time_limit_s=5)
    assert found.schedule.solver == "gpu-only"
    assert any("heft is not within the limits" in note for note in found.notes)


@pytest.mark.parametrize("solver", ["greedy", "heft", "anytime"])
def test_throughput_under_a_cap(real, solver: str) -> None:
    found = solve(real("39-M"), objective="throughput", cap_w=230, solver=solver, time_limit_s=1.0)
    check(found.problem, found.schedule, cap_w=230, claimed=found.cost)
    assert found.cost.violations == 0
    assert found.baseline.cost.violations
    names = [each.name for each in found.others]
    assert names == ["gpu-only-best-clock", "gpu-alone", "gpu-alone-clocked", "gpu-alone-reactive"]
    assert found.bound is not None
    assert found.bound <= found.cost.makespan_s


@pytest.mark.parametrize("objective", ["energy", "throughput"])
@pytest.mark.parametrize("seed", range(12))
def test_savings_are_against_the_best_baseline_that_keeps_the_cap(objective, seed: int) -> None:
    source = random.Random(seed)
    pools = (Pool(name="gpu", units=1, idle_w=20.0), Pool(name="fpga", units=2, idle_w=source.choice([0.0, 10.0])))
    tasks = []
    for number in range(5):
        power_w, time_s = source.uniform(50, 200), source.uniform(1, 5)
        clocks = (1.0, 0.8, 0.6)[: source.choice([1, 3, 3])]
        modes = [
            Mode(device="gpu", clock=clock, time_s=time_s / clock, average_w=20 + power_w * clock**3,
                 peak_w=20 + power_w * clock**3) for clock in clocks
        ] + [Mode(device="fpga", time_s=2 * time_s, average_w=40.0, peak_w=40.0)]  # fmt: skip
        tasks.append(Task(id=number, kind="Mul", modes=tuple(modes), deps=(number - 1,) if number else ()))
    problem = Problem(name="random", tasks=tuple(tasks), pools=pools)
    kept = 0
    for cap_w in (75.0, 90.0, 130.0, 180.0, 500.0):
        found = solve(problem, objective=objective, limit_s=1e3 if objective == "energy" else None, cap_w=cap_w,
                      solver="heft")  # fmt: skip
        baselines = [found.baseline, *found.others]
        # Peaks from the modes: one op at a time on one device.
        allowed = [each for each in baselines if each.cost.peak_power_w <= cap_w]
        if found.compared is None:
            assert not allowed
            continue
        kept += 1
        assert found.compared.cost.peak_power_w <= cap_w
        if found.baseline in allowed:
            assert found.compared is found.baseline
        value = "energy_per_step_j" if objective == "energy" else "makespan_s"
        least = min(getattr(each.cost, value) for each in allowed)
        assert found.compared is found.baseline or getattr(found.compared.cost, value) == least
        alone = found.without_the_others
        assert alone is None or (alone.is_alone and alone.cost.peak_power_w <= cap_w)
    assert kept
    assert found.compared is found.baseline  # a cap that holds nothing back changes nothing


def test_the_baseline_has_no_relief(ideal) -> None:
    plain = ideal("39-M")
    found = solve(ideal("39-M", relief=1.178), plain=plain, solver="greedy")
    assert found.baseline.cost.makespan_s == pytest.approx(0.042569)
    gain = found.cost.samples_per_j / found.baseline.cost.samples_per_j - 1
    assert gain == pytest.approx(0.469, abs=5e-3)


def test_one_device_without_the_idle_power_of_others(real) -> None:
    found = solve(real("39-M"), solver="greedy")
    alone = next(each for each in found.others if each.name == "gpu-alone")
    assert alone.cost.average_power_w == pytest.approx(found.baseline.cost.average_power_w - 39)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cap_w": 50}, ["50 W", "80 W", "fpga 13 W"]),
        ({"cap_w": 90}, ["90 W", "op 0 (Conv2D M)", "101 W", "fpga"]),
        ({"time_limit_s": 0}, ["time limit must be above 0 s"]),
        ({"time_limit_s": -1}, ["time limit must be above 0 s, not -1 s"]),
        ({"limit_s": 1e-6}, ["no schedule within 1e-06 s"]),
        ({"solver": "exakt"}, ["exakt", "exact"]),
        ({"objective": "power"}, ["power", "energy"]),
    ],
)
def test_wrong_requests_are_named(real, options: dict, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        solve(real("39-M"), **{"solver": "anytime", **options})
    assert all(word in str(error.value) for word in words), str(error.value)


@pytest.mark.parametrize("objective", ["energy", "throughput"])
def test_a_step_that_takes_no_time_is_refused(objective: str) -> None:
    tasks = (Task(id=0, kind="Mul", modes=(Mode(device="gpu", time_s=0.0, average_w=5.0, peak_w=5.0),)),)
    problem = Problem(name="no time", tasks=tasks, pools=(Pool(name="gpu", units=1, idle_w=1.0),))
    with pytest.raises(ConfigError, match="a step must take time on gpu; all of its ops take 0 s there"):
        solve(problem, objective=objective)  # type: ignore[arg-type]


def test_an_interrupted_search_gives_its_best_so_far(ideal, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = ideal("120-mix")
    calls = 0
    run = anytime._Search.run

    def interrupted(self: object, *arguments: float) -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt
        run(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(anytime._Search, "run", interrupted)
    found = solve(problem, solver="auto", time_limit_s=30)
    assert any("interrupted" in note for note in found.notes)
    limit = found.baseline.cost.makespan_s
    check(problem, found.schedule, limit_s=limit, claimed=found.cost)
    assert found.cost.energy_per_step_j < Goal().value(problem, solve(problem, solver="greedy").schedule)
