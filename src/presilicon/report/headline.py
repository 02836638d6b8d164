"""The result in one sentence, which claims no more than the seeds support."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from presilicon.base import joules_scale, seconds_scale
from presilicon.records import Comparison, Pair, Result, excludes_one, ranked
from presilicon.report.fairness import as_fast, best_pairs, verdict_on
from presilicon.report.intervals import FEW_SEEDS, format_goal, format_interval, format_metric, rank


class HeadlinePart(NamedTuple):
    """A piece of a sentence: plain text, the name of a design, or a value with its unit."""

    kind: Literal["text", "name", "value"]
    text: str


_Sentence = list[str | HeadlinePart]


def headline(comparison: Comparison) -> str:
    """Which design reaches the target soonest, and by how much, in one sentence.

    It says so if no design reached the target, or if the seeds do not separate the designs, and how many would.
    """
    return "".join(part.text for part in headline_parts(comparison))


def headline_parts(comparison: Comparison) -> tuple[HeadlinePart, ...]:
    """The sentence of `headline` in pieces, to render names and values differently."""
    if not comparison.designs:
        return _parts(["No designs were compared."])
    best, *others = rank(comparison.designs)
    if best.time_to_accuracy_s.median is None:
        return _parts(_nobody(best, others))
    return _parts([*_winner(best, others, best_pairs(comparison)), *_arrivals(best), *_caution(comparison), "."])


def energy_parts(comparison: Comparison) -> tuple[HeadlinePart, ...]:
    """A sentence on energy that follows the headline; empty for a single design."""
    if len(comparison.designs) < 2:
        return ()
    best, *others = rank(comparison.designs, lambda result: result.energy_to_accuracy_j)
    if best.energy_to_accuracy_j.median is None:
        return ()
    also = "also " if best is rank(comparison.designs)[0] else ""
    if _energy(best) == _energy(others[0]):
        return _parts([_name(best), " and ", _name(others[0]), " have the same median energy, ", _energy(best), "."])
    sentence: _Sentence = [_name(best), f" {also}has the lowest median energy, ", _energy(best)]
    if others[0].energy_to_accuracy_j.median is not None:
        sentence += [", against ", _energy(others[0]), " for ", _name(others[0])]
    pairs = best_pairs(comparison, lambda result: result.energy_to_accuracy_j)
    rivals = [pair.second for pair in pairs if pair.energy_ratio is not None and not excludes_one(pair.energy_ratio)]
    if rivals:
        sentence += ["; not decided against ", *_listing(rivals)]
    return _parts([*sentence, "."])


def _winner(best: Result, others: Sequence[Result], pairs: Sequence[Pair]) -> _Sentence:
    goal = _goal(best)
    if not others:
        return [_name(best), f" reaches {goal} in ", _time(best), " and ", _energy(best)]
    second = others[0]
    if second.time_to_accuracy_s.median is None:
        opening = f" is the only design whose median seed reaches {goal}, in "
        return [_name(best), opening, _time(best), " and ", _energy(best)]
    if _time(best) == _time(second):
        sentence: _Sentence = [_name(best), " and ", _name(second), f" have the same median time to {goal}, "]
        return [*sentence, _time(best)]
    pair = pairs[0] if pairs and pairs[0].second == second.name else None
    if pair is None or pair.time_ratio is None:
        sentence = [_name(best), f" has the lowest median time to {goal}, ", _time(best), " against "]
        return [*sentence, _time(second), " for ", _name(second)]
    ratio = HeadlinePart("value", as_fast(pair.time_ratio))
    if pair.is_decided and pair.time_ratio.low is not None and pair.time_ratio.low > 1:
        sentence = [_name(best), f" reaches {goal} in ", _time(best), ", ", ratio, " as ", _name(second)]
        return [*sentence, " (", _time(second), "); ", verdict_on(pair), *_undecided(pairs[1:])]
    sentence = [_name(best), f" has the lowest median time to {goal}, ", _time(best), " against ", _time(second)]
    return [*sentence, " for ", _name(second), "; seed by seed it is ", ratio, ", ", verdict_on(pair)]


def _undecided(pairs: Sequence[Pair]) -> _Sentence:
    """The designs that the best one is not separated from, although it is from the second best."""
    rivals = [pair.second for pair in pairs if not pair.is_decided]
    return [", but not against ", *_listing(rivals)] if rivals else []


def _nobody(best: Result, others: Sequence[Result]) -> _Sentence:
    """The sentence when no design has a finite median."""
    subject: _Sentence = ["No design held "] if others else [_name(best), " did not hold "]
    most = max((best, *others), key=lambda result: _share(result.reached))  # the first of those, which arrived soonest
    if _share(most.reached):
        arrived, _, seeds = most.reached.partition("/")
        of_whom: _Sentence = [" of ", _name(most)] if others else []
        return [
            *subject,
            f"{_goal(best)} reliably: {arrived} of {seeds} seeds",
            *of_whom,
            " reached it within the budget.",
        ]
    seen = [result for result in (best, *others) if any(seed.curve for seed in result.seeds)]
    if not seen:
        return [*subject, f"{_goal(best)}: there was no evaluation within the budget."]
    higher = best.direction == "higher"
    nearest = (max if higher else min)(seen, key=_best_value)
    whose: _Sentence = [" (", _name(nearest), ")"] if others else []
    return [
        *subject,
        f"{_goal(best)} within the budget; the {'highest' if higher else 'lowest'} {best.metric} at a single "
        "evaluation was ",
        HeadlinePart("value", format_metric(_best_value(nearest), nearest)),
        *whose,
        ".",
    ]


def _arrivals(best: Result) -> _Sentence:
    arrived, _, seeds = best.reached.partition("/")
    return [] if arrived == seeds else [f" ({arrived} of its {seeds} seeds reached it)"]


def _caution(comparison: Comparison) -> _Sentence:
    """A warning about few seeds, where no pair says whether they decide."""
    fewest = min(len(result.seeds) for result in comparison.designs)
    if fewest >= FEW_SEEDS or any(pair.time_ratio is not None for pair in comparison.pairs):
        return []
    return [f", on {'a single seed' if fewest == 1 else f'{fewest} seeds'} only: more would tell whether that holds"]


def _share(reached: str) -> float:
    """The share of seeds in a text such as 1/10."""
    arrived, _, seeds = reached.partition("/")
    return int(arrived) / int(seeds)


def _best_value(result: Result) -> float:
    """The best value of the metric at any evaluation of any seed."""
    values = [ranked(point.value, result.direction) for seed in result.seeds for point in seed.curve]
    return max(values) if result.direction == "higher" else min(values)


def _goal(result: Result) -> str:
    return f"{format_goal(result)} on {result.workload}"


def _name(result: Result) -> HeadlinePart:
    return HeadlinePart("name", result.name)


def _time(result: Result) -> HeadlinePart:
    return HeadlinePart("value", format_interval(result.time_to_accuracy_s, seconds_scale, ends=False))


def _energy(result: Result) -> HeadlinePart:
    return HeadlinePart("value", format_interval(result.energy_to_accuracy_j, joules_scale, ends=False))


def _listing(names: Sequence[str]) -> _Sentence:
    """Names joined by commas and `and`; more than three are counted instead."""
    if len(names) > 3:
        return [f"{len(names)} others"]
    sentence: _Sentence = []
    for index, name in enumerate(names):
        joint = "" if index == 0 else " and " if index == len(names) - 1 else ", "
        sentence += [joint, HeadlinePart("name", name)]
    return sentence


def _parts(sentence: _Sentence) -> tuple[HeadlinePart, ...]:
    return tuple(
        piece if isinstance(piece, HeadlinePart) else HeadlinePart("text", piece) for piece in sentence if piece
    )
