"""Sensitivity in the table, the document and the page."""

import json

import msgspec
import pytest

from presilicon.records import ClosestCall, Comparison, RankingChange, RankingSensitivity, Sensitivity
from presilicon.report import from_plain, render_page, render_sensitivity, render_table, to_json

NASTY = "<b>&x"


@pytest.fixture
def found(comparison) -> Comparison:
    change = RankingChange(
        technology=NASTY, entry="dram.ddr3", value=1950.0, unit="pJ", label="assumed", factor=2.0, pairs=(("a", "b"),)
    )
    closest = ClosestCall(
        better="a", worse="b", ratio=1.2, technology="t", entry="dram.ddr3", factor=0.5, scaled_ratio=1.05
    )
    rankings = (
        RankingSensitivity(
            quantity="energy_to_accuracy_j",
            order=("a", "b"),
            values=(1.0, None),
            survives=False,
            changes=(change,),
            closest=None,
        ),
        RankingSensitivity(
            quantity="area_mm2", order=("a", "b"), values=(1.0, 1.2), survives=True, changes=(), closest=closest
        ),
    )
    return msgspec.structs.replace(
        comparison, sensitivity=Sensitivity(factor=2.0, figures={"t": 12}, rankings=rankings)
    )


def test_in_words(found) -> None:
    assert found.sensitivity is not None
    assert render_sensitivity(found.sensitivity) == "\n".join(
        [
            "sensitivity: the 12 figures of t, one at a time, times 2 and 1/2",
            "  energy to accuracy  a < b: does not survive",
            "    <b>&x: dram.ddr3 (1950 pJ, assumed)  x 2  b before a",
            "  area                a < b: survives",
            "                      closest: b is 1.2 times a, 1.05 times with dram.ddr3 x 0.5",
        ]
    )
    assert render_table(found).endswith(render_sensitivity(found.sensitivity) + "\n")


def test_in_the_document_and_back(found) -> None:
    document = json.loads(to_json(found))
    assert document["sensitivity"]["rankings"][0]["values"] == [1.0, None]
    assert from_plain(document) == found


def test_on_the_page(found, comparison) -> None:
    page = render_page(found)
    assert "Sensitivity to single figures" in page
    assert "&lt;b&gt;&amp;x: dram.ddr3" in page.replace("\xa0", " ")
    assert "Closest: b is 1.2 times a, 1.05 times with dram.ddr3 x 0.5." in page
    assert "Sensitivity to single figures" not in render_page(comparison)
