"""Reproductions are looked up in installed packages; without presilicon-evidence, one message says how to get it."""

from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from presilicon.base import ConfigError, ExtensionPoint, MissingToolError, extensions, extensions_named_in
from presilicon.records import Reproduced, Reproduction
from presilicon.study import reproduce, reproducing, reproduction_names, trains

ROWS = (Reproduced(quantity="one", unit="", published=1.0, ours=1.0),)
ONE = Reproduction(name="one", title="One", source="here", rows=ROWS, assumptions=())


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Reproductions of a package other than presilicon-evidence, which is not installed."""
    here: dict[str, object] = {}

    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    def entry(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, value=f"own:{name}", dist=None, load=lambda: here[name])

    point: ExtensionPoint[object] = ExtensionPoint("presilicon.test_reproductions", "reproduction", {}, decides="never")
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry(name) for name in here])
    monkeypatch.setattr(reproducing, "REPRODUCTIONS", point)
    monkeypatch.setattr(reproducing, "distribution", absent)
    return here


def test_without_evidence_one_message_says_how_to_get_it(members: dict[str, object]) -> None:
    for ask in (reproduction_names, lambda: trains("dead-relu"), lambda: reproduce("dead-relu")):
        with pytest.raises(MissingToolError, match="pip install presilicon-evidence") as missing:
            ask()
        assert str(missing.value).count("\n") == 0


def test_other_packages_reproduce_without_evidence(members: dict[str, object]) -> None:
    members["one"] = lambda: ONE
    members["two"] = lambda: "two"
    assert reproduction_names() == ["one", "two"]
    assert reproduce("one") == ONE
    assert not trains("one")
    with pytest.raises(ConfigError, match='reproduction "two" must return a Reproduction'):
        reproduce("two")
    with pytest.raises(MissingToolError, match="presilicon-evidence"):
        reproduce("three")


def test_no_reproduction_is_part_of_a_run() -> None:
    assert {"fast", "camel"} <= set(reproduction_names()), "methods have these names too"
    assert extensions_named_in(f"a run of {' and '.join(reproduction_names())}") == {}
