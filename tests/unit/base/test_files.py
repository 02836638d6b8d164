"""Files that a user names are read only if they are regular and not too large."""

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import presilicon
from presilicon.base import LARGEST_TEXT, ConfigError, files, read_file, read_json, read_toml
from presilicon.designs import load_design
from presilicon.designs.operators import digest_of
from presilicon.scheduling.graphs import read_graph
from presilicon.simulation import read_times
from presilicon.workloads import load_workload

SOURCE = Path(presilicon.__file__).parent

OWN_FILES = {
    "base": {"extensions.py", "files.py", "fingerprints.py", "installed.py", "lazy.py", "processor.py"},
    "cards": {"benches.py", "op_tables.py"},
    "designs": {"inheritance.py"},
    "emulation": {"training/checkpoint.py"},
    "formats": set(),
    "instrument": {"host/control.py", "host/link.py", "host/token.py"},
    "programs": {"executions/numba_functions.py"},
    "report": {"page/page.py"},
    "rtl": {
        "cells.py", "mac_synthesis.py", "project.py", "sources.py", "synthesis.py", "tap.py", "testbench.py",
        "verilator.py",
    },
    "runs": {"append.py", "lock.py", "readings.py", "run.py", "store.py"},
    "scheduling": {
        "runtime/meters.py", "runtime/opencl/boards.py", "runtime/opencl/trial.py", "runtime/opencl/tuning.py",
    },
    "simulation": {"foreign/exports.py", "roofline/efficiency.py"},
    "study": {"runner.py", "search/points.py", "search/sweep.py"},
    "workloads": {"digits.py", "fashion.py", "graphs.py", "python_source.py", "shakespeare.py"},
}  # fmt: skip
"""Modules that open files which the package itself wrote or ships: records, caches, templates, data."""

_READERS = {"read_text", "read_bytes", "open", "fdopen", "load", "loadtxt", "fromfile"}
_READING_MODULES = {"np", "numpy", "json", "tomllib", "os", "io", "gzip", "lzma", "pickle", "torch"}


def opens_files(source: str) -> bool:
    """Whether a module opens a file itself."""
    for call in (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)):
        match call.func:
            case ast.Name("open"):
                return True
            case ast.Attribute(ast.Name(module), name) if name in _READERS and name.startswith(("load", "from")):
                if module in _READING_MODULES:
                    return True
            case ast.Attribute(_, "read_text" | "read_bytes" | "open" | "fdopen"):
                return True
    return False


def test_no_room_reads_an_input_by_itself() -> None:
    opening = {path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if opens_files(path.read_text())}
    own = {Path(room, name) for room, names in OWN_FILES.items() for name in names}
    assert opening - own == set(), "these read files: what a user names is read by base.read_file"
    assert own - opening == set(), "these read none any more"


@pytest.mark.parametrize(
    "statement", ["open(x)", "path.read_text()", "Path(x).open('rb')", "json.load(x)", "np.load(x)"]
)
def test_a_module_that_opens_files_is_noticed(statement: str) -> None:
    assert opens_files(statement)
    assert not opens_files(f"read_file(x), '{statement.split('(')[0]}'")


def test_devices_are_refused() -> None:
    for read in (read_toml, read_times, read_json, read_graph):
        with pytest.raises(ConfigError, match="not a regular file"):
            read(Path("/dev/zero"))


def test_what_is_read_again_later_cannot_be_a_pipe(tmp_path) -> None:
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"\$\.machine\.technology: .*not a regular file"):
        load_design("fp32-systolic", [f"machine.technology={pipe}"])
    assert digest_of(f"{pipe}:tanh") is None


def test_a_pipe_is_read_to_its_end(tmp_path) -> None:
    pipe, content = tmp_path / "pipe", os.urandom(300_000)
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_bytes, args=[content]).start()
    assert read_file(pipe) == content
    threading.Thread(target=pipe.write_bytes, args=[b"another"]).start()
    assert read_file(pipe) == b"another"


def test_a_pipe_is_read_up_to_the_limit(tmp_path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"x" * 2048)
    with pytest.raises(ConfigError, match="larger than 2047 bytes"):
        read_file(Path(f"/dev/fd/{reading}"), 2047)
    os.close(reading)
    os.close(writing)


def test_a_pipe_into_which_nobody_writes_is_given_up(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(files, "PIPE_TIMEOUT_S", 0.05)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"said nothing for 0\.05 s"):
        read_file(tmp_path / "pipe")


def test_a_command_reads_the_output_of_another(tmp_path) -> None:
    command = f"{sys.executable} -m presilicon design show <({sys.executable} -m presilicon design show bf16-systolic)"
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert load_design("bf16-systolic").description in shown.stdout


def test_a_workload_that_is_a_pipe_is_refused(tmp_path) -> None:
    os.mkfifo(tmp_path / "mine.py")
    with pytest.raises(ConfigError, match=r"workload file .*not a regular file"):
        load_workload(str(tmp_path / "mine.py"))


def test_a_file_is_read_up_to_the_limit(tmp_path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 2048)
    assert read_file(file, 2048) == b"x" * 2048
    with pytest.raises(ConfigError, match="larger than 2047 bytes"):
        read_file(file, 2047)
    huge = tmp_path / "huge.toml"
    with huge.open("wb") as sparse:
        sparse.truncate(LARGEST_TEXT + 1)
    with pytest.raises(ConfigError, match="larger than 16 MiB"):
        read_toml(huge)


@pytest.mark.parametrize(("name", "sentence"), [("none", "there is no such file"), (".", "Is a directory")])
def test_what_cannot_be_read_is_named(name, sentence, tmp_path) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_file(tmp_path / name)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_file(tmp_path / "a\0b")


NO_HOME = """
import os, sys, warnings
access = os.access
os.access = lambda path, mode, **rest: False if mode & os.W_OK else access(path, mode, **rest)  # a foreign user's
os.environ.pop("HOME", None)
os.path.expanduser = lambda path: path  # no such user
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from presilicon.base import cache_directory
    first = cache_directory("graphs")
    assert cache_directory("rtl").parent == first.parent
print(first, os.environ["NUMBA_CACHE_DIR"], sum(each.category.__name__ == "CacheWarning" for each in caught))
"""


def test_without_a_home_caches_are_temporary_and_one_warning_says_so(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    environment = kept | {"TMPDIR": str(tmp_path)}
    for _ in range(2):  # the second command finds the first one's
        done = subprocess.run(
            [sys.executable, "-c", NO_HOME], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        own = tmp_path / f"presilicon-{os.getuid()}"
        assert done.stdout.split() == [str(own / "graphs"), str(own / "numba"), "1"]
        assert own.stat().st_mode & 0o777 == 0o700


def test_a_temporary_cache_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / f"presilicon-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    done = subprocess.run([sys.executable, "-c", NO_HOME], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.split()[0]).parent.parent == tmp_path
    assert not list((tmp_path / "elsewhere").iterdir())
