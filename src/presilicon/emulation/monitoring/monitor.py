"""`monitor`: statistics of an emulated model's tensors while it trains in any loop."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from presilicon.base import ConfigError, to_plain, unknown
from presilicon.designs import Numerics, load_numerics
from presilicon.emulation.attach import emulation_of
from presilicon.emulation.emulation import Emulation
from presilicon.emulation.layer_plan import LayerPlan
from presilicon.emulation.monitoring.recorder import Recorder, Rounding, failures_of
from presilicon.emulation.monitoring.statistics import Measurement, measure
from presilicon.emulation.monitoring.trials import select_layers
from presilicon.formats import parse, short_name
from presilicon.records import DeadUnits, Failure, Limits, MonitoredRole, MonitorReport, ProductPhase, RoleStatistics
from presilicon.workloads import named_layers

_ROLES: tuple[MonitoredRole, ...] = ("weight", "activation", "error", "gradient")
_ALLOWED: tuple[str, ...] = (*_ROLES, "output")
_FLOAT32 = parse("float32")
_LIMITS = Limits()
_MOST_PENDING = 20_000
"""Rows that may wait on a device; more are read, so that a monitor that nobody asks does not grow."""

Key = tuple[str, MonitoredRole, ProductPhase | None]


def monitor(
    model: nn.Module,
    *,
    every: int = 1,
    layers: str | Iterable[str] = "*",
    roles: MonitoredRole | Iterable[MonitoredRole] = _ROLES,
    start: int = 0,
    stop: int | None = None,
    what_if: Numerics | str | Path | None = None,
    limits: Limits = _LIMITS,
) -> "Monitor":
    """Collect statistics of an emulated model's tensors, by layer and role, at every `every`-th training step.

    Monitoring begins at once and ends with `close`, or with the `with` block. It does not change what the model
    computes, and does not wait for the GPU until a report, scalars or the first failure are asked for. Passes that do
    not train (evaluation mode, `torch.no_grad`) are not monitored.

    Args:
        model: a model after `emulate_`.
        every: monitored are the steps whose number is a multiple of it.
        layers: patterns of layer names, as in the overrides of numerics ("blocks.0.*", "first", "last").
        roles: weight, activation, error, gradient; or output, the results of modules without children.
        start: the first step that may be monitored.
        stop: the step before which monitoring ends.
        what_if: numerics, a recipe's name or its file: statistics of what their formats would do to the tensors, which
            the model computes in its own. Float32 layers are then seen too; attention and recurrent layers in float32
            are decomposed in monitored steps, and may differ in the last bit. Delayed scaling is asked about with the
            scale of the tensor itself.
        limits: shares above which overflow and underflow are failures.

    Raises:
        ConfigError: the model is not emulated, a pattern matches no layer, or a number or role is not possible.

    >>> import torch
    >>> from presilicon.emulation import emulate_
    >>> model = emulate_(nn.Sequential(nn.Linear(4, 4)), load_numerics("fp8-hybrid"))
    >>> with monitor(model) as watch:
    ...     model(torch.full((2, 4), 1e4)).sum().backward()
    >>> print(watch.first_failure.message)
    step 0: activations of 0 overflow e4m3fn(overflow=saturate): 100% above 448, largest 1e+04
    """
    emulation = _emulation_of(model)
    chosen = frozenset([roles] if isinstance(roles, str) else roles)
    for role in sorted(chosen - set(_ALLOWED)):
        raise unknown("role", role, _ALLOWED)
    if every < 1 or start < 0 or every % 1 or start % 1:
        raise ConfigError(f"every must be at least 1 and start at least 0, in whole steps, not {every} and {start}")
    if stop is not None and stop <= start:
        raise ConfigError(f"stop must be above start = {start}, not {stop}: no step would be monitored")
    numerics = load_numerics(what_if) if isinstance(what_if, str | Path) else what_if
    if numerics is not None and not isinstance(numerics, Numerics):
        raise ConfigError(f"what_if must be numerics, a recipe's name or its file, not {numerics!r}")
    if not isinstance(limits, Limits):
        raise ConfigError(f"limits must be Limits, as in Limits(overflow=0.01), not {limits!r}")
    if numerics is not None:
        numerics.check_layers((name for name, _ in named_layers(model)), emulation.ends)
    selection = select_layers(layers, model, emulation.ends)
    if not selection or not chosen:
        raise ConfigError("layers and roles must name at least one each: nothing would be monitored")
    return Monitor(emulation, _Choice(selection, chosen, every, start, stop), numerics, limits)


def _emulation_of(model: nn.Module) -> Emulation:
    emulation = emulation_of(model) if isinstance(model, nn.Module) else None
    if emulation is None:
        raise ConfigError(
            f"monitor takes an emulated model, and this {type(model).__name__} is not: call emulate_(model, numerics); "
            'numerics "fp32" change no bit, and what_if="mxfp8" tells what other formats would do'
        )
    return emulation


class _Choice:
    """The layers, roles and steps that a monitor sees."""

    def __init__(
        self, layers: frozenset[str], roles: frozenset[MonitoredRole], every: int, start: int, stop: int | None
    ) -> None:
        self.layers, self.roles = layers, roles
        self._every, self._start, self._stop = every, start, stop

    def has_step(self, step: int) -> bool:
        return step % self._every == 0 and step >= self._start and (self._stop is None or step < self._stop)


class _Totals:
    """Measurements of one role of a layer: over all monitored steps, and in the last of them."""

    def __init__(self, fmt: str) -> None:
        self.format = fmt
        self.tensors, self.step = 0, -1
        self.whole = self.latest = Measurement()

    def add(self, rounding: Rounding, fmt: str) -> None:
        if rounding.step != self.step:
            self.step, self.latest = rounding.step, Measurement()
        self.format = fmt
        self.tensors += 1
        self.whole, self.latest = self.whole.plus(rounding.measurement), self.latest.plus(rounding.measurement)


class Monitor(Recorder):
    """Statistics of an emulated model, from its start until `close`; see `monitor`."""

    sees_all = True
    measures_blocks = True

    def __init__(
        self, emulation: Emulation, choice: _Choice, what_if: Numerics | None = None, limits: Limits = _LIMITS
    ) -> None:
        super().__init__()
        self._emulation, self._choice, self._what_if, self._limits = emulation, choice, what_if, limits
        self._plans: dict[tuple[str, int], LayerPlan] = {}
        self._totals: dict[Key, _Totals] = {}
        self._failures: dict[tuple[Any, ...], Failure] = {}
        self._alive: dict[tuple[str, int], dict[int, Tensor]] = {}
        """Whether each unit was ever nonzero, by layer, number of units and call."""
        self._relus: set[str] = set()
        self._largest: dict[tuple[int, MonitoredRole], float] = {}
        """The largest number in each role of the last step."""
        self._steps: list[int] = []
        self._logged: int | None = None
        emulation.recorders += (self,)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End monitoring; what was collected can still be asked for."""
        self._emulation.recorders = tuple(other for other in self._emulation.recorders if other is not self)

    # Recording

    def is_due(self, step: int) -> bool:
        """Whether a step is monitored."""
        return self._choice.has_step(step)

    def wants(self, layer: str, role: MonitoredRole) -> bool:
        """Whether a role of a layer is monitored."""
        return role in self._choice.roles and layer in self._choice.layers

    def what_if_plan(self, layer: str, step: int) -> LayerPlan | None:
        """The plan of the numerics in question."""
        if self._what_if is None:
            return None
        key = (layer, self._what_if.stage(step))
        if key not in self._plans:
            self._plans[key] = LayerPlan(self._what_if.in_force(layer, step, self._emulation.ends))
        return self._plans[key]

    def see_module(self, step: int, layer: str, module: nn.Module, inputs: Any, output: Any, call: int) -> None:
        """Record whether a module makes numbers that are not finite, its dead units and, if asked for, its output."""
        self._note_step(step)
        super().see_module(step, layer, module, inputs, output, call)
        if isinstance(output, Tensor) and output.is_floating_point() and layer in self._choice.layers:
            has_channels = isinstance(module, _ConvNd | _NormBase) or output.dim() > 3
            if layer not in self._relus:
                self._note_units(layer, output, call, 1 if has_channels and output.dim() > 2 else -1)
            if self.wants(layer, "output"):
                rounding = Rounding(step, layer, "output", None, _FLOAT32)
                self._pending.append((rounding, measure(output, output, _FLOAT32)))

    def see_relu(self, layer: str, output: Tensor, call: int) -> None:
        """Note the dead units of a ReLU that a layer calls as a function."""
        if layer in self._choice.layers:
            self._relus.add(layer)
            self._note_units(layer, output, call, 1 if output.dim() > 3 else -1)

    def _note_units(self, layer: str, output: Tensor, call: int, axis: int) -> None:
        if output.dim() == 0 or output.numel() == 0:
            return
        units = output.detach().movedim(axis, -1)
        alive = (units != 0).reshape(-1, units.shape[-1]).any(0)
        calls = self._alive.setdefault((layer, len(alive)), {})
        calls[call] = alive | calls[call] if call in calls else alive

    def _note_step(self, step: int) -> None:
        if step not in self._steps[-1:]:
            self._steps.append(step)
        if len(self._pending) > _MOST_PENDING:
            self._read()

    def _read(self) -> None:
        """Move what was recorded to the host."""
        entries = list(self.drain())
        for entry in entries:
            if isinstance(entry, Rounding):
                label = short_name(entry.format.along(-1))
                key = (entry.layer, entry.role, entry.product)
                self._totals.setdefault(key, _Totals(label)).add(entry, label)
                kind_of = entry.step, entry.role
                self._largest[kind_of] = max(entry.measurement.largest, self._largest.get(kind_of, 0.0))
        for entry in entries:
            largest = self._largest[entry.step, entry.role] if isinstance(entry, Rounding) else 0.0
            for failure in failures_of(entry, self._limits, largest):
                kind = (failure.layer, failure.role, failure.product, failure.symptom)
                self._failures.setdefault(kind, failure)
        last = self._steps[-1] if self._steps else -1
        self._largest = {key: largest for key, largest in self._largest.items() if key[0] >= last}

    # Results

    @property
    def first_failure(self) -> Failure | None:
        """The first tensor that its format does not hold, or None."""
        self._read()
        return next(iter(self._failures.values()), None)

    def report(self) -> MonitorReport:
        """The statistics over all monitored steps so far; as text, a table."""
        self._read()
        return MonitorReport(
            steps=tuple(self._steps),
            roles=tuple(
                RoleStatistics(
                    layer=layer,
                    role=role,
                    product=product,
                    format=totals.format,
                    tensors=totals.tensors,
                    statistics=totals.whole.statistics(),
                )
                for (layer, role, product), totals in self._totals.items()
            ),
            dead_units=self._dead_units(),
            failures=tuple(self._failures.values()),
        )

    def scalars(self, prefix: str = "") -> dict[str, float]:
        """The statistics of the last monitored step by name, as in "blocks.3.mlp.fc2/activation/sqnr_db".

        Dead units (a share) are those of all monitored steps. Statistics that are not defined are left out.
        """
        self._read()
        last = self._steps[-1] if self._steps else -1
        scalars: dict[str, float] = {}
        for (layer, role, product), totals in self._totals.items():
            if totals.step == last:
                name = "/".join([layer or "(root)", role, *([product] if product else [])])
                scalars |= _numbers(f"{prefix}{name}", totals.latest)
        for entry in self._dead_units():
            scalars[f"{prefix}{entry.layer or '(root)'}/dead_units"] = entry.dead / entry.units
        return scalars

    def _dead_units(self) -> tuple[DeadUnits, ...]:
        """The dead units of each layer; a module that is called twice has as many as two modules."""
        return tuple(
            DeadUnits(layer=layer, dead=sum(int((~alive).sum()) for alive in calls.values()), units=units * len(calls))
            for (layer, units), calls in self._alive.items()
        )

    def log_to(self, writer: Any, step: int | None = None, prefix: str = "") -> bool:
        """Log the scalars of the last monitored step, if they were not yet; returns whether there were any.

        `writer` is TensorBoard's SummaryWriter, a W&B run, or a logger of Lightning. `step` is the number that they are
        logged under, by default that of the monitored step. Costs nothing after a step that is not monitored.
        """
        if not self._steps or self._steps[-1] == self._logged:
            return False
        self._logged = self._steps[-1]
        log_scalars(writer, self.scalars(prefix), self._logged if step is None else step)
        return True


def _numbers(name: str, measurement: Measurement) -> Mapping[str, float]:
    statistics = to_plain(measurement.statistics())
    return {f"{name}/{key}": float(value) for key, value in statistics.items() if value is not None}


def log_scalars(writer: Any, scalars: Mapping[str, float], step: int) -> None:
    """Write scalars of a step to TensorBoard (`add_scalar`), Lightning (`log_metrics`) or W&B (`log`).

    Raises:
        ConfigError: the writer has none of these methods.
    """
    if hasattr(writer, "add_scalar"):
        for name, value in scalars.items():
            writer.add_scalar(name, value, step)
    elif hasattr(writer, "log_metrics"):
        writer.log_metrics(dict(scalars), step)
    elif hasattr(writer, "log"):
        writer.log(dict(scalars), step=step)
    else:
        raise ConfigError(
            f"a writer must have add_scalar (TensorBoard's SummaryWriter), log_metrics (a logger of Lightning) or log "
            f"(a W&B run), and {type(writer).__name__} has none"
        )
