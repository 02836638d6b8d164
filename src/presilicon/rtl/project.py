"""A directory with a circuit for a project: sources, generated files, lists for the tools, a test in cocotb."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from presilicon.base import ConfigError
from presilicon.rtl.file_lists import file_lists
from presilicon.rtl.sources import header_files


def write_project(
    directory: Path, name: str, modules: Sequence[Path], top: str, texts: Mapping[str, str], cocotb_test: str
) -> list[Path]:
    """Write the modules and the top level to `rtl`, the other texts under their names; returns the written files.

    Raises:
        ConfigError: the directory cannot be written.
    """
    listed = [f"rtl/{path.name}" for path in modules] + [f"rtl/{name}_top.sv"]
    files = {
        f"rtl/{name}_top.sv": top,
        f"tb/test_{name}.py": _cocotb_text(name, cocotb_test),
        **texts,
        **file_lists(name, listed),
    }
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
    """The lines of a README about the tools and the testbenches."""
    return f"""- **Vivado**: `source vivado.tcl`. **Quartus**: add `quartus.qip`. **Others**: `{name}.f`.
  One clock, no multicycle or false paths.
- **Testbench**, from this directory; it compares the results with emulation's and prints PASS or what differs:

```
verilator --binary --timing -Wno-fatal -f {name}.f tb/{name}_tb.sv --top-module {name}_tb && obj_dir/V{name}_tb
```

- **cocotb** (2.0 or newer, `pip install cocotb`), the same vectors in Python: `SIM=verilator python tb/test_{name}.py`,
  or another simulator that cocotb knows.
"""


def _cocotb_text(name: str, test: str) -> str:
    return f'''"""The vectors of the testbench in cocotb: SIM=verilator python tb/test_{name}.py"""

import os
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

HERE = Path(__file__).resolve().parent


def numbers(file):
    return [int(line, 16) for line in (HERE / file).read_text().split()]


{test.strip()}


def main():
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    simulator = os.environ.get("SIM", "verilator")
    listed = (HERE.parent / "{name}.f").read_text().split()
    runner = get_runner(simulator)
    runner.build(
        sources=[HERE.parent / file for file in listed if file.endswith(".sv")],
        includes=[HERE.parent / "rtl"],
        hdl_toplevel="{name}_top",
        build_args=["-Wno-fatal"] if simulator == "verilator" else [],
        build_dir=HERE / "build",
        always=True,
    )
    results = runner.test(
        hdl_toplevel="{name}_top", test_module="test_{name}", build_dir=HERE / "build", test_dir=HERE
    )
    tests, failed = get_results(results)
    raise SystemExit(1 if failed or not tests else 0)


if __name__ == "__main__":
    main()
'''
