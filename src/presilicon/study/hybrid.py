"""From captured training steps to graphs that are scheduled: kinds, sizes, bytes.

`KINDS` says what a torch op is called in a characterization table. The size class of a matrix product is that of its
dimensions; of a convolution it may be read from its tensors or from its im2col product, and the two differ. Or no class
is given, and times are read between the rows of the table at the op's work.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Literal, get_args

from presilicon.base.errors import ConfigError
from presilicon.designs import System, load_design, load_system
from presilicon.records import Op, OpCost, OpKind, Phase, Problem, StepGraph
from presilicon.scheduling.goals import Objective
from presilicon.scheduling.graphs import Graph, GraphOp, joined
from presilicon.scheduling.problems import Costs, Given, build_problem
from presilicon.scheduling.solve import TIME_LIMIT_S, Solution, Solver, solve

Sizing = Literal["work", "tensor", "im2col"]
SIZINGS: tuple[Sizing, ...] = get_args(Sizing)
BYTES_PER_ELEMENT = 4
SMALL, LARGE = 1024, 4096

PUBLISHED_BATCH = {"bert-large": 10}
"""Batch sizes of the publication; 256 for the others."""
MODELS = ("alexnet", "resnet50", "vgg16", "inception-v3", "dcgan", "bert-large")
"""The six that were published."""

KINDS: tuple[tuple[str, str, str, str], ...] = (
    # kind of the record, phase, pattern of the operator, kind of the table
    ("convolution", "forward", "", "Conv2D"),
    ("convolution", "input_grad", "", "Conv2DBackpropInput"),
    ("convolution", "weight_grad", "", "Conv2DBackpropFilter"),
    ("gemm", "", "", "MatMul"),
    ("reduction", "weight_grad", "", "BiasAddGrad"),
    ("reduction", "", "mean", "Mean"),
    ("reduction", "", "", "Sum"),
    ("", "", r"threshold_backward|relu_backward", "ReluGrad"),
    ("", "", r"(gelu|tanh|sigmoid|leaky_relu)_backward", "GeluGrad"),
    ("", "", r"leaky_relu|relu", "Relu"),
    ("", "", r"gelu|tanh|sigmoid", "Gelu"),
    ("normalization", "", r"batch_norm_backward", "BatchNormGrad"),
    ("normalization", "", r"batch_norm", "BatchNorm"),
    ("normalization", "", r"backward", "LayerNormGrad"),
    ("normalization", "", "", "LayerNorm"),
    ("softmax", "", r"backward", "SoftmaxGrad"),
    ("softmax", "", "", "Softmax"),
    ("pooling", "", r"max_pool.*backward", "MaxPoolGrad"),
    ("pooling", "", r"max_pool", "MaxPool"),
    ("pooling", "", r"backward", "AvgPoolGrad"),
    ("pooling", "", "", "AvgPool"),
    ("loss", "", r"backward", "LossGrad"),
    ("loss", "", "", "Loss"),
    ("gather", "", r"backward", "GatherGrad"),
    ("gather", "", "", "Gather"),
    ("random", "", "", "Dropout"),
    ("copy", "", r"clone|transpose|permute|contiguous", "Transpose"),
    ("copy", "", r"cat|stack", "Concat"),
    ("copy", "", "", "Copy"),
    ("", "", r"\.(mul|addcmul)", "Mul"),
    ("", "", r"\.(div|addcdiv)", "Div"),
    ("", "", r"\.add", "Add"),
    ("", "", r"\.sub", "Sub"),
    ("", "", r"\.sqrt", "Sqrt"),
    ("", "", r"\.lerp", "Lerp"),
    ("elementwise", "", "", "Mul"),
    ("optimizer", "", "", "Mul"),
    ("", "", "", "Copy"),
)
"""The first line that fits says what an op is; an empty text fits everything."""


def kind_of(op: Op) -> str:
    """What the table calls an op."""
    return kind_named(op.kind, op.phase, op.operator)


@cache
def kind_named(record: OpKind, phase: Phase, operator: str) -> str:
    """What the table calls an op of that kind, phase and operator.

    >>> kind_named("convolution", "weight_grad", "aten.convolution_backward.default")
    'Conv2DBackpropFilter'
    """
    return next(
        kind
        for wanted, when, pattern, kind in KINDS
        if wanted in ("", record) and when in ("", phase) and re.search(pattern, operator)
    )


def size_of(dimensions: Iterable[int]) -> str:
    """`S` if every dimension is below 1024, `L` if one is above 4096, else `M`.

    The published classes leave holes (4096 itself, dimensions of 256 and less, mixed ones); these have none.

    >>> [size_of(each) for each in ((512, 512, 64), (512, 2048, 512), (8192, 64, 64))]
    ['S', 'M', 'L']
    """
    given = list(dimensions)
    if all(each < SMALL for each in given):
        return "S"
    return "L" if any(each > LARGE for each in given) else "M"


def to_graph(step: StepGraph, *, sizing: Sizing = "work", kinds: Iterable[str] | None = None) -> Graph:
    """The ops of a captured step as a scheduler sees them.

    With `sizing` `work`, ops have no size class and are placed between the rows of a table by FLOPs or bytes. `kinds`
    are those that the table has: only they get a class.
    """
    if sizing not in SIZINGS:
        raise ConfigError(f'sizing is "{sizing}"; allowed: {", ".join(SIZINGS)}')
    known = None if kinds is None else set(kinds)
    ops = []
    for op in step.ops:
        kind = kind_of(op)
        classed = sizing != "work" and (known is None or kind in known)
        ops.append(
            GraphOp(
                id=op.index,
                kind=kind,
                size=size_of(_dimensions(op, sizing)) if classed else "",
                bytes_out=op.elements_out * BYTES_PER_ELEMENT,
                deps=op.depends_on,
                name=op.name,
                flops=op.flops,
                bytes_moved=(op.elements_in + op.elements_out) * BYTES_PER_ELEMENT,
            )
        )
    rule = {
        "work": "Times are read between the rows of the table at each op's FLOPs (products) or bytes (others).",
        "tensor": "Size classes are those of tensor dimensions: S below 1024, L above 4096.",
        "im2col": "Size classes are those of dimensions, for convolutions of their im2col products.",
    }[sizing]
    return Graph(name=step.name, ops=tuple(ops), batch_size=step.batch_size, notes=(rule,))


def _dimensions(op: Op, sizing: Sizing) -> tuple[int, ...]:
    if op.gemm is not None and (op.convolution is None or sizing == "im2col"):
        return op.gemm.m, op.gemm.k, op.gemm.n
    shapes = [tensor.shape for tensor in (*op.inputs, *op.outputs)]
    return tuple(side for shape in shapes for side in shape) or (1,)


def capture_steps(workload: str, batch_size: int | None = None) -> tuple[StepGraph, ...]:
    """What is run for a training step, at the published batch size, the workload's own, or another.

    `dcgan` is a whole step: the discriminator on real samples, on made ones, and the generator through it.
    """
    from presilicon.workloads import capture_workload, load_workload

    names = ("dcgan-discriminator", "dcgan-discriminator", "dcgan-generator") if workload == "dcgan" else (workload,)
    size = batch_size
    if size is None and workload in MODELS:
        size = PUBLISHED_BATCH.get(workload, 256)
    found = {name: capture_workload(load_workload(name), size) for name in dict.fromkeys(names)}
    return tuple(found[name] for name in names)


def graph_of(
    workload: str, batch_size: int | None = None, *, sizing: Sizing = "work", kinds: Iterable[str] | None = None
) -> Graph:
    """A workload's training step as a graph."""
    steps = capture_steps(workload, batch_size)
    return join_steps(workload, steps, sizing, kinds)


