"""The published rules, run event by event: literal and repaired."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_system
from presilicon.records import Mode, Pool, Problem, Task
from presilicon.scheduling.accounting import cost
from presilicon.scheduling.candidates import candidates
from presilicon.scheduling.checker import check
from presilicon.scheduling.solvers.greedy import DeadlockError, Rules, execute


@pytest.mark.parametrize(
    ("name", "faster_only", "with_small"),
    [("39-M", 8714, 8598), ("120-mix", 44149, 43800), ("432-M", 87644, 86409)],
)
def test_energies_of_the_prototype_are_met(ideal, name: str, faster_only: int, with_small: int) -> None:
    problem = ideal(name)
    for small_ops, expected in ((False, faster_only), (True, with_small)):
        found = execute(problem, Rules(small_ops=small_ops)).schedule
        claimed = cost(problem, found)
        check(problem, found, claimed=claimed)
        assert claimed.energy_per_step_j * 1e3 == pytest.approx(expected, abs=0.6)


def test_an_idle_gpu_that_takes_everything_offloads_little(ideal) -> None:
    problem = ideal("432-M")
    literal, repaired = (execute(problem, Rules(takes_all=takes_all)) for takes_all in (True, False))
    check(problem, literal.schedule)
    assert len(literal.moved) < len(repaired.moved) / 2


def _problem(bytes_out: int, *, rate: float | None = 1e9) -> Problem:
    """Two ops one after another; the second is a little faster on the FPGA."""
    modes = [
        tuple(
            Mode(device=device, time_s=time, average_w=watts, peak_w=watts)
            for device, time, watts in (("gpu", 1.0, 200.0), ("fpga", fpga_s, 50.0))
        )
        for fpga_s in (2.0, 0.9)
    ]
    tasks = tuple(
        Task(id=place, kind="Mul", bytes_out=bytes_out, deps=deps, modes=modes[place])
        for place, deps in ((0, ()), (1, (0,)))
    )
    pools = (
        Pool(name="gpu", units=1, idle_w=40, bytes_per_s=rate),
        Pool(name="fpga", units=1, idle_w=10, bytes_per_s=rate),
    )
    return Problem(name="two", tasks=tasks, pools=pools)


def test_an_op_stays_where_moving_its_data_takes_longer_than_the_op_before() -> None:
    assert execute(_problem(0)).moved.keys() == {1}
    assert execute(_problem(400_000_000)).moved.keys() == {1}  # two hops of 0.4 s are hidden behind 1 s
    far = execute(_problem(600_000_000))
    assert not far.moved
    assert "longer than the op before" in far.stayed[1]


def test_the_way_back_counts_where_it_is_asked_for() -> None:
    problem = _problem(400_000_000)
    last = problem.tasks[1]
    more = Task(id=2, kind="Mul", deps=(1,), modes=problem.tasks[0].modes)
    longer = Problem(name="three", tasks=(problem.tasks[0], last, more), pools=problem.pools)
    assert 1 in execute(longer, Rules(moves="in", small_ops=False)).moved
    assert 1 not in execute(longer, Rules(moves="both", small_ops=False)).moved


def test_the_literal_rule_under_a_cap_deadlocks_and_says_where(real) -> None:
    with pytest.raises(DeadlockError) as error:
        execute(real("39-M"), Rules(cap_w=230, repair="none"))
    assert "op 0 (Conv2D M)" in str(error.value)
    assert "needs 311 W on gpu" in str(error.value)


@pytest.mark.parametrize("repair", ["away", "soonest"])
@pytest.mark.parametrize("cap_w", [210, 250, 400])
def test_the_repairs_stay_below_the_cap(real, repair: str, cap_w: float) -> None:
    problem = real("120-mix", transfers=False)
    found = execute(problem, Rules(cap_w=cap_w, sensor="peak", repair=repair)).schedule
    claimed = cost(problem, found, cap_w=cap_w)
    check(problem, found, cap_w=cap_w, claimed=claimed)
    assert claimed.violations == 0


def test_sensing_averages_may_break_the_cap(ideal) -> None:
    problem = ideal("120-mix")
    found = execute(problem, Rules(cap_w=350, sensor="average")).schedule
    assert cost(problem, found, cap_w=350, sample_s=1e-5).violations


def test_a_cap_that_nothing_fits_under(real) -> None:
    with pytest.raises(ConfigError, match=r"101 W, not 90 W: op 0 \(Conv2D M\)"):
        execute(real("39-M"), Rules(cap_w=90))


def test_an_unknown_reference(ideal) -> None:
    with pytest.raises(ConfigError, match="npu"):
        execute(ideal("39-M"), Rules(reference="npu"))


def test_ops_that_are_no_candidates_stay(ideal) -> None:
    problem = ideal("39-M")
    chosen = candidates(load_system("v100-3xs10-ideal"), problem, "and")
    assert {problem.tasks[task].kind for task in chosen} == {"Conv2D", "MatMul", "Mul"}
    found = execute(problem, Rules(), candidates=chosen)
    assert "BiasAddGrad" not in {problem.tasks[task].kind for task in found.moved}
    everything = execute(problem, Rules())
    assert "BiasAddGrad" in {problem.tasks[task].kind for task in everything.moved}
