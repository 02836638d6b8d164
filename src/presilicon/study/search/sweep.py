"""Studies by file: opened, carried out or continued in a run directory, and their results."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from presilicon.base import ConfigError, describe_processor, json_text, processor, read_file, to_plain
from presilicon.designs import load_design
from presilicon.records import PointMeasure, PointRecord, Recommendation, SweepResult
from presilicon.runs import (
    Run,
    StoredRun,
    config_hash,
    identity_hash,
    list_runs,
    load_run,
    make_labels,
    present_comparison,
    versions,
    write_labels,
)
from presilicon.study.join.idle import idle_remarks
from presilicon.study.join.plan import extensions_of
from presilicon.study.pool import LocalPool, OnEvent, WorkerPool
from presilicon.study.runner import OnProgress, Runner, open_run, saved_arguments
from presilicon.study.search.checks import check_study
from presilicon.study.search.file import PointTraining, StudyFile, map_files, read_study
from presilicon.study.search.front import broken_limit, pareto_front
from presilicon.study.search.points import GRAPHS
from presilicon.study.search.table import PointTable
from presilicon.study.search.work import SweepWork
from presilicon.workloads import Workload, load_workload

_STAGES = ("simulated", "tried", "trained")
STUDY_FILE, RECOMMENDATION_FILE = "study.json", "recommendation.json"


class SweepOptions(NamedTuple):
    """How a study is carried out; none of it changes the numbers."""

    jobs: int | None = None
    on: str | None = None
    """Address of a Dask scheduler."""
    resume: str | None = None
    """Name of the run to continue."""
    new: bool = False
    """Start again even if the same study is there."""
    on_run: Callable[[Run, int], None] | None = None
    """Called with the run and the number of records that it has already."""
    on_progress: OnProgress | None = None
    on_event: OnEvent | None = None
    """Called with each training that ended."""
    write_report: Callable[[Run, SweepResult], None] | None = None


def sweep(
    study: str | Path | Mapping[str, Any] | StudyFile,
    *,
    out: str | Path = "runs",
    jobs: int | None = None,
    on: str | None = None,
    new: bool = False,
    on_progress: OnProgress | None = None,
    on_event: OnEvent | None = None,
) -> SweepResult:
    """Carry out a study: `presilicon sweep` in Python.

    `study` is a TOML file, or its tables as a dict. It is recorded in a directory under `out`; the same study continues
    there if it was interrupted, and is read from there if it has finished, unless it is `new`. `jobs` processes work on
    it (one per core by default), so a script needs the usual `if __name__ == "__main__":`; with `on`, the workers of
    the Dask scheduler at that address.

    Raises:
        ConfigError: something in the study is wrong, or no point meets its limits.
        MissingToolError: Optuna or Dask is needed and not installed.
        RunFailedError: workers died again and again.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     study = {"designs": "edge-bf16", "workloads": "digits-mlp", "vary": {"machine.rows": [8, 16, 32]}}
    ...     result = sweep(study, out=folder)
    >>> [record.number for record in result.front_records()]
    [3, 2, 1]
    """
    options = SweepOptions(jobs=jobs, on=on, new=new, on_progress=on_progress, on_event=on_event)
    return carry_out_sweep(read_study(study), Path(out), options)


def carry_out_sweep(study: StudyFile, out: Path, options: SweepOptions) -> SweepResult:
    """Carry out a study, or continue it, in a run directory under `out`."""
    check_study(study)
    if study.training is not None:
        from presilicon.study.join.seeds import forget_data

        forget_data()
    stored = _stored_run(study, out, options)
    if stored is not None and stored.status == "finished":
        _check_processor(stored, study)
        records, recommendation = PointTable(stored.path).records.values(), read_recommendation(stored.path)
        # Asked for sensitivity, which needs no training, a study that has finished without it goes on.
        wanted = study.choose is not None and study.choose.sensitivity
        if not (wanted and recommendation is not None and recommendation.breaches is None):
            return _result(study, stored.path, records, recommendation)
    with closing(_pool(study, out, options)) as pool:
        run = open_run("sweep", study_config(study), out, study.search.seed, stored, _takes_any_processor(study))
        if stored is None:
            with suppress(ConfigError):  # a name that cannot be a label
                write_labels(run.path, make_labels(study.name, ()))
        with run:
            run.write_file(STUDY_FILE, json_text(study))
            (run.path / GRAPHS).mkdir(exist_ok=True)
            runner = Runner(pool, run, on_event=options.on_event, on_progress=options.on_progress)
            work = SweepWork(study, run, runner)
            if options.on_run is not None:
                options.on_run(run, len(work.table.records))
            recommendation = work.carry_out()
            if recommendation is not None:
                run.write_file(RECOMMENDATION_FILE, json_text(recommendation))
            result = _result(study, run.path, work.table.records.values(), recommendation)
            if options.write_report is not None:
                options.write_report(run, result)
        return result


def _takes_any_processor(study: StudyFile) -> bool:
    return study.training is not None and study.training.any_processor


def _check_processor(stored: StoredRun, study: StudyFile) -> None:
    """Refuse to show the result of another kind of processor as this one's, unless the study takes any."""
    then = stored.record.config.get("processor") if stored.record else None
    if study.training is None or _takes_any_processor(study) or then == processor(study.training.device):
        return
    raise ConfigError(
        f"{stored.name} is this study, trained on {describe_processor(then)}; here it would have other bits: "
        "any_processor = true in [train] (--any-processor) shows it all the same, and --new trains it here"
    )


