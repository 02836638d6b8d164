"""Scheduling problems: the ops of a graph, each with all modes in which a system can run it."""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Device, Row, System
from presilicon.records import HostInput, Mode, Pool, Problem, Task
from presilicon.scheduling.graphs import Graph, GraphOp

NOMINAL_DIMENSION = {"S": 640, "M": 2048, "L": 5120}
"""Side of the square product that represents each size class, within the bounds of the table's source."""
PRODUCTS = ("MatMul", "Conv2D", "Conv2DBackpropFilter", "Conv2DBackpropInput")
"""Kinds whose work is counted in FLOPs; the work of others is counted in bytes."""
HOST = "host"
"""The pool of gradient sums of replicas."""
MEMORY_SHARE = 0.8
"""Share of the memory bandwidth that an op reaches if it only moves data."""
LIKE: dict[str, tuple[str, float]] = {
    **dict.fromkeys(("Add", "AddN", "Sub", "Div", "BiasAdd", "Sqrt", "Lerp", "Dropout"), ("Mul", 1.0)),
    **dict.fromkeys(("Relu", "Tanh", "Sigmoid", "Gelu", "LeakyRelu"), ("Mul", 1.0)),
    **dict.fromkeys(("ReluGrad", "TanhGrad", "SigmoidGrad", "GeluGrad", "LeakyReluGrad"), ("Mul", 1.0)),
    **dict.fromkeys(("Copy", "Concat", "Gather"), ("Transpose", 1.0)),
    **dict.fromkeys(("Sum", "Mean", "L2Loss", "Loss", "MaxPool", "AvgPool", "GatherGrad"), ("BiasAddGrad", 1.0)),
    **dict.fromkeys(("MaxPoolGrad", "AvgPoolGrad", "LossGrad", "Softmax", "SoftmaxGrad"), ("BiasAddGrad", 1.0)),
    **dict.fromkeys(("BatchNorm", "LayerNorm"), ("BiasAddGrad", 1.5)),
    **dict.fromkeys(("BatchNormGrad", "LayerNormGrad"), ("BiasAddGrad", 2.5)),
}
"""Stand-ins for kinds that are not in the table, if only a size class is known: similar kind, and time factor."""


class OpEstimate(NamedTuple):
    """Time and power of an op on one device, from a simulator or a measurement."""

    time_s: float
    average_w: float
    peak_w: float
    source: str


Costs = Mapping[str, Sequence[OpEstimate | None]]
"""Per device: one entry for each op of the graph."""


