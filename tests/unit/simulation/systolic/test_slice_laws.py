"""Laws of products and their slices: how operands are stored, what slices share and hold, what more of them cost."""

import random
from math import prod

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from presilicon.designs import MachineStep, StepFormats, load_design
from presilicon.records import StepFacts, StepGraph
from presilicon.simulation import executed_ops
from presilicon.simulation.systolic.compression import Operands, Stored
from presilicon.simulation.systolic.mappings import describe_product
from presilicon.simulation.systolic.plan import Planner
from presilicon.simulation.systolic.slices import part_of_product, slice_work
from presilicon.simulation.systolic.work import systolic_rates
from presilicon.workloads import capture

BYTES = {"activation": 1, "error": 2, "weight": 4}
SUM_BYTES = 4
DESIGN = load_design(
    "edge-bf16",
    [
        "numerics.activation=e4m3fn",
        "numerics.error=float16",
        "numerics.weight=float32",
        "machine.rows=4",
        "machine.cols=4",
        "machine.sram_kib=64",
    ],
)


def plan_of(graph: StepGraph, design=DESIGN) -> tuple[Planner, MachineStep]:
    formats = StepFormats(design.numerics, StepFacts(), graph)
    step = MachineStep(
        graph=graph,
        executed=tuple(executed_ops(graph, formats, StepFacts())),
        design=design,
        formats=formats,
        technology=design.technology,
    )
    return Planner(step, design.machine, systolic_rates(design, design.machine, design.technology)), step


def parts_of(graph: StepGraph):
    planner, step = plan_of(graph)
    for position, op in enumerate(step.executed):
        if op.gemm is not None:
            work = planner._whole[position]
            yield op, part_of_product(op, op.gemm, work, step, DESIGN.machine, planner.operands(position))


def some_convolution(draw: random.Random, dimensions: int) -> StepGraph:
    """Two layers, so that the second has an input gradient; every side has sizes of its own."""
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]

    def sizes(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw.randint(low, high) for _ in range(dimensions))

    model = nn.Sequential(
        layer(3, 4, sizes(1, 2)),
        nn.ReLU(),
        layer(4, 5, sizes(1, 3), stride=sizes(1, 3), dilation=sizes(1, 2), padding=sizes(0, 1)),
    )
    return capture(model, torch.empty(2, 3, *sizes(8, 11)))


def shared_lines(convolution) -> int:
    """Input lines that both of two neighbouring output lines need, counted one by one."""
    needed = [
        {line * convolution.stride[0] + convolution.dilation[0] * tap for tap in range(convolution.kernel[0])}
        for line in (0, 1)
    ]
    first, second = (set(range(min(lines), max(lines) + 1)) for lines in needed)
    return len(first & second)


def test_neighbouring_slices_share_the_lines_that_both_need() -> None:
    draw, seen = random.Random(3), set()
    for dimensions in (1, 2, 2, 2, 2, 3):
        for op, part in parts_of(some_convolution(draw, dimensions)):
            convolution = op.convolution
            shared = shared_lines(convolution)
            element = SUM_BYTES if op.phase == "input_grad" else BYTES["activation"]
            width = prod(convolution.input_size[1:])
            assert part.halo_bytes == pytest.approx(shared * convolution.in_channels * width * element)
            assert part.lines == min(convolution.input_size[0], convolution.output_size[0])
            seen |= {op.phase, "shared" if shared else "apart"}
    assert seen == {"forward", "input_grad", "weight_grad", "shared", "apart"}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(6, 10), nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.query(x) @ self.key(x).transpose(1, 2)


