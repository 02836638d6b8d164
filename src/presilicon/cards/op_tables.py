"""Measured characterization tables: the ops of a workload's training step on this machine's device."""

import re
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from presilicon.base import ConfigError, MissingToolError, to_plain, to_toml
from presilicon.designs import Characterization, Row
from presilicon.ops import describe_operator
from presilicon.records import OpKind, Phase
from presilicon.scheduling import Nvml, OpDevice, PowerMeter, find_meter, kind_named, open_device, size_class
from presilicon.workloads import Workload, load_workload

HOLD_S = 0.1
"""Shortest time for which an op is repeated to measure its power."""


class _Call(NamedTuple):
    kind: str
    size: str
    time_s: float
    again: Callable[[], Any]
    nbytes: int
    """Bytes of all operands and results."""
    operations: int
    """Arithmetic operations and elements moved."""


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

    On an OpenCL device, operands are copied to it first, and a launch and the wait for it are timed; ops that it has no
    kernels for have no rows. The bandwidth is that of all operands and results. No counter of instructions can be read
    everywhere, so `ipc` is derived: arithmetic operations and elements moved, per cycle of the device's clock.

    Raises:
        MissingToolError: there is no such device, or nothing reads its power and `watts` is not given.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise MissingToolError("there is no CUDA device here; give --device cpu")
    if repeats < 1:
        raise ConfigError(f"repeats must be at least 1, not {repeats}")
    opened = open_device(device) if device not in ("cpu", "cuda") else None
    meter = find_meter(device, watts)
    loaded = load_workload(workload)
    clock = _timed(loaded, batch_size or loaded.batch_size, device, repeats, opened)
    what, clock_hz = _describe(device, opened)
    calls = clock.calls
    groups: dict[tuple[str, str], list[_Call]] = {}
    for call in calls:
        groups.setdefault((call.kind, call.size), []).append(call)
    rows = []
    for (kind, size), members in sorted(groups.items()):
        average, peak = _power(members[0], meter, clock)
        time_s = statistics.median(call.time_s for call in members)
        rows.append(
            Row(
                kind=kind,
                size=size,
                device=name or {"cuda": "gpu", "cpu": "cpu"}.get(device, "opencl"),
                time_ms=float(f"{time_s * 1e3:.6g}"),
                average_w=float(f"{average:.5g}"),
                peak_w=float(f"{max(average, peak):.5g}"),
                bandwidth_gb_s=float(f"{statistics.median(c.nbytes / c.time_s for c in members) / 1e9:.4g}"),
                ipc=float(f"{statistics.median(c.operations / c.time_s for c in members) / clock_hz:.4g}"),
                source="measured",
            )
        )
    if opened is not None:
        opened.close()
    left = f"; no kernels for {', '.join(sorted(clock.uncovered))}" if clock.uncovered else ""
    return Characterization(
        name=f"{workload}-{name or device}",
        source=f"measured: {workload}, batch {batch_size or loaded.batch_size}, {what}, power by {meter.name}; "
        f"ipc is derived: operations and elements moved per cycle of {clock_hz / 1e6:.0f} MHz{left}",
        rows=tuple(rows),
    )


def _describe(device: str, opened: Any) -> tuple[str, float]:
    """The device in words, and its clock in Hz."""
    if opened is not None:
        info = opened.board.info
        units = f"{opened.board.units} of {info.compute_units} compute units"
        return f"{opened.name}, {info.device} ({info.platform}), {units}", info.clock_mhz * 1e6
    if device == "cuda":
        return torch.cuda.get_device_name(), Nvml(torch.cuda.current_device()).highest_clock_mhz() * 1e6
    cpu_info = Path("/proc/cpuinfo")
    found = re.search(r"cpu MHz\s*:\s*([\d.]+)", cpu_info.read_text() if cpu_info.exists() else "")
    return f"CPU, {torch.get_num_threads()} threads", float(found[1]) * 1e6 if found else 1e9


