"""Points proposed by Optuna's multi-objective samplers, from the results of earlier ones."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from presilicon.base import Condition, ConfigError
from presilicon.records import Direction, PointRecord, direction_of
from presilicon.study.search.axes import Axis
from presilicon.study.search.file import StudyFile, require_optuna
from presilicon.study.search.points import Point, make_point
from presilicon.workloads import load_workload

JOURNAL = "optuna.journal"
_POPULATION = 24
_BATCH = 16
"""Points that are proposed together: not by the number of workers, so that results do not depend on it."""
_POINT = "point"
_MOST_REPEATS = 10
"""Batches without a new point after which the search ends: it has seen all there is."""

Evaluate = Callable[[Sequence[Point]], Sequence[PointRecord]]


class Optimizer:
    """A sampler with its history in Optuna's storage, which a study that is continued learns from."""

    def __init__(self, study: StudyFile, directory: Path) -> None:
        self._optuna = require_optuna()
        self._study = study
        better = shared_direction(study)
        with _storage_errors(study):
            self._trials = self._optuna.create_study(
                storage=_storage(self._optuna, study, directory),
                study_name=f"{study.name} {directory.name}",
                sampler=_sampler(self._optuna, study),
                directions=[f"{_WORDS[direction_of(name, better)]}imize" for name in study.front_metrics],
                load_if_exists=True,
            )
        failed = self._optuna.trial.TrialState.FAIL
        for trial in self._trials.get_trials(deepcopy=False):
            if not trial.state.is_finished():  # the study was killed before it told the result
                self._trials.tell(trial.number, state=failed)

    def search(self, known: Sequence[PointRecord], evaluate: Evaluate) -> None:
        """Propose points in batches until the study has as many different ones as it wants."""
        numbers = {record.key: record.number for record in known}
        wanted, repeats = self._study.search.points or 0, 0
        while len(numbers) < wanted and repeats < _MOST_REPEATS:
            before = len(numbers)
            trials = [self._trials.ask() for _ in range(min(_BATCH, wanted - before))]
            points = []
            for trial in trials:
                point = make_point(0, self._study.axes, [_suggest(trial, axis) for axis in self._study.axes])
                number = numbers.setdefault(point.key, len(numbers) + 1)
                trial.set_user_attr(_POINT, number)
                points.append(replace(point, number=number))
            records = evaluate(list({point.key: point for point in points}.values()))
            by_key = {record.key: record for record in records}
            for trial, point in zip(trials, points, strict=True):
                self._tell(trial, by_key[point.key])
            repeats = repeats + 1 if len(numbers) == before else 0

    def _tell(self, trial: Any, record: PointRecord) -> None:
        values = [record.metric(name) for name in self._study.front_metrics]
        if record.error or not all(map(isfinite, values)):
            self._trials.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            return
        for limit in self._study.limits:
            trial.set_constraint(str(limit), _excess(record, limit))
        self._trials.tell(trial, values)


def shared_direction(study: StudyFile) -> Direction:
    """Which way the metric of all workloads of a study is better.

    Raises:
        ConfigError: the workloads disagree, and a sampler has one direction for all of them.
    """
    directions = {name: load_workload(name).measure.direction for name in study.workloads}
    if len(set(directions.values())) > 1 and "accuracy" in study.front_metrics:
        spelled = ", ".join(f"{name}: {direction}" for name, direction in directions.items())
        raise ConfigError(
            f"search.sampler = {study.search.sampler!r} cannot search workloads whose metrics are better in different "
            f"directions ({spelled}); give each a study of its own, or use a grid"
        )
    return next(iter(directions.values()))


_WORDS: dict[Direction, str] = {"higher": "max", "lower": "min"}


def _excess(record: PointRecord, limit: Condition) -> float:
    """How far a point is beyond a limit, as a fraction of it; at most 0 if it is met."""
    value, sign = record.metric(limit.name), 1.0 if limit.comparison.startswith("<") else -1.0
    if not isfinite(value):  # not known yet, or never reached
        return 0.0 if limit.name not in record.metrics else 1e9
    return sign * (value - limit.limit) / max(abs(limit.limit), 1e-30)


def _suggest(trial: Any, axis: Axis) -> Any:
    """A value of an axis; numbers by their position, so that samplers know their order."""
    if axis.span is not None:
        kind = trial.suggest_int if axis.span.whole else trial.suggest_float
        return kind(axis.path, axis.span.low, axis.span.high, log=axis.span.log)
    if len(axis.values) == 1:
        return axis.values[0]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.values):
        ordered = sorted(axis.values)
        return ordered[trial.suggest_int(axis.path, 0, len(ordered) - 1)]
    return axis.values[trial.suggest_categorical(axis.path, list(range(len(axis.values))))]


def _sampler(optuna: Any, study: StudyFile) -> Any:
    seed = study.search.seed
    if study.search.sampler == "nsga2":
        return optuna.samplers.NSGAIISampler(population_size=_POPULATION, seed=seed)
    return optuna.samplers.TPESampler(constant_liar=True, seed=seed)


def _storage(optuna: Any, study: StudyFile, directory: Path) -> Any:
    """A database by its address, else a journal file, which several processes may share."""
    storage = study.search.storage
    if storage is not None and "://" in storage:
        return storage
    # Optuna's lock is a link to this path, which must not be relative. That of a run that was killed is stale, since we
    # hold the lock of the run itself.
    file = (Path(storage) if storage is not None else directory / JOURNAL).resolve()
    if storage is None:
        file.with_name(f"{file.name}.lock").unlink(missing_ok=True)
    backend = optuna.storages.journal.JournalFileBackend(str(file))
    return optuna.storages.JournalStorage(backend)


@contextmanager
def _storage_errors(study: StudyFile) -> Iterator[None]:
    """A context that explains a storage that cannot be opened: wrong addresses, missing drivers, no such folder."""
    try:
        yield
    except Exception as error:
        if study.search.storage is None:
            raise
        text = " ".join(str(error).split())[:200]
        raise ConfigError(
            f'search.storage "{study.search.storage}" cannot be opened ({text}); give sqlite:///FILE.db, '
            "postgresql://USER@HOST/NAME or the name of a journal file"
        ) from None


def check_storage(study: StudyFile) -> None:
    """Open the storage of a study once, so that a wrong address is refused before the first run."""
    storage = study.search.storage
    if storage is None:
        return
    optuna = require_optuna()
    with _storage_errors(study):
        opened = _storage(optuna, study, Path())
        optuna.study.get_all_study_names(opened)
