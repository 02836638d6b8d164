"""Traces for Perfetto, read back as the Trace Event Format has them."""

import gzip
import json
from collections import defaultdict
from itertools import pairwise

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.report import save_trace, trace_document
from presilicon.simulation import memory_timeline, simulate
from presilicon.workloads import capture_workload, load_workload

MICRO = 1e-6
NANOSECOND = 1e-9


@pytest.fixture(scope="module")
def step():
    graph = capture_workload(load_workload("digits-cnn"), 64)
    design = load_design("bf16-systolic", ["machine.prefetch=true", "machine.fusion=none"])
    cost = simulate(graph, design)
    return {"cost": cost, "timeline": memory_timeline(graph, design, cost), "design": design.name, "graph": graph}


def tracks(document) -> dict[str, list[dict]]:
    names = {e["tid"]: e["args"]["name"] for e in document["traceEvents"] if e["name"] == "thread_name"}
    found = defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


def counters(document, name: str) -> list[dict]:
    return [event for event in document["traceEvents"] if event["ph"] == "C" and event["name"].startswith(name)]


def test_every_event_is_one_of_the_format(step) -> None:
    document = json.loads(json.dumps(trace_document(**step)))
    assert document["displayTimeUnit"] in ("ms", "ns")
    for event in document["traceEvents"]:
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert event["ph"] in "XCM"
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["tid"], int)
        if event["ph"] == "C":
            assert all(isinstance(value, float) and value >= 0 for value in event["args"].values())
    times = [event["ts"] for event in document["traceEvents"] if event["ph"] != "M"]
    assert times == sorted(times)
    assert times[0] == 0


def test_the_spans_of_a_track_do_not_overlap_and_add_up(step) -> None:
    cost = step["cost"]
    found = tracks(trace_document(**step))
    assert set(found) == {"step", "phase", "array", "vector", "dram"}
    for name, spans in found.items():
        for before, after in pairwise(spans):
            assert after["ts"] >= before["ts"] + before["dur"] - 1e-6, name
    within = NANOSECOND * len(cost.ops)
    for unit in ("array", "vector"):
        computed_s = sum(op.compute_s for op in cost.ops if op.unit == unit)
        assert sum(span["dur"] for span in found[unit]) * MICRO == pytest.approx(computed_s, abs=within)
        assert len(found[unit]) == sum(op.unit == unit for op in cost.ops)
    moved_s = sum(op.memory_s for op in cost.ops)
    assert sum(span["dur"] for span in found["dram"]) * MICRO == pytest.approx(moved_s, abs=2 * within)
    assert any(op.prefetched_s for op in cost.ops)
    assert sum(span["dur"] for span in found["phase"]) * MICRO == pytest.approx(cost.time_s, abs=within)
    (whole,) = found["step"]
    assert whole["dur"] * MICRO == pytest.approx(cost.time_s, abs=NANOSECOND)
    energy_j = sum(span["args"]["energy_j"] for unit in ("array", "vector") for span in found[unit])
    assert energy_j == pytest.approx(cost.energy_j)


def test_counters_integrate_to_energy_and_traffic_and_show_the_peak(step) -> None:
    cost = step["cost"]
    document = trace_document(**step)
    for name, whole in (("power", cost.energy_j), ("DRAM", sum(op.bytes_dram for op in cost.ops) / 1e9)):
        points = counters(document, name)
        area = sum(
            next(iter(before["args"].values())) * (after["ts"] - before["ts"]) * MICRO
            for before, after in pairwise(points)
        )
        assert area == pytest.approx(whole, rel=0.02)
    peak = max(sum(event["args"].values()) for event in counters(document, "memory"))
    assert peak * 1e6 == pytest.approx(cost.memory_bytes)


def test_repeats_are_one_span_and_not_so_many_copies(step) -> None:
    once, often = trace_document(**step), trace_document(**step, repeat=10_000)
    assert len(often["traceEvents"]) - len(once["traceEvents"]) <= 4
    first, others = tracks(often)["step"]
    assert others["name"] == "9,999 more steps like it"
    assert others["ts"] == pytest.approx(first["dur"])
    assert others["dur"] * MICRO == pytest.approx(9999 * step["cost"].time_s)
    assert others["args"]["energy_j"] == pytest.approx(9999 * step["cost"].energy_j)
    assert often["otherData"]["time_s"] == pytest.approx(10_000 * step["cost"].time_s)
    power = counters(often, "power")
    assert power[-2]["args"]["power"] == pytest.approx(step["cost"].energy_j / step["cost"].time_s)
    assert power[-1]["args"]["power"] == 0


