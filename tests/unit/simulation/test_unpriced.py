"""Parts of a design that are emulated are in its price, or a remark says that they are not."""

import pytest
import torch
from msgspec.structs import replace

from presilicon.base import ConfigError
from presilicon.designs import Change, Design, Override, ProductNumerics, RoleFormat, load_design
from presilicon.formats import MacUnit, parse, quantize
from presilicon.records import Gemm
from presilicon.simulation import area, simulate, simulate_gemm
from presilicon.simulation.roofline import RooflineMachine

SMALL = ["machine.rows=4", "machine.cols=4"]
FLOAT32, FLOAT16 = RoleFormat(parse("float32")), parse("float16")
CHUNKED = [f"numerics.mac.{part}" for part in ("accumulate=float16", "order=chunked", "chunk=64")]


@pytest.mark.parametrize("name", ["bf16-systolic", "caterpillar-small"])
def test_sums_inside_chunks_are_priced_as_wide_as_they_are(linear_step, name: str) -> None:
    small = SMALL if name == "bf16-systolic" else []
    wide = [*small, *CHUNKED, "numerics.mac.accumulate=float32"]
    designs = [load_design(name, settings) for settings in ([*small, *CHUNKED, "numerics.mac.partial=float32"], wide)]
    given, expected = (simulate(linear_step(), design) for design in designs)
    assert given.energy_by_component_j == expected.energy_by_component_j
    assert given.time_s == expected.time_s
    assert area(designs[0]) == area(designs[1])


def _with(design: Design, **numerics: object) -> Design:
    return replace(design, numerics=replace(design.numerics, **numerics))


def test_overrides_that_meet_in_a_layer_make_one_unit_for_both() -> None:
    design = load_design("fp8-systolic", SMALL)
    together = _with(design, overrides=(Override(layers="last", weight=FLOAT32, activation=FLOAT32, error=FLOAT32),))
    apart = tuple(Override(layers="last", **{role: FLOAT32}) for role in ("weight", "activation", "error"))
    assert area(_with(design, overrides=apart)) == area(together)
    later = (Change(layers="*", from_step=10, activation=FLOAT32, error=FLOAT32),)
    assert area(_with(design, overrides=apart[:1], schedule=later)) == area(together)


@pytest.mark.parametrize("crossing", ["conv*", "*2", "first", "c?nv[0-9]"])
def test_overrides_whose_patterns_cross_make_one_unit_for_both(crossing: str) -> None:
    design = load_design("fp8-systolic", SMALL)
    in_one = (Override(layers="conv2", weight=FLOAT32, activation=FLOAT32),)
    apart = (Override(layers=crossing, weight=FLOAT32), Override(layers="con*2", activation=FLOAT32))
    assert area(_with(design, overrides=apart)) == area(_with(design, overrides=in_one))


def test_layers_that_were_made_alike_do_not_hide_those_that_are_changed_again() -> None:
    design = load_design("fp8-systolic", SMALL)
    in_one = (Override(layers="fc1", weight=FLOAT32, activation=FLOAT32),)
    alike = (Override(layers="conv*", weight=FLOAT32), Override(layers="fc*", weight=FLOAT32))
    again = Override(layers="fc1", activation=FLOAT32)
    assert area(_with(design, overrides=(*alike, again))) == area(_with(design, overrides=in_one))


def test_overrides_of_different_layers_make_no_unit_for_both() -> None:
    design = load_design("fp8-systolic", SMALL)
    both = (Override(layers="fc1", weight=FLOAT32), Override(layers="fc2", activation=FLOAT32))
    assert len(_with(design, overrides=both).numerics.variants()) == 3


def test_an_override_cannot_add_in_the_order_of_another_array() -> None:
    design = load_design("bf16-systolic", SMALL)
    unit = MacUnit(order="systolic", rows=8)
    with pytest.raises(ConfigError, match="8 rows, but the machine has 4 rows"):
        design.machine.check_design(_with(design, overrides=(Override(layers="last", mac=unit),)))


@pytest.mark.parametrize("unit", [MacUnit(accumulate=FLOAT16), MacUnit(slice_bits=2)])
def test_a_chip_with_units_of_its_own_says_that_it_prices_those(unit: MacUnit) -> None:
    design = load_design("h200")
    assert design.machine.numerics_remarks(design.numerics) == ()
    (remark,) = design.machine.numerics_remarks(replace(design.numerics, mac=unit))
    assert str(unit) in remark


@pytest.mark.parametrize(
    "setting",
    ["multiply=float16", "width=4", "order=pairwise", "rounding=stochastic"],
)
def test_parts_of_a_unit_that_have_no_price_are_named(setting: str) -> None:
    plain, other = load_design("bf16-systolic"), load_design("bf16-systolic", [f"numerics.mac.{setting}"])
    assert plain.machine.numerics_remarks(plain.numerics) == ()
    (remark,) = other.machine.numerics_remarks(other.numerics)
    assert "a multiplier and an adder" in remark


@pytest.mark.parametrize(
    ("rounding", "fmt", "named"),
    [
        ("stochastic", "mxfp4", "mxfp4(scale=ceil)"),
        ("stochastic(bits=8)", "mxfp8_e4m3(scale=even)", "mxfp8_e4m3(scale=ceil)"),
        ("stochastic", "mxfp4(scale=ceil)", None),
        ("stochastic", "mxint8", None),
        ("nearest-even", "mxfp4", None),
    ],
)
def test_random_rounding_that_scales_bias_is_named_with_the_scale_that_does_not(rounding, fmt, named) -> None:
    design = load_design("bf16-systolic")
    coarse = replace(design.numerics, weight_grad=ProductNumerics(error=RoleFormat(parse(fmt), rounding)))
    added = set(design.machine.numerics_remarks(coarse)) - set(design.machine.numerics_remarks(design.numerics))
    assert [named in remark for remark in added] == ([True] if named else [])


@pytest.mark.parametrize("recipe", ["nvfp4", "fp8-chunked"])
def test_a_single_product_is_not_that_of_the_first_or_last_layer(recipe: str) -> None:
    gemm, design = Gemm(m=64, k=64, n=64), load_design("bf16-systolic", SMALL, numerics=recipe)
    uniform, wide = _with(design, overrides=()), load_design("bf16-systolic", SMALL)
    product, expected, wider = (simulate_gemm(gemm, each).bytes_dram for each in (design, uniform, wide))
    assert product == expected < wider


@pytest.mark.parametrize(
    ("fmt", "unit"),
    [("lns(4, 3)", "float32"), ("lns(4, 0)", "float(exponent=5, mantissa=3)"), ("posit(8, 1)", "bfloat16")],
)
def test_a_chip_multiplies_in_a_unit_that_holds_every_value(fmt: str, unit: str) -> None:
    machine = load_design("h200").machine
    assert isinstance(machine, RooflineMachine)
    assert machine.rate(parse(fmt), parse(fmt))[0] == unit
    values = torch.tensor(list(parse(fmt).code_values()))
    values = values[values.isfinite()]
    assert torch.equal(quantize(values, parse(unit)), values)
