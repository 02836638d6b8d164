"""HEFT against the prototype's figures, and under caps."""

import pytest

from presilicon.base import ConfigError
from presilicon.scheduling.accounting import cost
from presilicon.scheduling.checker import check
from presilicon.scheduling.solvers.heft import heft, upward_ranks


@pytest.mark.parametrize(
    ("name", "energy_mj", "time_ms"), [("39-M", 8292, 32.56), ("120-mix", 41848, 132.05), ("432-M", 83523, 331.7)]
)
def test_figures_of_the_prototype_are_met(ideal, name: str, energy_mj: float, time_ms: float) -> None:
    problem = ideal(name)
    found = heft(problem)
    claimed = cost(problem, found)
    check(problem, found, claimed=claimed)
    assert claimed.energy_per_step_j * 1e3 == pytest.approx(energy_mj, abs=0.6)
    assert claimed.makespan_s * 1e3 == pytest.approx(time_ms, abs=0.05)


@pytest.mark.parametrize("cap_w", [215, 250, 330])
def test_caps_hold(real, cap_w: float) -> None:
    problem = real("120-mix")
    found = heft(problem, cap_w=cap_w)
    check(problem, found, cap_w=cap_w, claimed=cost(problem, found))


def test_a_cap_that_an_op_does_not_fit_under(real) -> None:
    with pytest.raises(ConfigError, match=r"op \d+ .*fits under the cap of 85 W on no device"):
        heft(real("39-M"), cap_w=85)


def test_ranks_fall_along_the_graph(ideal) -> None:
    problem = ideal("120-mix")
    rank = upward_ranks(problem)
    assert all(rank[dep] > rank[task.id] for task in problem.tasks for dep in task.deps)
