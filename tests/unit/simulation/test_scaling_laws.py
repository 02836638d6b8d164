"""Scaling laws as equalities: copies, passes, reloads, pipeline stages and stored bits."""

import random

import pytest
import torch
from torch import nn

from presilicon.designs import load_design
from presilicon.formats import BlockCodes, decode, encode, parse, quantize
from presilicon.records import Gemm
from presilicon.simulation import simulate
from presilicon.simulation.systolic.cycles import gemm_cycles
from presilicon.workloads import capture

DATAFLOWS = ("weight-stationary", "input-stationary", "output-stationary")


def random_case(seed: int) -> tuple[random.Random, Gemm, dict]:
    draw = random.Random(seed)
    gemm = Gemm(m=draw.randint(1, 60), k=draw.randint(1, 60), n=draw.randint(1, 60), count=draw.randint(1, 3))
    array = {
        "rows": draw.randint(1, 12), "cols": draw.randint(1, 12), "dataflow": draw.choice(DATAFLOWS),
        "reduction": draw.choice(("rows", "columns")),
    }  # fmt: skip
    return draw, gemm, array


def streamed(dataflow: str) -> str:
    """The dimension that passes through the array while a tile stays in it."""
    return {"weight-stationary": "m", "input-stationary": "n", "output-stationary": "k"}[dataflow]


@pytest.mark.parametrize("seed", range(40))
def test_a_tile_that_comes_again_for_each_piece_of_a_stream_costs_as_much_as_products_of_the_pieces(seed: int) -> None:
    """Loading, filling, draining and the stages of a cell's pipeline are charged at every reload."""
    draw, gemm, array = random_case(seed)
    pieces, depth, passes = draw.randint(2, 5), draw.randint(1, 6), draw.randint(1, 4)
    side = streamed(array["dataflow"])
    piece = getattr(gemm, side)
    whole = _with(gemm, side, pieces * piece)
    alone = gemm_cycles(gemm, passes=passes, depth=depth, **array)
    again = gemm_cycles(whole, passes=passes, depth=depth, loads=pieces, **array)
    assert again.cycles == pieces * alone.cycles
    assert again.folds == alone.folds


def _with(gemm: Gemm, side: str, size: int) -> Gemm:
    sizes = {name: getattr(gemm, name) for name in ("m", "k", "n", "count")}
    return Gemm(**sizes | {side: size})


@pytest.mark.parametrize("seed", range(40))
def test_k_passes_take_k_times_the_cycles_in_which_cells_compute(seed: int) -> None:
    _, gemm, array = random_case(seed)
    one, two, many = (gemm_cycles(gemm, passes=passes, **array).cycles for passes in (1, 2, 7))
    rows, cols = array["rows"], array["cols"]
    folds = gemm_cycles(gemm, **array).folds
    computing = folds * (getattr(gemm, streamed(array["dataflow"])) + rows + cols - 2)
    assert (two - one, many - one) == (computing, 6 * computing)
    assert one - computing == folds * rows  # a tile is loaded, or drained, row by row, once
    depths = [gemm_cycles(gemm, depth=depth, **array).cycles for depth in (1, 2, 5)]
    if array["dataflow"] == "output-stationary":
        assert (depths[1], depths[2]) == (one + computing, one + 4 * computing)
    else:
        along = rows if array["reduction"] == "rows" else cols
        assert (depths[1] - one, depths[2] - one) == (folds * along, 4 * folds * along)
    assert gemm_cycles(_with(gemm, "count", 2 * gemm.count), **array).cycles == 2 * one
    overlapped = gemm_cycles(gemm, fold_overlap=True, **array).cycles
    assert one - overlapped == (folds - 1) * rows


@pytest.mark.parametrize("per", ["row", "column"])
@pytest.mark.parametrize("fusion", ["none", "ops"])
def test_copies_of_a_memory_hold_and_carry_as_much_as_one_of_their_sum(per: str, fusion: str) -> None:
    """So twice the rows, with a copy each, are twice the capacity and twice the bandwidth."""
    graph = capture(nn.Sequential(nn.Linear(48, 40), nn.ReLU(), nn.Linear(40, 24)), torch.empty(32, 48))
    for rows, cols in ((8, 4), (16, 8)):
        copies = {"row": rows, "column": cols}[per]
        many = f'{{name="inner", kib=0.5, banks=1, width_bits=16, per="{per}"}}'
        one = f'{{name="inner", kib={copies / 2}, banks={copies}, width_bits=16}}'
        costs = [
            simulate(graph, load_design("bf16-systolic", [
                f"machine.rows={rows}", f"machine.cols={cols}", f"machine.fusion={fusion}", "machine.objective=time",
                f'machine.memories=[{inner}, {{name="buffer", kib=64}}]',
            ]))
            for inner in (many, one)
        ]  # fmt: skip
        assert costs[0].time_s == costs[1].time_s
        for op, other in zip(costs[0].ops, costs[1].ops, strict=True):
            assert (op.cycles, op.bytes_dram, op.bytes_sram) == (other.cycles, other.bytes_dram, other.bytes_sram)


ELEMENT_BITS = {"e4m3fn": 8, "e5m2": 8, "fp6_e2m3": 6, "fp4_e2m1": 4}


@pytest.mark.parametrize("seed", range(24))
def test_the_bits_of_a_format_are_those_of_its_codes_and_scales(seed: int) -> None:
    draw = random.Random(seed)
    block, element = draw.choice((1, 2, 4, 8, 16, 32, 64)), draw.choice(list(ELEMENT_BITS))
    text, bits, scale_bits = draw.choice((
        (f"mx(element={element}, block={block})", ELEMENT_BITS[element], 8),
        (f"mx(element={element}, block={block}, axis=0)", ELEMENT_BITS[element], 8),
        (f"bfp(mantissa=3, exponent=5, group={block})", 1 + 3, 5),
        (f"nvfp(block={block})", 4, 8),
    ))  # fmt: skip
    fmt = parse(text)
    shape = (block * draw.randint(1, 3), block * draw.randint(1, 3))
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    codes = encode(x, fmt)
    assert isinstance(codes, BlockCodes)
    assert codes.scales.numel() == x.numel() // block
    stored_bits = codes.elements.numel() * bits + codes.scales.numel() * scale_bits
    assert stored_bits == x.numel() * fmt.bits_per_element
    assert 2 ** (bits - 1) <= int(codes.elements.max()) < 2**bits  # a negative number sets the highest of them
    assert int(codes.scales.max()) < 2**scale_bits
    assert torch.equal(decode(codes, fmt), quantize(x, fmt))


@pytest.mark.parametrize("block", [8, 16, 32, 64])
def test_dram_carries_the_stored_bits_of_blocks(block: int) -> None:
    """A product whose tensors all fit is read and written once: so many bits of elements and of scales."""
    graph = capture(nn.Linear(64, 64, bias=False), torch.empty(64, 64))
    fmt = f"mx(element=fp6_e2m3, block={block})"
    settings = [f"numerics.{role}={fmt}" for role in ("weight", "activation", "error")]
    op = next(op for op in graph.ops if op.gemm and op.phase == "forward")
    cost = simulate(graph, load_design("fp32-systolic", ["machine.fusion=none", *settings])).ops[op.index]
    codes = encode(torch.randn(64, 64), parse(fmt))
    stored_bytes = (6 * codes.elements.numel() + 8 * codes.scales.numel()) / 8
    assert cost.bytes_dram == 3 * stored_bytes
