"""Scheduling a training step over several devices: `ps.schedule` and `presilicon schedule` are the same call.

The size class of a matrix product follows from its dimensions; that of a convolution may be taken from its tensors or
from its im2col product, and the two differ. Without a class, times are interpolated between the rows of the table by
the op's work.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, get_args

from msgspec.structs import replace

from presilicon.base import ConfigError, format_seconds
from presilicon.designs import System, load_design, load_system
from presilicon.records import HostInput, Op, OpCost, Problem, StepGraph
from presilicon.scheduling import (
    Costs,
    Graph,
    GraphOp,
    OpEstimate,
    Plausibility,
    Progress,
    Rules,
    Solution,
    build_problem,
    candidates,
    joined,
    kind_of,
    read_graph,
    size_class,
    solve_best,
)
from presilicon.simulation import simulate
from presilicon.study.options import ScheduleOptions, Sizing
from presilicon.workloads import load_workload, step_graph

SIZINGS: tuple[Sizing, ...] = get_args(Sizing)
BYTES_PER_ELEMENT = 4

PUBLISHED_BATCH = {"bert-large": 10}
"""Batch sizes of the publication; 256 for the others."""
MODELS = ("alexnet", "resnet50", "vgg16", "inception-v3", "dcgan", "bert-large")
"""The six that were published."""


def to_graph(step: StepGraph, *, sizing: Sizing = "work", kinds: Iterable[str] | None = None) -> Graph:
    """The ops of a captured step as a scheduler sees them.

    With `sizing` `work`, ops have no size class and are placed between the rows of a table by FLOPs or bytes. `kinds`
    are those that the table has: only they get a class.
    """
    if sizing not in SIZINGS:
        raise ConfigError(f'sizing is "{sizing}"; allowed: {", ".join(SIZINGS)}')
    known = None if kinds is None else set(kinds)
    ops, (next_readers, held) = [], _kept(step)
    updated = {dep for op in step.ops if op.phase == "update" for dep in op.depends_on}
    gradients = {op.index for op in step.ops if op.phase == "weight_grad" and op.index in updated}
    for op in step.ops:
        kind = kind_of(op)
        classed = sizing != "work" and (known is None or kind in known)
        ops.append(
            GraphOp(
                id=op.index,
                kind=kind,
                size=size_class(_dimensions(op, sizing)) if classed else "",
                bytes_out=op.elements_out * BYTES_PER_ELEMENT,
                deps=op.depends_on,
                next_readers=next_readers.get(op.index, ()),
                held_bytes=held.get(op.index, 0),
                gradient=op.index in gradients,
                name=op.name,
                flops=op.flops,
                bytes_moved=(op.elements_in + op.elements_out) * BYTES_PER_ELEMENT,
                operator=op.operator,
                shape=op.outputs[0].shape if op.outputs else (),
            )
        )
    rule = {
        "work": "Times are read between the rows of the table at each op's FLOPs (products) or bytes (others).",
        "tensor": "Size classes are those of tensor dimensions: S below 1024, L above 4096.",
        "im2col": "Size classes are those of dimensions, for convolutions of their im2col products.",
    }[sizing]
    return Graph(name=step.name, ops=tuple(ops), batch_size=step.batch_size, inputs=_inputs(step), notes=(rule,))


def _kept(step: StepGraph) -> tuple[dict[int, tuple[int, ...]], dict[int, int]]:
    """By the op that writes a tensor last: who reads it before, and so in the next step; bytes only it reads itself."""
    readers: dict[int, list[int]] = {}
    writer: dict[int, int] = {}
    size: dict[int, int] = {}
    for op in step.ops:
        for tensor in op.inputs:
            if tensor.id not in writer:
                readers.setdefault(tensor.id, []).append(op.index)
        writer |= {tensor.id: op.index for tensor in op.outputs}
        size |= {tensor.id: tensor.elements * BYTES_PER_ELEMENT for tensor in op.outputs}
    found: dict[int, set[int]] = {}
    held: dict[int, int] = {}
    for storage, last in writer.items():
        others = set(readers.get(storage, ())) - {last}
        found.setdefault(last, set()).update(others)
        if last in readers.get(storage, ()) and not others:
            held[last] = held.get(last, 0) + size[storage]
    return {last: tuple(sorted(ops)) for last, ops in found.items() if ops}, held


def _inputs(step: StepGraph) -> tuple[HostInput, ...]:
    """Tensors that no op writes and that are no parameters: the batch."""
    written = {tensor.id for op in step.ops for tensor in op.outputs}
    readers: dict[int, list[int]] = {}
    size: dict[int, int] = {}
    for op in step.ops:
        for tensor in op.inputs:
            if tensor.id not in written and tensor.role == "activation":
                readers.setdefault(tensor.id, []).append(op.index)
                width = tensor.integer_bits // 8 if tensor.integer_bits else BYTES_PER_ELEMENT
                size[tensor.id] = max(size.get(tensor.id, 0), tensor.elements * width)
    return tuple(HostInput(bytes=size[tensor], readers=tuple(dict.fromkeys(ops))) for tensor, ops in readers.items())


def _dimensions(op: Op, sizing: Sizing) -> tuple[int, ...]:
    if op.gemm is not None and (op.convolution is None or sizing == "im2col"):
        return op.gemm.m, op.gemm.k, op.gemm.n
    shapes = [tensor.shape for tensor in (*op.inputs, *op.outputs)]
    return tuple(side for shape in shapes for side in shape) or (1,)


def capture_steps(workload: str, batch_size: int | None = None) -> tuple[StepGraph, ...]:
    """The captured steps that make up one training step, at the given, the published or the workload's own batch size.

    `dcgan` is a whole step: the discriminator on real samples, on generated ones, and the generator through it.
    """
    names = ("dcgan-discriminator", "dcgan-discriminator", "dcgan-generator") if workload == "dcgan" else (workload,)
    size = batch_size
    if size is None and workload in MODELS:
        size = PUBLISHED_BATCH.get(workload, 256)
    steps = {name: step_graph(load_workload(name), size) for name in dict.fromkeys(names)}
    return tuple(steps[name] for name in names)


def join_steps(workload: str, steps: Sequence[StepGraph], sizing: Sizing, kinds: Iterable[str] | None) -> Graph:
    """Captured steps, run one after another, as one graph."""
    held = None if kinds is None else set(kinds)
    graphs = [to_graph(step, sizing=sizing, kinds=held) for step in steps]
    return graphs[0] if len(graphs) == 1 else joined(workload, graphs, steps[0].batch_size)


_PUBLISHED: dict[str, Any] = {
    "takes_all": True, "small_ops": False, "moves": "in", "repair": "none", "sensor": "average",
}  # fmt: skip
"""The greedy rules to the letter."""
_SOLVED = ("objective", "cap_w", "limit_s", "solver", "time_limit_s", "sample_s", "lag_s", "seed")
"""Options of a request that are the solver's."""


