"""Training over several real devices as a schedule says.

plan = ps.schedule("cpu-2xopencl", "digits-cnn", objective="throughput")
with ps.hybrid(model, plan) as run:
    ...  # an ordinary training loop
run.execution.makespan_error
"""

import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from presilicon.base import ConfigError
from presilicon.records import Executed, Execution, Pool, Problem, Schedule, UncoveredOp
from presilicon.scheduling import Executor, Nvml, OpDevice, PowerMeter, Ran, Session, Solution, open_device
from presilicon.study.scheduling import Scheduled
from presilicon.workloads import DeviceOps

Devices = Mapping[str, Sequence[str | OpDevice]]
"""Real devices of each pool, one for each unit: a name, or a device of one's own."""


class HybridWarning(UserWarning):
    """A schedule and what was executed have little in common."""


class Hybrid:
    """A context in which a model trains on the devices of a schedule; `execution` tells afterwards what happened."""

    def __init__(
        self,
        model: nn.Module,
        problem: Problem,
        schedule: Schedule,
        reference: str,
        *,
        devices: Devices | None = None,
        takeover: bool = True,
        mirror: bool = False,
        cap_w: float | None = None,
        meter: PowerMeter | None = None,
        set_clock: Callable[[str, float], None] | None = None,
    ) -> None:
        self.model, self.problem, self.schedule, self.reference = model, problem, schedule, reference
        self.losses: list[float] = []
        """Losses to report, if the training loop appends them."""
        self.plain_losses: list[float] = []
        self.notes: list[str] = []
        self._options: dict[str, Any] = {"takeover": takeover, "mirror": mirror, "cap_w": cap_w, "set_clock": set_clock}
        self._meter, self._given = meter, devices
        self._execution: Execution | None = None
        self._has_ended = False
        self._stack: ExitStack
        self.session: Session

    def __enter__(self) -> "Hybrid":
        with ExitStack() as stack:
            self.devices = open_pools(self.problem.pools, self._given, stack)
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            # Boards that are cores of this machine leave the other cores to torch.
            boards = sum("/" in device.name for device in self.devices.values())
            torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) - boards)))
            executor = Executor(
                self.devices,
                f"{self.reference} 0",
                bytes_per_s={label: self.problem.pool[label.rpartition(" ")[0]].bytes_per_s for label in self.devices},
                sensor_w=None if self._meter is None else _power_reader(self._meter),
                idle_w=self.problem.idle_w,
                **self._options,
            )
            stack.callback(executor.close)
            self.session = Session(self.model, self.problem, self.schedule, executor)
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(DeviceOps())
            stack.enter_context(self.session)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)
        self._has_ended = True
        if self.session.step < 0 and self.session.has_trained:
            warnings.warn(
                "the first op of the schedule never came: it is a schedule of another model or batch size, and its "
                "prediction says nothing about what ran",
                HybridWarning, stacklevel=2,
            )  # fmt: skip

    @property
    def execution(self) -> Execution:
        """The report, when the context has ended."""
        if self._execution is not None:
            return self._execution
        report = _report(self)
        if self._has_ended:
            self._execution = report
        return report


def hybrid(model: nn.Module, schedule: Solution | Scheduled, **options: Any) -> Hybrid:
    """A context in which an unmodified model trains on the devices of a schedule.

    Forward, backward and update follow the schedule; parameters, gradients and optimizer state live where they are used
    and are ordinary tensors again at the end. Ops that the schedule does not know, and ops for which a device has no
    kernel, run on the reference device, which the report says. Inside, `.item()` and the like wait for a value; a plain
    tensor's memory (`.numpy()`) is up to date after `session.synchronize()`.

    Args:
        model: in the host's memory.
        schedule: of a step that was captured from this model at the same batch size.
        options: `devices` (by pool: names as in `opencl:0.0/1`, or objects; by default those of the system file),
            `takeover` (the idle reference device takes ops that wait for a busy device), `mirror` (results are copied
            to the host, so that a device can be lost with its memory), `cap_w` and `meter` (no op is started above the
            cap), `set_clock` (called with a unit and a clock before an op at another clock; clocks stay without it).
    """
    solution = schedule.solution if isinstance(schedule, Scheduled) else schedule
    reference = solution.baseline.name.removesuffix("-only")
    options.setdefault("cap_w", solution.goal.cap_w)
    return Hybrid(model, solution.problem, solution.schedule, reference, **options)


def open_pools(pools: Sequence[Pool], given: Devices | None, stack: ExitStack) -> dict[str, OpDevice]:
    """The devices of all units, by pool and number: `fpga 0`. Those that were opened here are closed with the stack.

    Raises:
        ConfigError: a pool has no real devices, or not one for each unit.
    """
    devices: dict[str, OpDevice] = {}
    for pool in pools:
        names = (given or {}).get(pool.name, pool.runtime)
        if len(names) != pool.units:
            raise ConfigError(
                f"devices.{pool.name}.runtime must name {pool.units} real devices to execute a schedule, not "
                f"{len(names)}; allowed: cpu, cuda:0, opencl:0.0/1, as in --set 'devices.{pool.name}.runtime=[\"cpu\"]'"
            )
        for unit, name in enumerate(names):
            if isinstance(name, str):
                name = open_device(name)
                stack.callback(name.close)
            devices[f"{pool.name} {unit}"] = name
    return devices


