"""A technology table that has only what every table must have."""

from importlib.resources import files
from pathlib import Path

import pytest


@pytest.fixture
def bare_table(tmp_path: Path) -> Path:
    """The 45 nm table without registers, wires, areas and leakage, under the name "bare"."""
    text = (files("presilicon.designs") / "technologies" / "horowitz-45nm.toml").read_text()
    start, dram = text.split("[register_bit]")[0], text[text.index("[dram.ddr3]") : text.index("# Areas that")]
    path = tmp_path / "bare.toml"
    path.write_text((start + dram).replace("horowitz-45nm", "bare", 1))
    return path
