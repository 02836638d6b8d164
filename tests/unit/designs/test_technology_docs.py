"""The table that the documentation shows is a valid one, and all of it is used."""

import re
from pathlib import Path

import pytest

from presilicon.designs import Technology, load_design
from presilicon.simulation import area

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "technologies.md").read_text()
(TABLE,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


def test_the_table_of_the_documentation_is_valid_and_whole(tmp_path) -> None:
    path = tmp_path / "my-22nm.toml"
    path.write_text(TABLE)
    design = load_design("fp32-systolic", [f"machine.technology={path}", "machine.dram_kind=lpddr5"])
    assert design.technology is not None
    assert design.technology.name == "my-22nm"
    assert all(getattr(design.technology, field) is not None for field in Technology.__struct_fields__)
    assert area(design).mm2


def test_what_it_calls_optional_may_be_left_out(tmp_path) -> None:
    path = tmp_path / "bare.toml"
    path.write_text(TABLE.split("# Everything from here on")[0])
    assert area(load_design("fp32-systolic", [f"machine.technology={path}"])).mm2 is None


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_links_lead_somewhere(target: str) -> None:
    assert (DOCS / target).exists()
