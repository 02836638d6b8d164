"""Memories of a systolic machine: banks and wires by hand, and what is refused."""

from math import sqrt

import pytest

from presilicon.base import ConfigError
from presilicon.designs import curve_pj, load_design, load_technology
from presilicon.records import Gemm
from presilicon.simulation import area, simulate_gemm
from presilicon.simulation.systolic.memories import Memory

HOROWITZ = load_technology("horowitz-45nm")
TABLES = ["horowitz-45nm", "tpuv4i-7nm"]


def test_an_access_takes_a_bank_and_the_wires_to_it() -> None:
    memory = Memory(name="buffer", kib=128, banks=16)
    bank = curve_pj(HOROWITZ.sram_64bit, 8)
    side_mm = sqrt(128 * 8192 * 0.69) / 1000
    assert memory.bit_pj(HOROWITZ) == pytest.approx(bank / 64 + 0.11 * side_mm * (1 - 1 / 4))
    assert memory.area_um2(HOROWITZ) == pytest.approx(128 * 8192 * 0.69)
    one = Memory(name="buffer", kib=8)
    assert one.bit_pj(HOROWITZ) == pytest.approx(10 / 64)


@pytest.mark.parametrize("name", TABLES)
def test_energy_and_area_never_fall_with_the_size(name: str) -> None:
    table = load_technology(name)
    sizes = [*range(1, 200, 3), 256, 1024, 4096, 24576, 1 << 20]
    memories = [Memory(name="buffer", kib=size) for size in sizes]
    energies, areas = (
        [ask(memory) for memory in memories] for ask in (lambda m: m.bit_pj(table), lambda m: m.area_um2(table))
    )
    assert energies == sorted(energies)
    assert areas == sorted(areas)
    # Beyond a bank only wires grow, with the side of the memory.
    large, small = (Memory(name="buffer", kib=size).bit_pj(table) for size in (65536, 16384))
    bank = Memory(name="buffer", kib=32).bit_pj(table)
    assert (large - bank) / (small - bank) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("name", TABLES)
def test_the_tables_have_all_that_memories_need(name: str) -> None:
    table = load_technology(name)
    assert None not in (table.register_bit, table.wire, table.leakage, table.area)
    scratchpad = Memory(name="registers", kib=0.5, kind="registers", per="cell")
    assert 0 < scratchpad.bit_pj(table) < Memory(name="buffer", kib=8).bit_pj(table)


def test_without_wires_a_memory_is_one_bank(bare_table) -> None:
    memory = Memory(name="buffer", kib=4096)
    assert memory.bit_pj(load_technology(str(bare_table))) == curve_pj(HOROWITZ.sram_64bit, 4096) / 64


def test_embedded_dram_is_denser_and_refreshed() -> None:
    sram, edram = Memory(name="buffer", kib=256), Memory(name="buffer", kib=256, kind="edram", retention_us=40)
    assert edram.area_um2(HOROWITZ) == sram.area_um2(HOROWITZ) / 2
    assert edram.refresh_byte_j(HOROWITZ) == pytest.approx(2 * 8 * 20e-12 / 64)


BUFFER = '{ name = "buffer", kib = 512 }'


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ([f"memories=[{BUFFER}]", "sram_kib=64"], "sram_kib = 64 is the short form of memories"),
        ([f"memories=[{BUFFER}, {BUFFER}]"], '"buffer" is there twice'),
        (['memories=[{ name = "dram", kib = 4 }]'], '"dram" is there twice, or a name of another part'),
        (['memories=[{ name = "weights", kib = 4, holds = ["right"] }]'], 'holds "left" must be .* not missing'),
        (['memories=[{ name = "pads", kib = 4, per = "cell" }]'], 'not "pads" for each cell'),
        (['memories=[{ name = "pads", kib = 4, per = "cell" }, ' + BUFFER + "]"], '"pads" is in every cell'),
        (['memories=[{ name = "cells", kib = 4, kind = "edram" }]'], 'retention_us must be given for kind "edram"'),
        (['memories=[{ name = "a", kib = 4, holds = ["left", "left"] }]'], "holds names an operand twice"),
        (['memories=[{ name = "a", kib = 0 }]'], r"memories\[0\]\.kib.*given 0"),
    ],
)
def test_memories_that_cannot_be_are_refused(settings: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load_design("fp32-systolic", [f"machine.{text}" for text in settings])


ACCUMULATORS = '{ name = "accumulators", kib = 256, holds = ["sums"], banks = 128 }'


def priced(memories: str, *settings: str):
    design = load_design("fp32-systolic", [f"machine.memories=[{memories}]", *settings])
    return simulate_gemm(Gemm(m=512, k=1024, n=256), design), design


def test_accumulators_take_the_sums_off_the_buffer() -> None:
    (plain, _), (split, design) = priced(BUFFER), priced(f"{ACCUMULATORS}, {BUFFER}")
    assert split.bytes_dram == plain.bytes_dram
    # 8 folds along k: without accumulators, sums are written 8 times to the buffer and read 7 times.
    sums = 4 * 512 * 256
    assert split.bytes_sram - plain.bytes_sram == pytest.approx(2 * sums)
    assert split.energy_j < plain.energy_j
    parts = area(design).parts_mm2
    assert parts["accumulators"] == pytest.approx(design.machine.levels[0].area_um2(HOROWITZ) * 1e-6)


def test_operands_may_have_memories_of_their_own() -> None:
    each = ", ".join(
        f'{{ name = "{name}", kib = 512, holds = ["{name}"], gb_s = 1e6 }}' for name in ("left", "right", "sums")
    )
    cost, _ = priced(each)
    shared, _ = priced('{ name = "buffer", kib = 1536, gb_s = 1e6 }')
    assert cost.bytes_sram == shared.bytes_sram
    assert cost.cycles == shared.cycles


def test_a_narrow_memory_makes_the_array_wait() -> None:
    wide, _ = priced('{ name = "buffer", kib = 4096, gb_s = 1e6 }')
    narrow, _ = priced('{ name = "buffer", kib = 4096, banks = 4, ports = 1 }')
    assert narrow.cycles == pytest.approx(narrow.bytes_sram / (4 * 64 / 8), rel=1e-3)
    assert narrow.cycles > 2 * wide.cycles
    two, _ = priced('{ name = "buffer", kib = 4096, banks = 4 }')
    assert wide.cycles < two.cycles < narrow.cycles


def test_a_level_that_cannot_hold_one_tile_is_named() -> None:
    with pytest.raises(ConfigError, match=r'machine\.memories, "accumulators".*1 x 128 x 128.*at least 1 KiB'):
        priced('{ name = "accumulators", kib = 0.5, holds = ["sums"] }, ' + BUFFER)


def test_embedded_dram_without_refresh_leaks_less_than_sram() -> None:
    cost, design = priced('{ name = "buffer", kib = 512, kind = "edram", retention_us = 1e6 }')
    sram, _ = priced(BUFFER)
    leaks = 0.012 * design.machine.buffer.area_um2(HOROWITZ) * 1e-6
    wires = design.machine.buffer.bit_pj(HOROWITZ) - Memory(name="buffer", kib=512).bit_pj(HOROWITZ)
    saved = cost.bytes_sram * 8 * wires * 1e-12
    assert cost.energy_j - sram.energy_j == pytest.approx(saved - leaks * cost.time_s)
