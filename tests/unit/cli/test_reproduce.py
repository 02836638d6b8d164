"""`presilicon reproduce` on the command line."""

from importlib.metadata import PackageNotFoundError

import pytest

from presilicon.base import ExtensionPoint
from presilicon.study import reproducing, reproduction_names


@pytest.mark.parametrize("name", ["in-place-transpose"])
def test_the_command_prints_table_and_json(invoke, name: str) -> None:
    text = invoke("reproduce", name).out
    assert "published" in text
    assert "assumptions" in text
    document = invoke("reproduce", name, "--json").document
    assert all({"quantity", "published", "ours", "difference"} <= set(row) for row in document["rows"])
    assert set(invoke("reproduce", "--json").document["reproductions"]) == set(reproduction_names())


def test_without_a_name_it_lists_what_there_is(invoke) -> None:
    assert invoke("reproduce").out.split() == reproduction_names()
    assert 'did you mean "in-place-transpose"' in invoke("reproduce", "in-place-transpos").err


@pytest.mark.parametrize("command", [["reproduce"], ["reproduce", "dead-relu"], ["list", "reproductions", "--json"]])
def test_without_evidence_the_command_says_how_to_get_it(invoke, command: list[str], monkeypatch) -> None:
    def absent(name: str) -> None:
        raise PackageNotFoundError(name)

    none: ExtensionPoint[object] = ExtensionPoint("presilicon.no_reproductions", "reproduction", {}, decides="never")
    monkeypatch.setattr(reproducing, "REPRODUCTIONS", none)
    monkeypatch.setattr(reproducing, "distribution", absent)
    done = invoke(*command)
    assert (done.code, done.out) == (3, "")
    assert done.err.count("pip install presilicon-evidence") == 1
