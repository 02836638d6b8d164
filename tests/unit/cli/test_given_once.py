"""Options that say the same thing twice, names that promise a recipe, and batches that a workload refuses."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from presilicon.base import to_toml
from presilicon.designs import load_design
from presilicon.study.join.request import EvaluateRequest

EXAMPLE = Path(__file__).parents[3] / "examples" / "watched.toml"


def test_a_field_is_given_once(invoke) -> None:
    twice = invoke("simulate", "bf16-systolic", "--gemm", "64x64x64", "--set", "machine.rows=32", "--array", "64x64")
    assert twice.code == 2
    assert "machine.rows is given by --set and by --array" in twice.err
    once = invoke("simulate", "bf16-systolic", "--gemm", "64x64x64", "--set", "machine.clock_ghz=1", "--array", "64x64")
    assert once.code == 0


def test_a_batch_that_the_micro_batches_do_not_divide_is_refused(invoke) -> None:
    refused = invoke("simulate", "bf16-systolic", "--workload", "digits-mlp", "--batch", "130", "--accumulate", "4")
    assert refused.code == 2
    assert "must be divisible by accumulate, not 130 by 4" in refused.err


@pytest.mark.parametrize("settings", [(), ("numerics.weight=e5m2",), ("machine.rows=32",)])
def test_a_row_is_named_after_a_recipe_only_if_it_trains_it(settings) -> None:
    request = EvaluateRequest(
        designs=("bf16-systolic",), workload="digits-mlp", numerics=("fp32", "fp8-hybrid"), settings=settings
    )
    changed = any(setting.startswith("numerics.") for setting in settings)
    for design, recipe in zip(request.load_designs(), ("fp32", "fp8-hybrid"), strict=True):
        assert (design.name == recipe) != changed
        assert design.name.startswith(recipe)


def test_a_fitted_design_has_its_areas_in_json(invoke) -> None:
    document = invoke("design", "fit-area", "edge-fp8", "--like", "edge-fp32", "--json").document
    assert document["area_mm2"] == pytest.approx(document["goal_mm2"], rel=0.05)
    assert document["technology"] == document["design"]["machine"]["technology"]


def test_an_empty_list_in_a_design_is_kept_in_its_file(tmp_path) -> None:
    watched = load_design(EXAMPLE)
    hardware = replace(watched.instrument.hardware, alu=())
    design = replace(watched, instrument=replace(watched.instrument, hardware=hardware))
    (tmp_path / "d.toml").write_text(to_toml(design.to_plain(), design))
    assert load_design(tmp_path / "d.toml") == design
