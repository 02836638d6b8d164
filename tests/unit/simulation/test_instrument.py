"""The instrument of a design in its area, its energy and its time."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from presilicon.designs import Hardware, load_design
from presilicon.formats import parse
from presilicon.simulation import area, simulate
from presilicon.simulation.instrument import units_of
from presilicon.workloads import capture_workload, load_workload

WATCHED = Path(__file__).parents[3] / "examples" / "watched.toml"

SYNTHESIZED = {
    16: (35_519, 24_150, 21_686, 21_686),
    32: (103_110, 55_824, 44_449, 42_617),
    64: (329_406, 141_191, 95_301, 83_912),
    128: (1_157_376, 411_573, 225_383, 170_367),
}
"""ALUTs of a Cyclone V for M = N, N / 4, N / 16 and 1, by lanes N: docs/rtl.md."""


@pytest.fixture(scope="module")
def graph():
    return capture_workload(load_workload("digits-cnn"), batch_size=32)


def test_a_watched_design_costs_its_instrument_and_its_leakage_more_and_no_time(graph) -> None:
    watched, plain = load_design(WATCHED), load_design("bf16-systolic")
    with_it, without = simulate(graph, watched), simulate(graph, plain)
    assert with_it.time_s == without.time_s
    assert with_it.bytes_dram == without.bytes_dram
    parts, others = area(watched).parts_mm2, area(plain).parts_mm2
    assert {name: parts[name] for name in others} == others
    assert set(parts) - set(others) == {"instrument"}
    assert 0.005 < parts["instrument"] / sum(others.values()) < 0.05
    ours, theirs = with_it.energy_by_component_j, without.energy_by_component_j
    grown = sum(parts.values()) / sum(others.values())
    assert ours["leakage"] == pytest.approx(theirs["leakage"] * grown)
    assert ours["instrument"] > 0
    for name in set(theirs) - {"leakage"}:
        assert ours[name] == theirs[name]
    expected = theirs["leakage"] * (grown - 1) + ours["instrument"]
    assert with_it.energy_j - without.energy_j == pytest.approx(expected)


def test_the_energy_follows_the_vectors_that_are_tapped(graph) -> None:
    watched = load_design(WATCHED)
    instrument = watched.instrument
    assert instrument is not None

    def joules(**changes) -> float:
        taps = tuple(replace(tap, **changes) for tap in instrument.taps)
        design = replace(watched, instrument=replace(instrument, taps=taps, link_bytes_per_s=1e-6, clock_mhz=1e9))
        return simulate(graph, design).energy_by_component_j["instrument"]

    assert joules(every=1) == pytest.approx(10 * joules(every=10))
    assert joules(vectors=2) == pytest.approx(2 * joules(vectors=1))
    assert joules(layers="conv1") < joules(layers="*")
    assert joules(vectors="all") > 10 * joules(vectors=1)


def test_a_slow_clock_and_a_slow_link_limit_what_an_instrument_can_use(graph) -> None:
    watched = load_design(WATCHED)
    assert watched.instrument is not None
    fast = simulate(graph, watched).energy_by_component_j["instrument"]
    slow = replace(watched, instrument=replace(watched.instrument, clock_mhz=1e-3, link_bytes_per_s=1e-3))
    assert simulate(graph, slow).energy_by_component_j["instrument"] < fast / 100


def logic_bits(lanes: int, ranges: int) -> float:
    hardware = Hardware(lanes=lanes, ranges=ranges, element=parse("fixed(32, 0)"), alu=("add", "sub", "mul", "max"))
    units = units_of(hardware)
    return units.comparators * hardware.key_bits + units.counters * 8


def test_comparators_grow_as_those_of_the_synthesized_circuit() -> None:
    """The look-up tables that more ranges take, over the bits of comparators and counters: the same for all sizes."""
    ratios = []
    for lanes, counts in SYNTHESIZED.items():
        for ranges, luts in ((lanes, counts[0]), (lanes // 4, counts[1])):
            ratios.append((luts - counts[3]) / (logic_bits(lanes, ranges) - logic_bits(lanes, 1)))
    middle = sorted(ratios)[len(ratios) // 2]
    assert 1 < middle < 2
    assert all(abs(ratio / middle - 1) < 0.25 for ratio in ratios)