def join_steps(workload: str, steps: Sequence[StepGraph], sizing: Sizing, kinds: Iterable[str] | None) -> Graph:
    """Captured steps, run one after another, as one graph."""
    held = None if kinds is None else set(kinds)
    graphs = [to_graph(step, sizing=sizing, kinds=held) for step in steps]
    return graphs[0] if len(graphs) == 1 else joined(workload, graphs, steps[0].batch_size)


def problem_of(
    system: System,
    workload: str,
    batch_size: int | None = None,
    *,
    sizing: Sizing = "work",
    transfers: bool = True,
    relief: float = 1.0,
) -> Problem:
    """A workload's training step on a system: from its table, or from the simulator where a device names a design."""
    steps = capture_steps(workload, batch_size)
    graph = join_steps(workload, steps, sizing, system.kinds)
    costs = simulated_costs(system, steps)
    return build_problem(system, graph, transfers=transfers, relief=relief, costs=costs)


def schedule(
    system: System | str,
    workload: str,
    batch_size: int | None = None,
    *,
    objective: Objective = "energy",
    cap_w: float | None = None,
    solver: Solver = "auto",
    time_limit_s: float = TIME_LIMIT_S,
    sizing: Sizing = "work",
    transfers: bool = True,
) -> Solution:
    """A workload's training step over the devices of a system: `presilicon schedule` in Python.

    >>> found = schedule("v100-3xs10", "digits-mlp", solver="heft")
    >>> found.cost.energy_per_step_j <= found.baseline.cost.energy_per_step_j
    True
    """
    loaded = load_system(system) if isinstance(system, str) else system
    problem = problem_of(loaded, workload, batch_size, sizing=sizing, transfers=transfers)
    return solve(
        problem,
        objective=objective,
        cap_w=cap_w,
        solver=solver,
        time_limit_s=time_limit_s,
        reference=loaded.reference,
    )


def simulated_costs(system: System, steps: Sequence[StepGraph]) -> Costs:
    """For each device that names a design in place of a table: what the simulator says of each op.

    Power is the op's energy over its time above idle, and its peak the same: the simulator knows no finer one.
    """
    from presilicon.simulation import simulate

    found: dict[str, list[Given | None]] = {}
    for name, device in system.devices.items():
        if device.machine is None:
            continue
        design, costs = load_design(device.machine), []
        for step in steps:
            priced = {op.index: op for op in simulate(step, design).ops}
            costs += [_given(priced.get(op.index), device.idle_w) for op in step.ops]
        found[name] = costs
    return found


def _given(op: OpCost | None, idle_w: float) -> Given | None:
    if op is None:
        return None
    watts = idle_w + (op.energy_j / op.time_s if op.time_s else 0.0)
    return Given(op.time_s, watts, watts, "simulated")
