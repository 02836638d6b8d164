"""A directory with a circuit for a project: sources, generated files, lists for the tools, a test in cocotb."""

import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from presilicon.base import ConfigError
from presilicon.rtl.arithmetic.units import literal
from presilicon.rtl.sources import TEMPLATES, fill, header_files


def write_project(directory: Path, name: str, modules: Sequence[Path], texts: Mapping[str, str]) -> list[Path]:
    """Write the modules to `rtl`, the texts under their paths, and lists of the sources; returns the written files.

    Raises:
        ConfigError: the directory cannot be written.
    """
    tops = [path for path in texts if path.startswith("rtl/")]
    files = {**texts, **_file_lists(name, [*(f"rtl/{path.name}" for path in modules), *tops])}
    try:
        for folder in ("rtl", "tb"):
            (directory / folder).mkdir(parents=True, exist_ok=True)
        written = [Path(shutil.copy(path, directory / "rtl")) for path in (*modules, *header_files(modules))]
        for file, text in files.items():
            (directory / file).write_text(text, encoding="utf-8")
            written.append(directory / file)
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or directory}: {error.strerror or error}") from None
    return written


def tools_text(name: str) -> str:
    """The lines of a README about the tools and the testbenches, as commands that work in its directory."""
    return fill("tools.md.in", name=name)


def cocotb_text(name: str, test: str) -> str:
    """A file of one test in cocotb."""
    return fill("cocotb.py.in", name=name, test=test.strip())


def range_text(bits: int) -> str:
    """The range of a signal's declaration; nothing for a single bit."""
    return f"[{bits - 1}:0] " if bits > 1 else ""


def settings_text(parameters: Mapping[str, int]) -> str:
    """The parameters of an instance, one in each line."""
    return ",\n".join(f"      .{name}({literal(value)})" for name, value in parameters.items())


@cache
def _meanings() -> dict[str, dict[str, str]]:
    return tomllib.loads((TEMPLATES / "ports.toml").read_text(encoding="utf-8"))


def port_row(project: str, name: str, direction: str, width: int | str, meaning: str = "") -> str:
    """A port in the table of a README; `meaning` is for ports that the list of meanings does not have."""
    return f"| `{name}` | {direction} | {width} | {_meanings()[project].get(name, meaning)} |"


def hex_text(numbers: Iterable[int], digits: int = 1) -> str:
    """Numbers of at least so many digits, as `$readmemh` reads them."""
    return "".join(f"{number:0{digits}x}\n" for number in numbers)


def _file_lists(name: str, files: Sequence[str]) -> dict[str, str]:
    """The lists of a directory's sources, plain, for Vivado and for Quartus; headers are in `rtl`."""
    vivado = [
        "# In a Vivado project: source vivado.tcl",
        "set here [file dirname [file normalize [info script]]]",
        *(f"read_verilog -sv $here/{file}" for file in files),
        "set_property include_dirs [list $here/rtl] [current_fileset]",
    ]
    quartus = [
        *(
            f'set_global_assignment -name SYSTEMVERILOG_FILE [file join $::quartus(qip_path) "{file}"]'
            for file in files
        ),
        'set_global_assignment -name SEARCH_PATH [file join $::quartus(qip_path) "rtl"]',
    ]
    return {
        f"{name}.f": "\n".join(["+incdir+rtl", *files, ""]),
        "vivado.tcl": "\n".join([*vivado, ""]),
        "quartus.qip": "\n".join([*quartus, ""]),
        "quartus.qsf": f"# For the project's .qsf:\nset_global_assignment -name QIP_FILE {name}/quartus.qip\n",
    }