class ScheduleRequest(ScheduleOptions, frozen=True, kw_only=True):
    """Everything that decides a schedule. Either `workload` or `graph` names the step."""

    system: System | str

    def check(self) -> None:
        """Refuse combinations that make no sense.

        Raises:
            ConfigError: says what to change.
        """
        if (self.workload is None) == (self.graph is None):
            raise ConfigError("give either --workload NAME or --graph FILE.json")
        if self.graph is not None and self.batch_size is not None:
            raise ConfigError('--batch is for --workload; a graph may have a "batch_size" of its own')
        if self.allow_parts and self.graph is None:
            raise ConfigError("--allow-parts is for --graph")
        if self.limit_s is not None and self.objective != "energy":
            raise ConfigError("--max-time is for --objective energy")
        if not 0 < self.time_limit_s < 1e9:
            raise ConfigError(f"--time-limit must be a number of seconds above 0, not {self.time_limit_s:g}")
        if self.cap_w is not None and not 0 < self.cap_w < 1e9:
            raise ConfigError(f"--power-cap must be a number of watts above 0, not {self.cap_w:g}")

    def batch_of_copy(self, system: System) -> int | None:
        """Samples of each copy of the model; None for the workload's own.

        Raises:
            ConfigError: the copies cannot share the batch evenly.
        """
        if self.batch_size is None or self.batch_size % system.replicas == 0:
            return None if self.batch_size is None else self.batch_size // system.replicas
        lower = self.batch_size // system.replicas * system.replicas
        choices = " or ".join(str(size) for size in (lower, lower + system.replicas) if size)
        raise ConfigError(
            f"{system.name}: {system.replicas} copies of the model cannot share a batch of {self.batch_size} samples "
            f"evenly; --batch counts the samples of all copies: try {choices}"
        )

    def load_system(self) -> System:
        """The system with the settings applied."""
        return load_system(self.system, self.settings) if isinstance(self.system, str) else self.system


