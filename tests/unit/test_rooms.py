"""A room imports other rooms through their `__init__`, so that what a room offers is what its `__init__` lists."""

import ast
from importlib import import_module
from pathlib import Path

import presilicon

ROOT = Path(presilicon.__file__).parent
EVIDENCE = Path(__file__).parents[2] / "evidence"
ROOMS = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}


def imported_modules(source: str) -> set[str]:
    """Modules that a source imports, at any depth: in functions and under `TYPE_CHECKING` too."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            modules.add(node.module)
            # `from presilicon.room import module` imports a module too.
            modules |= {f"{node.module}.{alias.name}" for alias in node.names if is_module(node.module, alias.name)}
    return modules


def is_module(package: str, name: str) -> bool:
    """Whether `from package import name` gives a module and not an exported function of the same name."""
    path = ROOT.parent.joinpath(*package.split("."), name)
    if not path.with_suffix(".py").exists() and not (path / "__init__.py").exists():
        return False
    return name not in getattr(import_module(package), "__all__", ())


def violations(path: str, source: str) -> set[tuple[str, str]]:
    """Pairs of file and imported module where the module lies inside another room."""
    own_room = path.split("/")[0]
    return {
        (path, module)
        for module in imported_modules(source)
        if module.startswith("presilicon.") and len(parts := module.split(".")) > 2 and parts[1] in ROOMS - {own_room}
    }


def test_rooms_import_each_other_through_their_init() -> None:
    crossing = set()
    for file in ROOT.rglob("*.py"):
        path = file.relative_to(ROOT).as_posix()
        if "/" in path:  # the package's own `__init__` and `__main__` belong to no room
            crossing |= violations(path, file.read_text())
    assert sorted(crossing) == []


def test_evidence_imports_rooms_through_their_init() -> None:
    files = [file for folder in ("src", "cards") for file in (EVIDENCE / folder).rglob("*.py")]
    assert len(files) > 30
    crossing = set().union(*(violations(file.relative_to(EVIDENCE).as_posix(), file.read_text()) for file in files))
    assert sorted(crossing) == []


def test_an_import_from_inside_a_room_is_noticed() -> None:
    source = "def f():\n    from presilicon.formats.grammar import parse\n    from presilicon.records import memory\n"
    assert violations("report/x.py", source) == {
        ("report/x.py", "presilicon.formats.grammar"),
        ("report/x.py", "presilicon.records.memory"),
    }
    assert not violations("formats/x.py", "from presilicon.formats.grammar import parse")
    assert not violations("report/x.py", "from presilicon.base import ConfigError")


def test_the_package_spells_out_its_names_for_type_checkers() -> None:
    assert set(presilicon.__all__) == {"__version__", *presilicon._HOMES}
    assert all(hasattr(presilicon, name) for name in presilicon.__all__)
