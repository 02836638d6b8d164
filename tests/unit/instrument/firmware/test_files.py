"""Firmware files: chains alone, or with the range rows that they need."""

import json
from pathlib import Path
from typing import Any

import pytest

from presilicon.base import ConfigError
from presilicon.instrument.firmware.files import read_chains, read_firmware
from presilicon.instrument.firmware.ranges import RangeRow

CHAINS = [[{"op": "vv_filter", "addr": 0}, {"op": "m_reduce", "axis": "M"}, {"op": "v_commit", "size": "M"}]]


def written(folder: Path, data: Any) -> Path:
    file = folder / "f.json"
    file.write_text(json.dumps(data))
    return file


def test_chains_with_and_without_ranges(tmp_path: Path) -> None:
    rows = [[0, 1, "inf"], {"classes": ["zero"]}]
    beside = {0: RangeRow.of_boundaries([5, 6, 7]), 2: RangeRow.of_boundaries([7, 8, 9])}
    alone = read_firmware(written(tmp_path, CHAINS), beside)
    assert alone.rows == beside
    both = read_firmware(written(tmp_path, {"chains": CHAINS, "range_boundaries": rows}), beside)
    assert both.programs == alone.programs
    assert both.rows == {0: RangeRow.of_boundaries([0, 1, "inf"]), 1: RangeRow.of_classes(["zero"]), 2: beside[2]}
    assert read_chains(written(tmp_path, {"chains": CHAINS})) == (CHAINS, [])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"range_boundaries": []}, "expected a list of chains"),
        (7, "7, expected a list of chains"),
        ({"chains": 7}, r"\$.chains: 7, expected a list"),
        ({"chains": CHAINS, "range_boundary": []}, 'did you mean "range_boundaries"'),
        ({"chains": CHAINS, "range_boundaries": [[0, 1], ["x"]]}, "range row 1"),
    ],
)
def test_what_is_no_firmware(tmp_path: Path, data: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_firmware(written(tmp_path, data))
