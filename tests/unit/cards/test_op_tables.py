"""Rows that are measured: a table that a system can name."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from presilicon.base import ConfigError, MissingToolError
from presilicon.cards import characterize, op_tables, to_table
from presilicon.designs import load_characterization, load_system
from presilicon.scheduling import PowerMeter
from presilicon.scheduling.accounting import cost
from presilicon.scheduling.baselines import reference_only
from presilicon.scheduling.checker import check
from presilicon.study.scheduling import problem_of


def test_a_measured_table_schedules_the_workload(tmp_path: Path) -> None:
    found = characterize("digits-cnn", watts=65.0, repeats=1, name="cpu")
    kinds = {row.kind for row in found.rows}
    assert {"Conv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "MatMul", "BiasAddGrad", "MaxPool"} <= kinds
    assert all(row.time_ms > 0 and row.average_w == 65.0 and row.source == "measured" for row in found.rows)
    (tmp_path / "table.toml").write_text(to_table(found))
    assert load_characterization(tmp_path / "table.toml") == found
    system = tmp_path / "mine.toml"
    system.write_text(
        'name = "mine"\ntable = "table.toml"\n[devices.cpu]\nkind = "cpu"\nidle_w = 10\npeak_w = 90\nmemory_gb_s = 20\n'
    )
    problem = problem_of(load_system(system), "digits-cnn", sizing="tensor")
    schedule = reference_only(problem, "cpu")
    check(problem, schedule, claimed=cost(problem, schedule))
    assert schedule.makespan_s > 0


def test_rows_say_bandwidth_and_operations_per_cycle() -> None:
    found = characterize("digits-cnn", watts=65.0, repeats=1)
    assert all(row.bandwidth_gb_s is not None and row.ipc is not None for row in found.rows)
    intensity = {row.kind: row.ipc / row.bandwidth_gb_s for row in found.rows if row.ipc and row.bandwidth_gb_s}
    assert intensity["Conv2D"] > 10 * intensity["Relu"], "a convolution does far more with a byte"
    assert "ipc is derived" in found.source


def test_an_opencl_device_is_measured_through_the_runtime(opencl: None) -> None:
    found = characterize("digits-mlp", device="opencl:0.0/0", watts=12.0, repeats=1, batch_size=4)
    assert {row.device for row in found.rows} == {"opencl"}
    assert {"MatMul", "BiasAddGrad", "Relu", "Loss"} <= {row.kind for row in found.rows}
    assert all(row.time_ms > 0 and row.average_w == 12.0 for row in found.rows)
    assert "opencl:0.0/0" in found.source
    assert "power by the user, 12 W" in found.source
    with pytest.raises(ConfigError, match=r"opencl:PLATFORM\.DEVICE"):
        characterize("digits-mlp", device="fpga", watts=1)


def test_ops_without_kernels_have_no_rows_and_are_named(opencl: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from presilicon.scheduling.runtime.opencl.device import OpenCLDevice

    covers = OpenCLDevice.covers
    monkeypatch.setattr(OpenCLDevice, "covers", lambda self, f, a, k: "relu" not in str(f) and covers(self, f, a, k))
    found = characterize("digits-mlp", device="opencl", watts=12.0, repeats=1, batch_size=4)
    assert "Relu" not in {row.kind for row in found.rows}
    assert "no kernels for aten.relu.default" in found.source


def test_power_is_read_while_an_op_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def tick() -> float:
        now[0] += 1e-3
        return now[0]

    monkeypatch.setattr(op_tables.time, "perf_counter", tick)
    meter = PowerMeter("a test", lambda: now[0] * 50.0, lambda: 80.0)
    monkeypatch.setattr(op_tables, "find_meter", lambda device, watts: meter)
    found = characterize("digits-mlp", repeats=1)
    assert "power by a test" in found.source
    # The counter and the clock are not read at the same tick.
    held = op_tables.HOLD_S / 1e-3
    assert all(row.average_w == pytest.approx(50.0, rel=3 / held) for row in found.rows)
    assert all(row.peak_w == 80.0 for row in found.rows)


def test_names_with_quotes_survive_the_table(tmp_path: Path) -> None:
    table = characterize("digits-mlp", watts=65.0, repeats=1, name='my "fast" cpu\\1')
    (tmp_path / "table.toml").write_text(to_table(table))
    assert load_characterization(tmp_path / "table.toml") == table


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_tables.torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingToolError, match="no CUDA device"):
        characterize("digits-mlp", device="cuda", watts=1)
    with pytest.raises(ConfigError, match="repeats must be at least 1, not 0"):
        characterize("digits-mlp", watts=1, repeats=0)


def test_rows_are_sorted_with_the_medians_of_their_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = [
        op_tables._Call(kind, size, time_s, lambda: None, 4000, 8000)
        for kind, size, time_s in (
            ("Mul", "S", 3e-3), ("Add", "L", 1e-3), ("Mul", "L", 5e-3), ("Mul", "S", 1e-3), ("Add", "", 2e-3),
            ("Mul", "S", 2e-3),
        )
    ]  # fmt: skip
    clock = SimpleNamespace(calls=calls, uncovered=())
    monkeypatch.setattr(op_tables, "_timed", lambda *_: clock)
    monkeypatch.setattr(op_tables, "_describe", lambda *_: ("a processor", 2e9))
    monkeypatch.setattr(op_tables, "_power", lambda call, *_: (10.0, 9.0))
    rows = characterize("digits-mlp", watts=10.0).rows
    assert [(row.kind, row.size, row.time_ms) for row in rows] == [
        ("Add", "", 2.0), ("Add", "L", 1.0), ("Mul", "L", 5.0), ("Mul", "S", 2.0),
    ]  # fmt: skip
    assert [row.ipc for row in rows] == pytest.approx([8000 / row.time_ms * 1e3 / 2e9 for row in rows], rel=1e-3)
    assert [row.bandwidth_gb_s for row in rows] == pytest.approx([4e-3 / row.time_ms for row in rows], rel=1e-3)
    assert {(row.average_w, row.peak_w, row.device) for row in rows} == {(10.0, 10.0, "cpu")}
