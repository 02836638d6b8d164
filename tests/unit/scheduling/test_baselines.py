"""One kind of device alone: full clock, best clock, clocks under a cap, a controller that reacts."""

import pytest

from presilicon.scheduling.accounting import cost
from presilicon.scheduling.baselines import best_clock, clocked_under, reactive_clock, reference_only
from presilicon.scheduling.checker import check
from presilicon.scheduling.problems import alone


def test_gpu_only_is_the_sum_of_its_ops(ideal) -> None:
    problem = ideal("39-M")
    found = reference_only(problem, "gpu")
    check(problem, found)
    assert found.makespan_s == pytest.approx(0.042569)
    assert cost(problem, found).energy_per_step_j == pytest.approx(10.986, abs=5e-4)


def test_a_lower_clock_loses_throughput_unless_time_does_not_depend_on_it(real) -> None:
    problem = alone(real("39-M"), "gpu")
    limit = reference_only(problem, "gpu").makespan_s
    assert best_clock(problem, "gpu", limit)[0] == 1.0
    assert best_clock(problem, "gpu", limit * 1.3)[0] == 0.8
    free = alone(real("39-M", "devices.gpu.alpha=0"), "gpu")
    clock, schedule = best_clock(free, "gpu", limit)
    check(free, schedule, limit_s=limit)
    assert clock == 0.7


@pytest.mark.parametrize("cap_w", [210, 230, 250])
def test_clocks_under_a_cap_hold_it(real, cap_w: float) -> None:
    problem = alone(real("120-mix"), "gpu")
    found = clocked_under(problem, "gpu", cap_w)
    assert found is not None
    check(problem, found, cap_w=cap_w, claimed=cost(problem, found))


def test_no_clock_is_low_enough(ideal) -> None:
    assert clocked_under(alone(ideal("39-M"), "gpu"), "gpu", 230) is None


def test_a_controller_that_reacts_is_late(real) -> None:
    problem = alone(real("432-M"), "gpu")
    late = reactive_clock(problem, "gpu", 230)
    prompt = reactive_clock(problem, "gpu", 230, lag_s=5e-4)
    assert late.cost.violations
    assert prompt.cost.violations is not None
    assert len(late.iteration_w) == late.iterations == 10
    assert sum(late.iteration_w) / 10 == pytest.approx(late.cost.average_power_w, rel=0.02)
    assert late.trace.energy_j / 10 == pytest.approx(late.cost.energy_per_step_j)
    full = reference_only(problem, "gpu").makespan_s
    assert full < late.cost.makespan_s < full / 0.7


def test_nothing_is_controlled_where_the_cap_is_high(real) -> None:
    problem = alone(real("39-M"), "gpu")
    found = reactive_clock(problem, "gpu", 1000)
    assert found.cost.violations == 0
    assert found.cost.makespan_s == pytest.approx(reference_only(problem, "gpu").makespan_s)