class Scheduled(NamedTuple):
    """A solved request."""

    system: System
    solution: Solution
    op_ids: tuple[int, ...]
    """The ids of the ops in the workload or graph, for one copy of the model."""


def schedule(
    system: System | str,
    workload: str | None = None,
    batch_size: int | None = None,
    *,
    progress: Progress | None = None,
    **options: Any,
) -> Solution:
    """A workload's training step over the devices of a system: `presilicon schedule` in Python.

    `options` are the other fields of `ScheduleRequest`: `objective`, `cap_w`, `solver`, `graph` and so on.

    >>> solution = schedule("v100-3xs10", "digits-mlp", solver="heft")
    >>> solution.cost.energy_per_step_j <= solution.baseline.cost.energy_per_step_j
    True
    """
    request = ScheduleRequest(system=system, workload=workload, batch_size=batch_size, **options)
    return carry_out_schedule(request, progress).solution


def carry_out_schedule(request: ScheduleRequest, progress: Progress | None = None) -> Scheduled:
    """Build the scheduling problem of a request and solve it."""
    request.check()
    return solve_problem(request, request.load_system(), None, progress)


def solve_problem(
    request: ScheduleRequest, system: System, problem: Problem | None, progress: Progress | None = None
) -> Scheduled:
    """Solve a request for a system; `problem` replaces the one that the request describes."""
    built = [] if problem is None else [(system, problem, problem, tuple(range(len(problem.tasks))))]
    refused = None
    for configuration in system.configurations() if problem is None else ():
        try:
            built.append((configuration, *_problems(configuration, request)))
        except ConfigError as error:
            refused = refused or error
    if not built:
        raise refused or ConfigError(f"{system.name} has no configuration")
    others = [name for name in built[0][0].devices if name != system.reference]
    movable = None
    if request.candidate_rule != "all" and others:
        movable = candidates(built[0][0], built[0][1], request.candidate_rule, others[0])
    design_s = _time_of_design(system, request) if problem is None else None
    solution = solve_best(
        [problem for _, problem, _, _ in built],
        plains=[plain for _, _, plain, _ in built],
        reference=system.reference,
        candidates=movable,
        rules=Rules(reference=system.reference, **(_PUBLISHED if request.literal else {"sensor": "peak"})),
        progress=progress,
        **{name: getattr(request, name) for name in _SOLVED},
    )
    chosen = next(each for each, own, _, _ in built if own is solution.problem)
    notes = (*solution.notes, *_reconfigurations(system, solution), *_comparison_notes(solution))
    if problem is None:
        baseline, design = solution.baseline, system.devices[system.reference].like
        if design is not None and design_s is not None:
            found = Plausibility(
                baseline=baseline.name, baseline_s=baseline.cost.makespan_s, design=design, design_s=design_s
            )
            solution = replace(solution, plausibility=found)
        notes += tuple(_plausibility_notes(system, request, solution))
    return Scheduled(chosen, replace(solution, notes=notes), built[0][3])


def _time_of_design(system: System, request: ScheduleRequest) -> float | None:
    """Time of a step on the design that the reference device should be like; None if there is nothing to compare."""
    device = system.devices[system.reference]
    if device.like is None or device.machine is not None or request.workload is None:
        return None
    design = load_design(device.like)
    return sum(simulate(step, design).time_s for step in capture_steps(request.workload, request.batch_of_copy(system)))


def _comparison_notes(solution: Solution) -> Iterator[str]:
    """Which baseline a saving under a cap is relative to."""
    goal, baseline, compared = solution.goal, solution.baseline.name, solution.compared
    if compared is None:
        yield f"warning: no baseline keeps the cap of {goal.cap_w:g} W, so that there is no saving to state"
    elif compared is not solution.baseline:
        late = f", although slower than the limit of {format_seconds(goal.limit_s)}" if goal.limit_s else ""
        yield (
            f"{baseline} does not keep the cap of {goal.cap_w:g} W: savings are against {compared.name}, the best "
            f"baseline that does{late if goal.is_late(compared.cost) else ''}"
        )


