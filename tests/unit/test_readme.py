"""What the README shows is run."""

import re
from pathlib import Path

import pytest

from presilicon.designs import load_design
from presilicon.rtl.verilator import TOOLS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    return found


def test_what_the_system_must_have_is_named() -> None:
    (line,) = re.findall(r"^On a machine with (.*):$", README, re.MULTILINE)
    assert all(tool in re.split(r"[ ,]+", line) for tool in (*TOOLS, "git", "make"))


def test_the_design_file_is_valid(tmp_path) -> None:
    path = tmp_path / "my-bf16.toml"
    path.write_text(block("toml"))
    assert load_design(path).numerics.error.is_stochastic


def test_the_python_example_runs(capsys) -> None:
    exec(compile(block("python"), "README.md", "exec"), {})
    assert "Interval(median=" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
