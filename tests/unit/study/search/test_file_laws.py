"""A study from tables in Python: they stay as they are, and mean what the same file does."""

import copy
from pathlib import Path

import pytest

from presilicon.study.search.file import read_study

STUDIES = {
    "one of each": {"name": "own", "designs": "edge-bf16", "workloads": "digits-mlp", "objectives": "time_per_step_s"},
    "lists": {
        "name": "own",
        "designs": ["edge-bf16"],
        "workloads": ["digits-mlp", "digits-cnn"],
        "subject_to": "area_mm2 <= 9",
        "vary": {"machine": {"rows": [8, 16]}, "numerics": ["bf16", "fp32"]},
        "train": {"seeds": 2, "max_steps": 40},
    },
}


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(part)}" for key, part in value.items()) + "}"
    return f'"{value}"' if isinstance(value, str) else str(value).replace("'", '"')


@pytest.mark.parametrize("name", STUDIES)
def test_tables_stay_as_they_are_and_mean_what_a_file_does(name: str, tmp_path: Path) -> None:
    tables = copy.deepcopy(STUDIES[name])
    first = read_study(tables)
    assert tables == STUDIES[name]
    assert read_study(tables) == first == read_study(first)
    path = tmp_path / "own.toml"
    path.write_text("".join(f"{key} = {toml(value)}\n" for key, value in tables.items() if key != "name"))
    assert read_study(path) == first  # named by its file
    for key in ("designs", "workloads", "objectives", "subject_to"):
        value = tables.get(key, [])
        listed = [value] if isinstance(value, str) else value
        assert read_study({**tables, key: listed}) == first
