"""Machines that make use of zeros: gated, skipped, compressed and structured, by what was measured."""

from itertools import pairwise

import pytest
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import LayerFact, ProductFact, StepFacts
from presilicon.simulation import area, simulate

ROLES = ("weight", "activation", "error")
PHASES = ("forward", "input_grad", "weight_grad")


def machine(*settings: str):
    base = ["machine.rows=8", "machine.cols=8", "machine.sram_kib=16", "machine.fusion=none"]
    return load_design("bf16-systolic", [*base, *(f"machine.sparsity.{setting}" for setting in settings)])


def densities(density: float, *roles: str) -> StepFacts:
    return StepFacts(layers=tuple(LayerFact(layer="fc", role=role, density=density) for role in roles))


def shares(zeros: str, share: float, *phases: str) -> StepFacts:
    return StepFacts(products=tuple(ProductFact(layer="fc", product=p, zeros=zeros, share=share) for p in phases))


def test_gating_saves_the_energy_of_multiplications_and_no_time(linear_step):
    graph, design = linear_step(64, 96, 48), machine("zeros=gated")
    plain, gated = simulate(graph, design), simulate(graph, design, shares("gated", 0.25, *PHASES))
    assert gated.time_s == plain.time_s
    assert [op.cycles for op in gated.ops] == [op.cycles for op in plain.ops]
    assert gated.energy_by_component_j["mac"] == pytest.approx(0.25 * plain.energy_by_component_j["mac"])
    others = [
        {name: joules for name, joules in cost.energy_by_component_j.items() if name != "mac"}
        for cost in (plain, gated)
    ]
    assert others[0] == others[1]
    assert simulate(graph, machine()).energy_j == plain.energy_j  # nothing was measured


def test_gating_without_measured_pairs_takes_the_sparser_operand(linear_step):
    graph, design = linear_step(64, 96, 48), machine("zeros=gated")
    facts = StepFacts(layers=(*densities(0.5, "activation").layers, *densities(0.75, "weight").layers))
    mac = {
        name: [op.energy_j for op in simulate(graph, design, fact).ops]
        for name, fact in (("plain", StepFacts()), ("known", facts), ("measured", shares("gated", 0.5, "forward")))
    }
    assert mac["known"][0] == pytest.approx(mac["measured"][0])
    assert mac["known"][0] < mac["plain"][0]
    assert mac["known"][3] < mac["plain"][3]  # weights in the input gradient


@pytest.mark.parametrize("encoding", ["bitmap", "run-length", "coordinate"])
@pytest.mark.parametrize("where", ["dram", "chip"])
def test_compressed_operands_cross_dram_with_their_index(linear_step, encoding: str, where: str):
    """Small enough for every tensor to cross DRAM once in each op that uses it."""
    graph = linear_step(16, 24, 8)
    design = machine(*(f"{role}={encoding}" for role in ROLES), f"compressed_in={where}")
    sparsity = design.machine.sparsity
    for density in (0.0, 0.2, 0.5, 1.0):
        plain, cost = simulate(graph, machine()), simulate(graph, design, densities(density, *ROLES))
        share = sparsity.stored_share("activation", 16, density, None)
        forward, before = cost.ops[0], plain.ops[0]
        expanded = before.bytes_dram - 2 * 16 * 8  # the result is not an operand of a product
        assert forward.bytes_dram == pytest.approx(expanded * share + 2 * 16 * 8)
        assert forward.cycles == before.cycles
        assert (forward.bytes_sram < before.bytes_sram) == (where == "chip" and share < 1)
        assert [op.bytes_dram < own.bytes_dram for op, own in zip(cost.ops, plain.ops, strict=True)][2:4] == (
            [share < 1] * 2
        )


def test_expanded_data_fills_the_buffer_whatever_dram_holds(linear_step):
    graph = linear_step(16, 24, 8)
    plain = simulate(graph, machine())
    cost = simulate(graph, machine(*(f"{role}=bitmap" for role in ROLES)), densities(0.5, *ROLES))
    assert [op.bytes_sram for op in cost.ops] == pytest.approx([op.bytes_sram for op in plain.ops])
    assert cost.energy_by_component_j["sram"] == pytest.approx(plain.energy_by_component_j["sram"])


def test_updated_weights_are_written_as_they_will_be_read(linear_step):
    for numerics in ("float32", "bfloat16"):  # without a rounded copy of the weights, and with one
        design = load_design(
            "bf16-systolic", [f"numerics.weight={numerics}", "machine.sparsity.weight=bitmap", "machine.fusion=none"]
        )
        plain = simulate(linear_step(16, 24, 8), design)
        cost = simulate(linear_step(16, 24, 8), design, densities(0.1, "weight"))
        assert cost.ops[-1].bytes_dram < plain.ops[-1].bytes_dram


