"""Measured characterization tables: the ops of a workload's training step on this machine's device."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from presilicon.base import ConfigError, MissingToolError, to_plain, to_toml
from presilicon.designs import Characterization, Row
from presilicon.records import OpKind, Phase
from presilicon.study.cards.nvml import Nvml
from presilicon.study.scheduling import kind_named, size_of
from presilicon.workloads import Workload, describe_operator, load_workload

HOLD_S = 0.1
"""Shortest time for which an op is repeated to measure its power."""
NVML_S = 0.3
"""Time during which NVML's counter still reflects earlier work; an op is repeated for as long again."""


class Meter(NamedTuple):
    """A power meter of a device."""

    name: str
    energy_j: Callable[[], float] | None
    """A counter that only rises; None if the power is given."""
    power_w: Callable[[], float] | None = None
    given_w: float = 0.0
    settle_s: float = 0.0
    """Time until readings reflect what is running."""


class _Call(NamedTuple):
    kind: str
    size: str
    time_s: float
    again: Callable[[], Any]


def characterize(
    workload: str,
    *,
    device: str = "cpu",
    name: str | None = None,
    batch_size: int | None = None,
    repeats: int = 3,
    watts: float | None = None,
) -> Characterization:
    """Time, average and peak power of every kind and size of op in a workload's step on a device.

    The step runs on synthetic data: one step to warm up, then `repeats` steps that are timed op by op. Times are
    medians over the ops of a kind and size. To measure power, one op of each is repeated while an energy counter is
    read (NVML on CUDA, RAPL on a CPU); without a counter, `watts` is used.

    Raises:
        MissingToolError: there is no such device, or nothing reads its power and `watts` is not given.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingToolError("there is no CUDA device here; give --device cpu")
    if repeats < 1:
        raise ConfigError(f"repeats must be at least 1, not {repeats}")
    meter = find_meter(device, watts)
    loaded = load_workload(workload)
    calls = _timed(loaded, batch_size or loaded.batch_size, device, repeats)
    groups: dict[tuple[str, str], list[_Call]] = {}
    for call in calls:
        groups.setdefault((call.kind, call.size), []).append(call)
    rows = []
    for (kind, size), members in sorted(groups.items()):
        average, peak = _power(members[0], meter, device)
        rows.append(
            Row(
                kind=kind,
                size=size,
                device=name or ("gpu" if device == "cuda" else "cpu"),
                time_ms=float(f"{statistics.median(call.time_s for call in members) * 1e3:.6g}"),
                average_w=float(f"{average:.5g}"),
                peak_w=float(f"{max(average, peak):.5g}"),
                source="measured",
            )
        )
    what = torch.cuda.get_device_name() if device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    return Characterization(
        name=f"{workload}-{name or device}",
        source=f"measured: {workload}, batch {batch_size or loaded.batch_size}, {what}, power by {meter.name}",
        rows=tuple(rows),
    )


def find_meter(device: str, watts: float | None) -> Meter:
    """The power meter of a device: `watts` if given, else NVML or RAPL."""
    if watts is not None:
        if not 0 <= watts < 1e6:
            raise ConfigError(f"watts must be at least 0, not {watts:g}")
        return Meter(f"the user, {watts:g} W", None, given_w=watts)
    if device == "cuda":
        nvml = Nvml(torch.cuda.current_device())
        return Meter("NVML", nvml.joules, nvml.watts, settle_s=NVML_S)
    counters = [path for path in Path("/sys/class/powercap").glob("intel-rapl:?/energy_uj") if _readable(path)]
    if not counters:
        raise MissingToolError("this CPU's power cannot be read (no RAPL counter); give its power with --watts")
    return Meter("RAPL", lambda: sum(int(path.read_text()) for path in counters) / 1e6)


def _readable(path: Path) -> bool:
    try:
        path.read_text()
    except OSError:
        return False
    return True


def to_table(characterization: Characterization) -> str:
    """A characterization as the TOML file that a system names in `table`."""
    return to_toml(to_plain(characterization))


def _timed(workload: Workload, batch_size: int, device: str, repeats: int) -> list[_Call]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = workload.model().to(device)
        inputs, targets = (
            pytree.tree_map(lambda value: _synthetic(value, device), part) for part in workload.batch(batch_size)
        )
        optimizer = workload.optimizer(model.parameters())
        clock = _Clock(device)
        for step in range(repeats + 1):
            clock.recording = step > 0
            optimizer.zero_grad(set_to_none=True)
            with clock:
                clock.phase = "forward"
                called = inputs if isinstance(inputs, tuple) else (inputs,)
                output = model(**inputs) if isinstance(inputs, dict) else model(*called)
                loss = workload.loss(output, targets)
                clock.phase = "input_grad"
                loss.backward()  # type: ignore[no-untyped-call]
                clock.phase = "update"
                optimizer.step()
    return clock.calls


def _synthetic(value: Any, device: str) -> Any:
    """Random numbers in the shape of a meta tensor; integers are zeros, which are valid indices for any table."""
    if not isinstance(value, Tensor):
        return value
    if value.dtype.is_floating_point:
        return torch.rand(value.shape, dtype=value.dtype, device=device)
    return torch.zeros(value.shape, dtype=value.dtype, device=device)


class _Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times every operator that does any work."""

    def __init__(self, device: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device = device
        self.phase: Phase = "forward"
        self.recording = False
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = describe_operator(func)
        if not self.recording or operator.free or (func.is_view and not operator.mutable):
            return func(*args, **kwargs)
        if operator.name == "convolution_backward":
            # Its two gradients are two ops.
            gradients: tuple[Phase, ...] = ("input_grad", "weight_grad")
            for index, gradient in enumerate(gradients):
                if args[10][index]:
                    mask = [position == index for position in range(3)]
                    self._record(operator.kind, gradient, func, (*args[:10], mask), kwargs)
            return func(*args, **kwargs)
        phase: Phase = self.phase
        if operator.kind == "reduction" and phase == "input_grad":
            phase = "weight_grad"  # sums in the backward pass are those of biases
        return self._record(operator.kind, phase, func, args, kwargs)

    def _record(self, kind: OpKind, phase: Phase, func: Any, args: Any, kwargs: Any) -> Any:
        with _timing(self.device) as spent:
            result = func(*args, **kwargs)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
        sides = [side for tensor in tensors for side in tensor.shape] or [1]
        named = kind_named(kind, phase, str(func))
        self.calls.append(_Call(named, size_of(sides), spent[0], lambda: func(*args, **kwargs)))
        return result


@contextmanager
def _timing(device: str) -> Iterator[list[float]]:
    if device == "cuda":
        torch.cuda.synchronize()
    spent = [0.0]
    began = time.perf_counter()
    yield spent
    if device == "cuda":
        torch.cuda.synchronize()
    spent[0] = time.perf_counter() - began


def _power(call: _Call, meter: Meter, device: str) -> tuple[float, float]:
    """Average and peak power while an op is repeated."""
    if meter.energy_j is None:
        return meter.given_w, meter.given_w
    with torch.no_grad():
        _repeat(call, device, meter.settle_s, None)
        began, before = time.perf_counter(), meter.energy_j()
        highest = _repeat(call, device, max(HOLD_S, meter.settle_s), meter.power_w)
        spent = time.perf_counter() - began
        average = max(meter.energy_j() - before, 0.0) / spent
    return average, max(highest, average)


def _repeat(call: _Call, device: str, seconds: float, power_w: Callable[[], float] | None) -> float:
    """Repeat an op for that many seconds; returns the highest power reading."""
    began, highest = time.perf_counter(), 0.0
    while time.perf_counter() - began < seconds:
        for _ in range(max(1, min(200, int(0.005 / max(call.time_s, 1e-6))))):
            call.again()
        if device == "cuda":
            torch.cuda.synchronize()
        if power_w is not None:
            highest = max(highest, power_w())
    return highest
