"""Files that a user names are read only if they are regular and not too large."""

import os

import pytest

from presilicon.base import LARGEST_TEXT, ConfigError, read_file, read_toml
from presilicon.designs import load_design
from presilicon.designs.operators import digest_of
from presilicon.simulation import read_times
from presilicon.workloads import load_workload


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_devices_and_pipes_are_refused(name, tmp_path) -> None:
    if name == "pipe":
        name = str(tmp_path / "pipe.toml")
        os.mkfifo(name)
    for read in (read_toml, read_times):
        with pytest.raises(ConfigError, match="not a regular file"):
            read(type(tmp_path)(name))
    with pytest.raises(ConfigError, match=r"\$\.machine\.technology: .*not a regular file"):
        load_design("fp32-systolic", [f"machine.technology={name}"])
    assert digest_of(f"{name}:tanh") is None


def test_a_workload_that_is_a_pipe_is_refused(tmp_path) -> None:
    os.mkfifo(tmp_path / "mine.py")
    with pytest.raises(ConfigError, match=r"workload file .*not a regular file"):
        load_workload(str(tmp_path / "mine.py"))


def test_a_file_is_read_up_to_the_limit(tmp_path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"x" * 2048)
    assert read_file(file, 2048) == b"x" * 2048
    with pytest.raises(ConfigError, match="larger than 0 MiB"):
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
