"""Points of a study: their designs and workloads, and what a step costs on them."""

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from presilicon.base import ConfigError, PresiliconError, RunFailedError, to_plain, to_toml, write_atomically
from presilicon.designs import Design, load_design
from presilicon.records import PointRecord, StepGraph
from presilicon.runs import config_hash
from presilicon.simulation import area
from presilicon.study.join.prices import StepGraphs, StepPrices, check_step_taps
from presilicon.study.join.request import EvaluateRequest
from presilicon.study.search.axes import Axis, draw, grid
from presilicon.study.search.file import PointTraining, StudyFile
from presilicon.workloads import Workload

GRAPHS = "graphs"
"""Directory below that of a study with the captured steps."""
OPTIONS = ("batch", "accumulate", "optimizer", "learning_rate", "schedule")
"""Axes that change the workload, named as the options of `presilicon evaluate`."""
_STEP_OPTIONS = ("batch", "accumulate", "optimizer")
"""Those of them that change its step."""
_TRAINING_OPTIONS = ("target", "max_steps", "evaluate_every", "stop_hopeless")


class Point(Struct, frozen=True, kw_only=True):
    """One choice on every axis."""

    number: int
    workload: str
    design: str
    values: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """Hash of the choices."""
        text = json.dumps([self.workload, self.design, self.values], sort_keys=True, default=str)
        return sha256(text.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Its design with the values: `bf16-systolic[rows=32, numerics=bf16]`; with its number where that is long."""
        values = [f"{path.rpartition('.')[2]}={_short(value)}" for path, value in self.values.items()]
        name = Path(self.design).stem if self.design.endswith(".toml") else self.design
        label = f"{name}[{', '.join(values)}]" if values else name
        return label if len(label) <= 100 else f"{name[:80]}[point {self.number}]"

    @property
    def workload_options(self) -> str:
        """Its changes of the workload as options of `presilicon evaluate`: `--batch 64 --lr 0.1`."""
        flags = {"learning_rate": "lr"}
        return " ".join(f"--{flags.get(name, name)} {shlex.quote(str(value))}" for name, value in self.options.items())

    @property
    def options(self) -> dict[str, Any]:
        """Its changes of the workload."""
        return {name: self.values[name] for name in OPTIONS if name in self.values}

    @property
    def step(self) -> str:
        """Everything that its step depends on, as text: equal for points whose step costs the same."""
        values = [item for item in self.values.items() if item[0] not in ("learning_rate", "schedule")]
        return repr((self.workload, self.design, values))

    def record(self, **fields: Any) -> PointRecord:
        """Its line in the table."""
        return PointRecord(
            key=self.key, number=self.number, design=self.design, workload=self.workload, values=self.values, **fields
        )

    def load_design(self) -> Design:
        """Its design, called by its label.

        Raises:
            ConfigError: there is no such design, or it cannot be varied like that.
        """
        settings, methods, recipe = tuple(self._settings()), tuple(self._methods()), self.values.get("numerics")
        try:
            design = load_design(self.design, settings, numerics=recipe and str(recipe), methods=methods)
        except ConfigError as error:
            raise ConfigError(str(error).replace("--set", "vary").replace("--method", "vary.methods")) from None
        return replace(design, name=self.label) if self.values else design

    def _settings(self) -> Iterator[str]:
        for path, value in self.values.items():
            if path not in ("numerics", "methods", *OPTIONS) and not path.startswith("method."):
                yield f"{path}={_toml(value)}"

    def _methods(self) -> Iterator[str]:
        chosen = self.values.get("methods", ())
        names = [chosen] if isinstance(chosen, str) else chosen
        for name in names:
            if name != "none":
                yield str(name)
        for path, value in self.values.items():
            _, _, parameter = path.partition("method.")
            # A parameter alone would turn its method on, in points that are to be without it too.
            if path.startswith("method.") and ("methods" not in self.values or parameter.partition(".")[0] in names):
                yield f"{parameter}={_toml(value)}"


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "+".join(map(_short, value))
    if isinstance(value, str) and value.endswith(".toml"):
        return Path(value).name
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _toml(value: Any) -> str:
    """A value as a setting has it: a text as it is, anything else as TOML."""
    if isinstance(value, str):
        return value
    return to_toml({"value": [value]}).partition("=")[2].strip().removeprefix("[").removesuffix("]").strip()


def study_points(study: StudyFile) -> Iterator[Point]:
    """The points of a grid or a random draw, numbered from 1."""
    axes = study.axes
    if study.search.sampler == "grid":
        combinations = grid(axes)
    else:
        combinations = draw(axes, study.search.points or 0, study.search.seed)
    for number, values in enumerate(combinations, start=1):
        yield make_point(number, axes, values)


def make_point(number: int, axes: Sequence[Axis], values: Iterable[Any]) -> Point:
    """The point of one value per axis; the first two axes are the workload and the design."""
    by_path = dict(zip((axis.path for axis in axes), values, strict=True))
    workload, design = by_path.pop("workload"), by_path.pop("design")
    return Point(number=number, workload=workload, design=design, values=by_path)


class PricedStep(NamedTuple):
    """A design on a workload, with the prices of its steps."""

    design: Design
    workload: Workload
    prices: StepPrices


_graphs: dict[str, StepGraphs] = {}


def load_point_workload(point: Point, training: PointTraining | None = None) -> Workload:
    """The workload of a point, as it is trained."""
    trained = {} if training is None else {name: getattr(training, name) for name in _TRAINING_OPTIONS}
    request = EvaluateRequest(designs=(), workload=point.workload, **point.options, **trained)
    return request.load_workload(trains=training is not None)[0]


def step_graphs(point: Point, design: Design, folder: Path) -> StepGraphs:
    """The captured steps of a point's workload, after its methods; captured once per study, in `folder`."""
    workload = load_point_workload(point)
    step = {name: point.values[name] for name in _STEP_OPTIONS if name in point.values}
    methods = [msgspec.to_builtins(method, enc_hook=str) for method in design.methods]
    whole = [operator.describe_price() for operator in design.numerics.make_operators() if not operator.is_inner]
    rule = to_plain(design.machine.update_rule)
    key = config_hash({"workload": point.workload, **step, "methods": methods, "operators": whole, "rule": rule})[:16]
    memory = f"{folder}/{key}"
    if memory not in _graphs:
        graphs, path = StepGraphs(workload).for_design(design), folder / f"{key}.msgpack"
        try:
            graphs.keep(msgspec.msgpack.decode(path.read_bytes(), type=StepGraph))
        except (OSError, msgspec.DecodeError):
            write_atomically(path, msgspec.msgpack.encode(graphs()))
        _graphs[memory] = graphs
    return _graphs[memory]


def price_point(point: Point, folder: Path) -> PricedStep:
    """A point's design and workload, and prices of its steps; `folder` has the captured graphs."""
    design = point.load_design()
    graphs = step_graphs(point, design, folder)
    check_step_taps(design, graphs())
    return PricedStep(design, load_point_workload(point), StepPrices(graphs, design))


def simulated_metrics(step: PricedStep) -> dict[str, float | None]:
    """The metrics of a point without training."""
    cost = step.prices()
    samples = step.workload.batch_size
    return {
        "time_per_step_s": cost.time_s,
        "energy_per_step_j": cost.energy_j,
        "time_per_sample_s": cost.time_s / samples,
        "energy_per_sample_j": cost.energy_j / samples,
        "power_w": cost.energy_j / cost.time_s if cost.time_s else None,
        "memory_bytes": cost.memory_bytes,
        "area_mm2": area(step.design).mm2,
    }


class SimulateTask(Struct, frozen=True):
    """Points to simulate, in a worker that sees the folder of captured graphs."""

    points: tuple[Point, ...]
    folder: str


def simulate_points(task: SimulateTask) -> list[PointRecord]:
    """The records of points, each with its metrics or with the reason why it has none."""
    records, priced = [], {}
    for point in task.points:
        step = point.step
        if step not in priced:
            try:
                priced[step] = point.record(metrics=simulated_metrics(price_point(point, Path(task.folder))))
            except RunFailedError:
                raise
            except PresiliconError as error:
                priced[step] = point.record(error=" ".join(str(error).split()))
        first = priced[step]
        records.append(replace(first, key=point.key, number=point.number, values=point.values))
    return records
