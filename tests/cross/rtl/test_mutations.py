"""The comparison can fail: single mistakes in the SystemVerilog, most of them published ones, are each found."""

import shutil

import numpy as np
import pytest
from cases import Case, differences, random_vectors
from circuits import case_of, make

from presilicon.instrument import FastModel, Firmware, compile_firmware
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
        "ahead[chain*C_BITS+C_CACHE_ROW+:ROW] == row;",
        "ahead[chain*C_BITS+C_ALU_ROW+:ROW] == row;",
    ),
    "no forwarding": ("vector_alu", ".fetch_forward(newest)", ".fetch_forward('0)"),
    "a row that retires is read a cycle late": (
        "vector_alu",
        "(was_written || hits[LATENCY+1:LATENCY] != '0)",
        "was_written",
    ),
    "late save over a newer one": ("vector_alu", "saves & ~{LATENCY{save_early}}", "saves"),
    "packer full one word late": ("packer", "total >= {1'b0, ALL}", "total > {1'b0, ALL}"),
    "packer loses the second block": ("packer", "gives : gives_two;", "gives : 1'b0;"),
    "chains are issued although there is no room": ("sequencer", "wire issue = go && ready", "wire issue = ready"),
    "a product rounded toward zero": (
        "fixed_multiply",
        "exact >>> FRACTION",
        "(exact + (exact < 0 ? 2 ** FRACTION - 1 : 0)) >>> FRACTION",
    ),
    "sums that wrap": ("alu_lane", "wire fits = total[WORD] == total[WORD-1];", "wire fits = 1'b1;"),
    "sums that come back from an end": ("alu_lane", "x_end ? x : s_end ? s ^ {WORD{sub}} : saturated", "saturated"),
    "products that come back from an end": ("fixed_multiply", "fits && !ended[2]", "fits"),
    "totals that come back from an end": ("scalar_reduce", "any_smallest || any_largest", "any_smallest"),
    "rows exchanged one image late": ("filter", "active <= active ^ touched;", "active <= active;"),
}
NARROW = make(4, 2, "int8", chains=4, scratchpad_rows=3, flush="frame")
OTHERS = {
    "a product rounded toward zero": make(4, 2, "fixed(4, 4)", 12, chains=4, flush="frame"),
    "sums that come back from an end": NARROW,
    "totals that come back from an end": NARROW,
}


def found_in(hardware, sources) -> int | None:
    """The first case in which a circuit from these sources differs from the model."""
    for seed in range(CASES):
        circuit = RtlModel(hardware, seed=seed, in_gap=0.2, sources=sources)
        if differences(case_of(hardware, seed), FastModel(hardware), circuit):
            return seed
    slow_reader = RtlModel(hardware, out_gap=0.99, sources=sources)
    return CASES if differences(many_blocks(hardware), FastModel(hardware), slow_reader) else None


def many_blocks(hardware) -> Case:
    """One frame in which every vector is a block: more than any queue holds."""
    fw = Firmware()
    with fw.chain():
        fw.commit("N")
    image = compile_firmware(fw, hardware)
    words, last = random_vectors(np.random.default_rng(0), hardware, 300)
    last[:, 1] = np.arange(300) == 299
    return Case(hardware, (image, image), [(0, words, last)])


def test_the_right_circuit_passes() -> None:
    for hardware in (SMALL, *OTHERS.values()):
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
    assert found_in(OTHERS.get(name, SMALL), sources) is not None
