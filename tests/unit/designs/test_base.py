"""Designs that begin from another one."""

from pathlib import Path

import pytest

from presilicon.base import ConfigError, to_toml
from presilicon.designs import design_names, load_design


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_file_says_only_what_is_different(tmp_path: Path) -> None:
    mine = write(tmp_path / "mine.toml", 'name = "mine"\nbase = "bf16-systolic"\n[machine]\nrows = 32\n')
    chosen, base = load_design(mine), load_design("bf16-systolic")
    assert chosen.machine.rows == 32
    assert chosen.machine.cols == base.machine.cols
    assert chosen.numerics == base.numerics
    assert (chosen.name, chosen.description) == ("mine", "")


def test_files_may_be_based_on_files_beside_them(tmp_path: Path) -> None:
    write(tmp_path / "first.toml", 'name = "first"\nbase = "bf16-systolic"\n[machine]\nrows = 32\n')
    second = write(tmp_path / "second.toml", 'name = "second"\nbase = "first.toml"\n[machine]\ncols = 16\n')
    assert (load_design(second).machine.rows, load_design(second).machine.cols) == (32, 16)


def test_matrix_units_are_replaced_and_energies_inherited() -> None:
    v100, h200 = load_design("v100").machine, load_design("h200").machine
    assert set(v100.matrix) == {"float32", "float16"}
    assert v100.energy.busy == h200.energy.busy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('name = "a"\nbase = "bf16-sistolic"\n', ["a.toml, line 2, $.base", "bf16-sistolic"]),
        ('name = "a"\nbase = "a.toml"\n', ["a.toml is based on itself"]),
        ('name = "a"\nbase = 3\n', ["given 3"]),
        ('base = "bf16-systolic"\n', ['the required key "name" is missing']),
    ],
)
def test_a_base_that_cannot_be_is_refused(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        load_design(write(tmp_path / "a.toml", text))
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("name", design_names())
def test_every_preset_survives_being_written_out(tmp_path: Path, name: str) -> None:
    chosen = load_design(name)
    assert load_design(write(tmp_path / "written.toml", to_toml(chosen.to_plain()))) == chosen
