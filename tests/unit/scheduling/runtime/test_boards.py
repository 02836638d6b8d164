"""Boards of OpenCL: what is missing is named; programs are built once; sub-devices are boards."""

import builtins
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from presilicon.base import ConfigError, MissingToolError
from presilicon.scheduling.runtime.devices import DeviceLostError, open_device
from presilicon.scheduling.runtime.opencl.boards import Board, kernel_source, list_boards, profiled_s


@pytest.fixture
def fresh(opencl: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and a device."""
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    return tmp_path / "opencl"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("pyopencl"):
            raise ModuleNotFoundError("No module named 'pyopencl'")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingToolError, match=r"pip install 'presilicon\[opencl\]'") as raised:
        open_device("opencl")
    assert raised.value.exit_code == 3


@pytest.mark.parametrize("raises", [True, False])
def test_no_platform_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch, raises: bool) -> None:
    opencl = pytest.importorskip("pyopencl")

    def none() -> list[Any]:
        if raises:
            raise opencl.LogicError("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")
        return []

    monkeypatch.setattr(opencl, "get_platforms", none)
    with pytest.raises(MissingToolError, match="no OpenCL platform"):
        list_boards()
    with pytest.raises(MissingToolError, match="no OpenCL platform"):
        open_device("opencl:0.0")


def test_a_device_that_is_not_there(fresh: Path) -> None:
    with pytest.raises(ConfigError, match=r"no OpenCL device 'opencl:7\.0'; this machine has opencl:0\.0"):
        open_device("opencl:7.0")
    with pytest.raises(ConfigError, match=r"opencl:0\.0/99"):
        open_device("opencl:0.0/99")


def test_a_compiler_that_does_not_know_the_processor_is_a_missing_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    opencl = pytest.importorskip("pyopencl")

    def fail(self: Any, *args: Any, **kwargs: Any) -> None:
        raise opencl.RuntimeError("clBuildProgram failed\n\n\nerror: unknown target CPU 'generic'\nmore")

    monkeypatch.setattr(opencl.Program, "build", fail)
    words = r"opencl:0\.0: .* cannot compile for .*: error: unknown target CPU 'generic'; .* needs another one"
    with pytest.raises(MissingToolError, match=words):
        open_device("opencl:0.0")


def test_programs_are_built_once_and_found_again(fresh: Path) -> None:
    first = Board()
    kernel = first.configure("elementwise", "map_add")
    assert first.configure("elementwise", "map_add") is kernel
    assert first.builds == 1
    second = Board()
    second.configure("elementwise", "map_add")
    assert second.builds == 0, "it lies in the cache"
    (path,) = fresh.glob("*.bin")
    path.write_bytes(b"[]\ndamaged")
    third = Board()
    third.configure("elementwise", "map_add")
    assert third.builds == 1, "a damaged entry is built again"
    third.configure(
        "matmul", "matmul_direct", {"UNITS": 1, "SIMD": 1, "GROUP": 1, "UNROLL": 1, "TM": 1, "TN": 1, "STAGED": 0}
    )
    assert third.builds == 2, "other macros, another program"


def test_sub_devices_are_boards_of_one_unit(fresh: Path) -> None:
    whole = Board()
    if whole.units < 2:
        pytest.skip("not on this machine: several compute units")
    parts = [open_device(f"opencl:0.0/{index}") for index in range(2)]
    assert [part.board.units for part in parts] == [1, 1]  # type: ignore[attr-defined]
    for part in parts:
        x = part.put(torch.ones(4))
        assert part.get(part.run(torch.ops.aten.mul.Tensor, (x, x), {})).sum() == 4
        assert part.board.queue.device == part.board.device, "its queue is its own, not the whole device's"  # type: ignore[attr-defined]
        part.close()


def test_launches_are_profiled(fresh: Path) -> None:
    board = Board(profile=True)
    buffer = board.allocate(4 << 10)
    kernel = board.configure("elementwise", "map_fill")
    event = board.launch(kernel, 1, *(buffer, 0) * 4, 1.0, 0.0, 1 << 10)
    assert 0 < profiled_s(event) < 10
    board.release()


def test_a_source_has_one_kernel() -> None:
    folder = files("presilicon.scheduling.runtime.opencl") / "kernels"
    for path in folder.iterdir():
        if not path.name.endswith(".cl") or path.name == "functions.cl":
            continue
        text, file = path.read_text(), path.name.removesuffix(".cl")
        if file == "elementwise":
            lines = re.findall(r"^(\w+)\((\w+),", text, re.MULTILINE)
            names = [f"map_{name}" + ("_long" if macro.endswith("LONG") else "") for macro, name in lines]
            assert len(names) > 50
            assert len(set(names)) == len(names)
            counts = [len(re.findall(r"^[A-Z_]+\(", kernel_source(file, name), re.MULTILINE)) for name in names]
        else:
            names = re.findall(r"^(?:__kernel|ITEM)[^{]*?void (\w+)\(", text, re.MULTILINE)
            counts = [
                len(re.findall(r"^(?:__kernel|ITEM)\b", kernel_source(file, name), re.MULTILINE)) for name in names
            ]
        assert set(counts) == {1}, file


def test_a_device_that_fails_is_lost(fresh: Path) -> None:
    board = Board()
    with pytest.raises(DeviceLostError, match="could not be allocated"):
        board.allocate(1 << 50)
    with pytest.raises(DeviceLostError, match=r"broken .* does not build"):
        board._build("__kernel void broken(", "broken", "")
    kernel = board.configure("elementwise", "map_fill")
    with pytest.raises(DeviceLostError, match="map_fill could not be launched"):
        board.launch(kernel, 1, *(board.allocate(4), 0) * 4, 1.0, 0.0, 1, group=1 << 20)
