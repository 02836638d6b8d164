"""`presilicon reproduce` on the command line."""

import pytest

from presilicon.reproductions import reproduction_names


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
