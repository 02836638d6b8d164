from itertools import product

from msgspec.structs import replace

from presilicon.records import Comparison, Probability, SeedResult
from presilicon.report import render_page, render_table
from presilicon.report.fairness import best_pairs, fairness_sentence, miss_sentence, pair_sentence
from presilicon.study.join.pairs import compare_seeds


def test_the_table_ends_with_what_was_held_equal(judged):
    lines = render_table(judged).splitlines()
    assert lines[-3:] == [
        "fp8-systolic reaches the target with probability 0.8 [0.38-0.96]; with a restart after each miss, 5.7 ms and "
        "1.8 mJ are expected.",
        "fp8-systolic is faster than fp32-systolic on 3 of 5 seeds (1 tie); its median is lower with probability "
        "0.875, sign test p = 0.625.",
        "Held equal: batch size 32, seeds 0 to 4. Not equal: optimizer: a b. The strict rules hold.",
    ]


def test_the_page_says_the_same(judged):
    page = render_page(judged)
    for text in (
        "Held equal: batch size 32, seeds 0 to 4.",
        "Reliability of this comparison",
        "0.625",
        "0.8\xa0[0.38–0.96]",
    ):
        assert text in page


def test_a_pair_is_told_from_the_side_of_the_best(judged):
    [pair] = best_pairs(judged)
    assert (pair.first, pair.wins, pair.losses, pair.probability_faster) == ("fp8-systolic", 3, 1, 0.875)
    assert pair.swapped.swapped == pair
    assert best_pairs(Comparison(designs=())) == ()


def test_pairs_without_a_winner_or_with_few_seeds_are_left_out(judged):
    for change in ({"wins": 0, "losses": 0, "ties": 5}, {"seeds": 2}):
        dull = replace(judged, pairs=(replace(judged.pairs[0], **change),))
        assert "is faster than" not in render_table(dull)


def test_a_single_design_has_nothing_to_be_equal_to(judged):
    alone = Comparison(designs=judged.designs[:1], fairness=replace(judged.fairness, strict=False))
    assert fairness_sentence(alone) == ""
    assert "The strict rules hold." in fairness_sentence(replace(alone, fairness=judged.fairness))


def test_a_design_that_never_arrives_has_no_expected_time(mixed):
    never = replace(mixed.designs[3], reach_probability=Probability(0.0, 0.0, 0.4345))
    assert "probability 0 [0-0.43]" in miss_sentence(never)
    assert miss_sentence(never).endswith(
        "0 [0-0.43]: with restarts it would never reach it, as far as these seeds show."
    )
    assert miss_sentence(mixed.designs[3]) == ""


def test_seeds_that_never_arrive_are_told_without_infinities() -> None:
    """Every pattern of arrivals of two designs over three seeds."""
    for own in product([1.0, None], repeat=3):
        for other in product([2.0, None], repeat=3):
            one, two = ([seed_of(n, time_s) for n, time_s in enumerate(times_s)] for times_s in (own, other))
            pair = compare_seeds("a", one, "b", two)
            for way in (pair, pair.swapped):
                sentence = pair_sentence(way)
                assert " inf" not in sentence
                assert "(inf" not in sentence
    never = compare_seeds("a", [seed_of(n, 1.0) for n in range(3)], "b", [seed_of(n, None) for n in range(3)])
    assert pair_sentence(never) == (
        "a is faster than b on 3 of 3 seeds, arriving on most seeds, where the other does not; its median is lower "
        "with probability 1, sign test p = 0.25; not decided: about 6 paired seeds would separate them."
    )


def seed_of(number: int, time_s: float | None) -> SeedResult:
    return SeedResult(
        seed=number, steps_to_accuracy=time_s, time_to_accuracy_s=time_s, energy_to_accuracy_j=time_s, value=0.9,
        steps=100, ending="budget", curve=(),
    )  # fmt: skip
