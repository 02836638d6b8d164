"""Areas against sums made by hand."""

import pytest

from presilicon.base import ConfigError
from presilicon.designs import curve_um2, load_design, load_technology
from presilicon.formats import parse
from presilicon.simulation import area, mac_area_um2, mac_pj, register_area_um2, sram_area_um2

HOROWITZ = load_technology("horowitz-45nm")
SMALL = ["machine.rows=2", "machine.cols=2", "machine.vector_lanes=1", "machine.sram_kib=8"]
FLOAT32_MAC = 7700 + 4184


def test_a_two_by_two_array_by_hand() -> None:
    found = area(load_design("fp32-systolic", SMALL))
    cells, registers, lane = 4 * FLOAT32_MAC, 4 * 96 * 5.98, FLOAT32_MAC + 96 * 5.98
    logic = cells + registers + lane
    assert found.parts_mm2 == pytest.approx(
        {
            "multipliers and adders": cells * 1e-6,
            "registers": registers * 1e-6,
            "vector unit": lane * 1e-6,
            "control and wiring": 0.4 * logic * 1e-6,
            "sram": 8 * 8192 * 0.69e-6,
        }
    )
    assert found.mm2 == pytest.approx((1.4 * logic + 8 * 8192 * 0.69) * 1e-6)


@pytest.mark.parametrize(
    ("settings", "part", "bits"),
    [
        # bfloat16 weights or float32 sums stay, whichever is wider.
        (["machine.fold_overlap=true"], "registers", 32),
        (["machine.fold_overlap=true", "machine.dataflow.weight_grad=weight-stationary"], "registers", 16),
        (["machine.transpose=transposer"], "transposer", 16),
    ],
)
def test_options_cost_registers_in_every_cell(settings: list[str], part: str, bits: int) -> None:
    plain, other = area(load_design("bf16-systolic", SMALL)), area(load_design("bf16-systolic", SMALL + settings))
    extra = 4 * bits * 5.98e-6
    assert other.parts_mm2[part] - plain.parts_mm2.get(part, 0.0) == pytest.approx(extra)
    assert other.mm2 is not None
    assert plain.mm2 is not None
    assert other.mm2 - plain.mm2 == pytest.approx(1.4 * extra)


def test_a_narrow_override_does_not_shrink_the_transposer() -> None:
    settings = [*SMALL, "machine.transpose=transposer"]
    narrow = [*settings, 'numerics.overrides=[{ layers = "fc", weight = "e4m3" }]']
    wide = [*settings, 'numerics.overrides=[{ layers = "fc", weight = "float32" }]']
    plain, narrow_mm2, wide_mm2 = (
        area(load_design("bf16-systolic", each)).parts_mm2["transposer"] for each in (settings, narrow, wide)
    )
    assert narrow_mm2 == plain
    assert wide_mm2 == 2 * plain


def test_a_multiplier_takes_the_significands_and_an_adder_the_sum() -> None:
    table = HOROWITZ.area
    assert table is not None
    bf16, e4m3, float32, int8, int32 = map(parse, ("bfloat16", "e4m3", "float32", "int(8)", "fixed(32, 0)"))
    assert mac_area_um2(float32, float32, float32, HOROWITZ) == pytest.approx(FLOAT32_MAC)
    mixed = curve_um2(table.float_multiply, (8 * 4) ** 0.5) + 4184
    assert mac_area_um2(bf16, e4m3, float32, HOROWITZ) == pytest.approx(mixed)
    assert mac_area_um2(int8, int8, int32, HOROWITZ) < 0.1 * mixed
    sliced = curve_um2(table.float_multiply, 2) + 4184
    assert mac_area_um2(bf16, bf16, float32, HOROWITZ, slice_bits=2) == pytest.approx(sliced)


