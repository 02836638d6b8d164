"""First findings of the diagnosis of a training, for targets that were never held."""

from collections.abc import Iterable
from typing import TypeVar

from presilicon.records import Comparison, Finding, FindingEvent, Result, SeedResult
from presilicon.report.intervals import rank

FindingT = TypeVar("FindingT", Finding, FindingEvent)


def first_finding(findings: Iterable[FindingT]) -> FindingT | None:
    """The earliest finding; verdicts on the loss scale, which may be harmless, only where there is no other."""
    return min(findings, key=lambda finding: (finding.symptom == "loss-scale", finding.step), default=None)


def explain(finding: Finding | FindingEvent | None, reason: str = "") -> str:
    """The finding with its step, the reason for which training stopped without one, or nothing."""
    return reason if finding is None else f"first finding, at step {finding.step}: {finding.message}"


def miss_reason(result: Result) -> str:
    """The earliest finding among the seeds that missed the target; empty if none did or nothing was found."""
    missed = [seed for seed in result.seeds if seed.steps_to_accuracy is None]
    explained = [(seed, first_finding(seed.findings)) for seed in missed]
    known = [(seed, finding) for seed, finding in explained if finding is not None or seed.reason]
    if not known:
        return ""
    seed, finding = min(known, key=_order)
    return f"{result.name}, seed {seed.seed}: {explain(finding, seed.reason)}."


def _order(entry: tuple[SeedResult, Finding | None]) -> tuple[bool, int, int]:
    seed, finding = entry
    return (True, 0, seed.seed) if finding is None else (finding.symptom == "loss-scale", finding.step, seed.seed)


def miss_reasons(comparison: Comparison) -> list[str]:
    """A sentence for each design with a seed that missed the target, best design first."""
    return [text for text in map(miss_reason, rank(comparison.designs)) if text]
