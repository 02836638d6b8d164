"""Eyeriss on the convolutions of AlexNet: the chip's own mappings, and ours, against what was measured."""

from collections.abc import Iterator
from math import ceil, prod
from typing import NamedTuple

from presilicon.designs import load_design
from presilicon.records import Convolution, Gemm, Op, Reproduced, Reproduction, StepGraph, TensorRef
from presilicon.simulation import (
    Contraction,
    Loop,
    MappedArray,
    Mapping,
    Precision,
    Store,
    Tensor,
    check_mapping,
    price_mapping,
    simulate,
)
from presilicon_evidence.reproductions.verdicts import Rows, Statement, conclude, spread, stated

_BATCH, _CLOCK_HZ = 4, 200e6
_TOTAL = "all layers: latency, the chip's mapping"
_NEAR, _EQUAL = 0.15, 0.01
"""Parts of published figures by which ours may differ: times and traffic, and counts."""
_FILTER_BITS = 64
"""Width of the network that brings filters to the cells."""


class Layer(NamedTuple):
    """A convolution of AlexNet with its mapping (the paper's Table III) and its figures (Table V)."""

    name: str
    inputs: int
    """Rows and columns, with padding."""
    kernel: int
    outputs: int
    channels: int
    """Of one group."""
    filters: int
    stride: int
    groups: int
    held: int
    """The paper's m: output channels whose sums the global buffer holds."""
    images: int
    """n: images of a pass."""
    interleaved: tuple[int, int]
    """p and q: filters and channels of a cell."""
    spatial: tuple[tuple[Loop, ...], tuple[Loop, ...]]
    """Loops along the rows and columns of the array: e, r, t and the segments of Fig. 5."""
    cells: int
    latency_ms: float
    """Processing latency, DRAM traffic overlapped."""
    buffer_mb: float


def _rows(*loops: tuple[str, int]) -> tuple[Loop, ...]:
    return tuple(Loop(dim, count) for dim, count in loops)  # type: ignore[arg-type]


LAYERS = (
    Layer("CONV1", 227, 11, 55, 3, 96, 4, 1, 96, 1, (16, 1), (_rows(("r", 11)), _rows(("y", 7), ("k", 2))),
          154, 16.5, 18.5),
    Layer("CONV2", 31, 5, 27, 48, 256, 1, 2, 64, 1, (16, 2), (_rows(("r", 5), ("y", 2)), _rows(("y", 14))),
          135, 39.2, 77.6),
    Layer("CONV3", 15, 3, 13, 256, 384, 1, 1, 64, 4, (16, 4), (_rows(("r", 3), ("k", 4)), _rows(("y", 13))),
          156, 21.8, 50.2),
    Layer("CONV4", 15, 3, 13, 192, 384, 1, 2, 64, 4, (16, 3), (_rows(("r", 3), ("k", 2), ("c", 2)), _rows(("y", 13))),
          156, 16.0, 37.4),
    Layer("CONV5", 15, 3, 13, 192, 256, 1, 2, 64, 4, (16, 3), (_rows(("r", 3), ("k", 2), ("c", 2)), _rows(("y", 13))),
          156, 10.0, 24.9),
)  # fmt: skip

_INPUTS: frozenset[Tensor] = frozenset(("X",))
_WEIGHTS: frozenset[Tensor] = frozenset(("W",))
_SUMS: frozenset[Tensor] = frozenset(("Y",))
CHIP = MappedArray(
    axes=(12, 14),
    stores=(
        Store(name="ifmap pads", holds=_INPUTS, bits=12 * 16, serves=frozenset()),
        Store(name="filter pads", holds=_WEIGHTS, bits=224 * 16, serves=frozenset()),
        Store(name="psum pads", holds=_SUMS, bits=24 * 16, serves=frozenset()),
        Store(name="ifmap banks", holds=_INPUTS, bits=100 * 8192, read_bits=16),
        Store(name="psum banks", holds=_SUMS, bits=100 * 8192, read_bits=64, write_bits=64),
        Store(name="dram", holds=_INPUTS | _WEIGHTS | _SUMS),
    ),
)
"""Scratchpads, the banks of the global buffer with the widths of their networks, and DRAM that overlaps with all."""


def reproduce() -> Reproduction:
    """Cells in use, latency and accesses of the global buffer by the chip's mappings; latency by ours."""
    rows = (*_by_published_mappings(), *_by_own_mappings())
    return Reproduction(
        name="eyeriss",
        title="Eyeriss: row-stationary convolutions of AlexNet",
        source="Y.-H. Chen et al., Eyeriss, IEEE JSSC 52(1), 2017: Tables III and V, of which we have read a scan and "
        "whose totals we have checked; text of the paper for widths and capacities",
        rows=rows,
        assumptions=(
            "Cells wait while the filters of a pass are loaded, 64 bits in a cycle; the paper names this as one of "
            "three reasons why the chip stays below its peak. Everything else overlaps, as in its processing latency.",
            "Sums are 16 bits wide, as in the chip. The global buffer is counted on both of its sides.",
            "For CONV3, 64 passes over its channels move its sums through the buffer more often than Table V says.",
            "DRAM traffic is not compared: the chip compresses activations by their zeros, which we do not know.",
        ),
        verdict=conclude(statements, rows),
    )