def test_what_slices_do_not_cut_is_held() -> None:
    seen = set()
    for op, part in parts_of(capture(Attention(), torch.empty(3, 5, 6))):
        first, second = op.inputs[:2]
        a, b = (tensor.elements * BYTES[tensor.role] for tensor in (first, second))
        sums = op.outputs[0].elements * SUM_BYTES
        is_batch = op.gemm.count > 1
        if op.phase == "weight_grad":  # the reduction is cut, and all sums stay
            assert (part.held_bytes, part.slice_bytes, part.streaming) == (sums, (a, b, 0.0), (True, True))
            assert part.lines == 5
        elif is_batch:  # between products
            assert (part.held_bytes, part.slice_bytes, part.streaming) == (0, (a, b, sums), (True, True))
            assert (part.lines, part.refill_cycles) == (1, 0.0)
        else:  # rows are cut, and the weights stay
            assert (part.held_bytes, part.slice_bytes, part.streaming) == (b, (a, 0.0, sums), (True, False))
            assert part.lines == 5
        if not is_batch:
            held = (op.gemm.m, op.gemm.n) if op.phase == "weight_grad" else (op.gemm.k, op.gemm.n)
            folds = prod(-(-side // 4) for side in held)
            assert part.refill_cycles == folds * (4 + 4 + 4)
        assert part.sums_slices == (op.phase == "weight_grad")
        assert part.halo_bytes == 0
        seen.add((op.phase, is_batch))
    assert seen == {("forward", False), ("forward", True), ("weight_grad", False), ("input_grad", True)}


def test_slices_cost_as_much_as_products_of_their_size() -> None:
    """With equal slices, and besides: sums that a weight gradient loads into the cells and adds to again."""
    samples, slices, seen = 32, 4, set()
    rates = systolic_rates(DESIGN, DESIGN.machine, DESIGN.technology)
    linear = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 12))
    whole, step = plan_of(capture(linear, torch.empty(samples, 6)))
    piece, _ = plan_of(capture(linear, torch.empty(samples // slices, 6)))
    for position, op in enumerate(step.executed):
        if op.gemm is None:
            continue
        work, part, product = whole._whole[position], piece._whole[position], whole._product(position)
        sliced = slice_work(op, product, work, slices, step, DESIGN.machine, rates)
        loaded = added = 0
        if op.phase == "weight_grad":  # its sums stay in the cells
            loaded = (slices - 1) * 4 * -(-op.gemm.m // 4) * -(-op.gemm.n // 4)
            added = (slices - 1) * op.outputs[0].elements * SUM_BYTES
        assert sliced.cycles == slices * part.cycles + loaded
        assert sliced.bytes_sram == slices * part.bytes_sram + added
        assert sliced.utilization == pytest.approx(op.gemm.macs / (sliced.cycles * 16))
        assert sliced.spills == 0
        assert slice_work(op, product, work, 1, step, DESIGN.machine, rates) == replace(work, spills=0.0)
        seen.add(op.phase)
    assert seen == {"forward", "input_grad", "weight_grad"}


def test_an_operand_has_the_shares_that_it_is_stored_in() -> None:
    """On its way to the array and between memories; of DRAM, over what the memory on the chip has of it."""
    draw, seen = random.Random(9), set()
    _, step = plan_of(capture(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 12)), torch.empty(16, 6)))
    rates = systolic_rates(DESIGN, DESIGN.machine, DESIGN.technology)
    for op in step.executed * 6:
        if op.gemm is None:
            continue
        left, right = (Stored(draw.choice([0.25, 0.5, 1.0]), draw.choice([0.5, 0.75, 1.0])) for _ in range(2))
        plain, found = (
            describe_product(op, op.gemm, step, DESIGN.machine, rates, operands)
            for operands in (Operands(), Operands(left, right))
        )
        on_chip = left.on_chip, right.on_chip
        assert (found.streamed.a, found.streamed.b) == (plain.streamed.a * on_chip[0], plain.streamed.b * on_chip[1])
        between = found.compressed or found.held
        assert (between.a, between.b) == (found.held.a * on_chip[0], found.held.b * on_chip[1])
        assert found.held == plain.held  # room is for expanded data
        assert {found.streamed.sum, between.sum} == {plain.streamed.sum, plain.held.sum}
        assert found.dram_shares == (left.in_dram / on_chip[0], right.in_dram / on_chip[1])
        seen.add((op.phase, on_chip == (1.0, 1.0)))
    assert {phase for phase, _ in seen} == {"forward", "input_grad", "weight_grad"}
    assert {is_plain for _, is_plain in seen} == {True, False}
