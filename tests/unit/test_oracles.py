"""Oracles share nothing with what they judge: no private name and no constant of the package."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
ORACLES = sorted((TESTS / "oracles").glob("*.py"))
SOURCES = sorted(path for folder in ("src", "evidence/src") for path in (TESTS.parent / folder).rglob("*.py"))
FOREIGN = {"_schema", "_replace", "_destroy"}
"""Private names of torch and of named tuples."""
PRIVATE = re.compile(r"_[^_].*")


def shared(source: str) -> list[str]:
    """The private names and the constants of the package that a source reads."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    found, modules = [], set()
    for node in imports:
        for alias in node.names:
            whole = f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
            if whole.split(".")[0] in ("presilicon", "presilicon_evidence"):
                modules.add(alias.asname or alias.name.split(".")[0])
                if PRIVATE.fullmatch(alias.name) or alias.name.isupper():
                    found.append(whole)
    foreign_private = private_names() - written(tree) - FOREIGN
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root = ast.unparse(node).split(".")[0]
            if node.attr in foreign_private or (node.attr.isupper() and root in modules):
                found.append(ast.unparse(node))
    return found


@cache
def private_names() -> set[str]:
    """The private functions, methods and attributes of the package."""
    return set().union(*(written(ast.parse(path.read_text(encoding="utf-8"))) for path in SOURCES))


def written(tree: ast.Module) -> set[str]:
    """The private names that a module gives to something."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return {name for name in names if PRIVATE.fullmatch(name)}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda path: path.stem)
def test_an_oracle_reads_no_private_name_and_no_constant_of_what_it_judges(oracle: Path) -> None:
    assert shared(oracle.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("from presilicon.formats.families.nvfp import LEAST_SCALES", "presilicon.formats.families.nvfp.LEAST_SCALES"),
        ("from presilicon.formats.kernels.reference import _halves", "presilicon.formats.kernels.reference._halves"),
        ("def exponent(fmt):\n    return fmt._amax_bits", "fmt._amax_bits"),
        ("from presilicon.formats.mac import plan\nprint(plan.SUM_LIMIT)", "plan.SUM_LIMIT"),
        ("import presilicon.rtl as rtl\nprint(rtl.sources.SOURCES)", "rtl.sources.SOURCES"),
    ],
)
def test_what_an_oracle_takes_from_the_package_is_noticed(planted: str, name: str) -> None:
    assert shared(planted) == [name]