def read_study_of(out: Path, name: str) -> StudyFile:
    """The study of a recorded run.

    Raises:
        ConfigError: there is no such run, or it is not a study.
    """
    return saved_arguments(load_run(out, name), STUDY_FILE, StudyFile)


def read_recommendation(path: Path) -> Recommendation | None:
    """The recommendation in a study's directory, if there is one."""
    try:
        plain = msgspec.json.decode((path / RECOMMENDATION_FILE).read_bytes(), type=dict[str, Any])
        if isinstance(plain.get("comparison"), dict):
            plain["comparison"] = present_comparison(plain["comparison"])
        return msgspec.convert(plain, Recommendation)
    except (OSError, msgspec.MsgspecError):
        return None


def study_config(study: StudyFile) -> dict[str, Any]:
    """Everything that decides the numbers of a study, with the contents of its designs and workloads."""
    designs = [load_design(name) for name in study.designs]
    plain = msgspec.to_builtins(study)
    if plain["choose"] is not None:
        del plain["choose"]["sensitivity"]  # it adds to the result and changes nothing in it
    if plain["train"] is not None:
        del plain["train"]["any_processor"]  # results say themselves what they were trained on
    plain["designs"] = [Path(name).name for name in study.designs]
    plain["workloads"] = [Path(name).name for name in study.workloads]
    hashes: list[str] = []

    def name_of(file: str) -> str:
        hashes.append(config_hash(read_file(Path(file)).decode()))
        return Path(file).name

    plain["vary"] = map_files(plain["vary"], name_of)
    workloads = {name: load_workload(name) for name in study.workloads}
    tables = {design.name: digests for design in designs if (digests := design.machine.file_digests())}
    config = {
        "study": plain,
        **({"files": hashes} if hashes else {}),
        "designs": [design.to_plain() for design in designs],
        "technologies": [to_plain(design.technology) for design in designs],
        **({"tables": tables} if tables else {}),
        "workloads": [workload.describe() for workload in workloads.values()],
    }
    config |= extensions_of(config)
    unknown = [place for workload in workloads.values() for place in workload.content().unknown]
    config |= {"unknown": unknown} if unknown else {}
    return config | ({} if study.training is None else _trained_with(study.training, workloads))