def _plausibility_notes(system: System, request: ScheduleRequest, solution: Solution) -> Iterator[str]:
    """Why a saving may say nothing about real devices: a baseline too slow or too fast, or one that was not checked."""
    found, device, baseline = solution.plausibility, system.devices[system.reference], solution.baseline.name
    if found is not None and not found.is_plausible:
        yield (
            f"warning: implausible baseline: {baseline} takes {found.time_ratio:.3g} times as long as the design "
            f"{found.design} ({format_seconds(found.baseline_s)}, not {format_seconds(found.design_s)}), and a saving "
            f"against it is not one against a real device; try --set devices.{system.reference}.machine={found.design}"
        )
    elif found is None and device.machine is None:
        graph = "the ops of a graph have no shapes"
        reason = f"devices.{system.reference}.like names no design" if request.graph is None else graph
        yield f"whether {baseline} is as fast as a real device was not checked: {reason}"


def _reconfigurations(system: System, solution: Solution) -> Iterator[str]:
    """Sentences on schedules whose boards would change their kernels within a step.

    The next step begins with the same kernels, so that a board that changes them loads two sets in every step.
    """
    longest_s = solution.goal.limit_s or solution.schedule.makespan_s
    for name, device in system.devices.items():
        if len(device.kernels) < 2:
            continue
        if device.reconfigure_s is None:
            yield f"{name} keeps its kernels for the whole training; give reconfigure_s to see whether it must"
        elif 2 * device.reconfigure_s >= longest_s:
            yield (
                f"{name} keeps its kernels: to load others and the first ones again takes {2 * device.reconfigure_s:g} "
                f"s in each step, and no schedule may take longer than {longest_s:.3g} s"
            )
        else:
            yield (
                f"warning: {name} could load other kernels within a step (twice {device.reconfigure_s:g} s of "
                f"{longest_s:.3g} s); such schedules were not searched, and the bound does not hold for them"
            )


def problem_of(system: System, workload: str, batch_size: int | None = None, **options: Any) -> Problem:
    """The scheduling problem of a workload's training step on a system; `options` are fields of `ScheduleRequest`."""
    return _problems(system, ScheduleRequest(system=system, workload=workload, batch_size=batch_size, **options))[0]


def _problems(system: System, request: ScheduleRequest) -> tuple[Problem, Problem, tuple[int, ...]]:
    """The problem, the same without relief, and the ids of its ops.

    Costs come from the system's table, or from the simulator where a device names a design.
    """
    costs: Costs | None = None
    if request.graph is not None:
        graph = read_graph(request.graph, parts=request.allow_parts)
    else:
        assert request.workload is not None
        steps = capture_steps(request.workload, request.batch_of_copy(system))
        graph = join_steps(request.workload, steps, request.sizing, system.kinds)
        costs = simulated_costs(system, steps)
    moves = {"transfers": request.transfers, "optimistic_links": request.optimistic_links}
    plain = problem = build_problem(system, graph, costs=costs, **moves)
    if request.relief != 1.0:
        problem = build_problem(system, graph, relief=request.relief, costs=costs, **moves)
    return problem, plain, tuple(op.id for op in graph.ops)


def simulated_costs(system: System, steps: Sequence[StepGraph]) -> Costs:
    """The simulator's cost of each op, for each device that names a design in place of a table.

    Power is the op's energy over its time above idle, and its peak is the same: the simulator gives no finer one.
    """
    costs: dict[str, list[OpEstimate | None]] = {}
    for name, device in system.devices.items():
        if device.machine is None:
            continue
        design, costs[name] = load_design(device.machine), []
        for step in steps:
            priced = {op.index: op for op in simulate(step, design).ops}
            costs[name] += [_estimate(priced.get(op.index), device.idle_w) for op in step.ops]
    return costs


def _estimate(op: OpCost | None, idle_w: float) -> OpEstimate | None:
    if op is None:
        return None
    watts = idle_w + (op.energy_j / op.time_s if op.time_s else 0.0)
    return OpEstimate(op.time_s, watts, watts, "simulated")
