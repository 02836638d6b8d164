"""A training step divided among cores by data: the share of each op that one core runs, and what it gets from others.

Every tensor is spread evenly over the cores: activations and errors by samples, weights and gradients in any way. A
product C[m, n] = A[m, k] B[k, n] runs on a grid of cores, each with a part of its rows, reduction and columns. What a
core needs and does not own comes over the network; parts of sums go to the cores that own the result. Ops of the
vector unit work on what each core owns.
"""

from functools import lru_cache
from math import ceil
from typing import Any, NamedTuple

from msgspec.structs import replace

from presilicon.records import Gemm, Op, StepGraph, TensorRef
from presilicon.simulation.cores.network import Flow, Network


class CoreGrid(NamedTuple):
    """Cores along the rows, the reduction and the columns of a product, or along a batch of products."""

    m: int = 1
    k: int = 1
    n: int = 1
    batch: int = 1

    @property
    def copies(self) -> tuple[int, int, int]:
        """Cores that need each element of A and of B, and those that have a part of each sum."""
        return self.n, self.m, self.k


ALONE = CoreGrid()


def grid_by_samples(op: Op, cores: int) -> CoreGrid:
    """The grid of a product that is divided by samples: rows, the reduction of a weight gradient, or the batch."""
    assert op.gemm is not None
    if is_batch(op):
        return CoreGrid(batch=cores)
    return CoreGrid(k=cores) if op.phase == "weight_grad" else CoreGrid(m=cores)


def grids(op: Op, cores: int) -> list[CoreGrid]:
    """All grids of a product on all cores, that by samples first; a batch of products is divided as such."""
    first = grid_by_samples(op, cores)
    if is_batch(op):
        return [first]
    divisors = [size for size in range(1, cores + 1) if cores % size == 0]
    others = [CoreGrid(m, k, cores // (m * k)) for m in divisors for k in divisors if cores % (m * k) == 0]
    return [first, *(grid for grid in others if grid != first)]


def is_batch(op: Op) -> bool:
    """Whether it is a batch of products of samples, as in attention."""
    assert op.gemm is not None
    return op.gemm.count > 1 and op.convolution is None and op.phase != "weight_grad"


def share_of_graph(graph: StepGraph, cores: int) -> StepGraph:
    """The parameters and state that a core owns; its ops are made by `share_of_op`."""
    return replace(
        graph,
        batch_size=ceil(graph.batch_size / cores),
        parameters=tuple(_own(tensor, cores) for tensor in graph.parameters),
        state=tuple(_own(tensor, cores) for tensor in graph.state),
    )


def share_of_op(op: Op, cores: int, grid: CoreGrid) -> Op:
    """The share of an op that the busiest core runs, with the part of its tensors that it owns."""
    return replace(
        op,
        inputs=tuple(_own(tensor, cores) for tensor in op.inputs),
        outputs=tuple(_own(tensor, cores) for tensor in op.outputs),
        flops=ceil(op.flops / cores),
        gemm=None if op.gemm is None else share_of_gemm(op.gemm, grid),
    )


def share_of_gemm(gemm: Gemm, grid: CoreGrid) -> Gemm:
    """The largest part of a product that a core of a grid computes."""
    sides = zip((gemm.m, gemm.k, gemm.n, gemm.count), grid, strict=True)
    return Gemm(*(ceil(size / cores) for size, cores in sides))


def _own(tensor: TensorRef, cores: int) -> TensorRef:
    return TensorRef(tensor.id, (ceil(tensor.elements / cores),), tensor.role)


class Traffic(NamedTuple):
    """Traffic for one byte of A, of B, and of the sums of a product."""

    links: tuple[Any, Any, Any]
    """Bytes on each link."""
    received: tuple[float, float, float]
    """Bytes that cores receive; parts of sums count where they are sent."""


@lru_cache(maxsize=1 << 12)
def traffic_of(network: Network, grid: CoreGrid, *, sums_samples: bool) -> tuple[Traffic, ...]:
    """The loads of a product on a grid, for each way to lay its grid on the cores.

    Cores that own neighbouring samples are neighbours, so the axis of samples is outermost: the rows, or the reduction
    of a product that `sums_samples`. A whole operand has one byte.
    """
    if grid.batch > 1:
        return (Traffic((network.loads(()),) * 3, (0.0, 0.0, 0.0)),)
    orders = ("kmn", "knm") if sums_samples else ("mkn", "mnk")
    layouts = []
    for order in orders:
        left, right, sums = flows_of(network.count, grid, order)
        received = _received(left), _received(right), _received(sums)
        layouts.append(Traffic((network.loads(left), network.loads(right), network.loads(sums)), received))
    return tuple(layouts)


def _received(flows: list[Flow]) -> float:
    return sum(flow.size * len(flow.targets) for flow in flows)


def flows_of(cores: int, grid: CoreGrid, order: str) -> tuple[list[Flow], list[Flow], list[Flow]]:
    """The flows of A, B and the sums on a grid whose axes are laid on the cores in an order, outermost first.

    Each core owns the same part of every tensor. What it owns of samples goes, cut along the other axis, to the cores
    with the same samples that need the part; what it owns of weights to those with the same part of the weights.
    """
    samples = order[0]
    cells = [_cell(core, order, grid) for core in range(cores)]
    left, right, sums = ("m", "k"), ("k", "n"), ("m", "n")
    return (
        _flows(cells, grid, left, samples),
        _flows(cells, grid, right, samples),
        _flows(cells, grid, sums, samples, summed=True),
    )


def _cell(core: int, order: str, grid: CoreGrid) -> dict[str, int]:
    """The position of a core along each axis of a grid."""
    cell = {}
    for axis in reversed(order):
        core, cell[axis] = divmod(core, getattr(grid, axis))
    return cell


def _flows(
    cells: list[dict[str, int]], grid: CoreGrid, axes: tuple[str, str], samples: str, *, summed: bool = False
) -> list[Flow]:
    """Flows of a tensor with two axes; a tensor without the axis of samples is owned by the cores that need it."""
    sharers: dict[tuple[int, ...], list[int]] = {}
    for core, cell in enumerate(cells):
        sharers.setdefault(tuple(cell[axis] for axis in axes), []).append(core)
    cut = next((axis for axis in axes if axis != samples), "") if samples in axes else ""
    parts = getattr(grid, cut) if cut else 1
    flows = []
    for core, cell in enumerate(cells):
        for part in range(parts):
            wanted = tuple(part if axis == cut else cell[axis] for axis in axes)
            targets = tuple(other for other in sharers[wanted] if other != core)
            if targets:
                flows.append(Flow(core, targets, 1 / (len(cells) * parts), summed))
    return flows
