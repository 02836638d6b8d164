"""The table of samples and updates: shown where steps do not say it all."""

from msgspec.structs import replace

from presilicon.records import Comparison
from presilicon.report.arrivals import arrival_rows


def with_updates(comparison: Comparison, per_step: int) -> Comparison:
    """The first design alone, with so many updates in each step of 32 samples."""
    first = comparison.designs[0]
    seeds = tuple(
        replace(
            seed,
            samples_to_accuracy=None if seed.steps_to_accuracy is None else 32 * seed.steps_to_accuracy,
            updates_to_accuracy=None if seed.steps_to_accuracy is None else per_step * seed.steps_to_accuracy,
        )
        for seed in first.seeds
    )
    return Comparison(designs=(replace(first, seeds=seeds),))


def test_a_design_that_updates_once_a_step_needs_no_second_table(comparison) -> None:
    assert arrival_rows(with_updates(comparison, 1)) == ()


def test_a_design_that_updates_after_every_sample_has_one_also_alone(comparison) -> None:
    [row] = arrival_rows(with_updates(comparison, 32))
    assert row[0] == comparison.designs[0].name
