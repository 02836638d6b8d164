"""A study checked before its first run: everything that it names must exist, and some point must meet its limits."""

import random
from collections.abc import Iterator
from itertools import chain
from math import inf, nan
from pathlib import Path

from presilicon.base import ConfigError, located
from presilicon.simulation import area
from presilicon.study.join.plan import check_device
from presilicon.study.search.axes import Axis
from presilicon.study.search.file import PointTraining, StudyFile, require_optuna
from presilicon.study.search.points import Point, load_point_workload, make_point, study_points
from presilicon.workloads import load_workload

_TRIES = 16
"""Combinations with other values in which a value is tried before it is refused."""


def check_study(study: StudyFile) -> None:
    """Refuse a study that cannot be carried out, before anything runs.

    Raises:
        ConfigError: a design, a workload or a parameter does not exist, or no point can meet the limits.
        MissingToolError: Optuna, data or the device are not there.
    """
    study.check()
    if study.search.sampler in ("nsga2", "tpe"):
        from presilicon.study.search.optimizing import check_storage

        require_optuna()
        check_storage(study)
    training = study.training
    for name in study.workloads:
        workload = load_workload(name)
        if training is not None:
            workload.require_data()
        for limit in study.limits:
            is_share = limit.name == "accuracy" and workload.measure.is_fraction
            if is_share and limit.comparison.startswith(">") and limit.limit > 1:
                raise ConfigError(f'no point can meet "{limit}": {workload.measure.name} is at most 1')
    if training is not None:
        check_device(training.device)
    if training is not None and study.choose is not None and "batch" not in study.vary:
        from presilicon.study.search.training import few_steps

        reference = Point(number=0, workload=study.workloads[0], design=study.designs[0])
        few_steps(training, load_point_workload(reference, training), study.choose.few_steps, study.choose.tries)
    _check_values(study)
    _check_areas(study)


def _check_values(study: StudyFile) -> None:
    """Load every design, and every value of every axis: alone or, if it needs others beside it, with random others."""
    axes, training, generator = study.axes, study.training, random.Random(0)
    for design in study.designs:
        _load(Point(number=0, workload=study.workloads[0], design=design), None)
    for axis in axes[2:]:
        for value in axis.samples():
            alone = Point(number=0, workload=study.workloads[0], design=study.designs[0], values={axis.path: value})
            try:
                _load(alone, None)
            except ConfigError as error:
                if not any(_loads(_drawn(axes, generator, axis, value), None) for _ in range(_TRIES)):
                    raise ConfigError(f"vary.{axis.path}: {error}") from None
    for design in study.designs:
        first = make_point(1, axes, [design if axis == axes[1] else axis.samples()[0] for axis in axes])
        others = (_drawn(axes, generator, axes[1], design) for _ in range(_TRIES))
        if not any(_loads(point, training) for point in chain([first], others)):
            with located(f"no point of design {Path(design).name} is possible"):
                _load(first, training)


def _drawn(axes: tuple[Axis, ...], generator: random.Random, fixed: Axis, value: object) -> Point:
    """A random point, with the value of one axis fixed."""
    return make_point(0, axes, [value if axis == fixed else axis.draw(generator) for axis in axes])


def _load(point: Point, training: PointTraining | None) -> None:
    design, workload = point.load_design(), load_point_workload(point, training)
    design.check()
    if training is not None:
        from presilicon.study.search.training import plan_of

        plan_of([design], workload, training).check()


def _loads(point: Point, training: PointTraining | None) -> bool:
    try:
        _load(point, training)
    except ConfigError:
        return False
    return True


def _check_areas(study: StudyFile) -> None:
    """Refuse limits on area that no point meets: areas are known without simulation."""
    limits = [limit for limit in study.limits if limit.name == "area_mm2"]
    if not limits or study.search.sampler not in ("grid", "random"):
        return
    areas = []
    for point in study_points(study):
        mm2 = _area(point)
        if all(limit.holds(mm2) for limit in limits):
            return
        areas.append(mm2)
    sized = [mm2 for mm2 in areas if mm2 == mm2]
    has = f"their areas are {min(sized):.4g} to {max(sized):.4g} mm2" if sized else "their areas are not known"
    wanted = " and ".join(f'"{limit}"' for limit in limits)
    raise ConfigError(f"no point can meet {wanted}: {has}")


def _area(point: Point) -> float:
    try:
        mm2 = area(point.load_design()).mm2
    except ConfigError:
        return nan
    return nan if mm2 is None else mm2


def nearest_miss(values: Iterator[float], comparison: str) -> float:
    """The value that comes closest to a limit that none meets."""
    known = [value for value in values if value == value]
    return (min if comparison.startswith("<") else max)(known, default=inf)
