import msgspec

from presilicon.records import Comparison, Interval, Pair
from presilicon.report import headline
from presilicon.report.headline import energy_parts


def energy(comparison):
    return "".join(part.text for part in energy_parts(comparison))


def with_time(result, median, low, high, **changes):
    return msgspec.structs.replace(result, time_to_accuracy_s=Interval(median, low, high), **changes)


def paired(comparison, low, high, **changes):
    """The comparison with pairs whose ratios, of the slower design's time to the faster one's, have this interval."""
    best, *others = sorted(comparison.designs, key=lambda result: result.time_to_accuracy_s.median)
    pairs = tuple(
        Pair(
            first=best.name, second=other.name, seeds=len(best.seeds), wins=3, losses=1, ties=1, sign_test_p=0.5,
            probability_faster=0.9, time_ratio=Interval(1.5, low, high), energy_ratio=Interval(1.5, low, high),
            seeds_needed=23,
        )
        for other in others
    )  # fmt: skip
    pairs = (msgspec.structs.replace(pairs[0], **changes), *pairs[1:])
    return msgspec.structs.replace(comparison, pairs=pairs)


def test_a_clear_winner_is_named_with_its_lead(comparison):
    assert headline(paired(comparison, 1.2, 1.75)) == (
        "fp8-systolic reaches 97% validation accuracy on digits-cnn in 3.83 ms, "
        "1.5 (1.2-1.75) times as fast as bf16-systolic (7.79 ms); 5 paired seeds decide it."
    )
    assert energy(comparison) == (
        "fp8-systolic also has the lowest median energy, 1.23 mJ, against 2.1 mJ for bf16-systolic."
    )


def test_what_is_not_decided_is_not_claimed(comparison):
    assert headline(paired(comparison, 0.9, 1.75)) == (
        "fp8-systolic has the lowest median time to 97% validation accuracy on digits-cnn, 3.83 ms against 7.79 ms for "
        "bf16-systolic; seed by seed it is 1.5 (0.9-1.75) times as fast, not decided: about 23 paired seeds would "
        "separate them."
    )
    assert energy(paired(comparison, 0.9, 1.75)).endswith("; not decided against bf16-systolic and fp32-systolic.")
    assert headline(paired(comparison, 0.0, None, seeds_needed=None, seeds=1)).endswith(
        "seed by seed it is 1.5 times as fast, not decided: a single seed is too few."
    )


def test_a_paired_ratio_against_the_median_is_not_turned_around(comparison):
    odd = paired(comparison, 0.8, 0.9, time_ratio=Interval(0.85, 0.8, 0.9))
    assert headline(odd).endswith("seed by seed it is 0.85 (0.8-0.9) times as fast, 5 paired seeds decide it.")


def test_designs_that_train_alike_need_one_seed(comparison):
    assert headline(paired(comparison, 1.2, 1.75, same_training=True)).endswith(
        "; any seed decides it: both train bit-identically."
    )


def test_rivals_further_down_are_mentioned_not_hidden(build):
    comparison = paired(build["comparison"](6), 0.9, 1.75, time_ratio=Interval(1.5, 1.2, 1.75))
    assert headline(comparison).endswith("; 5 paired seeds decide it, but not against 4 others.")
    three = paired(build["comparison"](3), 0.9, 1.75, time_ratio=Interval(1.5, 1.2, 1.75))
    assert headline(three).endswith("; 5 paired seeds decide it, but not against fp32-systolic.")


def test_older_records_without_paired_ratios_claim_no_lead(comparison):
    assert headline(comparison) == (
        "fp8-systolic has the lowest median time to 97% validation accuracy on digits-cnn, 3.83 ms against 7.79 ms for "
        "bf16-systolic."
    )


def test_a_metric_that_falls_is_named_and_read_downwards(build):
    falling = [
        msgspec.structs.replace(result, metric="perplexity", direction="lower", metric_is_fraction=False, target=0.05)
        for result in build["comparison"](2, ceiling=0.9).designs
    ]
    assert headline(Comparison(designs=tuple(falling))) == (
        "No design held validation perplexity 0.05 on digits-cnn within the budget; the lowest perplexity at a single "
        "evaluation was 0.2611 (fp32-systolic)."
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
