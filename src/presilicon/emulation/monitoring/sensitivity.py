"""`format_sensitivity`: which layer of a model breaks in which number format."""

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from presilicon.base import ConfigError, unknown
from presilicon.designs import Numerics, RoleFormat
from presilicon.emulation.attach import emulate_, emulation_of, restore_
from presilicon.emulation.emulation import Emulation, UncoveredWarning
from presilicon.emulation.monitoring.trials import Subject, Trials, TrialStep, preserved, select_layers
from presilicon.formats import Format, parse, short_name
from presilicon.records import FormatSensitivity, FormatTrial, LayerSensitivity, Role, SensitivityMetric
from presilicon.workloads import Workload

_ROLES: tuple[Role, ...] = ("weight", "activation", "error")
_ALLOWED: tuple[Role, ...] = (*_ROLES, "gradient")


def format_sensitivity(
    model: nn.Module,
    batch: Any,
    formats: Iterable[str | Format | RoleFormat],
    *,
    loss: Callable[..., Tensor] | None = None,
    layers: str | Iterable[str] = "*",
    roles: Iterable[Role] = _ROLES,
    by_role: bool = False,
    lift: bool = False,
    metric: SensitivityMetric = "gradient_error",
    threshold: float = 0.1,
    progress: bool | None = None,
) -> FormatSensitivity:
    """Put one layer at a time in each format, and measure how the loss, the layer's output and the gradients change.

    Everything else computes as it is: in float32, or in the numerics of an emulated model at its current step, under
    its loss scale. With `lift`, the question is which layer of an emulated model a wider format helps most. Weights,
    gradients, buffers, random states and the step count are left as they were, also if an error is raised.

    Args:
        model: any float32 module, emulated or not, in training or evaluation mode.
        batch: inputs and target, with `loss`; or a dict of keyword arguments for a model whose output has a loss.
        formats: formats or their spellings; a `RoleFormat` names a rounding too.
        loss: computes a scalar from the output and the target (from the output alone if the batch is a dict).
        layers: patterns of layer names, as in the overrides of numerics.
        roles: the roles that are put in the format: weight, activation, error, gradient.
        by_role: try each role on its own.
        lift: compare with the model in float32, and rank first the layer that comes closest to it in the format.
        metric: what is compared with the threshold: the relative error of the gradients or change of the loss.
        threshold: the largest metric that a layer may have in its narrowest format.
        progress: show a progress bar; by default on a terminal.

    Raises:
        ConfigError: the batch, a format, a role or a pattern is not possible, the loss is no finite number, or a model
            that is not emulated is to be lifted.

    >>> _ = torch.manual_seed(0)
    >>> model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> batch = torch.randn(4, 8), torch.tensor([0, 1, 0, 1])
    >>> found = format_sensitivity(model, batch, ["bfloat16", "e4m3fn", "mxfp4"], loss=nn.functional.cross_entropy)
    >>> [(layer.layer, layer.narrowest) for layer in found.layers]
    [('0', 'e4m3fn'), ('2', 'e4m3fn')]
    """
    role_formats = _read_formats(formats)
    chosen = tuple(dict.fromkeys(roles))
    for role in chosen:
        if role not in _ALLOWED:
            raise unknown("role", role, _ALLOWED)
    if metric not in get_args(SensitivityMetric):
        raise unknown("metric", metric, get_args(SensitivityMetric))
    if not isinstance(model, nn.Module):
        raise ConfigError(f"format_sensitivity takes a torch.nn.Module, not {type(model).__name__}")
    if lift and emulation_of(model) is None:
        raise ConfigError("lift asks which layer of an emulated model to lift: call emulate_(model, numerics) first")
    step = TrialStep(model, batch, loss)
    with _emulated(model) as own, preserved(model) as start, warnings.catch_warnings():
        warnings.simplefilter("ignore", UncoveredWarning)
        selection = select_layers(layers, model, own.ends)
        trials = Trials(model, own, step, start, lift=lift)
        unlifted = trials.as_it_is().size(metric) if lift else None
        subjects = trials.subjects(selection, chosen, by_role)
        runs = [(subject, role_format) for subject in subjects for role_format in role_formats]
        results = tuple(trials.run(*run) for run in _shown(runs, progress))
    names = tuple(dict.fromkeys(short_name(role_format.format) for role_format in role_formats))
    return FormatSensitivity(
        name=type(model).__name__,
        loss=trials.loss,
        metric=metric,
        threshold=threshold,
        formats=names,
        layers=tuple(_rank(results, metric, threshold, lift)),
        trials=results,
        lift=lift,
        unlifted=unlifted if unlifted is None or math.isfinite(unlifted) else None,
    )


def workload_sensitivity(
    workload: Workload, formats: Iterable[str], numerics: Numerics, **options: Any
) -> FormatSensitivity:
    """The sensitivity of a workload's untrained model under `numerics`, on the first examples of its training split."""
    load_data, _ = workload.require_data()
    inputs, targets = (part[: workload.batch_size] for part in load_data().train)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = emulate_(workload.model(), numerics)
    result = format_sensitivity(model, (inputs, targets), formats, loss=workload.loss, **options)
    return replace(result, name=workload.name)


def _read_formats(formats: Iterable[str | Format | RoleFormat]) -> list[RoleFormat]:
    if isinstance(formats, str | Format | RoleFormat):
        formats = [formats]
    role_formats = [
        entry if isinstance(entry, RoleFormat) else RoleFormat(parse(entry) if isinstance(entry, str) else entry)
        for entry in formats
    ]
    if not role_formats:
        raise ConfigError('formats: give at least one, as in ["bfloat16", "e4m3fn"]')
    return sorted(role_formats, key=lambda entry: -entry.format.bits_per_element)


@contextmanager
def _emulated(model: nn.Module) -> Iterator[Emulation]:
    """The emulation of a model; a plain model is emulated in float32 inside the context."""
    own = emulation_of(model)
    if own is not None:
        yield own
        return
    emulate_(model, Numerics())
    try:
        emulation = emulation_of(model)
        assert emulation is not None
        yield emulation
    finally:
        restore_(model)


def _shown(runs: "Sequence[tuple[Subject, RoleFormat]]", progress: bool | None) -> "Iterable[Any]":
    if not (sys.stderr.isatty() if progress is None else progress):
        return runs
    from rich.console import Console
    from rich.progress import track

    return track(runs, "formats by layer", console=Console(stderr=True), transient=True)


def _rank(
    trials: Sequence[FormatTrial], metric: SensitivityMetric, threshold: float, lift: bool
) -> Iterator[LayerSensitivity]:
    """The subjects of trials, the most sensitive first; with `lift` the one that comes closest to float32."""
    by_subject: dict[tuple[str, Role | None], list[FormatTrial]] = {}
    for trial in trials:
        by_subject.setdefault(trial.subject, []).append(trial)

    def sensitivity(own: list[FormatTrial]) -> list[float]:
        sizes = [trial.size(metric) for trial in sorted(own, key=lambda trial: trial.bits)]
        return sizes[::-1] if lift else [-size for size in sizes]

    for own in sorted(by_subject.values(), key=sensitivity):
        passing = [trial for trial in own if trial.size(metric) <= threshold]
        best = min(passing, key=lambda trial: (trial.bits, trial.size(metric)), default=None)
        worst = max(trial.size(metric) for trial in own)
        yield LayerSensitivity(
            layer=own[0].layer,
            role=own[0].role,
            narrowest=None if best is None else best.format,
            worst=worst if math.isfinite(worst) else None,
        )