def _trained_with(training: PointTraining, workloads: Mapping[str, Workload]) -> dict[str, Any]:
    """The data of a study that trains, by their contents, and the kind of processor."""
    from presilicon.study.join.seeds import load_splits

    contents = {name: load_splits(workload)[1] for name, workload in workloads.items()}
    for name, workload in workloads.items():
        if unknown := [*workload.content().unknown, *contents[name].unknown]:
            raise ConfigError(
                f"{name} depends on {', '.join(unknown)}, which cannot be compared, but a study passes its trainings "
                "on as files, which only the same training may read; `presilicon evaluate` trains it"
            )
    data = {Path(name).name: content.digest[:16] for name, content in contents.items()}
    return {"data": data, "processor": processor(training.device)}


def _stored_run(study: StudyFile, out: Path, options: SweepOptions) -> StoredRun | None:
    """The run to continue: the named one, or the newest of the same study and versions."""
    if options.resume is not None:
        stored = load_run(out, options.resume)
        if stored.status == "running":
            raise ConfigError(f"{stored.name} is running: only an interrupted or failed study can be continued")
        return stored
    if options.new:
        return None
    config = study_config(study)
    if config.get("unknown"):  # what cannot be compared is not reused
        return None
    for stored in reversed(list_runs(out)):
        record = stored.record
        if record is None or record.kind != "sweep" or record.versions != versions():
            continue
        # One that began on another kind of processor is found, and refused by name unless that is allowed.
        own = config | ({"processor": record.config["processor"]} if "processor" in record.config else {})
        if record.config_hash == identity_hash(own):
            if stored.status == "running":
                raise ConfigError(f"this study is running already, as {stored.name}; to start another, use --new")
            return stored
    return None


def _pool(study: StudyFile, out: Path, options: SweepOptions) -> WorkerPool:
    if options.on is None:
        return LocalPool(options.jobs or os.cpu_count() or 1)
    from presilicon.study.cluster import DaskPool

    training = study.training
    is_alike = training is not None and not training.any_processor
    return DaskPool(options.on, out, processor(training.device) if training is not None and is_alike else None)


def _result(
    study: StudyFile, path: Path, records: Iterable[PointRecord], recommendation: Recommendation | None
) -> SweepResult:
    """The result with one record per point: that of its furthest stage."""
    numbered = [record for record in records if record.number]  # the reference of a choice is no point
    furthest: dict[str, PointRecord] = {}
    for record in sorted(numbered, key=lambda record: (record.number, _STAGES.index(record.stage))):
        furthest[record.key] = record
    measures = {}
    for name in study.workloads:
        measure = load_workload(name).measure
        measures[name] = PointMeasure(measure.name, measure.direction, measure.is_fraction)
    limits = study.limits
    feasible = [
        record for record in furthest.values() if not record.error and not broken_limit(record, limits, known=True)
    ]
    front = [
        record.key
        for name in study.workloads
        for record in pareto_front(
            [record for record in feasible if record.workload == name], study.front_metrics, measures[name].direction
        )
    ]
    return SweepResult(
        name=study.name,
        path=path,
        axes=tuple(axis.path for axis in study.axes[2:] if axis.span is not None or len(axis.values) > 1),
        objectives=study.front_metrics,
        limits=tuple(map(str, limits)),
        records=tuple(furthest.values()),
        feasible=frozenset(record.key for record in feasible),
        front=frozenset(front),
        measures=measures,
        recommendation=recommendation,
        remarks=(*_idle(list(furthest.values())), *_area_remarks(furthest.values())),
    )


def _area_remarks(records: Iterable[PointRecord]) -> tuple[str, ...]:
    """The technologies that the areas of points are from."""
    sized = [record for record in records if record.metrics.get("area_mm2") is not None]
    tables = {
        record.values.get("machine.technology") or load_design(record.design).machine.technology for record in sized
    }
    names = [f"from technology {table}" if table else "as the machine gives them" for table in sorted(tables, key=str)]
    return (f"areas: {', '.join(names)}",) if names else ()


def _idle(records: Sequence[PointRecord]) -> tuple[str, ...]:
    """Remarks on axes without effect, by the points that came furthest."""
    stage = max((record.stage for record in records), key=_STAGES.index, default="simulated")
    return idle_remarks(
        ({"workload": record.workload, "design": record.design, **record.values}, repr(record.metrics))
        for record in records
        if record.stage == stage and not record.error
    )
