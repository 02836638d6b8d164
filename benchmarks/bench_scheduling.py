"""Speed and quality of scheduling: rules and HEFT on a large step, proofs on a small one, searches against bounds.

    python benchmarks/bench_scheduling.py            # all of it, about four minutes
    python benchmarks/bench_scheduling.py --quick    # without the longer searches

Energies are joules of a step; makespans are no longer than those of the GPU alone. Ratios are what to look at: times
hang on the machine.
"""

import argparse
import time
from pathlib import Path

from presilicon.designs import load_system
from presilicon.records import Problem
from presilicon.scheduling import build_problem, cost, execute, read_graph, schedule_heft, solve_schedule
from presilicon.study import problem_of

GRAPHS = Path(__file__).parent / "graphs"


def ideal(name: str) -> Problem:
    return build_problem(load_system("v100-3xs10-ideal"), read_graph(GRAPHS / f"step-{name}.json"))


def rules_on_a_large_step() -> None:
    problem = problem_of(load_system("v100-3xs10"), "bert-large")
    for name, run in (("greedy", execute), ("heft", schedule_heft)):
        began = time.perf_counter()
        run(problem)
        spent = time.perf_counter() - began
        print(f"{name:7} BERT-Large, {len(problem.tasks)} ops: {spent:.3f} s ({spent:.0%} of the 1 s allowed)")


def proofs() -> None:
    graph = read_graph(GRAPHS / "step-39-M.json")
    real = build_problem(load_system("v100-3xs10"), graph)
    cases = (
        ("free moves, one clock", ideal("39-M"), {}),
        ("transfers, clock levels", real, {}),
        ("the same, cap 330 W", real, {"cap_w": 330.0}),
        ("the same, throughput under 230 W", real, {"objective": "throughput", "cap_w": 230.0}),
    )
    for name, problem, options in cases:
        found = solve_schedule(problem, solver="exact", time_limit_s=15, **options)
        value = found.goal.value(problem, found.schedule)
        print(f"exact   39 ops, {name}: {value:.6g}, gap {found.gap:.4%}, {found.spent_s:.1f} s of 15 s")


def searches() -> None:
    for name in ("120-mix", "432-M"):
        problem = ideal(name)
        greedy = cost(problem, execute(problem).schedule).energy_per_step_j
        for seed in (0, 1):
            found = solve_schedule(problem, solver="anytime", time_limit_s=10, seed=seed)
            energy = found.cost.energy_per_step_j
            print(
                f"anytime {name}, 10 s, seed {seed}: {energy:.4f} J, {found.gap:.2%} above the bound, "
                f"{1 - energy / greedy:.2%} below the published rules"
            )


def large_steps() -> None:
    for name in ("resnet50", "bert-large"):
        problem = problem_of(load_system("v100-3xs10"), name)
        for seconds in (0.3, 3, 10, 30):
            found = solve_schedule(problem, solver="anytime", time_limit_s=seconds)
            print(
                f"anytime {name} with links, {len(problem.tasks)} ops, {seconds:g} s: "
                f"{found.cost.energy_per_step_j:.2f} J, {found.gap:.1%} above the bound, {found.spent_s:.1f} s taken"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the longer searches")
    quick = parser.parse_args().quick
    rules_on_a_large_step()
    if not quick:
        proofs()
        searches()
        large_steps()


if __name__ == "__main__":
    main()
