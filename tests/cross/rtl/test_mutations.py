"""The comparison can fail: single mistakes in the SystemVerilog, most of them published ones, are each found."""

import shutil

import pytest
from cases import differences
from circuits import case_of, make

from presilicon.instrument import FastModel
from presilicon.rtl import RtlModel
from presilicon.rtl.sources import SOURCES

SMALL = make(4, 2, "int8", 12, chains=4, scratchpad_rows=3, flush="frame")
CASES = 300

MUTATIONS = {
    "ranges compared without sign": (
        "filter_lane",
        "key > $signed(row_keys[m*KEY+:WORD+1])",
        "$unsigned(key) > row_keys[m*KEY+:WORD+1]",
    ),
    "ranges open above": (
        "filter_lane",
        "key > $signed(row_keys[m*KEY+:WORD+1])",
        "key > $signed(row_keys[m*KEY+:WORD+1]) - (m == RANGES ? 1 : 0)",
    ),
    "one condition is enough": (
        "sequencer",
        "(chain[55:48] & ~holds) == '0",
        "chain[55:48] == '0 || (chain[55:48] & holds) != '0",
    ),
    "conditions of level 1 ignored": (
        "sequencer",
        "(chain[71:64] & ~holds) == '0",
        "(chain[67:64] & ~holds[3:0]) == '0",
    ),
    "cache without conditions": ("sequencer", "chain[2] && do_cache", "chain[2]"),
    "forwarding by the wrong row": (
        "vector_alu",
        "control_fetch[C_CACHE_ROW+:ROW] == in_control[C_ALU_ROW+:ROW]",
        "control_fetch[C_ALU_ROW+:ROW] == in_control[C_ALU_ROW+:ROW]",
    ),
    "no forwarding": ("vector_alu", "forward <= newest;", "forward <= '0;"),
    "late save over a newer one": ("vector_alu", "saves & ~{LATENCY{save_early}}", "saves"),
    "packer full one word late": ("packer", "total >= {1'b0, ALL}", "total > {1'b0, ALL}"),
    "packer loses the second block": ("packer", "comes && gives_two", "1'b0"),
    "a product rounded toward zero": (
        "fixed_multiply",
        "exact >>> FRACTION",
        "(exact + (exact < 0 ? 2 ** FRACTION - 1 : 0)) >>> FRACTION",
    ),
    "sums that wrap": ("alu_lane", "wire fits = total[WORD] == total[WORD-1];", "wire fits = 1'b1;"),
    "rows exchanged one image late": ("filter", "active <= active ^ touched;", "active <= active;"),
}
FRACTIONS = {"a product rounded toward zero": make(4, 2, "fixed(4, 4)", 12, chains=4, flush="frame")}


def found_in(hardware, sources) -> int | None:
    """The first case in which a circuit from these sources differs from the model."""
    for seed in range(CASES):
        case = case_of(hardware, seed)
        if differences(case, FastModel(hardware), RtlModel(hardware, seed=seed, in_gap=0.2, sources=sources)):
            return seed
    return None


def test_the_right_circuit_passes() -> None:
    for hardware in (SMALL, *FRACTIONS.values()):
        assert found_in(hardware, SOURCES) is None


@pytest.mark.parametrize("name", MUTATIONS)
def test_mistakes_are_found(name, tmp_path) -> None:
    module, right, wrong = MUTATIONS[name]
    sources = tmp_path / "sv"
    shutil.copytree(SOURCES, sources)
    file = sources / f"presilicon_{module}.sv"
    text = file.read_text()
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    assert found_in(FRACTIONS.get(name, SMALL), sources) is not None