def statements(rows: Rows) -> Iterator[Statement]:
    """Tables III and V: cells, latencies, and accesses of the global buffer."""
    yield stated("cells in use by the chip's mappings", rows.like("cells that compute"), _EQUAL)
    yield stated("latencies by the chip's mappings", rows.like("latency, the chip's mapping"), _NEAR)
    yield stated("latencies by our mappings, which wait for filters in the same way", rows.like("our mapping"), _NEAR)
    buffer = rows.like("global buffer")
    outside = [row for row in buffer if abs(row.difference or 0.0) > _NEAR or row.ours is None]
    names = ", ".join(f"{row.quantity.partition(':')[0]} {row.difference or 0.0:+.0%}" for row in outside) or "none"
    yield Statement(
        not outside, f"accesses of the global buffer, within {_NEAR:.0%}", f"{spread(buffer, _NEAR)}; outside: {names}"
    )


def _by_published_mappings() -> Iterator[Reproduced]:
    total = 0.0
    for layer in LAYERS:
        problem, mapping = problem_of(layer), mapping_of(layer)
        precision = Precision(bits={"X": 16, "W": 16, "Y": 16}, sum_bits=16)
        check_mapping(problem, CHIP, mapping, precision)
        price = price_mapping(problem, CHIP, mapping, precision)
        ramp = sum(
            transfer.times * ceil(transfer.read / _FILTER_BITS)
            for transfer in price.transfers
            if transfer.tensor == "W" and transfer.lower is not None
        )
        latency_ms = (price.cycles + ramp) / _CLOCK_HZ * 1e3
        total += latency_ms
        moved = sum(sum(price.traffic[index]) for index in (3, 4)) / 8e6
        for quantity, unit, published, ours in (
            ("cells that compute", "", layer.cells, problem.macs / price.compute_cycles),
            ("latency, the chip's mapping", "ms", layer.latency_ms, latency_ms),
            ("global buffer", "MB", layer.buffer_mb, moved),
        ):
            yield Reproduced(f"{layer.name}: {quantity}", unit, published, ours)
    published = sum(layer.latency_ms for layer in LAYERS)
    yield Reproduced(_TOTAL, "ms", published, total)


def _by_own_mappings() -> Iterator[Reproduced]:
    cost = simulate(StepGraph(name="alexnet", batch_size=_BATCH, ops=tuple(_ops())), load_design("eyeriss"))
    for layer, op in zip(LAYERS, cost.ops, strict=True):
        yield Reproduced(
            f"{layer.name}: latency, our mapping",
            "ms",
            layer.latency_ms,
            op.compute_s * 1e3,
        )


def problem_of(layer: Layer) -> Contraction:
    """The convolution of a layer, for the whole batch."""
    filters, side, kernel = layer.filters // layer.groups, layer.outputs, layer.kernel
    return Contraction(
        sizes=(layer.groups, _BATCH, filters, layer.channels, side, side, kernel, kernel),
        stride=(layer.stride, layer.stride),
        input_size=(layer.inputs, layer.inputs),
    )


def mapping_of(layer: Layer) -> Mapping:
    """The paper's mapping: a pass inside the cells, and passes in the order of its Fig. 7."""
    lies = {dim: prod(loop.count for axis in layer.spatial for loop in axis if loop.dim == dim) for dim in "kcy"}
    filters, channels = layer.interleaved
    group = layer.filters // layer.groups
    held = min(layer.held, group)
    loops = _rows(
        ("s", layer.kernel), ("c", channels), ("k", filters), ("x", layer.outputs), ("b", layer.images),
        ("k", ceil(held / (filters * lies["k"]))), ("c", ceil(layer.channels / (channels * lies["c"]))),
        ("k", ceil(group / held)), ("y", ceil(layer.outputs / lies["y"])), ("b", _BATCH // layer.images),
        ("g", layer.groups),
    )  # fmt: skip
    # Cells hold a window of inputs, the filters of a pass, and sums of one position; the buffer the rest.
    return Mapping(
        spatial=layer.spatial,
        loops=loops,
        cuts={"X": (2, 6, len(loops)), "W": (3, len(loops)), "Y": (3, 7, len(loops))},
    )


def _ops() -> Iterator[Op]:
    for index, layer in enumerate(LAYERS):
        into, out, side = layer.channels * layer.groups, layer.filters, (layer.outputs, layer.outputs)
        convolution = Convolution(
            batch=_BATCH, in_channels=into, out_channels=out, input_size=(layer.inputs, layer.inputs),
            output_size=side, kernel=(layer.kernel, layer.kernel), stride=(layer.stride, layer.stride),
            padding=(0, 0), dilation=(1, 1), groups=layer.groups, transposed=False,
        )  # fmt: skip
        gemm = Gemm(
            m=_BATCH * layer.outputs**2, k=layer.channels * layer.kernel**2, n=out // layer.groups, count=layer.groups
        )
        shapes = (_BATCH, into, layer.inputs, layer.inputs), (out, layer.channels, layer.kernel, layer.kernel)
        yield Op(
            index=index, name=layer.name, kind="convolution", operator="aten.convolution", phase="forward",
            layer=layer.name,
            inputs=(TensorRef(3 * index, shapes[0], "activation"), TensorRef(3 * index + 1, shapes[1], "weight")),
            outputs=(TensorRef(3 * index + 2, (_BATCH, out, *side), "activation"),),
            flops=gemm.flops, gemm=gemm, convolution=convolution,
        )  # fmt: skip
