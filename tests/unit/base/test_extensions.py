"""Extension points: members of installed packages, and packages that are broken."""

import os
from pathlib import Path

import pytest

from interpreter import Interpreter
from presilicon.base import ConfigError, ExtensionPoint, ExtensionWarning, extensions_named_in


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a package with a module and entry points on the path, as pip would."""

    def put(name: str, source: str, group: str, points: str) -> None:
        (tmp_path / f"{name}.py").write_text(source)
        metadata = tmp_path / f"{name}-0.1.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
        (metadata / "entry_points.txt").write_text(f"[{group}]\n{points}\n")
        monkeypatch.syspath_prepend(str(tmp_path))

    return put


def shapes(**builtin: str) -> ExtensionPoint[type[int]]:
    return ExtensionPoint("presilicon.test_shapes", "shape", builtin, int)


def test_members_of_the_package_come_before_registered_ones(install) -> None:
    install("shapes_a", "class Square(int): pass", "presilicon.test_shapes", "square = shapes_a:Square")
    point = shapes(plain="builtins:int")
    assert point.names() == ["plain", "square"]
    assert point.load("square").__name__ == "Square"
    assert "square" in point
    assert "circle" not in point


def test_a_name_of_the_package_cannot_be_taken_over(install) -> None:
    install("shapes_b", "class Plain(int): pass", "presilicon.test_shapes", "plain = shapes_b:Plain")
    point = shapes(plain="builtins:int")
    with pytest.warns(ExtensionWarning, match=r"shapes_b.*: shape plain comes with presilicon"):
        assert point.names() == ["plain"]
    assert point.load("plain") is int


def test_a_reserved_name_cannot_be_taken_over(install) -> None:
    install("shapes_r", "class Round(int): pass", "presilicon.test_reserved", "round = shapes_r:Round")
    point: ExtensionPoint[type] = ExtensionPoint("presilicon.test_reserved", "shape", {}, int, reserved=["round"])
    with pytest.warns(ExtensionWarning, match=r"shapes_r.*: shape round comes with presilicon"):
        assert point.names() == []


def test_a_broken_member_is_left_out_of_lists_and_explained_by_name(install) -> None:
    install("shapes_c", "import nothing_like_this", "presilicon.test_shapes", "square = shapes_c:Square")
    point = shapes(plain="builtins:int")
    with pytest.warns(ExtensionWarning, match="nothing_like_this"):
        assert list(point.members()) == ["plain"]
    with pytest.raises(ConfigError, match=r'shape "square" cannot be loaded from shapes_c \(shapes_c:Square\)'):
        point.load("square")


def test_a_member_of_another_kind_is_refused(install) -> None:
    install("shapes_d", "class Square(str): pass", "presilicon.test_shapes", "square = shapes_d:Square")
    with pytest.raises(ConfigError, match=r'shape "square" of shapes_d .* must be a int, not'):
        shapes().load("square")


def test_a_module_that_exits_is_a_broken_member(install) -> None:
    install("shapes_e", "import sys; sys.exit(0)", "presilicon.test_shapes", "square = shapes_e:Square")
    with pytest.raises(ConfigError, match="SystemExit"):
        shapes().load("square")


def test_members_that_a_configuration_names_are_known_by_their_source(install, tmp_path: Path) -> None:
    install("shapes_f", "class Oblong(int): pass", "presilicon.test_shapes", "oblong = shapes_f:Oblong")
    point = shapes(plain="builtins:int")
    assert point.names() == ["plain", "oblong"]
    key = "presilicon.test_shapes:oblong"
    assert extensions_named_in('{"shape": "plain", "name": "oblongs"}') == {}
    first = extensions_named_in('{"shape": "oblong(2)"}')[key]
    assert first.startswith("shapes_f 0.1, shapes_f:Oblong, source ")
    (tmp_path / "shapes_f.py").write_text("class Oblong(int): side = 2")
    assert extensions_named_in('{"shape": "oblong"}')[key] != first


def test_an_error_inside_a_registered_member_names_it(install) -> None:
    install("shapes_g", "class Square(int): pass", "presilicon.test_shapes", "square = shapes_g:Square")
    point = shapes(plain="builtins:int")
    with pytest.raises(ConfigError, match=r'shape "square" of shapes_g .* failed: ZeroDivisionError'):  # noqa: SIM117
        with point.errors_of("square"):
            _ = 1 / 0
    with pytest.raises(ZeroDivisionError), point.errors_of("plain"):
        _ = 1 / 0


def test_an_unknown_name_gets_a_proposal() -> None:
    with pytest.raises(ConfigError, match='unknown shape "plan": did you mean "plain"'):
        shapes(plain="builtins:int").load("plan")


OWN = """
from dataclasses import replace

from presilicon import load_workload
from presilicon.records import Reproduced, Reproduction


def short_digits():
    digits = load_workload("digits-mlp")
    return replace(digits, name="short-digits", target=0.2, max_steps=30, description="Digits, soon.")


def reproduce():
    rows = (Reproduced(quantity="one", unit="", published=1.0, ours=1.0),)
    return Reproduction(name="one", title="One", source="here", rows=rows, assumptions=())
"""


def test_workloads_and_reproductions_of_another_package_are_used_by_name(install, tmp_path: Path) -> None:
    points = "short-digits = own_things:short_digits\n\n[presilicon.reproductions]\none = own_things:reproduce"
    install("own_things", OWN, "presilicon.workloads", points)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    with Interpreter(os.environ | {"PYTHONPATH": path}, tmp_path) as interpreter:
        assert "Digits, soon." in interpreter.presilicon("list", "workloads").out
        evaluated = interpreter.presilicon(
            "evaluate", "fp32-systolic", "--workload", "short-digits", "--seeds", "2", "--jobs", "2"
        )
        assert "reached" in evaluated.out, evaluated.err
        assert "one" in interpreter.presilicon("reproduce").out.splitlines()
        assert "published" in interpreter.presilicon("reproduce", "one").out