def to_table(characterization: Characterization) -> str:
    """A characterization as the TOML file that a system names in `table`."""
    return to_toml(to_plain(characterization))


def _timed(workload: Workload, batch_size: int, device: str, repeats: int, opened: OpDevice | None) -> "_Clock":
    home = device if opened is None else "cpu"  # of the step; an OpenCL device is handed copies
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = workload.model().to(home)
        inputs, targets = (
            pytree.tree_map(lambda value: _synthetic(value, home), part) for part in workload.batch(batch_size)
        )
        optimizer = workload.optimizer(model.parameters())
        clock = _Clock(device, opened)
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
    return clock


def _synthetic(value: Any, device: str) -> Any:
    """Random numbers in the shape of a meta tensor; integers are zeros, which are valid indices for any table."""
    if not isinstance(value, Tensor):
        return value
    if value.dtype.is_floating_point:
        return torch.rand(value.shape, dtype=value.dtype, device=device)
    return torch.zeros(value.shape, dtype=value.dtype, device=device)


class _Clock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Times every operator that does any work."""

    def __init__(self, device: str, opened: OpDevice | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.opened = device, opened
        self.uncovered: set[str] = set()
        self.phase: Phase = "forward"
        self.recording = False
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = describe_operator(func)
        if operator.free or (func.is_view and not operator.mutable) or not (self.recording or self.opened):
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
        opened = self.opened
        if opened is None:
            again = partial(func, *args, **kwargs)
        else:
            if not opened.covers(func, args, kwargs):
                self.uncovered |= {str(func)} if func.namespace == "aten" else set()
                return func(*args, **kwargs)
            there = pytree.tree_map_only(Tensor, opened.put, (args, kwargs))

            again = partial(opened.run, func, *there)
        self.wait()
        began = time.perf_counter()
        result = again()
        self.wait()
        spent = time.perf_counter() - began
        if opened is not None:
            result = func(*args, **kwargs)
        if self.recording:
            tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs, result)) if isinstance(leaf, Tensor)]
            sides = [side for tensor in tensors for side in tensor.shape] or [1]
            nbytes, moved = sum(t.nbytes for t in tensors), sum(t.numel() for t in tensors)
            operations = moved + _flops(func, args, kwargs, result)
            named = kind_named(kind, phase, str(func))
            self.calls.append(_Call(named, size_class(sides), spent, again, nbytes, operations))
        return result

    def wait(self) -> None:
        """Wait for the device."""
        if self.opened is not None:
            self.opened.synchronize()
        elif self.device == "cuda":
            torch.cuda.synchronize()


def _flops(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    """FLOPs of a call: of products as PyTorch counts them, one per result of anything else."""
    count = flop_registry.get(func.overloadpacket)
    if count is None:
        return sum(leaf.numel() for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor))
    return int(count(*args, **kwargs, out_val=result))


def _power(call: _Call, meter: PowerMeter, clock: _Clock) -> tuple[float, float]:
    """Average and peak power while an op is repeated."""
    if meter.energy_j is None:
        return meter.given_w, meter.given_w
    with torch.no_grad():
        _repeat(call, clock, meter.settle_s, None)
        began, before = time.perf_counter(), meter.energy_j()
        highest = _repeat(call, clock, max(HOLD_S, meter.settle_s), meter.power_w)
        spent = time.perf_counter() - began
        average = max(meter.energy_j() - before, 0.0) / spent
    return average, max(highest, average)


def _repeat(call: _Call, clock: _Clock, seconds: float, power_w: Callable[[], float] | None) -> float:
    """Repeat an op for that many seconds; returns the highest power reading."""
    began, highest = time.perf_counter(), 0.0
    while time.perf_counter() - began < seconds:
        for _ in range(max(1, min(200, int(0.005 / max(call.time_s, 1e-6))))):
            call.again()
        clock.wait()
        if power_w is not None:
            highest = max(highest, power_w())
    return highest
