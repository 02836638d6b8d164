"""The result in one sentence, which claims no more than the seeds support."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from presilicon.base import format_number, format_percent, joules_scale, seconds_scale
from presilicon.records import Comparison, Result
from presilicon.report.intervals import FEW_SEEDS, format_interval, overlap, rank


class Part(NamedTuple):
    """A piece of a sentence: plain text, the name of a design, or a value with its unit."""

    kind: Literal["text", "name", "value"]
    text: str


_Sentence = list[str | Part]


def headline(comparison: Comparison) -> str:
    """Which design reaches the target soonest, and by how much, in one sentence.

    It says so if no design reached the target, if the intervals overlap, or if there are too few seeds to tell.
    """
    return "".join(part.text for part in headline_parts(comparison))


def headline_parts(comparison: Comparison) -> tuple[Part, ...]:
    """The sentence of `headline` in pieces, to render names and values differently."""
    if not comparison.designs:
        return _parts(["No designs were compared."])
    best, *others = rank(comparison.designs)
    if best.time_to_accuracy_s.median is None:
        return _parts(_nobody(best, others))
    return _parts([*_winner(best, others), *_arrivals(best), *_caution([best, *others]), "."])


def energy_parts(comparison: Comparison) -> tuple[Part, ...]:
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
    rivals = [other for other in others if overlap(best.energy_to_accuracy_j, other.energy_to_accuracy_j)]
    if rivals and _fewest_seeds([best, *others]) >= FEW_SEEDS:
        sentence += ["; its interval overlaps with ", *_listing(rivals)]
    return _parts([*sentence, "."])


def _winner(best: Result, others: Sequence[Result]) -> _Sentence:
    goal = _goal(best)
    if not others:
        return [_name(best), f" reaches {goal} in ", _time(best), " and ", _energy(best)]
    second = others[0]
    if second.time_to_accuracy_s.median is None:
        opening = f" is the only design whose median seed reaches {goal}, in "
        return [_name(best), opening, _time(best), " and ", _energy(best)]
    rivals = [other for other in others if overlap(best.time_to_accuracy_s, other.time_to_accuracy_s)]
    rivals = rivals if _fewest_seeds([best, *others]) >= FEW_SEEDS else []
    if _time(best) == _time(second):
        return [_name(best), " and ", _name(second), f" have the same median time to {goal}, ", _time(best)]
    if second in rivals:
        sentence: _Sentence = [_name(best), f" has the lowest median time to {goal}, ", _time(best), " against "]
        sentence += [_time(second), " for ", _name(second), ", but its interval overlaps with ", *_listing(rivals)]
        return [*sentence, ": these seeds do not separate them"]
    ratio = _ratio(second.time_to_accuracy_s.median, best.time_to_accuracy_s.median)
    if ratio is None:
        return [
            _name(best),
            " and ",
            _name(second),
            f" reach {goal} in nearly the same time, ",
            _time(best),
            " and ",
            _time(second),
        ]
    sentence = [_name(best), f" reaches {goal} in ", _time(best), ", ", Part("value", ratio), " times faster than "]
    sentence += [_name(second), " (", _time(second), ")"]
    return [*sentence, ", though its interval overlaps with ", *_listing(rivals)] if rivals else sentence


def _nobody(best: Result, others: Sequence[Result]) -> _Sentence:
    """The sentence when no design has a finite median."""
    subject: _Sentence = ["No design held "] if others else [_name(best), " did not hold "]
    if best.time_to_accuracy_s.low is not None:
        arrived, _, seeds = best.reached.partition("/")
        of_whom: _Sentence = [" of ", _name(best)] if others else []
        return [
            *subject,
            f"{_goal(best)} reliably: {arrived} of {seeds} seeds",
            *of_whom,
            " reached it within the budget.",
        ]
    nearest = max([best, *others], key=_best_accuracy)
    whose: _Sentence = [" (", _name(nearest), ")"] if others else []
    seen = Part("value", format_percent(_best_accuracy(nearest)))
    if not any(seed.curve for result in [best, *others] for seed in result.seeds):
        return [*subject, f"{_goal(best)}: there was no evaluation within the budget."]
    return [
        *subject,
        f"{_goal(best)} within the budget; the highest accuracy at a single evaluation was ",
        seen,
        *whose,
        ".",
    ]


def _arrivals(best: Result) -> _Sentence:
    arrived, _, seeds = best.reached.partition("/")
    return [] if arrived == seeds else [f" ({arrived} of its {seeds} seeds reached it)"]


def _caution(results: Sequence[Result]) -> _Sentence:
    fewest = _fewest_seeds(results)
    if fewest >= FEW_SEEDS:
        return []
    return [f", on {'a single seed' if fewest == 1 else f'{fewest} seeds'} only: more would tell whether that holds"]


def _fewest_seeds(results: Sequence[Result]) -> int:
    return min(len(result.seeds) for result in results)


def _best_accuracy(result: Result) -> float:
    return max((point.accuracy for seed in result.seeds for point in seed.curve), default=0.0)


def _ratio(slower: float | None, faster: float | None) -> str | None:
    """Ratio to two or three digits; None if it rounds to 1."""
    if not slower or not faster:
        return None
    text = format_number(slower / faster, digits=2 if slower / faster < 10 else 3)
    return None if text == "1" else text


def _goal(result: Result) -> str:
    return f"{format_percent(result.target)} validation accuracy on {result.workload}"


def _name(result: Result) -> Part:
    return Part("name", result.name)


def _time(result: Result) -> Part:
    return Part("value", format_interval(result.time_to_accuracy_s, seconds_scale, ends=False))


def _energy(result: Result) -> Part:
    return Part("value", format_interval(result.energy_to_accuracy_j, joules_scale, ends=False))


def _listing(results: Sequence[Result]) -> _Sentence:
    """Possessives joined by commas and `and`: `a's, b's and c's`; more than three are counted instead."""
    if len(results) > 3:
        return [f"those of {len(results)} others"]
    sentence: _Sentence = []
    for index, result in enumerate(results):
        joint = "" if index == 0 else " and " if index == len(results) - 1 else ", "
        sentence += [joint, _name(result), "'s"]
    return sentence


def _parts(sentence: _Sentence) -> tuple[Part, ...]:
    return tuple(piece if isinstance(piece, Part) else Part("text", piece) for piece in sentence if piece)
