"""Bounds by linear programs: what a time limit leaves of them."""

from presilicon.scheduling.solvers.bounds import energy_bound, makespan_bound


def test_a_program_that_runs_out_of_time_falls_back_to_the_loads(real) -> None:
    problem = real("120-mix")
    loads, full = (energy_bound(problem, cuts=cuts).bound for cuts in (0, 400))
    assert 0 < loads < full
    assert energy_bound(problem, time_limit_s=1e-9).bound == loads
    assert energy_bound(problem, time_limit_s=60).bound == full
    assert makespan_bound(problem, 230, time_limit_s=1e-9).bound == makespan_bound(problem, 230, cuts=0).bound
