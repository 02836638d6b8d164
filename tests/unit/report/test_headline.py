import msgspec

from presilicon.records import Comparison, Interval
from presilicon.report import headline
from presilicon.report.headline import energy_parts


def energy(comparison):
    return "".join(part.text for part in energy_parts(comparison))


def with_time(result, median, low, high, **changes):
    return msgspec.structs.replace(result, time_to_accuracy_s=Interval(median, low, high), **changes)


def test_a_clear_winner_is_named_with_its_lead(comparison):
    assert headline(comparison) == (
        "fp8-systolic reaches 97% validation accuracy on digits-cnn in 3.83 ms, "
        "2 times faster than bf16-systolic (7.79 ms)."
    )
    assert energy(comparison) == (
        "fp8-systolic also has the lowest median energy, 1.23 mJ, against 2.1 mJ for bf16-systolic."
    )


def test_overlapping_intervals_claim_no_winner(comparison):
    one, two, three = comparison.designs
    designs = (with_time(one, 2.0, 1.0, 3.0), with_time(two, 2.5, 1.5, 3.5), with_time(three, 2.6, 2.0, 4.0))
    assert headline(Comparison(designs=designs)).endswith(
        "2 s against 2.5 s for bf16-systolic, but its interval overlaps with bf16-systolic's and fp8-systolic's: "
        "these seeds do not separate them."
    )


def test_many_overlaps_are_counted(build):
    designs = tuple(with_time(build["result"](index), 2.0 + index, 1.0, 20.0) for index in range(6))
    assert "overlaps with those of 5 others" in headline(Comparison(designs=designs))


def test_an_overlap_with_a_wide_loser_is_mentioned_not_hidden(mixed):
    assert headline(mixed).endswith(
        "4 times faster than fp32-systolic (16.3 ms), though its interval overlaps with bfp4-systolic's."
    )


def test_few_seeds_are_admitted(build):
    assert headline(build["comparison"](seeds=1)).endswith("on a single seed only: more would tell whether that holds.")
    assert headline(build["comparison"](seeds=2)).endswith("on 2 seeds only: more would tell whether that holds.")


def test_one_design_stands_alone(build):
    alone = build["comparison"](1)
    assert headline(alone) == "fp32-systolic reaches 97% validation accuracy on digits-cnn in 16.3 ms and 3.59 mJ."
    assert energy(alone) == ""


def test_seeds_that_did_not_arrive_are_counted(comparison):
    one = with_time(comparison.designs[0], 1.0, 0.9, None, reached="4/5")
    assert headline(Comparison(designs=(one,))).endswith("(4 of its 5 seeds reached it).")


def test_the_only_one_to_arrive(build):
    designs = (build["result"](0), build["result"](6, ceiling=0.9))
    assert headline(Comparison(designs=designs)) == (
        "fp32-systolic is the only design whose median seed reaches 97% validation accuracy on digits-cnn, "
        "in 16.3 ms and 3.59 mJ."
    )
    assert energy(Comparison(designs=designs)) == "fp32-systolic also has the lowest median energy, 3.59 mJ."


def test_nobody_arrived(build):
    nobody = build["comparison"](2, ceiling=0.9)
    assert headline(nobody) == (
        "No design held 97% validation accuracy on digits-cnn within the budget; "
        "the highest accuracy at a single evaluation was 91.7% (bf16-systolic)."
    )
    assert energy(nobody) == ""
    assert headline(Comparison(designs=nobody.designs[:1])).startswith("fp32-systolic did not hold 97%")


def test_a_minority_arrived(mixed):
    rare = mixed.designs[2]
    assert headline(Comparison(designs=(rare,))) == (
        "bfp4-systolic did not hold 97% validation accuracy on digits-cnn reliably: "
        "1 of 5 seeds reached it within the budget."
    )
    assert "1 of 5 seeds of bfp4-systolic reached it" in headline(Comparison(designs=(rare, mixed.designs[3])))


def test_equal_times_are_called_equal(comparison):
    one, two, _ = comparison.designs
    designs = (with_time(one, 2.0, 1.99, 2.001), with_time(two, 2.005, 2.002, 2.1))
    assert headline(Comparison(designs=designs)).startswith("fp32-systolic and bf16-systolic have the same median time")


def test_no_designs():
    assert headline(Comparison(designs=())) == "No designs were compared."
    assert energy(Comparison(designs=())) == ""
