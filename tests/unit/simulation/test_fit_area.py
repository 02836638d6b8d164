"""Arrays that are sized to the area of another design."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_design
from presilicon.simulation import area, fit_area


def test_the_area_is_nearest() -> None:
    goal = load_design("fp32-systolic")
    fitted = fit_area(load_design("fp8-systolic"), goal)
    assert fitted.mm2 == area(fitted.design).mm2 == pytest.approx(area(goal).mm2, rel=1e-3)
    rows, cols = fitted.design.machine.rows, fitted.design.machine.cols
    assert rows * cols > 128 * 128
    assert rows / cols == pytest.approx(1, abs=0.15)


def test_a_design_fits_itself() -> None:
    design = load_design("bf16-systolic")
    assert fit_area(design, design).design == design


def test_a_resized_design_has_a_name_of_its_own() -> None:
    fitted = fit_area(load_design("fp8-systolic"), load_design("fp32-systolic")).design
    assert fitted.name == f"fp8-systolic-{fitted.machine.rows}x{fitted.machine.cols}"


def test_a_goal_below_the_memory_is_refused() -> None:
    small = load_design("edge-fp8", ["machine.sram_kib=1", "machine.rows=1", "machine.cols=1"])
    with pytest.raises(ConfigError, match=r"single cell: try less machine\.sram_kib"):
        fit_area(load_design("fp32-systolic", [f"machine.technology={small.technology.name}"]), small)


def test_two_technologies_are_refused() -> None:
    other = load_design("fp32-systolic", ["machine.technology=tpuv4i-7nm-synthesized"])
    with pytest.raises(ConfigError, match=r"try --set machine\.technology=tpuv4i-7nm-synthesized"):
        fit_area(load_design("fp8-systolic"), other)


def test_other_machines_are_refused() -> None:
    with pytest.raises(ConfigError, match="rows and columns of a systolic machine"):
        fit_area(load_design("h200"), load_design("fp32-systolic"))
