"""Formats at equal area: designs of one size, trained on the same seeds, in steps that can be resumed."""

import pytest

from presilicon.records import OPERANDS, SeedFinished, SeedRestored
from presilicon.simulation import area
from presilicon.simulation.area import synthesized_unit
from presilicon_evidence.reproductions import formats_at_equal_area as equal_area


def test_every_design_has_the_area_of_the_first() -> None:
    designs = equal_area.designs()
    assert len(designs) >= 20
    assert len({design.numerics for design in designs}) == len(designs)
    areas = {design.name: area(design).mm2 for design in designs}
    assert all(mm2 == pytest.approx(areas["fp32"], rel=0.005) for mm2 in areas.values()), areas
    cells = {design.name: design.machine.rows * design.machine.cols for design in designs}
    assert cells["fp32"] < cells["bf16"] < cells["BFP m=4"] < cells["BFP m=2"]


def test_all_units_were_synthesized() -> None:
    """Areas and energies of all products come from circuits, none from the curves."""

    for design in equal_area.designs():
        table, numerics = design.technology, design.numerics
        for phase, (left, right) in OPERANDS.items():
            a, b = (numerics.operand(role, phase).format for role in (left, right))
            unit = numerics.mac_of(phase)
            for figures in (table.macs, table.area.macs):
                assert synthesized_unit(figures, a, b, unit.accumulate, unit.slice_bits), (design.name, phase)


def test_a_second_run_continues_and_says_the_same(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("PRESILICON_CACHE", str(tmp_path))
    few = {name: equal_area.FORMATS[name] for name in ("fp32", "BFP m=4")}
    monkeypatch.setattr(equal_area, "FORMATS", few)
    seen = []
    first = equal_area.reproduce(seen.append, workloads=("digits-mlp",), seeds=1)
    ended = [event for event in seen if isinstance(event, SeedFinished)]
    assert [event.design for event in ended] == ["digits-mlp: fp32", "digits-mlp: BFP m=4"]
    seen.clear()
    assert equal_area.reproduce(seen.append, workloads=("digits-mlp",), seeds=1) == first
    assert all(isinstance(event, SeedRestored) for event in seen if isinstance(event, SeedFinished))
    ratios = {row.quantity: row.ours for row in first.rows}
    assert ratios["digits-mlp, fp32: time"] == ratios["digits-mlp, fp32: energy"] == 1.0
    assert ratios["digits-mlp, BFP m=4: energy"] < 1.0
    assert "BFP m=4 takes the least energy" in first.verdict
    assert [curve.name for curve in first.panels[0].curves] == list(few)
