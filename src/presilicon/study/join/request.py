"""The arguments of an evaluation as they were written, saved with the run so that it can be resumed."""

import os
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import msgspec

from presilicon.base import ConfigError, json_text, located
from presilicon.designs import Design, load_recipe, recipe_label, vary_designs
from presilicon.records import Direction
from presilicon.runs import Run, StoredRun
from presilicon.study.options import RequestOptions
from presilicon.study.runner import saved_arguments
from presilicon.workloads import Workload, load_workload, read_optimizer, with_learning_rate

REQUEST_FILE = "request.json"


class EvaluateRequest(RequestOptions, frozen=True, kw_only=True):
    """The arguments that decide what `presilicon evaluate` computes; of several targets the others are milestones."""

    designs: tuple[str, ...]
    directory: str = ""
    """Where the run was started; paths in the other arguments are relative to it."""

    def load_designs(self) -> list[Design]:
        """The designs with settings, variations and recipes applied."""
        recipes = [recipe.strip() for text in self.numerics for recipe in text.split(",")]
        return [design for name in self.designs for design in self._load_design(name, recipes)]

    def _load_design(self, name: str, recipes: list[str]) -> list[Design]:
        """One design, or one per recipe, named after the recipe (and the design, if there are several)."""
        if not recipes:
            return vary_designs(name, self.settings, self.vary, methods=self.methods)
        designs = []
        for recipe in recipes:
            for design in vary_designs(name, self.settings, self.vary, numerics=recipe, methods=self.methods):
                short = recipe_label(recipe)
                changed = [setting for setting in self.settings if setting.strip().startswith("numerics.")]
                if changed and design.numerics != load_recipe(recipe).numerics:
                    short += f"[{', '.join(changed)}]"
                label = short if len(self.designs) == 1 and not self.vary else f"{design.name}/{short}"
                designs.append(msgspec.structs.replace(design, name=label))
        return designs

    def load_workload(self, *, trains: bool = True) -> tuple[Workload, Workload]:
        """The workload with the requested changes, and the workload as it comes; one that `trains` must have data."""
        own = load_workload(self.workload)
        if trains:
            own.require_data()
        workload = own if self.batch is None else own.with_batch(self.batch)
        target, *milestones = self._hardest_first(own.measure.direction) or (None,)
        names = ("max_steps", "evaluate_every", "schedule", "accumulate")
        options = {name: getattr(self, name) for name in names} | {
            "target": target,
            "milestones": None if target is None else tuple(milestones),
            "stop_hopeless": self.stop_hopeless or None,
            "optimizer": self._optimizer(own),
        }
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        return replace(workload, **changes), own

    def _optimizer(self, workload: Workload) -> Callable[..., Any] | None:
        rate = self.learning_rate
        if rate is not None and not (isfinite(rate) and rate > 0):
            raise ConfigError(f"--lr must be above 0, not {rate:g}")
        if self.optimizer is not None:
            return read_optimizer(self.optimizer, rate)
        return None if rate is None else partial(with_learning_rate, workload.optimizer, rate)

    def _hardest_first(self, better: Direction) -> list[float]:
        """The targets without repetitions, the hardest first."""
        targets = self.target if isinstance(self.target, tuple) else (() if self.target is None else (self.target,))
        return sorted(set(targets), reverse=better == "higher")

    def times_by_design(self, names: list[str]) -> dict[str, str]:
        """The file of times of each design; a plain file name belongs to the only design."""
        files: dict[str, str] = {}
        for text in self.times:
            name, equals, file = text.partition("=")
            if not equals or name not in names:
                name, file = names[0], text
                if len(names) > 1:
                    raise ConfigError(f"--times {text[:80]!r}: name the design, as in --times {names[0]}=FILE")
            if name in files:
                raise ConfigError(f"--times: {name} has two files; give each design one")
            files[name] = file
        return files


def write_request(run: Run, request: EvaluateRequest) -> None:
    """Save a request in the run's directory."""
    run.write_file(REQUEST_FILE, json_text(msgspec.structs.replace(request, directory=os.getcwd())))


@contextmanager
def where_started(request: EvaluateRequest) -> Iterator[None]:
    """A context in the directory in which a run was started; errors name one that is not there any more."""
    folder = Path(request.directory)
    with chdir(folder) if folder.is_dir() else located(f"the run was started in {folder}, which is not there"):
        yield


def read_request(run: StoredRun) -> EvaluateRequest:
    """The request of a run that can be resumed.

    Raises:
        ConfigError: the run is in progress or has finished, or it has no request.
    """
    if run.status in ("running", "finished"):
        raise ConfigError(f"{run.name} is {run.status}: only an interrupted or failed run can be resumed")
    return load_request(run)


def load_request(run: StoredRun) -> EvaluateRequest:
    """The request saved with a run, whatever became of it.

    Raises:
        ConfigError: the run has no request, or it cannot be read.
    """
    return saved_arguments(run, REQUEST_FILE, EvaluateRequest)
