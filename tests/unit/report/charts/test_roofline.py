"""The ops of a step under the roofs of their machine."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.records import Cost
from presilicon.report import save_roofline_plot
from presilicon.report.charts.roofline import roofs
from presilicon.simulation import simulate
from presilicon.workloads import capture_workload, load_workload


@pytest.fixture(scope="module")
def cost() -> Cost:
    return simulate(
        capture_workload(load_workload("digits-cnn"), 64), load_design("bf16-systolic", ["machine.fusion=none"])
    )


def test_roofs_are_those_of_the_machine(cost) -> None:
    machine = load_design("bf16-systolic").machine
    peaks, bandwidth = roofs(cost.ops)
    assert peaks["array"] == pytest.approx(2e9 * machine.rows * machine.cols * machine.clock_ghz)
    assert peaks["vector"] == pytest.approx(1e9 * machine.vector_lanes * machine.clock_ghz)
    assert bandwidth == pytest.approx(machine.dram_gb_s * 1e9)
    for op in cost.ops:
        assert op.flops_s <= min(peaks[op.unit], op.intensity * bandwidth) * (1 + 1e-9) or not op.flops


def test_a_unit_that_is_never_at_its_limit_is_judged_by_its_utilization(cost) -> None:
    products = [op for op in cost.ops if op.unit == "array"]
    moves = [op for op in cost.ops if op.unit == "vector" and op.bound == "memory"]
    peaks, bandwidth = roofs([*products, *moves])
    assert set(peaks) == {"array"}
    assert peaks["array"] == pytest.approx(16.384e12)
    assert bandwidth == pytest.approx(1e11)


@pytest.mark.parametrize(
    ("preset", "unit", "peak"), [("h200", "matrix", 989.5e12), ("caterpillar-small", "array", 2.048e12)]
)
def test_roofs_of_other_kinds_of_machine(preset, unit, peak) -> None:
    found, _ = roofs(simulate(capture_workload(load_workload("resnet18"), 8), load_design(preset)).ops)
    assert found[unit] == pytest.approx(peak, rel=1e-3)


def test_the_picture_names_roofs_phases_units_and_the_dearest_op(cost, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    path = save_roofline_plot(cost, tmp_path / "roof.svg", title="digits-cnn")
    text = path.read_text()
    for word in (
        "DRAM 100 GB/s",
        "array 16.4 TFLOP/s",
        "vector 64 GFLOP/s",
        "weight grad",
        "conv2.forward.convolution",
    ):
        assert word in text
    assert save_roofline_plot(cost, tmp_path / "again.svg", title="digits-cnn").read_text() == text
    with pytest.raises(ConfigError, match="figure format"):
        save_roofline_plot(cost, tmp_path / "roof.jpg", title="")


def test_a_step_without_arithmetic_is_an_empty_picture(tmp_path) -> None:
    pytest.importorskip("matplotlib")
    empty = Cost(time_s=0, energy_j=0, cycles=0, memory_bytes=0, energy_by_component_j={}, ops=())
    assert save_roofline_plot(empty, tmp_path / "roof.svg", title="nothing").stat().st_size > 0
