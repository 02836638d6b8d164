"""Training over several real devices as a schedule says: `ps.hybrid` and `presilicon schedule --execute`.

    plan = ps.schedule("cpu-2xopencl", "digits-cnn", objective="throughput")
    with ps.hybrid(model, plan) as run:
        ...  # an ordinary training loop
    run.execution.makespan_error

`execute` also measures: it trains a few steps on each kind of device, through the same runtime, and schedules with the
times of the ops and of the links that it has seen.
"""

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError, MissingToolError, format_seconds
from presilicon.designs import System
from presilicon.records import (
    Executed,
    Execution,
    Mode,
    Pool,
    Problem,
    Schedule,
    Started,
    Task,
    UncoveredOp,
)
from presilicon.scheduling import (
    Executor,
    Graph,
    OpDevice,
    OpEstimate,
    Progress,
    Ran,
    Session,
    Solution,
    build_problem,
    cost,
    open_device,
    retimed,
)
from presilicon.study.cards.nvml import Nvml
from presilicon.study.characterization import Meter, find_meter
from presilicon.study.scheduling import (
    Scheduled,
    ScheduleRequest,
    capture_steps,
    join_steps,
    solve_problem,
)
from presilicon.workloads import WholeDropout, Workload, load_workload

TRIAL_STEPS, MOST_TRIAL_STEPS, TRIAL_S = 9, 60, 1.5
"""Steps from which times are taken, without the first: at least nine, and more until 1.5 s have passed."""

Devices = Mapping[str, Sequence[str | OpDevice]]
"""Real devices of each pool, one for each unit: a name, or a device of one's own."""


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
        meter: Meter | None = None,
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
            stack.enter_context(WholeDropout())
            stack.enter_context(self.session)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._stack.__exit__(*exception)

    @property
    def execution(self) -> Execution:
        """The report, when the context has ended."""
        if self._execution is None:
            self._execution = _report(self)
        return self._execution


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


def _power_reader(meter: Meter) -> Callable[[], float]:
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