def test_a_table_without_areas_says_so(bare_table) -> None:
    found = area(load_design("fp32-systolic", [f"machine.technology={bare_table}"]))
    assert found.mm2 is None
    assert found.parts_mm2 == {}
    assert found.how == "not known: technology bare has no areas"
    bare = load_technology(str(bare_table))
    for ask in (lambda: sram_area_um2(8, bare), lambda: register_area_um2(8, bare)):
        with pytest.raises(ConfigError, match="has no areas: add"):
            ask()


def test_areas_follow_another_table() -> None:
    design = load_design("fp32-systolic", SMALL)
    doubled = HOROWITZ
    for path in HOROWITZ.entries():
        if path[0] == "area" and "overhead" not in path:
            doubled = doubled.scaled(path, 2)
    assert area(design, doubled).mm2 == pytest.approx(2 * (area(design).mm2 or 0.0))


def test_the_edge_designs_are_of_one_size() -> None:
    areas = [area(load_design(f"edge-{name}")).mm2 for name in ("fp32", "bf16", "fp8")]
    assert max(areas) / min(areas) < 1.02


SYNTHESIZED = "horowitz-45nm-synthesized"


def test_a_synthesized_unit_replaces_the_curves() -> None:
    table = load_technology(SYNTHESIZED)
    float32, e4m3, e5m2 = (parse(name) for name in ("float32", "e4m3", "e5m2"))
    plain = [mac for mac in table.area.macs if mac.slice_bits is None and mac.accumulate == "float32"]
    areas = {(mac.left, mac.right): mac.um2 for mac in plain}
    assert mac_area_um2(float32, float32, float32, table) == pytest.approx(FLOAT32_MAC, rel=1e-3)
    assert mac_area_um2(e4m3, e4m3, float32, table) == areas["e4m3", "e4m3"]
    assert mac_area_um2(e4m3, e5m2, float32, table) == areas["e5m2", "e4m3"], "in either order"
    bfp, longer = (f"bfp(mantissa=4, exponent=8, group={group})" for group in (16, 32))
    assert mac_area_um2(parse(longer), parse(longer), float32, table) == areas[bfp, bfp], "whatever the group"
    assert mac_area_um2(parse(bfp), parse(bfp), float32, table, slice_bits=2) < areas[bfp, bfp]


def test_a_unit_that_was_not_synthesized_is_read_off_the_curves() -> None:
    table, bf16 = load_technology(SYNTHESIZED), parse("bfloat16")
    for accumulate, slice_bits in ((parse("float(8, 9)"), None), (parse("float32"), 4)):
        areas = [mac_area_um2(bf16, bf16, accumulate, tables, slice_bits=slice_bits) for tables in (table, HOROWITZ)]
        assert areas[0] == areas[1]


def test_energies_of_synthesized_units_replace_the_curves_too() -> None:
    table = load_technology(SYNTHESIZED)
    float32, e4m3, int8 = (parse(name) for name in ("float32", "e4m3", "int8"))
    energies = {(mac.left, mac.right, mac.slice_bits): mac.pj for mac in table.macs if mac.accumulate == "float32"}
    assert {mac.label for mac in table.macs} == {"assumed"}
    assert mac_pj(float32, float32, float32, table) == pytest.approx(mac_pj(float32, float32, float32, HOROWITZ))
    assert mac_pj(e4m3, e4m3, float32, table) == energies["e4m3", "e4m3", None]
    bfp = "bfp(mantissa=4, exponent=8, group=16)"
    assert (
        mac_pj(parse(bfp), parse(bfp), float32, table, slice_bits=2) == energies[bfp, bfp, 2] > energies[bfp, bfp, None]
    )
    fixed = parse("fixed(25, 0)")
    # Scaled in float32 alone, the unit of 8-bit integers has the energy that the source gives for it, almost.
    assert mac_pj(int8, int8, fixed, table) == pytest.approx(mac_pj(int8, int8, fixed, HOROWITZ), rel=0.05)
    other = parse("float(8, 9)")
    assert mac_pj(e4m3, e4m3, other, table) == mac_pj(e4m3, e4m3, other, HOROWITZ)
