"""Sentences on the fairness of a comparison: what was held equal, who was faster, the cost of seeds that miss."""

from collections.abc import Callable

from presilicon.base import format_joules, format_number, format_seconds
from presilicon.records import Comparison, Interval, Pair, Probability, Result
from presilicon.report.intervals import FEW_SEEDS, rank

SHOWN_PAIRS = 3


def fairness_sentence(comparison: Comparison) -> str:
    """States what was held equal between the designs and what was not; empty for a single design or an old record."""
    fairness = comparison.fairness
    if fairness is None or (len(comparison.designs) < 2 and not fairness.strict):
        return ""
    sentences = [f"Held equal: {', '.join(fairness.held_equal) or 'nothing recorded'}."]
    if fairness.differing:
        sentences.append(f"Not equal: {'; '.join(fairness.differing)}.")
    if fairness.unequal_hardware:
        sentences.append(f"Unequal hardware: {'; '.join(fairness.unequal_hardware)}.")
    if fairness.strict:
        sentences.append("The strict rules hold.")
    return " ".join(sentences)


def best_pairs(
    comparison: Comparison, measure: Callable[[Result], Interval] = lambda result: result.time_to_accuracy_s
) -> tuple[Pair, ...]:
    """Pairs of the design with the lowest median and each other design, next best first."""
    if not comparison.designs:
        return ()
    best, *others = (result.name for result in rank(comparison.designs, measure))
    known = {(pair.first, pair.second): pair for pair in comparison.pairs}
    known |= {(pair.second, pair.first): pair.swapped for pair in comparison.pairs}
    return tuple(known[best, other] for other in others if (best, other) in known)


def format_ratio(ratio: Interval) -> str:
    """A ratio with its interval; without it if there were too few seeds for one, one-sided if an end is infinite.

    >>> [format_ratio(Interval(1.3, *ends)) for ends in ((1.1, 1.5), (1.1, None), (0.0, None))]
    ['1.3 (1.1-1.5)', '1.3 (at least 1.1)', '1.3']
    """
    median = "infinite" if ratio.median is None else format_number(ratio.median)
    low = "" if not ratio.low else format_number(ratio.low)
    if ratio.high is not None:
        return f"{median} ({low or 0}-{format_number(ratio.high)})"
    return f"{median} (at least {low})" if low else median


def as_fast(ratio: Interval) -> str:
    """A ratio of times in words, also where one design misses the seeds that the other reaches.

    >>> as_fast(Interval(1.3, 1.1, 1.5)), as_fast(Interval(None, 0.0, None))
    ('1.3 (1.1-1.5) times as fast', 'arriving on most seeds, where the other does not')
    """
    if ratio.median is None:
        return "arriving on most seeds, where the other does not"
    return f"{format_ratio(ratio)} times as fast" if ratio.median else "missing most seeds, where the other arrives"


def verdict_on(pair: Pair) -> str:
    """Whether the seeds separate two designs, and if not, how many would.

    >>> pair = Pair(first="a", second="b", seeds=5, wins=4, losses=1, ties=0, probability_faster=0.9, sign_test_p=0.4,
    ...             time_ratio=Interval(1.3, 0.9, 1.5), seeds_needed=23)
    >>> verdict_on(pair)
    'not decided: about 23 paired seeds would separate them'
    """
    if pair.is_decided:
        if pair.same_training:
            return "any seed decides it: both train bit-identically"
        return f"{pair.seeds} paired seeds decide it"
    if pair.seeds_needed is None:
        why = "a single seed is too few" if pair.seeds == 1 else "their times are the same seed by seed"
        return f"not decided: {why}"
    return f"not decided: about {pair.seeds_needed} paired seeds would separate them"


def pair_sentence(pair: Pair) -> str:
    """States how often and by what factor one design was faster than another, and whether that is decided.

    >>> pair_sentence(Pair(first="a", second="b", seeds=5, wins=4, losses=0, ties=1, probability_faster=0.97,
    ...                    sign_test_p=0.125))
    'a is faster than b on 4 of 5 seeds (1 tie); its median is lower with probability 0.97, sign test p = 0.125.'
    """
    ties = f" ({pair.ties} {'tie' if pair.ties == 1 else 'ties'})" if pair.ties else ""
    ratio = "" if pair.time_ratio is None else f", {as_fast(pair.time_ratio)}"
    verdict = "" if pair.time_ratio is None else f"; {verdict_on(pair)}"
    return (
        f"{pair.first} is faster than {pair.second} on {pair.wins} of {pair.seeds} seeds{ties}{ratio}; its median is "
        f"lower with probability {format_number(pair.probability_faster)}, sign test p = "
        f"{format_number(pair.sign_test_p)}{verdict}."
    )


def format_probability(probability: Probability) -> str:
    """A probability with its interval.

    >>> format_probability(Probability(0.8, 0.3755, 0.9638))
    '0.8 [0.38-0.96]'
    """
    return f"{probability.value:.2g} [{probability.low:.2g}-{probability.high:.2g}]"


def miss_sentence(result: Result) -> str:
    """States the effect of seeds that miss the target; empty if all reached it, or for an old record."""
    if result.reach_probability is None or result.reach_probability.value == 1:
        return ""
    text = f"{result.name} reaches the target with probability {format_probability(result.reach_probability)}"
    if result.expected_time_to_accuracy_s is None or result.expected_energy_to_accuracy_j is None:
        return f"{text}: with restarts it would never reach it, as far as these seeds show."
    time, energy = result.expected_time_to_accuracy_s, result.expected_energy_to_accuracy_j
    return f"{text}; with a restart after each miss, {format_seconds(time)} and {format_joules(energy)} are expected."


def remark_sentences(comparison: Comparison) -> list[str]:
    """The methods of each design, the remarks of its machine, those on all, and where areas are from."""
    lines = []
    for result in comparison.designs:
        methods = [method["name"] for method in result.provenance.get("design", {}).get("methods", ())]
        if methods:
            lines.append(f"{result.name} trains with {' and '.join(methods)}.")
        lines += [f"{result.name}: {remark}." for remark in result.remarks]
    return [*lines, *(f"{remark}." for remark in comparison.remarks), *area_sentences(comparison)]


def area_sentences(comparison: Comparison) -> list[str]:
    """The technology that areas are from; nothing where there are none, or in older records."""
    sources = {
        result.name: parts.get("how", "unknown")
        for result in comparison.designs
        if result.area_mm2 is not None and isinstance(parts := result.provenance.get("area"), dict)
    }
    if len(set(sources.values())) <= 1:
        return [f"Area: {source}." for source in set(sources.values())]
    return ["Area: " + "; ".join(f"{name}: {source}" for name, source in sources.items()) + "."]


def notes_on(comparison: Comparison) -> list[str]:
    """The notes below a table, one sentence per line."""
    decided = [pair for pair in best_pairs(comparison) if pair.seeds >= FEW_SEEDS and pair.wins + pair.losses > 0]
    lines = [miss_sentence(result) for result in rank(comparison.designs)]
    lines += [pair_sentence(pair) for pair in decided[:SHOWN_PAIRS]]
    lines += remark_sentences(comparison)
    return [line for line in (*lines, fairness_sentence(comparison)) if line]
