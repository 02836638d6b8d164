from msgspec.structs import replace

from presilicon.records import Comparison, Interval, Milestone
from presilicon.report import render_page, render_table
from presilicon.report.arrivals import arrival_rows


def with_targets(result, updates_per_step=1):
    """The result with samples and updates, and two milestones, the harder one first."""
    seeds = tuple(
        replace(
            seed,
            samples_to_accuracy=32 * seed.steps_to_accuracy,
            updates_to_accuracy=updates_per_step * seed.steps_to_accuracy,
        )
        for seed in result.seeds
    )
    milestones = tuple(
        Milestone(
            target=target,
            reached="5/5",
            steps=Interval(steps, steps - 1, steps + 1),
            samples=Interval(32 * steps, 32 * steps, 32 * steps),
            updates=Interval(steps, steps, steps),
            time_s=Interval(steps * 1e-3, 0.01, None),
            energy_j=Interval(steps * 1e-4, 0.001, 0.02),
        )
        for target, steps in ((0.9, 60.0), (0.8, 25.0))
    )
    return replace(result, seeds=seeds, milestones=milestones)


def test_every_target_has_a_row_easier_ones_first(comparison):
    several = Comparison(designs=tuple(map(with_targets, comparison.designs)))
    rows = arrival_rows(several)
    assert [row[:2] for row in rows[:3]] == [("fp8-systolic", "80%"), ("fp8-systolic", "90%"), ("fp8-systolic", "97%")]
    assert len(rows) == 9
    text = render_table(several)
    line = next(line for line in text.splitlines() if " 80% " in line)
    shown = "fp8-systolic 80% 25 [24-26] 800 [800-800] 25 [25-25] 25 ms [10-never] 2.5 mJ [1-20] 5/5"
    assert " ".join(line.split()) == shown
    assert "Every target, with the samples and updates to it" in render_page(several)


def test_a_metric_that_falls_has_its_largest_milestone_first(comparison):
    falling = replace(with_targets(comparison.designs[0]), better="lower", metric_is_fraction=False, target=0.5)
    assert [row[1] for row in arrival_rows(Comparison(designs=(falling,)))] == ["0.9", "0.8", "0.5"]


def test_samples_and_updates_are_shown_where_designs_differ_in_them(comparison):
    alike = [replace(with_targets(result), milestones=()) for result in comparison.designs]
    assert arrival_rows(Comparison(designs=tuple(alike))) == ()
    assert "samples" not in render_table(Comparison(designs=tuple(alike)))
    finer = replace(with_targets(comparison.designs[0], updates_per_step=32), milestones=())
    assert len(arrival_rows(Comparison(designs=(finer, *alike[1:])))) == 3