def build_problem(
    system: System, graph: Graph, *, transfers: bool = True, optimistic_links: bool = False, relief: float = 1.0,
    costs: Costs | None = None,
) -> Problem:  # fmt: skip
    """A graph's ops with every device and clock that can run them.

    The time of an op comes from `costs` if it is there; else from its row in the table if it has a size class; else
    from interpolation between rows by the op's work; else from a model for kinds that are not in the table. `relief`
    divides the times on the reference device: how much faster its ops run when others have left it. With
    `optimistic_links`, moves over a link do not wait for one another.

    Raises:
        ConfigError: no device can run an op, the table does not have its size class, its power is below idle, or a
            device has several sets of kernels (see `System.configurations`).
    """
    for name, device in system.devices.items():
        if len(device.kernels) > 1:
            raise ConfigError(f"devices.{name} must have one set of kernels here, not {', '.join(device.kernels)}")
    if not 0 < relief < 100:
        raise ConfigError(f"relief must be a factor above 0 and below 100, such as 1.178, not {relief:g}")
    sources: Counter[tuple[str, str]] = Counter()
    tasks: list[Task] = []
    index_of = {op.id: index for index, op in enumerate(graph.ops)}
    sizes = {op.id: op.bytes_out for op in graph.ops}
    count = len(graph.ops)
    for index, op in enumerate(graph.ops):
        modes: list[Mode] = []
        for name in system.devices:
            estimate = costs[name][index] if costs is not None and name in costs else None
            device_modes = _modes(system, op, name, estimate, relief if name == system.reference else 1.0)
            modes += device_modes
            if op.kind not in system.kinds:
                sources.update((op.kind, mode.source) for mode in device_modes[:1] if mode.source == "model")
        if not modes:
            raise ConfigError(_nobody(system, op))
        modes = _fitting(system, op, modes, sizes) if transfers else modes
        deps = tuple(sorted(index_of[dep] for dep in op.deps))
        tasks.append(
            Task(
                id=index,
                kind=op.kind,
                size=op.size,
                bytes_out=op.bytes_out,
                deps=deps,
                next_readers=tuple(sorted(index_of[reader] for reader in op.next_readers)) if transfers else (),
                held_bytes=op.held_bytes,
                modes=tuple(modes),
                name=op.name or str(op.id),
                operator=op.operator,
                shape=op.shape,
            )
        )
    inputs = tuple(
        replace(data, readers=tuple(index_of[reader] for reader in data.readers)) for data in graph.inputs if transfers
    )
    pools = [
        Pool(
            name=name,
            units=device.count,
            idle_w=device.idle_w,
            bytes_per_s=device.bytes_per_s if transfers else None,
            runtime=device.runtime,
            memory_bytes=device.memory_gb * 1e9 if device.memory_gb and transfers else None,
            kernels=next(iter(device.kernels.values()), None),
        )
        for name, device in system.devices.items()
    ]
    if system.replicas > 1:
        summed = {index for index, op in enumerate(graph.ops) if op.gradient and transfers}
        tasks, inputs = _replicated(tasks, inputs, system.replicas, summed)
        if summed:
            if HOST in system.devices:
                raise ConfigError(f"devices.{HOST} needs another name: the {HOST} itself adds up gradients of replicas")
            pools.append(Pool(name=HOST, units=count, idle_w=0.0))
    notes = [*system.notes, *graph.notes]
    if sources:
        kinds = ", ".join(sorted({kind for kind, _ in sources}))
        notes.append(
            f"The table has no rows of {kinds}: they are filled by a model (bytes over {MEMORY_SHARE:.0%} of the "
            "device's memory bandwidth, or like a row of the table; power of the table's memory-bound op)."
        )
    if not transfers:
        notes.append("Moving tensors between devices is free, and memory is not limited.")
    elif not any(device.memory_gb for device in system.devices.values()):
        notes.append("Memory is not limited: no device has memory_gb.")
    if optimistic_links and transfers:
        notes.append("Moves over a link do not wait for one another: on real links they would.")
    if relief != 1.0:
        notes.append(f"Ops on {system.reference} run {relief:g} times as fast as in the table: an input.")
    problem = Problem(
        name=graph.name,
        tasks=tuple(tasks),
        pools=tuple(pools),
        inputs=inputs,
        links_queue=not optimistic_links,
        base_w=system.base_w,
        batch_size=graph.batch_size * system.replicas,
        notes=tuple(notes),
    )
    problem.check()
    return problem


def _replicated(
    tasks: Sequence[Task], inputs: Sequence[HostInput], replicas: int, summed: Collection[int]
) -> tuple[list[Task], tuple[HostInput, ...]]:
    """Copies of a step side by side. Results in `summed` go to the host, which adds them up in no time, and back."""
    number: dict[tuple[int, int], int] = {}
    totals: dict[int, int] = {}
    count = 0
    for task in tasks:
        for copy in range(replicas):
            number[task.id, copy] = count
            count += 1
        if task.id in summed:
            totals[task.id] = count
            count += 1
    copies: list[Task] = []
    for task in tasks:
        for copy in range(replicas):
            deps = tuple(sorted(totals.get(dep, number[dep, copy]) for dep in task.deps))
            readers = tuple(number[reader, copy] for reader in task.next_readers)
            copies.append(replace(task, id=number[task.id, copy], deps=deps, next_readers=readers))
        if task.id in totals:
            total = Mode(device=HOST, time_s=0.0, average_w=0.0, peak_w=0.0, source="model")
            deps = tuple(number[task.id, copy] for copy in range(replicas))
            copies.append(
                Task(id=totals[task.id], kind="GradientSum", bytes_out=task.bytes_out, deps=deps, modes=(total,))
            )
    data = tuple(
        replace(each, readers=tuple(number[reader, copy] for reader in each.readers))
        for each in inputs
        for copy in range(replicas)
    )
    return copies, data


