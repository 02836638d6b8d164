"""Systems: presets, files, and what is said about wrong ones."""

from pathlib import Path

import pytest

from presilicon.base import ConfigError
from presilicon.designs import load_characterization, load_system, system_names

DEVICES = """
[devices.gpu]
kind = "gpu"
idle_w = 40
peak_w = 300
[devices.fpga]
kind = "fpga"
count = 2
idle_w = 10
peak_w = 90
"""


def _row(kind: str = "Conv2D", size: str = "S", device: str = "gpu", time_ms: float = 1.0) -> str:
    return (
        f'{{ kind = "{kind}", size = "{size}", device = "{device}", time_ms = {time_ms}, average_w = 50, peak_w = 60 }}'
    )


def _file(folder: Path, rows: list[str], more: str = "") -> Path:
    path = folder / "mine.toml"
    path.write_text(f'name = "mine"\n{more}rows = [{", ".join(rows)}]\n{DEVICES}')
    return path


@pytest.mark.parametrize("name", [name for name in system_names() if "s10" in name])
def test_every_preset_has_the_whole_table(name: str) -> None:
    system = load_system(name)
    assert system.name == name
    assert len(system.rows) == 42
    assert system.notes
    assert system.reference == "gpu"


def test_a_pool_names_a_real_device_for_each_unit() -> None:
    system = load_system("cpu-2xopencl")
    assert system.devices["opencl"].runtime == ("opencl:0.0/0", "opencl:0.0/1")
    with pytest.raises(ConfigError, match="runtime must name 2 devices"):
        load_system("cpu-2xopencl", ['devices.opencl.runtime=["opencl"]'])


def test_the_table_is_that_of_the_source() -> None:
    system = load_system("v100-3xs10")
    row = system.row("Conv2D", "M", "fpga")
    assert row is not None
    assert (row.time_ms, row.average_w, row.units) == (1.825, 60, 3)
    row = system.row("MatMul", "L", "gpu")
    assert row is not None
    assert (row.time_ms, row.average_w, row.peak_w, row.bandwidth_gb_s, row.ipc) == (7.144, 300, 302, 57.72, 5.764)
    assert "Transpose M" in load_characterization("v100-s10").suspect[0]


def test_the_ideal_preset_is_as_it_is_described() -> None:
    ideal = load_system("v100-3xs10-ideal")
    gpu, fpga = ideal.devices["gpu"], ideal.devices["fpga"]
    assert (gpu.idle_w, fpga.idle_w, fpga.count, fpga.big_units) == (41, 0, 3, 3)
    assert gpu.bytes_per_s is None
    assert fpga.bytes_per_s is None
    assert gpu.clocks == (1.0,)


def test_a_file_may_begin_from_a_preset_and_replace_rows(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    row = _row("Mul", "S", "gpu", 0.5)
    path.write_text(f'name = "mine"\nbase = "v100-3xs10"\nrows = [{row}]\n[devices.fpga]\ncount = 4\n')
    system = load_system(path)
    assert system.devices["fpga"].count == 4
    assert system.devices["fpga"].big_units == 3
    found = system.row("Mul", "S", "gpu")
    assert found is not None
    assert found.time_ms == 0.5
    assert len(system.rows) == 42


def test_one_row_may_stand_for_all_sizes(tmp_path: Path) -> None:
    system = load_system(_file(tmp_path, [_row(size="")]))
    assert system.row("Conv2D", "L", "gpu") == system.row("Conv2D", "", "gpu")
    assert system.row("Conv2D", "L", "fpga") is None


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([_row(time_ms=-1)], ["time_ms", "Conv2D S", "gpu", "-1"]),
        ([_row(), _row(size="M"), _row(device="fpga")], ["gap", "Conv2D on fpga", "rows for S", "none for M"]),
        ([_row(device="npu")], ["Conv2D S", "npu", "fpga, gpu"]),
        ([_row(), _row()], ["must have one row, not two", "Conv2D S on gpu"]),
    ],
)
def test_wrong_tables_are_named(tmp_path: Path, rows: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        load_system(_file(tmp_path, rows))
    assert all(word in str(error.value) for word in [*words, "mine.toml"])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("devices.gpu.clocks=[0.9]", ["devices.gpu", "begin with 1.0"]),
        ("devices.gpu.clocks=[1.0, 0.8, 0.9]", ["clocks must decrease"]),
        ("devices.fpga.big_units=9", ["devices.fpga", "9", "3"]),
        ("devices.fpga.peak_w=1", ["peak_w must be at least idle_w", "13", "not 1"]),
        ("devices.fpga.idle_w=-1", ["-1"]),
        ("table=nothing", ["nothing", "v100-s10"]),
    ],
)
def test_wrong_settings_are_named(setting: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        load_system("v100-3xs10", [setting])
    assert all(word in str(error.value) for word in words)


def test_boards_of_two_kernel_sets_are_not_named_like_another_device() -> None:
    sets = 'devices.fpga.kernels={"a" = ["Mul"], "b" = ["MatMul"]}'
    other = 'devices.fpga-a={"kind" = "fpga", "count" = 1, "idle_w" = 10, "peak_w" = 20}'
    assert len(load_system("v100-3xs10", [sets]).configurations()) == 4
    with pytest.raises(ConfigError, match='boards with the kernels "a" are named like a device'):
        load_system("v100-3xs10", [sets, other])


def test_an_unknown_system_gets_a_proposal() -> None:
    with pytest.raises(ConfigError, match='did you mean "v100-3xs10"'):
        load_system("v100-3xs1")