class Training:
    """The plain training loop of a workload, without its learning-rate schedule, clipping and augmentation."""

    def __init__(self, workload: Workload, batch_size: int, seed: int = 0) -> None:
        if workload.accumulate > 1:
            raise ConfigError(f'workload "{workload.name}" adds up gradients of micro-batches, which is not executed')
        torch.manual_seed(seed)
        self.workload, self.model = workload, workload.model()
        self.optimizer = workload.optimizer(self.model.parameters())
        self._generator = torch.Generator().manual_seed(seed)
        self._train = workload.require_data()[0]().train if workload.can_evaluate else None
        self._example = workload.batch(batch_size)
        self._size = batch_size

    def batches(self, steps: int) -> Iterator[tuple[Any, Any]]:
        """Batches of the training split, or random ones in their shapes."""
        for _ in range(steps):
            if isinstance(self._train, tuple):
                inputs, targets = self._train
                rows = torch.randint(0, len(inputs), (self._size,), generator=self._generator)
                yield inputs[rows], targets[rows]
            else:
                inputs, targets = (pytree.tree_map(self._random, part) for part in self._example)
                yield inputs, targets

    def _random(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.dtype.is_floating_point:
            return torch.rand(value.shape, generator=self._generator)
        return torch.randint(0, 2, value.shape, dtype=value.dtype, generator=self._generator)

    def run(self, steps: int) -> Iterator[float]:
        """Train, and yield the loss of each step."""
        for inputs, targets in self.batches(steps):
            self.optimizer.zero_grad(set_to_none=True)
            if isinstance(inputs, dict):
                output = self.model(**inputs)
            else:
                output = self.model(*(inputs if isinstance(inputs, tuple) else (inputs,)))
            loss = self.workload.loss(output, targets)
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
            yield loss.item()


class Calibration(NamedTuple):
    """Measured times of ops and links."""

    op_s: dict[str, list[float | None]]
    """By pool: the time of each op; None where the pool's device has no kernel for it."""
    latency_s: dict[str, float]
    """Time of an empty move over a pool's link."""
    bytes_per_s: dict[str, float]


def calibrate(
    system: System, graph: Graph, workload: Workload, batch_size: int, devices: Devices | None = None
) -> Calibration:
    """Times of the ops and moves of a step, from a few training steps on one unit of each pool in turn."""
    calibration = Calibration({}, {}, {})
    pools = tuple(
        Pool(name=name, units=device.count, idle_w=0.0, runtime=device.runtime)
        for name, device in system.devices.items()
    )
    for name in system.devices:
        problem, schedule = everything_on(graph, pools, name)
        options = ExecuteOptions(devices=devices, takeover=False)
        trial, _ = _trial(problem, schedule, system.reference, workload, batch_size, options)
        calibration.op_s[name] = [None] * len(problem.tasks)
        _learn(calibration, problem, trial)
    return calibration


def _trial(
    problem: Problem,
    schedule: Schedule,
    reference: str,
    workload: Workload,
    batch_size: int,
    options: "ExecuteOptions",
) -> tuple[list[Ran], float]:
    """Jobs of a few training steps by a schedule, without the first step, and the median of their makespans."""
    training = Training(workload, batch_size)
    with Hybrid(
        training.model, problem, schedule, reference, devices=options.devices, takeover=options.takeover
    ) as run:
        began = time.perf_counter()
        for number, _ in enumerate(training.run(MOST_TRIAL_STEPS), 1):
            if number >= TRIAL_STEPS and time.perf_counter() - began > TRIAL_S:
                break
    spans = [last_s - first_s for step, (first_s, last_s) in run.session.executor.spans_s.items() if step > 0]
    return [ran for ran in run.session.executor.ran if ran.step > 0], statistics.median(spans)


def _learn(calibration: Calibration, problem: Problem, trial: Sequence[Ran]) -> None:
    """Replace times by the means of those seen in a trial."""
    for (task, pool), times in effective_times(problem, trial).items():
        calibration.op_s[pool][task] = statistics.fmean(times)
    moves: dict[str, list[tuple[int, float]]] = {}
    for ran in trial:
        if ran.kind != "op" and ran.bytes:
            moves.setdefault(ran.lane.rpartition(" ")[0], []).append((ran.bytes, ran.end_s - ran.start_s))
    for pool, seen in moves.items():
        calibration.latency_s[pool], calibration.bytes_per_s[pool] = fit_link(seen)


def effective_times(problem: Problem, trial: Sequence[Ran]) -> dict[tuple[int, str], list[float]]:
    """By task and pool: how long each call kept its device, from when its inputs and the device were there to its end.

    This includes what the program and the runtime themselves take to start it.
    """
    found: dict[tuple[int, str], list[float]] = {}
    ended: dict[tuple[int, int], float] = {}
    arrived: dict[tuple[int, int, str], float] = {}
    free: dict[str, float] = {}
    began: dict[int, float] = {}
    for ran in sorted(trial, key=lambda ran: ran.end_s):
        began[ran.step] = min(began.get(ran.step, ran.start_s), ran.start_s)
    for ran in sorted(trial, key=lambda ran: ran.end_s):
        if ran.kind == "in":
            arrived[ran.step, ran.task, ran.lane] = ran.end_s
            continue
        if ran.kind == "out" or ran.task < 0:
            continue
        deps = problem.tasks[ran.task].deps
        inputs = [arrived.get((ran.step, dep, ran.lane), ended.get((ran.step, dep), 0.0)) for dep in deps]
        ready_s = max([began[ran.step], free.get(ran.lane, 0.0), *inputs])
        found.setdefault((ran.task, ran.lane.rpartition(" ")[0]), []).append(max(ran.end_s - ready_s, 0.0))
        free[ran.lane] = ended[ran.step, ran.task] = ran.end_s
    return found


def fit_link(moves: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Latency and bandwidth of moves of (bytes, seconds): a line through the medians of small and large ones.

    >>> latency_s, bytes_per_s = fit_link([(1000, 2e-3), (1000, 2e-3), (2000, 3e-3)])
    >>> round(latency_s, 6), round(bytes_per_s)
    (0.001, 1000000)
    """
    sizes = sorted({size for size, _ in moves})
    medians = [(size, statistics.median(spent for other, spent in moves if other == size)) for size in sizes]
    middle = len(medians) // 2
    small, large = medians[: middle or 1], medians[middle:]
    (low, low_s), (high, high_s) = (
        (statistics.fmean(size for size, _ in part), statistics.fmean(spent for _, spent in part))
        for part in (small, large)
    )
    slope = (high_s - low_s) / (high - low) if high > low and high_s > low_s else 0.0
    latency_s = max(low_s - slope * low, 0.0)
    return latency_s, 1 / slope if slope else 1e12


def everything_on(graph: Graph, pools: tuple[Pool, ...], name: str) -> tuple[Problem, Schedule]:
    """A schedule with every op on the first unit of a pool, in the order of the graph."""
    mode = Mode(device=name, time_s=0.0, average_w=0.0, peak_w=0.0)
    index_of = {op.id: index for index, op in enumerate(graph.ops)}
    tasks = tuple(
        Task(id=index, kind=op.kind, deps=tuple(index_of[dep] for dep in op.deps), modes=(mode,), name=op.name,
             operator=op.operator, shape=op.shape)
        for index, op in enumerate(graph.ops)
    )  # fmt: skip
    started = tuple(Started(index, mode, (0,), float(index)) for index in range(len(tasks)))
    problem = Problem(name=graph.name, tasks=tasks, pools=pools, batch_size=graph.batch_size)
    return problem, Schedule(solver="calibration", started=started)


def measured_problem(system: System, graph: Graph, calibration: Calibration, factor: float = 1.0) -> Problem:
    """The scheduling problem of a step with measured times, which all take `factor` times as long.

    The power of an op is that of its busy device.
    """
    costs = {}
    for name, times in calibration.op_s.items():
        watts = system.devices[name].peak_w
        costs[name] = [
            None if time_s is None else OpEstimate(factor * time_s, watts, watts, "measured") for time_s in times
        ]
    links = {
        name: replace(device, bytes_per_s=calibration.bytes_per_s.get(name)) for name, device in system.devices.items()
    }
    problem = build_problem(replace(system, devices=links), graph, costs=costs)
    # A latency is as many bytes more; the slowest link decides.
    extra = max((calibration.latency_s[name] * rate for name, rate in calibration.bytes_per_s.items()), default=0.0)
    tasks = []
    for task in problem.tasks:
        modes = tuple(mode for mode in task.modes if calibration.op_s[mode.device][task.id] is not None)
        tasks.append(replace(task, modes=modes, bytes_out=task.bytes_out + round(extra) if task.bytes_out else 0))
    inputs = tuple(replace(data, bytes=data.bytes + round(extra)) for data in problem.inputs)
    note = "Times of ops and links were measured on this machine through the runtime; powers are the devices' peaks."
    return replace(problem, tasks=tuple(tasks), inputs=inputs, notes=(*system.notes, note))


@dataclass(frozen=True, kw_only=True)
class ExecuteOptions:
    """How a schedule is executed."""

    steps: int = 50
    measure: bool = True
    """Whether to measure ops and links here first, instead of using the system's table."""
    trials: int = 2
    """Trials of the schedule, from whose times it is made again."""
    takeover: bool = True
    mirror: bool = False
    compare: bool = True
    """Whether to train the same steps with plain torch too, to compare the losses."""
    devices: Devices | None = None
    watts: float | None = None
    """Power of the system for the cap, if it cannot be read."""
    set_clocks: bool = False
    """Whether to set the clocks of GPUs as the schedule says."""


def execute(
    request: ScheduleRequest, options: ExecuteOptions | None = None, progress: Progress | None = None
) -> tuple[Scheduled, Execution]:
    """Schedule a workload's step and train by the schedule: `presilicon schedule --execute` in Python."""
    options = options or ExecuteOptions()
    request.check()
    if request.workload is None:
        raise ConfigError("--execute needs --workload: a graph has no model that could be trained")
    if options.steps < 1:
        raise ConfigError(f"--steps must be at least 1, not {options.steps}")
    system = request.load_system()
    if system.replicas > 1:
        raise ConfigError("--execute trains one copy of a model; give a system without replicas")
    pools = [Pool(name=name, units=1, idle_w=0.0, runtime=device.runtime) for name, device in system.devices.items()]
    clocks = gpu_clocks(pools) if options.set_clocks else None
    steps = capture_steps(request.workload, request.batch_size)
    if len(steps) > 1:
        raise ConfigError(f"{request.workload} is a step of several models, which cannot be executed")
    workload, batch_size = load_workload(request.workload), steps[0].batch_size
    graph = join_steps(request.workload, steps, request.sizing, system.kinds)
    if options.measure:
        scheduled = _measured_schedule(request, system, graph, workload, batch_size, options, progress)
    else:
        scheduled = solve_problem(request, system, None, progress)
    solution = scheduled.solution
    plain = list(Training(workload, batch_size).run(options.steps)) if options.compare else []
    training = Training(workload, batch_size)
    meter = _meter_under_cap(request.cap_w, solution.problem, options.watts)
    run = Hybrid(
        training.model, solution.problem, solution.schedule, system.reference, devices=options.devices,
        takeover=options.takeover, mirror=options.mirror, cap_w=request.cap_w, meter=meter, set_clock=clocks,
    )  # fmt: skip
    try:
        with run:
            run.losses += training.run(options.steps)
    finally:
        if clocks is not None:
            clocks.reset()
    run.plain_losses += plain
    if request.cap_w is not None and meter is None:
        run.notes.append("No power sensor can be read here: the cap is kept by the powers of the table, a model.")
    return scheduled, run.execution


def _measured_schedule(
    request: ScheduleRequest,
    system: System,
    graph: Graph,
    workload: Workload,
    batch_size: int,
    options: ExecuteOptions,
    progress: Progress | None,
) -> Scheduled:
    """A schedule from measured times of ops alone, re-timed by trials of the schedule itself, in which ops share cores.

    All trials but the last also choose devices again. What the last one takes beyond the re-timed schedule (ops are
    kept waiting by others at random) lengthens all ops by one factor.
    """
    calibration = calibrate(system, graph, workload, batch_size, options.devices)
    scheduled = solve_problem(request, system, measured_problem(system, graph, calibration), progress)
    alone_s = scheduled.solution.schedule.makespan_s
    for left in reversed(range(options.trials)):
        schedule = scheduled.solution.schedule
        trial, trial_s = _trial(scheduled.solution.problem, schedule, system.reference, workload, batch_size, options)
        _learn(calibration, scheduled.solution.problem, trial)
        if left:
            scheduled = solve_problem(request, system, measured_problem(system, graph, calibration), progress)
    if not options.trials:
        return scheduled
    factor = 1.0
    for _ in range(2):
        problem = measured_problem(system, graph, calibration, factor)
        modes = [_same_mode(task, slot.mode) for task, slot in zip(problem.tasks, schedule.started, strict=True)]
        final = retimed(problem, schedule, modes)
        factor *= trial_s / final.makespan_s
    note = (
        f"With times of ops measured alone, a step was predicted to take {format_seconds(alone_s)}; this prediction "
        "has the times of a trial of this placement."
    )
    solution = replace(
        scheduled.solution,
        problem=problem,
        cost=cost(problem, final, cap_w=request.cap_w),
        schedule=final,
        notes=(*scheduled.solution.notes, note),
    )
    return scheduled._replace(solution=solution)


def _same_mode(task: Task, mode: Mode) -> Mode:
    """The mode of a task with the same device, units and clock as another."""
    wanted = mode.device, mode.units, mode.clock
    return next(each for each in task.modes if (each.device, each.units, each.clock) == wanted)


def _meter_under_cap(cap_w: float | None, problem: Problem, watts: float | None) -> Meter | None:
    """The sensor of a system under a cap: NVML for CUDA devices, else RAPL; None if nothing can be read."""
    if cap_w is None:
        return None
    uses_cuda = any(name.startswith("cuda") for pool in problem.pools for name in pool.runtime)
    try:
        return find_meter("cuda" if uses_cuda else "cpu", watts)
    except MissingToolError:
        return None
