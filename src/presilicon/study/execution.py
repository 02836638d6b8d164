"""Measured schedules and their execution: `presilicon schedule --execute`.

A few training steps on each kind of device, through the same runtime that executes, give the times of ops and links.
The schedule is made with them, tried, and followed.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from msgspec.structs import replace
from torch import Tensor
from torch.utils import _pytree as pytree

from presilicon.base import ConfigError, MissingToolError, format_seconds
from presilicon.designs import System
from presilicon.records import Execution, Mode, Pool, Problem, Schedule, Started, Task
from presilicon.scheduling import (
    Graph,
    OpEstimate,
    PowerMeter,
    Progress,
    Ran,
    build_problem,
    check_watts,
    cost,
    find_meter,
    retimed,
)
from presilicon.study.hybrid_context import Devices, Hybrid, gpu_clocks
from presilicon.study.options import ExecutionOptions
from presilicon.study.scheduling import Scheduled, ScheduleRequest, capture_steps, join_steps, solve_problem
from presilicon.workloads import Workload, load_workload

TRIAL_STEPS, MOST_TRIAL_STEPS, TRIAL_S = 9, 60, 1.5
"""Steps from which times are taken, without the first: at least nine, and more until 1.5 s have passed."""


class PlainTraining:
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
    problem: Problem, schedule: Schedule, reference: str, workload: Workload, batch_size: int, options: "ExecuteOptions"
) -> tuple[list[Ran], float]:  # fmt: skip
    """Jobs of a few training steps by a schedule, without the first step, and the median of their makespans."""
    training = PlainTraining(workload, batch_size)
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


class ExecuteOptions(ExecutionOptions, frozen=True, kw_only=True):
    """How a schedule is executed."""

    trials: int = 2
    """Trials of the schedule, from whose times it is made again."""
    compare: bool = True
    """Whether to train the same steps with plain torch too, to compare the losses."""
    devices: Devices | None = None


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
    if options.watts is not None and request.cap_w is None:
        raise ConfigError("--watts is for --execute with --power-cap")
    check_watts(options.watts)
    is_plain = request.transfers and request.relief == 1.0 and not request.optimistic_links
    if options.measure and not (is_plain and all(len(device.kernels) < 2 for device in system.devices.values())):
        raise ConfigError(
            "--relief, --no-transfers, --optimistic-links and sets of kernels go with a table's times; add --no-measure"
        )
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
    plain = list(PlainTraining(workload, batch_size).run(options.steps)) if options.compare else []
    training = PlainTraining(workload, batch_size)
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
    request: ScheduleRequest, system: System, graph: Graph, workload: Workload, batch_size: int,
    options: ExecuteOptions, progress: Progress | None,
) -> Scheduled:  # fmt: skip
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


def _meter_under_cap(cap_w: float | None, problem: Problem, watts: float | None) -> PowerMeter | None:
    """The sensor of a system under a cap: NVML for CUDA devices, else RAPL; None if nothing can be read."""
    if cap_w is None:
        return None
    uses_cuda = any(name.startswith("cuda") for pool in problem.pools for name in pool.runtime)
    try:
        return find_meter("cuda" if uses_cuda else "cpu", watts)
    except MissingToolError:
        return None
