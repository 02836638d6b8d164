"""Two recorded runs compared: fields of their configurations, and results seed by seed."""

from collections.abc import Sequence
from typing import Any

from presilicon.base import ConfigError
from presilicon.designs import diff_plain
from presilicon.records import DesignChange, Result
from presilicon.runs import RunRecord, StoredRun, config_hash
from presilicon.study.join.pairs import compare_seeds, log_ratio, ratio_interval, shared_seeds, trained_alike
from presilicon.study.join.statistics import CONFIDENCE

_SAME_TASK = ("model", "data", "metric", "accuracy", "target", "sustain", "max_steps")
"""Settings of a workload without which times to accuracy on the same seed are not comparable."""


def configuration_changes(first: StoredRun, second: StoredRun) -> list[tuple[str, Any, Any]]:
    """Path and both values of every field in which the configurations differ; a missing field is None.

    Raises:
        ConfigError: the record of a run cannot be read.
    """
    records = [_record(run) for run in (first, second)]
    left, right = map(_designs, records)
    matched = match_names(list(left), list(right))
    changes = diff_plain(*map(_settings, records))
    for one, other in matched:
        path = "design" if len(matched) == 1 else f"design[{one}]"
        fields = diff_plain(left[one], right[other])
        changes += [(f"{path}.{field}", before, after) for field, before, after in fields]
    one_sided = [(f"design[{name}]", "present", None) for name in left if name not in dict(matched)]
    others = {other for _, other in matched}
    return [*changes, *one_sided, *((f"design[{name}]", None, "present") for name in right if name not in others)]


def design_changes(
    first: StoredRun, results: Sequence[Result], second: StoredRun, other_results: Sequence[Result]
) -> list[DesignChange]:
    """The results of the designs that both runs have, with paired seeds if the task is the same."""
    before, after = ({result.name: result for result in side} for side in (results, other_results))
    tasks = [_settings(_record(run))["workload"] for run in (first, second)]
    different = [f"workload.{name}" for name in _SAME_TASK if tasks[0].get(name) != tasks[1].get(name)]
    pairs = match_names(list(before), list(after))
    return [_change(before[name], after[other], different) for name, other in pairs]


def match_names(first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
    """Equal names in pairs; if one name is left over on both sides, these two are a pair as well.

    >>> match_names(["a", "b"], ["c", "a"])
    [('a', 'a'), ('b', 'c')]
    """
    matched = [(name, name) for name in first if name in second]
    rest, other_rest = ([name for name in names if (name, name) not in matched] for names in (first, second))
    return [*matched, (rest[0], other_rest[0])] if len(rest) == len(other_rest) == 1 else matched


def _change(first: Result, second: Result, different: Sequence[str]) -> DesignChange:
    shared = shared_seeds(first.seeds, second.seeds)
    if different or not shared:
        reason = f"different {', '.join(different)}" if different else "no seed in common"
        return DesignChange(first=first, second=second, unpaired=reason)
    steps = [log_ratio(one.steps_to_accuracy, other.steps_to_accuracy) for one, other in shared]
    return DesignChange(
        first=first,
        second=second,
        pair=compare_seeds(f"A ({first.name})", first.seeds, f"B ({second.name})", second.seeds),
        steps_ratio=ratio_interval(steps, CONFIDENCE, extremes=trained_alike(shared)),
    )


def _record(run: StoredRun) -> RunRecord:
    if run.record is None:
        raise ConfigError(f"{run.name} cannot be compared: {run.problem}")
    return run.record


def _settings(record: RunRecord) -> dict[str, Any]:
    """Everything that decided the numbers of a run, except its designs."""
    workload = record.config.get("workload")
    config = {name: value for name, value in record.config.items() if name not in ("designs", "technologies")}
    facts = {
        "kind": record.kind,
        "seed": record.seed,
        "version": record.versions,
        "meaning": record.meaning,
        "commit": record.commit,
    }
    return config | {"workload": workload if isinstance(workload, dict) else {}} | facts


def _designs(record: RunRecord) -> dict[str, dict[str, Any]]:
    """The designs of a run by name, each with a hash of the figures in its technology table."""
    designs, tables = (record.config.get(name) for name in ("designs", "technologies"))
    if not isinstance(designs, list) or not isinstance(tables, list):
        return {}
    return {
        str(design.get("name")): {**design, "description": None, "technology_hash": config_hash(table)[:12]}
        for design, table in zip(designs, tables, strict=False)
        if isinstance(design, dict)
    }
