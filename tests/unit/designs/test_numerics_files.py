"""Numerics in files of their own: read, written, named by designs and by options."""

import json

import pytest
from click.testing import CliRunner

import presilicon as ps
from presilicon.base import ConfigError
from presilicon.cli.main import cli
from presilicon.designs import load_design, load_recipe, recipe_names, write_numerics
from presilicon.records import Ends
from presilicon.study import EvaluateRequest

FILE = """
base = "fp8-hybrid"
description = "mine"
gradient = "float32"

[[overrides]]
layers = "last"
weight = "bfloat16"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(FILE)
    return path


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_a_file_begins_from_a_recipe(file):
    mine, hybrid = ps.load_numerics(file), ps.load_numerics("fp8-hybrid")
    assert mine.weight == hybrid.weight
    assert str(mine.gradient) == "float32"
    assert str(mine.in_force("output", ends=Ends(last="output")).weight) == "bfloat16"
    assert load_recipe(file).name == "mine"
    assert load_recipe(file).description == "mine"


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_is_written_and_read_back(name, tmp_path):
    numerics = ps.load_numerics(name)
    path = tmp_path / "copy.toml"
    path.write_text(write_numerics(numerics))
    assert ps.load_numerics(path) == numerics


def test_a_design_names_a_file_beside_it(file, tmp_path):
    design = tmp_path / "design.toml"
    design.write_text('name = "d"\nbase = "bf16-systolic"\nnumerics = "mine.toml"\n')
    assert load_design(design).numerics == ps.load_numerics(file)
    assert load_design("bf16-systolic", numerics=str(file)).numerics == ps.load_numerics(file)


def test_an_evaluation_is_named_after_the_file(file):
    request = EvaluateRequest(designs=("bf16-systolic",), workload="digits-mlp", numerics=(f"fp32,{file}",))
    assert [design.name for design in request.load_designs()] == ["fp32", "mine"]


def test_a_mistake_is_reported_at_its_place(file, tmp_path):
    file.write_text(FILE.replace("gradient", "gradent"))
    for load in (ps.load_numerics, lambda path: load_design("bf16-systolic", numerics=str(path))):
        with pytest.raises(ConfigError, match=r'mine\.toml.*unknown key "gradent": did you mean "gradient"'):
            load(file)
    with pytest.raises(ConfigError, match='unknown numerics "bf61": did you mean "bf16"'):
        ps.load_numerics("bf61")
    with pytest.raises(ConfigError, match=r"none\.toml"):
        ps.load_numerics(tmp_path / "none.toml")


def test_the_command_shows_checks_and_compares(file):
    assert run("numerics", "validate", "bf16", file) == f"bf16: ok\n{file}: ok\n"
    assert 'gradient = "bfloat16"\n' in run("numerics", "show", "fp8-hybrid")
    differences = json.loads(run("numerics", "diff", "fp8-hybrid", file, "--json"))["differences"]
    assert {row["path"]: row["right"] for row in differences}["gradient.format"] == "float32"
    assert json.loads(run("numerics", "show", "bf16", "--json"))["numerics"]["weight"]["format"] == "bfloat16"


def test_a_diff_names_the_fields_of_overrides() -> None:
    lines = run("numerics", "diff", "nvfp4", "mxfp8").splitlines()
    assert any(line.split() == ["overrides[1].layers", "last", "->", "(absent)"] for line in lines)
    assert not any(line.startswith("overrides ") for line in lines)