def test_files(step, tmp_path) -> None:
    plain = save_trace(tmp_path / "step.json", **step)
    packed = save_trace(tmp_path / "step.json.gz", **step)
    assert json.loads(plain.read_bytes()) == json.loads(gzip.decompress(packed.read_bytes())) == trace_document(**step)
    assert packed.stat().st_size < plain.stat().st_size / 5
    before = packed.read_bytes()
    assert save_trace(tmp_path / "step.json.gz", **step).read_bytes() == before
    with pytest.raises(ConfigError, match=r"\.json"):
        save_trace(tmp_path / "step.txt", **step)
    with pytest.raises(ConfigError, match="cannot write"):
        save_trace(tmp_path / "none" / "step.json", **step)


OTHERS = [
    ("caterpillar-large", [], "mlp-medium"),
    ("caterpillar-large", ["machine.dram_gb_s=0.5"], "digits-mlp"),
    ("h200", ["machine.launch=eager"], "digits-mlp"),
    ("dgx-1", [], "digits-mlp"),
    ("bf16-systolic", ["machine.prefetch=true", "machine.dram_gb_s=8"], "digits-cnn"),
    ("bf16-systolic", ["machine.prefetch=true", "machine.dram_gb_s=64"], "digits-cnn"),
]


@pytest.fixture(scope="module", params=OTHERS, ids=lambda each: f"{each[0]}-{each[2]}")
def other(request):
    name, settings, workload = request.param
    graph, design = capture_workload(load_workload(workload)), load_design(name, settings)
    cost, machine = simulate(graph, design), design.machine
    bytes_s = 1e9 * (machine.memory_gb_s if hasattr(machine, "memory_gb_s") else machine.dram_gb_s)
    timeline = memory_timeline(graph, design, cost)
    return {"cost": cost, "timeline": timeline, "design": design.name, "graph": graph}, bytes_s


def integral(points) -> float:
    pairs = pairwise(points)
    return sum(next(iter(old["args"].values())) * (new["ts"] - old["ts"]) * MICRO for old, new in pairs)


def test_on_every_machine_spans_lie_side_by_side_and_counters_add_up(other) -> None:
    step, bytes_s = other
    cost, document = step["cost"], trace_document(**step)
    found = tracks(document)
    for name, spans in found.items():
        assert min(span["dur"] for span in spans) >= 0
        for before, after in pairwise(spans):
            assert after["ts"] >= before["ts"] + before["dur"] - 1e-6, name
        assert max(span["ts"] + span["dur"] for span in spans) * MICRO <= cost.time_s + 2 * NANOSECOND
    ops = {op.name for op in cost.ops}
    assert sum(span["name"] in ops and "cycles" in span["args"] for spans in found.values() for span in spans) == len(
        cost.ops
    )
    assert integral(counters(document, "power")) == pytest.approx(cost.energy_j, rel=1e-6)
    bandwidth = counters(document, "DRAM")
    moved = sum(op.bytes_dram for op in cost.ops)
    assert integral(bandwidth) * 1e9 == pytest.approx(moved, rel=0.03)
    assert max(event["args"]["bandwidth"] for event in bandwidth) * 1e9 <= bytes_s * (1 + 1e-9)


def test_nothing_moves_while_the_chip_waits_for_its_host() -> None:
    graph, design = capture_workload(load_workload("digits-mlp")), load_design("h200", ["machine.launch=eager"])
    cost = simulate(graph, design)
    document = trace_document(cost, memory_timeline(graph, design, cost), design="h200", graph=graph)
    levels = {event["ts"]: event["args"]["bandwidth"] for event in counters(document, "DRAM")}
    for before, after in pairwise(cost.ops):
        if after.start_s - before.end_s > 2 * NANOSECOND:
            assert levels[round(before.end_s * 1e9) / 1e3] == 0


def test_the_mean_of_memory_lies_between_the_least_and_the_peak(other) -> None:
    step, _ = other
    held = [sum(event["args"].values()) for event in counters(trace_document(**step, repeat=3), "memory")]
    totals = [point.total_bytes / 1e6 for point in step["timeline"].points]
    assert min(totals) * (1 - 1e-9) <= held[-1] <= max(totals) * (1 + 1e-9)


def test_given_times_shorter_than_transfers_leave_no_overlap() -> None:
    from presilicon.records import ForeignTime, ForeignTimes
    from presilicon.simulation import match_times, put_times

    for name, settings in (("bf16-systolic", ["machine.prefetch=true"]), ("caterpillar-large", [])):
        graph, design = capture_workload(load_workload("digits-mlp")), load_design(name, settings)
        cost = simulate(graph, design)
        entries = tuple(ForeignTime(names=(op.name,), time_s=op.time_s / 9) for op in cost.ops[::3])
        given = ForeignTimes(source="test", kind="presilicon", matching="op", entries=entries)
        changed, _ = put_times(cost, match_times(graph, cost, given))
        timeline = memory_timeline(graph, design, changed)
        for track, spans in tracks(trace_document(changed, timeline, design=name, graph=graph)).items():
            for before, after in pairwise(spans):
                assert after["ts"] >= before["ts"] + before["dur"] - 1e-6, track