class GpuClocks:
    """Sets the clocks of CUDA devices for each op, as a schedule with clock levels says; by unit: `gpu 0`."""

    def __init__(self, cards: Mapping[str, Nvml]) -> None:
        self.cards = dict(cards)

    def __call__(self, unit: str, clock: float) -> None:
        """Set the clock of a unit as a fraction of its highest."""
        card = self.cards.get(unit)
        if card is not None and clock < 1.0:
            card.lock_clock(round(clock * card.highest_clock_mhz()))
        elif card is not None:
            card.unlock_clock()

    def reset(self) -> None:
        """Leave all clocks to the driver."""
        for card in self.cards.values():
            card.unlock_clock()


def gpu_clocks(pools: Sequence[Pool]) -> GpuClocks:
    """The clocks of the CUDA devices of a system.

    Raises:
        MissingToolError: there is none, or NVML does not know it.
    """
    cards = {
        f"{pool.name} {unit}": Nvml(int(name.partition(":")[2] or 0))
        for pool in pools
        for unit, name in enumerate(pool.runtime)
        if name.startswith("cuda")
    }
    if not cards:
        raise ConfigError("--set-clocks: the system has no CUDA device whose clock could be set")
    return GpuClocks(cards)


def _power_reader(meter: PowerMeter) -> Callable[[], float]:
    """Power now: read, derived from the energy counter since the last reading, or as given."""
    if meter.power_w is not None:
        return meter.power_w
    if meter.energy_j is None:
        return lambda: meter.given_w
    counter, last = meter.energy_j, [time.perf_counter(), meter.energy_j(), 0.0]

    def read() -> float:
        now = time.perf_counter()
        if now - last[0] > 1e-3:  # RAPL counts once in a millisecond
            energy = counter()
            last[:] = [now, energy, max(energy - last[1], 0.0) / (now - last[0])]
        return last[2]

    return read


def _report(run: Hybrid) -> Execution:
    session, executor, problem = run.session, run.session.executor, run.problem
    by_step: dict[int, list[Ran]] = {}
    for ran in executor.ran:
        by_step.setdefault(ran.step, []).append(ran)
    spans = {step: last_s - first_s for step, (first_s, last_s) in sorted(executor.spans_s.items())}
    counted = {step: span for step, span in spans.items() if step > 0 or len(spans) == 1}
    # The oldest step that is remembered may have lost jobs.
    whole = sorted(by_step)[1:] if len(executor.ran) == executor.ran.maxlen else by_step
    ordered = sorted((step for step in counted if step in whole), key=lambda step: counted[step])
    shown = ordered[len(ordered) // 2] if ordered else 0
    makespan_s = statistics.median(counted.values()) if counted else 0.0
    predicted_s = run.schedule.makespan_s
    began_s = executor.spans_s.get(shown, (0.0, 0.0))[0]
    captured = {lane: count for (lane, known), count in executor.calls.items() if known}
    away = sum(count for lane, count in captured.items() if lane != executor.reference.label)
    by_device: Counter[str] = Counter()
    for (lane, _), count in executor.calls.items():
        by_device[lane] += count
    return Execution(
        workload=problem.name,
        devices={label: device.name for label, device in run.devices.items()},
        reference=executor.reference.label,
        steps=session.step + 1,
        predicted_makespan_s=predicted_s,
        makespans_s=tuple(spans.values()),
        makespan_s=makespan_s,
        makespan_error=makespan_s / predicted_s - 1 if predicted_s else 0.0,
        ops=len(problem.tasks),
        offloaded=away / sum(captured.values()) if captured else 0.0,
        ops_by_device=dict(by_device),
        takeovers=executor.takeovers,
        shown_step=shown,
        executed=tuple(
            Executed(
                kind=ran.kind, name=problem.tasks[ran.task].name if ran.task >= 0 else ran.name, task=ran.task,
                device=ran.lane, start_s=ran.start_s - began_s, end_s=ran.end_s - began_s, bytes=ran.bytes,
                taken_from=ran.taken_from,
            )
            for ran in by_step.get(shown, ())
        ),
        lost=dict(executor.lost),
        uncovered=tuple(
            UncoveredOp(operator=operator, device=lane, calls=calls)
            for (operator, lane), calls in session.uncovered.most_common()
        ),
        uncaptured=dict(session.unknown),
        losses=tuple(run.losses),
        plain_losses=tuple(run.plain_losses),
        power_source="" if run._meter is None else run._meter.name,
        cap_w=executor.cap_w,
        highest_w=executor.highest_w,
        forced=executor.forced,
        notes=tuple(run.notes),
    )  # fmt: skip