def alone(problem: Problem, device: str) -> Problem:
    """The same step on a system that has only the devices of one pool and the host, without the power of the others.

    Raises:
        ConfigError: the device cannot run an op.
    """
    tasks, kept = [], (device, HOST)
    for task in problem.tasks:
        modes = tuple(mode for mode in task.modes if mode.device in kept)
        if not modes:
            raise ConfigError(f"op {task.name or task.id} ({task.kind} {task.size}): {device} cannot run it")
        tasks.append(replace(task, modes=modes))
    return replace(problem, tasks=tuple(tasks), pools=tuple(pool for pool in problem.pools if pool.name in kept))


def _modes(system: System, op: GraphOp, name: str, estimate: OpEstimate | None, relief: float) -> list[Mode]:
    device = system.devices[name]
    if device.kernels and not any(op.kind in kinds for kinds in device.kernels.values()):
        return []
    if estimate is not None:
        base = Mode(
            device=name,
            time_s=estimate.time_s / relief,
            average_w=estimate.average_w,
            peak_w=estimate.peak_w,
            source=estimate.source,
        )
    else:
        row = _row(system, op, name)
        if row is None:
            return []
        units = device.big_units if op.kind in system.big else min(row.units, device.count)
        # On another number of devices than in the table: the same work, spread evenly.
        share = units / row.units
        base = Mode(
            device=name,
            units=units,
            time_s=row.time_ms / 1e3 / share / relief,
            average_w=row.average_w * share,
            peak_w=row.peak_w * share,
            source=row.source if units == row.units else "model",
        )
    return [_at_clock(base, device, clock) for clock in device.clocks]


def _fitting(system: System, op: GraphOp, modes: list[Mode], sizes: Mapping[int, int]) -> list[Mode]:
    """Modes on devices with memory for the inputs and the result of an op, which are there at the same time."""
    needed = op.bytes_out + op.held_bytes + sum(sizes[dep] for dep in op.deps)
    fitting = [
        mode for mode in modes
        if needed <= (system.devices[mode.device].memory_gb or math.inf) * 1e9 * system.devices[mode.device].count
    ]  # fmt: skip
    if not fitting:
        devices = ((name, system.devices[name]) for name in dict.fromkeys(mode.device for mode in modes))
        memory = ", ".join(f"{name} {device.count} x {device.memory_gb:g} GB" for name, device in devices)
        raise ConfigError(
            f"{op.label}: its inputs and its result need {needed / 1e9:.4g} GB at once, more than there is ({memory}); "
            "use a smaller batch or raise memory_gb"
        )
    return fitting


def _at_clock(mode: Mode, device: Device, clock: float) -> Mode:
    """A mode at a lower clock, by the device's scaling laws for time and power."""
    if clock == 1.0:
        return mode
    idle, share = mode.units * device.idle_w, clock**device.power_exponent
    return replace(
        mode,
        clock=clock,
        time_s=mode.time_s * clock**-device.alpha,
        average_w=idle + (mode.average_w - idle) * share,
        peak_w=idle + (mode.peak_w - idle) * share,
    )


def _row(system: System, op: GraphOp, device: str) -> Row | None:
    """The table's row for an op on a device, interpolated or modelled if needed; None if the device cannot run it."""
    if op.kind in system.kinds:
        row = system.row(op.kind, op.size, device)
        if row is not None:
            return row
        rows = _rows(system, op.kind, device)
        if not rows:
            return None
        work = op.flops if op.kind in PRODUCTS else op.bytes_moved
        if op.size or work is None:
            sizes = ", ".join(rows)
            what = f"not in {op.size}" if op.size else "and the op has no size, flops or bytes_moved"
            raise ConfigError(f"{op.label}: the table has {op.kind} on {device} in {sizes}, {what}")
        return _between(system, op.kind, device, rows, work)
    return _modelled(system, op, device)


def _rows(system: System, kind: str, device: str) -> dict[str, Row]:
    rows = {size: system.row(kind, size, device) for size in NOMINAL_DIMENSION}
    return {size: row for size, row in rows.items() if row is not None}


