"""What `presilicon simulate` says of a step."""

import re

import pytest
from msgspec.structs import replace

from presilicon.designs import load_design
from presilicon.report import render_checkpointing, render_cost, step_document
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload


@pytest.fixture(scope="module")
def graph():
    return capture_workload(load_workload("digits-mlp"), 32)


@pytest.mark.parametrize(
    ("design", "settings"),
    [
        ("bf16-systolic", []),
        ("h200", ["machine.launch=eager"]),
        ("dgx-1", []),
        ("caterpillar-large", ["machine.schedule=pipelined"]),
    ],
)
def test_the_shares_of_time_add_up_to_all_of_it(graph, design, settings) -> None:
    cost = simulate(graph, load_design(design, settings))
    text = render_cost(cost, design=design, graph=graph, ops=len(cost.ops))
    line = next(line for line in text.splitlines() if line.startswith("time by phase"))
    assert sum(map(int, re.findall(r"(\d+)%", line))) == pytest.approx(100, abs=3)
    overlap = design.startswith("caterpillar")
    assert ("share of busy time" in line) == overlap
    assert ("  of busy  " in text) == overlap
    assert ("waiting" in line) == (design in ("h200", "dgx-1"))
    assert ("summed over cores that work side by side" in text) == overlap
    document = step_document(cost, design=design, graph=graph)
    assert document["ops_overlap"] == overlap
    if not overlap:
        whole_s = sum(document["time_by_phase_s"].values()) + document["waiting_s"]
        assert whole_s == pytest.approx(cost.time_s)


@pytest.mark.parametrize(
    ("factor", "words"),
    [(0.5, ""), (1.0, "it saves nothing here: the peak is the same"), (1.5, "it saves nothing here, and costs memory")],
)
def test_checkpoints_say_when_they_save_nothing(graph, factor, words) -> None:
    plain = simulate(graph, load_design("bf16-systolic"))
    text = render_checkpointing(plain, replace(plain, memory_bytes=factor * plain.memory_bytes), 3)
    assert ("it saves nothing" in text) == bool(words)
    assert words in text
    assert "  time  " in text
    assert "  time  " not in render_checkpointing(plain, plain, 3, times=False)
