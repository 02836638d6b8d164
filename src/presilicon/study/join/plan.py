"""The plan of an evaluation: designs, workload, seeds and options, checked before torch is loaded."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from presilicon.base import ConfigError, MissingToolError, content_of, extensions_named_in, processor, to_plain, torch
from presilicon.designs import Design
from presilicon.records import ForeignTimes
from presilicon.study.join.fairness import check_start
from presilicon.study.join.looks import MAX_SEEDS, check_seeds, seed_looks
from presilicon.study.join.prices import with_methods
from presilicon.study.join.request import EvaluateRequest
from presilicon.study.options import EvaluateOptions, shared_fields
from presilicon.workloads import Workload, load_workload, workload_names

Times = ForeignTimes | Path | str
"""Times of a step, or the file that contains them."""


class EvaluationPlan(EvaluateOptions, frozen=True, kw_only=True):
    """Everything that decides the numbers of an evaluation."""

    designs: tuple[Design, ...]
    workload: Workload
    times: Times | Mapping[str, Times] | None = None
    original: Workload | None = None
    """The workload before target, budget or evaluation interval were changed, for a strict comparison. By default the
    workload of that name in the package, if there is one."""

    @property
    def seed_limit(self) -> int:
        """The most seeds that `auto` may use."""
        return MAX_SEEDS if self.max_seeds is None else self.max_seeds

    @property
    def looks(self) -> tuple[int, ...]:
        """The numbers of seeds after which the ranking is looked at; seeds are added until it is decided."""
        return seed_looks(self.seeds, self.seed_limit)

    def check(self) -> None:
        """Refuse a plan that cannot be carried out, before anything is trained or recorded.

        Raises:
            ConfigError: says what is wrong.
            MissingToolError: the device is not there.
        """
        if not self.designs:
            raise ConfigError("there is nothing to compare: give at least one design")
        counts = Counter(design.name for design in self.designs)
        duplicates = [name for name, count in counts.items() if count > 1]
        if duplicates:
            raise ConfigError(
                f'two designs are called "{duplicates[0]}": to compare variants of a design use --vary, as in '
                "--vary machine.rows=32,64, or give each file a name of its own"
            )
        if self.sensitivity and self.times:
            raise ConfigError("--sensitivity varies our own figures and cannot be combined with --times")
        if self.clock_ghz is not None and not self.times:
            raise ConfigError("--clock-ghz converts the cycles in a file of --times: give one")
        if self.sensitivity and len(self.designs) < 2:
            raise ConfigError("--sensitivity is about the ranking of designs: give at least two")
        for design in self.designs:
            is_timed = design.name in self.times if isinstance(self.times, Mapping) else bool(self.times)
            if is_timed and (design.methods or design.numerics.schedule):
                changing = "methods, which change its step" if design.methods else "numerics that change over time"
                raise ConfigError(
                    f'"{design.name}" has {changing}, but --times has times of one step only: leave out one of them'
                )
        _check_budget(self.workload)
        for design in self.designs:
            rule, workload = design.machine.update_rule, self.workload
            rule.batch_per_chip(workload.name, workload.batch_size, workload.accumulate)
        if self.max_seeds is not None and self.seeds != "auto":
            raise ConfigError("--max-seeds limits --seeds auto: give that, or leave it out")
        check_seeds(self.seeds, self.seed_limit, len(self.designs))
        check_device(self.device)
        if self.strict_coverage:
            from presilicon.emulation import coverage_workload

            for design in self.designs:
                coverage_workload(with_methods(self.workload, design.methods), design.numerics, strict=True)
        if self.strict:
            is_ours = self.workload.name in workload_names()
            default = load_workload(self.workload.name) if is_ours else self.workload
            check_start(self.workload, self.original or default, seeds=self.looks[0], seed=self.seed)

    def config(self) -> dict[str, Any]:
        """The configuration that a run records, as plain data."""
        config: dict[str, Any] = {
            "designs": [design.to_plain() for design in self.designs],
            "technologies": [to_plain(design.technology) for design in self.designs],
            "workload": self.workload.describe(),
            "seeds": self.seeds,
            **({"max_seeds": self.seed_limit} if self.seeds == "auto" else {}),
            "device": self.device,
            "processor": processor(self.device),
        }
        config |= self._inputs() | self._trainings()
        return config | extensions_of(config)

    def _inputs(self) -> dict[str, Any]:
        """Files and options beside designs and workload that decide numbers, by their contents."""
        inputs: dict[str, Any] = {}
        if self.times:
            given = self.times if isinstance(self.times, Mapping) else {self.designs[0].name: self.times}
            inputs["times"] = {name: _times_content(times) for name, times in given.items()}
        if self.clock_ghz is not None:
            inputs["clock_ghz"] = self.clock_ghz
        tables = {design.name: digests for design in self.designs if (digests := design.machine.file_digests())}
        return inputs | ({"tables": tables} if tables else {})

    def _trainings(self) -> dict[str, Any]:
        """The content of what the designs train with, by part, as their checkpoints have it, and of the data."""
        from presilicon.emulation import TrainingRecord
        from presilicon.study.join.seeds import load_splits

        records = {design.name: TrainingRecord.of_design(design, self.workload) for design in self.designs}
        described = {name: record.describe() for name, record in records.items()}
        data = load_splits(self.workload)[1]
        parts = [place for each in described.values() for place in each.get("unknown", ())]
        unknown = list(dict.fromkeys([*parts, *data.unknown]))
        return {
            "code": {name: each["code"] for name, each in described.items()},
            "data": data.digest[:16],
            **({"unknown": unknown} if unknown else {}),
        }


def extensions_of(config: dict[str, Any]) -> dict[str, Any]:
    """The extensions that a configuration names, as a part of it."""
    extensions = extensions_named_in(json.dumps(config, default=str))
    return {"extensions": extensions} if extensions else {}


def _times_content(times: Times) -> Any:
    """Times of a step as plain data, or the name of their file and the digest of its contents."""
    if isinstance(times, ForeignTimes):
        return to_builtins(times)
    return {"file": Path(times).name, "content": content_of(Path(times)).digest[:16]}


def plan_request(request: EvaluateRequest) -> EvaluationPlan:
    """The plan of a request: its designs and workload loaded."""
    designs = request.load_designs()
    workload, original = request.load_workload()
    return EvaluationPlan(
        designs=tuple(designs),
        workload=workload,
        times=request.times_by_design([design.name for design in designs]) or None,
        original=original,
        **shared_fields(request, EvaluateOptions),
    )


def check_device(device: str) -> None:
    """Refuse a device that is not there, before any work is done."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ConfigError(f'device must be cpu, cuda or cuda:N, not "{device}"')
    if device != "cpu":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(device.partition(":")[2] or 0) >= count:
            raise MissingToolError(f'device "{device}": torch sees {count} CUDA devices here; use --device cpu')


def _check_budget(workload: Workload) -> None:
    workload.require_data()
    needed = workload.sustain * workload.evaluate_every
    if workload.max_steps < needed:
        raise ConfigError(
            f"max_steps is {workload.max_steps}, but holding the target takes {workload.sustain} evaluations, one "
            f"every {workload.evaluate_every} steps: give at least {needed} steps"
        )