def class_work(system: System, kind: str, size: str) -> float | None:
    """The work that a row of the table stands for: FLOPs of the nominal product, or the bytes that the row implies.

    The bytes are bandwidth times time on the reference device, if the table gives its memory bandwidth.
    """
    if kind in PRODUCTS:
        return 2.0 * NOMINAL_DIMENSION[size] ** 3
    row = system.row(kind, size, system.reference)
    if row is None or row.bandwidth_gb_s is None:
        return None
    return row.bandwidth_gb_s * 1e9 * row.time_ms / 1e3


def _between(system: System, kind: str, device: str, rows: Mapping[str, Row], work: float) -> Row:
    """A row interpolated at some work: power laws between neighbouring rows for time, logarithmic for power.

    Above the largest row, time grows linearly with the work: at the row's FLOP rate, or at the memory bandwidth. Below
    the smallest row, the first power law continues for products; other ops take as long as the smallest row.
    """
    points = [(class_work(system, kind, size), row) for size, row in rows.items()]
    known = sorted(((point, row) for point, row in points if point), key=lambda item: item[0])
    if not known:
        return replace(next(iter(rows.values())), source="interpolated")
    work = max(work, 1.0)
    below = [index for index, (point, _) in enumerate(known) if point <= work]
    index = min(below[-1] if below else 0, len(known) - 2) if len(known) > 1 else 0
    (low, first), (high, second) = known[index], known[min(index + 1, len(known) - 1)]
    largest, last = known[-1]
    share = math.log(work / low) / math.log(high / low) if high > low else 0.0
    clamped = min(max(share, 0.0), 1.0)
    if work > largest and kind in PRODUCTS:
        time_ms = last.time_ms * work / largest
    elif work > largest:
        time_ms = last.time_ms + _memory_ms(system.devices[device], work - largest, last.units)
    else:
        exponent = share if kind in PRODUCTS else clamped
        time_ms = first.time_ms * (second.time_ms / first.time_ms) ** exponent if first.time_ms else 0.0
    return replace(
        first,
        size="",
        time_ms=time_ms,
        average_w=first.average_w + clamped * (second.average_w - first.average_w),
        peak_w=first.peak_w + clamped * (second.peak_w - first.peak_w),
        source="interpolated",
    )


def _memory_ms(device: Device, moved: float, units: int = 1) -> float:
    rate = device.memory_gb_s or 1.0
    return moved / (rate * 1e9 * MEMORY_SHARE * units) * 1e3


def _modelled(system: System, op: GraphOp, device: str) -> Row | None:
    """A row for a kind that is not in the table; None if no model applies."""
    if op.bytes_moved is not None and system.devices[device].memory_gb_s is not None:
        watts = _memory_watts(system, device, op.bytes_moved)
        return Row(
            kind=op.kind,
            size=op.size,
            device=device,
            time_ms=_memory_ms(system.devices[device], op.bytes_moved),
            average_w=watts[0],
            peak_w=watts[1],
            source="model",
        )
    like = LIKE.get(op.kind)
    row = system.row(like[0], op.size, device) if like is not None else None
    if like is None or row is None:
        return None
    return replace(row, kind=op.kind, time_ms=row.time_ms * like[1], source="model")


def _memory_watts(system: System, device: str, moved: float) -> tuple[float, float]:
    """Average and peak power of an op that only moves data: as BiasAddGrad, or halfway between idle and peak."""
    rows = _rows(system, "BiasAddGrad", device)
    if rows:
        row = _between(system, "BiasAddGrad", device, rows, moved)
        return row.average_w, row.peak_w
    spec = system.devices[device]
    middle = (spec.idle_w + spec.peak_w) / 2
    return middle, middle


def _nobody(system: System, op: GraphOp) -> str:
    devices = ", ".join(system.devices)
    kinds = ", ".join(sorted(system.kinds)) or "no rows at all"
    return (
        f"{op.label}: no device of {system.name} can run it: the table has no row of {op.kind} for {devices}, and no "
        f"model applies. The table has {kinds}; add rows, or give the op bytes_moved"
    )
