"""What was held equal, how sure it is who was faster, and what seeds that miss cost: in words."""

from presilicon.base.units import format_joules, format_number, format_seconds
from presilicon.records import Comparison, Pair, Probability, Result
from presilicon.report.intervals import FEW_SEEDS, rank

SHOWN_PAIRS = 3


def fairness_sentence(comparison: Comparison) -> str:
    """What was held equal between the designs and what was not; nothing for a single design or an old record."""
    found = comparison.fairness
    if found is None or (len(comparison.designs) < 2 and not found.strict):
        return ""
    sentences = [f"Held equal: {', '.join(found.held_equal) or 'nothing that is recorded'}."]
    if found.differing:
        sentences.append(f"Not equal: {'; '.join(found.differing)}.")
    if found.strict:
        sentences.append("Strict rules were kept.")
    return " ".join(sentences)


def best_pairs(comparison: Comparison) -> tuple[Pair, ...]:
    """The pairs of the design with the lowest median, told from its side, next best first."""
    if not comparison.designs:
        return ()
    best, *others = (result.name for result in rank(comparison.designs))
    known = {(pair.first, pair.second): pair for pair in comparison.pairs}
    known |= {(pair.second, pair.first): turned(pair) for pair in comparison.pairs}
    return tuple(known[best, other] for other in others if (best, other) in known)


def turned(pair: Pair) -> Pair:
    """The same pair told from the side of the second design."""
    return Pair(
        first=pair.second,
        second=pair.first,
        seeds=pair.seeds,
        wins=pair.losses,
        losses=pair.wins,
        ties=pair.ties,
        probability_faster=1 - pair.probability_faster,
        sign_test_p=pair.sign_test_p,
    )


def pair_sentence(pair: Pair) -> str:
    """How often one design was faster than another, and how sure that makes it.

    >>> pair_sentence(Pair(first="a", second="b", seeds=5, wins=4, losses=0, ties=1, probability_faster=0.97,
    ...                    sign_test_p=0.125))
    'a is faster than b on 4 of 5 seeds (1 tie); its median is lower with probability 0.97, sign test p = 0.125.'
    """
    ties = f" ({pair.ties} {'tie' if pair.ties == 1 else 'ties'})" if pair.ties else ""
    return (
        f"{pair.first} is faster than {pair.second} on {pair.wins} of {pair.seeds} seeds{ties}; its median is lower "
        f"with probability {format_number(pair.probability_faster)}, sign test p = {format_number(pair.sign_test_p)}."
    )


def format_probability(probability: Probability) -> str:
    """A probability with its interval.

    >>> format_probability(Probability(0.8, 0.3755, 0.9638))
    '0.8 [0.38-0.96]'
    """
    return f"{probability.value:.2g} [{probability.low:.2g}-{probability.high:.2g}]"


def miss_sentence(result: Result) -> str:
    """What seeds that miss the target mean for a design; nothing when all arrived, or in an old record."""
    if result.reach_probability is None or result.reach_probability.value == 1:
        return ""
    text = f"{result.name} reaches the target with probability {format_probability(result.reach_probability)}"
    if result.expected_time_to_accuracy_s is None or result.expected_energy_to_accuracy_j is None:
        return f"{text}: with restarts it would never arrive, as far as these seeds tell."
    time, energy = result.expected_time_to_accuracy_s, result.expected_energy_to_accuracy_j
    return f"{text}; with a restart after each miss, {format_seconds(time)} and {format_joules(energy)} are expected."


def notes_on(comparison: Comparison) -> list[str]:
    """All of it for the foot of a table, a sentence on each line."""
    told = [pair for pair in best_pairs(comparison) if pair.seeds >= FEW_SEEDS and pair.wins + pair.losses > 0]
    lines = [miss_sentence(result) for result in rank(comparison.designs)]
    lines += [pair_sentence(pair) for pair in told[:SHOWN_PAIRS]]
    return [line for line in (*lines, fairness_sentence(comparison)) if line]
