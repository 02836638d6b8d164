"""Fields of a machine that were varied and change nothing are named."""

from dataclasses import replace

import pytest

import presilicon as ps
from presilicon.designs import vary_designs
from presilicon.report import render_page, render_table, to_json
from presilicon.study.join.idle import idle_in_prices, idle_remarks

CORES = "machine.cores.parallel has no effect here: designs that differ in nothing else cost the same"


def test_a_field_with_an_effect_beside_some_other_values_is_not_named():
    rows, parallel = "machine.rows", "machine.cores.parallel"
    cases = [({rows: 8, parallel: "data"}, 1.0), ({rows: 8, parallel: "tile"}, 1.0)]
    assert idle_remarks(cases) == (CORES,)
    assert idle_remarks([*cases, ({rows: 16, parallel: "data"}, 1.0), ({rows: 16, parallel: "tile"}, 2.0)]) == ()
    assert idle_remarks(cases[:1]) == ()


@pytest.mark.parametrize(
    ("vary", "prices", "named"),
    [
        ("machine.rows=32,64", [(1.0,), (1.0,)], False),  # their areas differ
        ("machine.cores.parallel=data,tile", [(1.0,), (2.0,)], False),
        ("machine.cores.parallel=data,tile", [(1.0,), (1.0,)], True),
        ("numerics.error.rounding=nearest-even,stochastic", [(1.0,), (1.0,)], False),  # it changes the training
    ],
)
def test_designs_are_told_apart_by_price_and_area(vary, prices, named):
    assert bool(idle_in_prices(vary_designs("bf16-systolic", vary=[vary]), prices)) is named


def test_a_comparison_names_fields_without_effect():
    quick = replace(ps.load_workload("digits-mlp"), target=0.3, max_steps=30)
    comparison = ps.compare(vary_designs("edge-bf16", vary=["machine.cores.parallel=data,tile"]), quick, seeds=1)
    assert comparison.remarks == (CORES,)
    assert f"{CORES}." in render_table(comparison)
    assert f"{CORES}." in render_page(comparison)
    assert f'"{CORES}"' in to_json(comparison)
    trained_otherwise = vary_designs("caterpillar-small", vary=["machine.schedule=sgd,minibatch"])
    assert ps.compare(trained_otherwise, quick, seeds=1).remarks == ()
