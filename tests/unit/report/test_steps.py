"""What `presilicon simulate` says of a step."""

import json
import re

import pytest

from presilicon.designs import load_design
from presilicon.report import cost_to_json, render_cost
from presilicon.simulation import simulate
from presilicon.workloads import load_workload
from presilicon.workloads.capture import capture_workload


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
    document = json.loads(cost_to_json(cost, design=design, graph=graph))
    assert document["ops_overlap"] == overlap
    if not overlap:
        whole_s = sum(document["time_by_phase_s"].values()) + document["waiting_s"]
        assert whole_s == pytest.approx(cost.time_s)
