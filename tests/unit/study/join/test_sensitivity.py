"""Sensitivity: a ranking made to flip, one made to hold, and the energies of the comparison itself."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

import presilicon as ps
from presilicon.base import ConfigError, to_plain, to_toml
from presilicon.designs import Design, Technology, load_design, load_technology
from presilicon.records import Gemm, Op, Sensitivity, StepGraph, TensorRef
from presilicon.report import render_sensitivity
from presilicon.study import EvaluationPlan, Study, step_sensitivity
from presilicon.study.pool import LocalPool
from presilicon.study.runner import Runner

HOROWITZ = load_technology("horowitz-45nm")
QUICK = replace(ps.load_workload("digits-mlp"), target=0.5, max_steps=60)


def one_product() -> StepGraph:
    a, b = TensorRef(0, (32, 64), "activation"), TensorRef(1, (64, 16), "weight")
    op = Op(
        index=0, name="product", kind="gemm", operator="aten.mm", phase="forward", layer="", inputs=(a, b),
        outputs=(TensorRef(2, (32, 16), "activation"),), flops=2 * 32 * 64 * 16, gemm=Gemm(32, 64, 16),
    )  # fmt: skip
    return StepGraph(name="one", batch_size=32, ops=(op,))


def design_with(table: Technology, name: str, folder: Path) -> Design:
    path = folder / f"{name}.toml"
    path.write_text(to_toml(to_plain(msgspec.structs.replace(table, name=name))))
    return load_design("fp32-systolic", [f"name={name}", f"machine.technology={path}"])


def change_of(found: Sensitivity, entry: str) -> list[tuple[float, tuple[tuple[str, str], ...]]]:
    return [(change.factor, change.pairs) for change in found.rankings[0].changes if change.entry == entry]


def test_a_constructed_flip_is_found_with_its_figure(tmp_path) -> None:
    # The same machine with a slightly cheaper DRAM is better; twice that figure, or half the other's, and it is not.
    plain = design_with(HOROWITZ, "plain", tmp_path)
    cheap = design_with(HOROWITZ.scaled(("dram", "ddr3"), 0.9), "cheap", tmp_path)
    found = step_sensitivity(one_product(), [plain, cheap])
    ranking = found.rankings[0]
    assert ranking.quantity == "energy_per_step_j"
    assert ranking.order == ("cheap", "plain")
    assert not ranking.survives
    flips = {(change.technology, change.factor) for change in ranking.changes if change.entry == "dram.ddr3"}
    assert flips == {("cheap", 2.0), ("plain", 0.5)}
    assert all(change.pairs == (("cheap", "plain"),) for change in ranking.changes)
    # What the two share in area does not depend on DRAM, and a figure that no unit uses changes nothing.
    assert not change_of(found, "int_multiply at 8")
    text = render_sensitivity(found)
    assert "energy per step  cheap < plain: does not survive" in text
    assert "cheap: dram.ddr3 (1755 pJ, assumed)" in text
    assert "plain before cheap" in text


def test_a_gap_of_ten_survives_every_factor_of_two(tmp_path) -> None:
    dear = HOROWITZ
    for path in HOROWITZ.entries():
        if path[0] != "area":
            dear = dear.scaled(path, 10)
    found = step_sensitivity(one_product(), [design_with(dear, "dear", tmp_path), load_design("fp32-systolic")])
    ranking = found.rankings[0]
    assert ranking.order == ("fp32-systolic", "dear")
    assert ranking.survives
    assert ranking.closest is not None
    assert ranking.closest.ratio == pytest.approx(10)
    assert 5 < ranking.closest.scaled_ratio < 10
    assert found.figures == {"dear": len(HOROWITZ.entries()), "horowitz-45nm": len(HOROWITZ.entries())}
    assert "survives\n" in render_sensitivity(found)
    # Ten times is within reach of a factor of twenty.
    assert (
        not step_sensitivity(
            one_product(), [design_with(dear, "dear", tmp_path), load_design("fp32-systolic")], factor=20
        )
        .rankings[0]
        .survives
    )


def test_designs_that_share_a_table_are_scaled_together() -> None:
    found = step_sensitivity(one_product(), [load_design("fp32-systolic"), load_design("bf16-systolic")])
    assert [ranking.quantity for ranking in found.rankings] == ["energy_per_step_j", "area_mm2"]
    for ranking in found.rankings:
        assert ranking.order == ("bf16-systolic", "fp32-systolic")
        assert ranking.survives


def test_the_area_ranking_can_flip_too() -> None:
    # A smaller buffer against narrower cells: which is smaller hangs on the area of SRAM.
    settings = ["machine.rows=16", "machine.cols=16"]
    wide = load_design("fp32-systolic", [*settings, "machine.sram_kib=64"])
    narrow = load_design("bf16-systolic", [*settings, "machine.sram_kib=512"])
    ranking = step_sensitivity(one_product(), [wide, narrow]).rankings[1]
    assert not ranking.survives
    assert any(change.entry.startswith("area.sram_bit") for change in ranking.changes)


def test_without_areas_there_is_no_ranking_by_area(bare_table) -> None:
    bare = [load_design(name, [f"machine.technology={bare_table}"]) for name in ("fp32-systolic", "bf16-systolic")]
    assert [ranking.quantity for ranking in step_sensitivity(one_product(), bare).rankings] == ["energy_per_step_j"]


def trained_study(designs: list[Design], workload: ps.Workload, seeds: int) -> Study:
    study = Study(EvaluationPlan(designs=tuple(designs), workload=workload, seeds=seeds))
    study.train(Runner(LocalPool(1)))
    return study


def test_to_accuracy_starts_from_the_energies_of_the_comparison() -> None:
    trained = trained_study([load_design("fp32-systolic"), load_design("fp8-systolic")], QUICK, seeds=3)
    found, compared = trained.sensitivity().rankings[0], trained.comparison()
    medians = {result.name: result.energy_to_accuracy_j.median for result in compared.designs}
    assert dict(zip(found.order, found.values, strict=True)) == pytest.approx(medians)
    assert found.quantity == "energy_to_accuracy_j"


def test_a_design_that_never_arrives_stays_last() -> None:
    bad = load_design("fp32-systolic", ["name=bad", "numerics.activation=float(exponent=2, mantissa=1)"])
    trained = trained_study([load_design("fp32-systolic"), bad], replace(QUICK, target=0.7), seeds=1)
    ranking = trained.sensitivity().rankings[0]
    assert trained.comparison().designs[1].energy_to_accuracy_j.median is None
    assert ranking.order == ("fp32-systolic", "bad")
    assert ranking.values[1] is None
    assert ranking.survives
    assert ranking.closest is None


@pytest.mark.parametrize(("designs", "factor", "word"), [(1, 2, "at least two"), (2, 1, "above 1")])
def test_what_cannot_be_asked(designs: int, factor: float, word: str) -> None:
    chosen = [load_design("fp32-systolic"), load_design("bf16-systolic")][:designs]
    with pytest.raises(ConfigError, match=word):
        step_sensitivity(one_product(), chosen, factor=factor)
