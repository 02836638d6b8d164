"""The study file: designs, workloads, axes, limits, and how points are sampled, trained and chosen."""

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import (
    Condition,
    ConfigError,
    MissingToolError,
    Source,
    decode_config,
    parse_condition,
    read_toml,
    unknown,
)
from presilicon.records import POINT_METRICS, SIMULATED
from presilicon.study.options import Count, TrainOptions
from presilicon.study.search.axes import MOST_POINTS, Axis, grid_size, read_axes

Sampler = Literal["grid", "random", "nsga2", "tpe"]


class Search(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How points are sampled."""

    sampler: Sampler = "grid"
    """`nsga2` and `tpe` are Optuna's: they look for the Pareto front of the objectives."""
    points: Count | None = None
    """How many; for `grid` all."""
    seed: int = 0
    storage: str | None = None
    """Optuna's storage: `sqlite:///FILE`, `postgresql://...` or a journal file; one in the study's directory."""


class PointTraining(TrainOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How points are trained; the fields are options of `presilicon evaluate`."""

    seeds: Count = 5
    target: float | None = None
    max_steps: Count | None = None
    evaluate_every: Count | None = None
    stop_hopeless: bool = False

    @property
    def all_seeds(self) -> range:
        """The seeds of each training."""
        return range(self.seed, self.seed + self.seeds)


class Choosing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one design is chosen: all are simulated, the promising trained a little, the best in full."""

    by: Literal["time", "energy"] = "time"
    """To accuracy."""
    promising: Count = 8
    """Most designs that are trained at few steps."""
    few_steps: Count | None = None
    """A quarter of the budget by default."""
    tries: Count = 1
    """Seeds of each at few steps."""
    best: Count = 2
    """Designs that are trained in full, with the reference, on the seeds of `[train]`."""
    sensitivity: bool = False
    """Whether to vary the figures of the technology tables."""


class StudyFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A study as a user writes it. Designs, workloads and recipes are names, or files relative to the study's own."""

    name: str = "study"
    designs: tuple[str, ...]
    """The first is the reference of a choice."""
    workloads: tuple[str, ...]
    vary: dict[str, Any] = {}
    objectives: tuple[str, ...] = ()
    """Metrics of the Pareto front; all but accuracy are to be low."""
    subject_to: tuple[str, ...] = ()
    """Limits, such as `area_mm2 <= 50`."""
    search: Search = Search()
    train: PointTraining | None = None
    """Without it points are simulated only."""
    choose: Choosing | None = None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes: workload, design, and the parameters in `vary`."""
        return (Axis("workload", self.workloads), Axis("design", self.designs), *read_axes(self.vary))

    @property
    def training(self) -> PointTraining | None:
        """How points are trained; a choice always trains."""
        return PointTraining() if self.train is None and self.choose is not None else self.train

    @property
    def limits(self) -> tuple[Condition, ...]:
        """The conditions that a design must satisfy."""
        names = SIMULATED if self.training is None else POINT_METRICS
        for text in self.subject_to if self.training is None else ():
            metric = text.split()[0] if text.split() else ""
            if metric in POINT_METRICS and metric not in SIMULATED:
                raise ConfigError(f'subject_to "{text}": {metric} is known after training only; add [train]')
        return tuple(parse_condition(text, names, "subject_to") for text in self.subject_to)

    @property
    def front_metrics(self) -> tuple[str, ...]:
        """The objectives, by default time, energy and area: to accuracy if points are trained, else per step."""
        if self.objectives:
            return self.objectives
        if self.training is not None and self.choose is None:
            return ("time_s", "energy_j", "area_mm2")
        return self.step_metrics

    @property
    def step_metrics(self) -> tuple[str, ...]:
        """Time, energy and area by simulation: per step, or per sample if batches differ."""
        per = "sample" if any(axis.path == "batch" for axis in self.axes) else "step"
        return (f"time_per_{per}_s", f"energy_per_{per}_j", "area_mm2")

    def check(self) -> None:
        """Refuse what no point could satisfy, and combinations of options that make no sense."""
        for kind, names in (("designs", self.designs), ("workloads", self.workloads)):
            if not names:
                raise ConfigError(f"{kind} must name at least one")
            if len(set(names)) < len(names):
                raise ConfigError(f"{kind}: {max(names, key=names.count)} is there twice; give it once")
        if not self.name.strip() or not self.name.isprintable() or len(self.name) > 60:
            raise ConfigError(f"name must be printable text of at most 60 characters, not {self.name[:80]!r}")
        for axis in read_axes(self.vary):
            _check_axis(axis)
        self._check_search()
        allowed = SIMULATED if self.training is None or self.choose is not None else POINT_METRICS
        for objective in self.objectives:
            if objective not in allowed:
                raise unknown("objective", objective, allowed)
            if self.objectives.count(objective) > 1:
                raise ConfigError(f"objectives: {objective} is there twice; give it once")
        if self.choose is not None and len(self.workloads) > 1:
            raise ConfigError("[choose] recommends a design for one workload: give one, or leave [choose] out")
        _check_limits(self.limits)

    def _check_search(self) -> None:
        search, size = self.search, grid_size(self.axes)
        if search.sampler == "grid":
            spans = [axis.path for axis in self.axes if axis.span is not None]
            if spans:
                raise ConfigError(
                    f"vary.{spans[0]}: a grid needs a list of values, or a span with step or times; or set "
                    '[search] sampler = "random"'
                )
            if search.points is not None:
                raise ConfigError('search.points: a grid has all points; set sampler = "random" for some of them')
            if size is not None and size > MOST_POINTS:
                raise ConfigError(
                    f'the grid has {size} points, more than {MOST_POINTS}: set [search] sampler = "random" and points'
                )
        elif search.points is None or search.points > MOST_POINTS:
            raise ConfigError(f"search.points: say how many points {search.sampler} may take, up to {MOST_POINTS}")
        if search.storage is not None and search.sampler not in ("nsga2", "tpe"):
            raise ConfigError(f"search.storage is for the samplers nsga2 and tpe, not {search.sampler}")


def read_study(source: str | Path | Mapping[str, Any] | StudyFile) -> StudyFile:
    """A study from its TOML file, or from the same tables in Python, checked.

    Raises:
        ConfigError: a key, a value or a limit is wrong, with its place.
    """
    if isinstance(source, StudyFile):
        source.check()
        return source
    if isinstance(source, Mapping):
        data, origin, folder = dict(source), Source("study"), Path()
    else:
        data, origin = read_toml(Path(source), "examples/study.toml is one to begin with")
        data, folder = {"name": Path(source).stem, **data}, Path(source).parent
    for key in ("designs", "workloads", "subject_to", "objectives"):
        if isinstance(data.get(key), str):  # a single one needs no brackets
            data[key] = [data[key]]
    study = decode_config(data, StudyFile, origin)
    return replace(
        study,
        designs=_beside(study.designs, folder, ".toml"),
        workloads=_beside(study.workloads, folder, ".py"),
        vary=map_files(study.vary, lambda name: str((folder / name).resolve())),
    )


def map_files(value: Any, change: Callable[[str], str]) -> Any:
    """`[vary]`, or a part of it, with the names of TOML files (recipes, technology tables) changed."""
    if isinstance(value, Mapping):
        return {key: map_files(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [map_files(part, change) for part in value]
    return change(value) if isinstance(value, str) and value.endswith(".toml") else value


def with_options(study: StudyFile, *, sensitivity: bool = False, any_processor: bool = False) -> StudyFile:
    """The study with figures of technology tables varied at its end, or with trainings on any kind of processor.

    Raises:
        ConfigError: it chooses no design, or does not train.
    """
    if sensitivity:
        if study.choose is None:
            raise ConfigError("--sensitivity is about the choice of a design: add [choose] to the study")
        study = replace(study, choose=replace(study.choose, sensitivity=True))
    if any_processor:
        if study.training is None:
            raise ConfigError("--any-processor is about trainings: add [train] to the study")
        study = replace(study, train=replace(study.training, any_processor=True))
    return study


def _beside(names: Iterable[Any], folder: Path, ending: str) -> tuple[Any, ...]:
    """Names of files made absolute, because workers may run in other directories; other names as they are."""
    return tuple(
        str((folder / name).resolve()) if isinstance(name, str) and name.endswith(ending) else name for name in names
    )


def require_optuna() -> Any:
    """Optuna, with its own log turned down to warnings.

    Raises:
        MissingToolError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise MissingToolError(
            "the samplers nsga2 and tpe need Optuna: pip install 'presilicon[search]', or use grid or random"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _check_axis(axis: Axis) -> None:
    """Refuse values of another type than the axis has; fields of designs are checked when these are loaded."""
    name = axis.path.removesuffix("s")
    if name in ("workload", "design"):
        raise ConfigError(f"vary.{axis.path}: give {name}s at the head of the study, as in {name}s = [...]")
    for value in axis.samples():
        parts = value if axis.path == "methods" and isinstance(value, list) else [value]
        if axis.path in ("numerics", "methods", "optimizer", "schedule"):
            fits, kind = all(isinstance(part, str) for part in parts), "text"
        else:
            fits, kind = axis.path != "learning_rate" or type(value) in (int, float), "a number"
        if not fits:
            raise ConfigError(f"vary.{axis.path}: must be {kind}, not {value!r}")


_LARGEST = {"reached": 1.0}


def _check_limits(limits: Iterable[Condition]) -> None:
    """Refuse limits that contradict each other, or that no design can meet."""
    lowest: dict[str, Condition] = {}
    highest: dict[str, Condition] = {}
    for limit in limits:
        if limit.comparison not in ("<=", "<", ">=", ">"):
            raise ConfigError(f'subject_to "{limit}": a limit must be one of <= < >= >')
        side, tighter = (highest, min) if limit.comparison.startswith("<") else (lowest, max)
        other = side.get(limit.name, limit)
        side[limit.name] = limit if tighter(limit.limit, other.limit) == limit.limit else other
        if limit.comparison.startswith("<") and limit.limit <= 0 and limit.name != "accuracy":
            raise ConfigError(f'no point can meet "{limit}": it is never below 0')
        if limit.comparison.startswith(">") and limit.limit > _LARGEST.get(limit.name, math.inf):
            raise ConfigError(f'no point can meet "{limit}": it is at most {_LARGEST[limit.name]:g}')
    for name in lowest.keys() & highest.keys():
        if lowest[name].limit > highest[name].limit:
            raise ConfigError(f'no point can meet both "{lowest[name]}" and "{highest[name]}"')