def test_expanding_costs_what_the_table_says(linear_step):
    graph = linear_step(16, 24, 8)
    for where in ("dram", "chip"):
        design = machine(*(f"{role}=bitmap" for role in ROLES), f"compressed_in={where}")
        table = replace(design.technology, codec_bit=replace(design.technology.register_bit, pj=1.0))
        cost = simulate(graph, design, densities(0.5, *ROLES), technology=table)
        assert "codec" not in simulate(graph, design, densities(0.5, *ROLES)).energy_by_component_j
        moved = 2 * (16 * 24 + 24 * 8)
        fold_share = 1 if where == "dram" else (16 * 24 + 24 * 8) * 2 / moved  # one fold of n: A enters once
        own = cost.energy_by_component_j["codec"]
        assert own > 8e-12 * moved * fold_share  # of the forward product; the others come on top
        assert cost.energy_j == pytest.approx(simulate(graph, design, densities(0.5, *ROLES)).energy_j + own)


def test_structured_weights_save_cycles_and_bytes_only_where_they_are_known(linear_step):
    graph, design = linear_step(256, 512, 256), machine("zeros=2:4")
    plain = simulate(graph, machine())
    unknown = simulate(graph, design)
    assert [op.cycles for op in unknown.ops] == [op.cycles for op in plain.ops]
    assert unknown.energy_j > plain.energy_j  # the multiplexers take their energy
    structured = simulate(graph, design, shares("2:4", 0.5, "forward"))
    cycles = [(op.cycles, own.cycles) for op, own in zip(structured.ops, unknown.ops, strict=True)]
    assert 0.48 < cycles[0][0] / cycles[0][1] < 0.53
    assert cycles[2][0] == cycles[2][1]  # the reduction of the gradients is along another axis
    assert cycles[3][0] == cycles[3][1]
    assert structured.ops[0].bytes_dram < unknown.ops[0].bytes_dram
    assert structured.ops[3].bytes_dram < unknown.ops[3].bytes_dram  # the input gradient reads the same slots
    dense = simulate(graph, machine("zeros=2:4"), densities(0.5, "weight"))
    assert dense.time_s == unknown.time_s  # half of them are zero, but nobody knows where


@pytest.mark.parametrize(
    ("settings", "facts"),
    [
        (["zeros=gated"], lambda share: shares("gated", share, *PHASES)),
        (["zeros=pairs"], lambda share: shares("pairs", share, *PHASES)),
        (["zeros=weights"], lambda share: densities(share, "weight")),
        (["zeros=1:4"], lambda share: shares("1:4", share, "forward")),
        ([f"{role}=run-length" for role in ROLES], lambda share: densities(share, *ROLES)),
        ([*(f"{role}=coordinate" for role in ROLES), "compressed_in=chip"], lambda share: densities(share, *ROLES)),
    ],
)
@pytest.mark.parametrize("fusion", ["none", "resident"])
def test_denser_is_never_cheaper(linear_step, settings, facts, fusion: str):
    design = machine(*settings)
    design = replace(design, machine=replace(design.machine, fusion=fusion, objective="time"))
    for sizes in ((64, 96, 48), (7, 130, 33)):
        costs = [simulate(linear_step(*sizes), design, facts(step / 8)) for step in range(9)]
        for sparse, dense in pairwise(costs):
            # The fastest plan may take more energy; ops on their own leave nothing to choose.
            assert sparse.time_s * sparse.energy_j <= dense.time_s * dense.energy_j * (1 + 1e-12)
            assert sparse.time_s <= dense.time_s * (1 + 1e-12)
            if fusion == "none":
                assert sparse.energy_j <= dense.energy_j * (1 + 1e-12)
                assert sparse.bytes_dram <= dense.bytes_dram * (1 + 1e-12)
        assert costs[0].energy_j < costs[-1].energy_j


def test_what_nobody_has_measured_is_said():
    for settings, text in (
        (["zeros=gated"], "method measure-zeros"),
        (["zeros=pairs"], "method tensordash"),
        (["zeros=2:4"], "not known to be 2:4"),
        (["activation=bitmap"], r"compressed operands \(activation\)"),
    ):
        remarks = machine(*settings).machine.remarks(StepFacts())
        with pytest.raises(AssertionError, match=text):
            raise AssertionError(remarks)
    assert machine("zeros=2:4").machine.remarks(shares("2:4", 0.5, "forward")) == ()
    free = "technology horowitz-45nm has no codec_bit: compressing and expanding operands takes no energy"
    assert machine("weight=bitmap").machine.remarks(densities(0.5, "weight")) == (free,)


def test_selection_takes_area_and_wrong_words_are_refused():
    plain, lanes, slots = (area(machine(f"zeros={zeros}")).parts_mm2 for zeros in ("computed", "pairs", "2:4"))
    part = "selection of operands"
    assert part not in plain
    assert lanes[part] == pytest.approx(slots[part] * 14 / 3)  # 7 + 7 multiplexers of two inputs, and 3
    assert slots[part] == pytest.approx(64 * 3 * 16 * 1.86e-6)
    for settings, text in (
        (["zeros=4:2"], "must be N:M"),
        (["zeros=some"], "sparsity.zeros"),
        (["weight=zip"], "bitmap"),
        (["index_bits=0"], "index_bits"),
        (["skips=pairs"], "skips"),
    ):
        with pytest.raises(ConfigError, match=text):
            machine(*settings)
