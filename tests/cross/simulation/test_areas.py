"""Our 45 nm areas and leakage against another source: Aladdin's power model, 40 nm at 1 ns (um2 and mW)."""

from statistics import median

import pytest

from presilicon.designs import curve_um2, load_technology

ALADDIN = {
    "register bit": (5.98, 7.40e-5),
    "int32 adder": (278.0, 2.25e-3),
    "int32 multiplier": (6350.0, 7.79e-2),
    "float32 adder": (4360.0, 5.31e-2),
    "float32 multiplier": (8970.0, 0.120),
    "float64 adder": (9880.0, 0.133),
    "float64 multiplier": (22300.0, 0.276),
}
TECHNOLOGY = load_technology("horowitz-45nm")
assert TECHNOLOGY.area is not None
AREA = TECHNOLOGY.area


def test_leakage_is_that_of_most_units() -> None:
    densities = [milliwatts / (um2 * 1e-6) for um2, milliwatts in ALADDIN.values()]
    assert TECHNOLOGY.leakage is not None
    assert TECHNOLOGY.leakage.mw_mm2 == pytest.approx(median(densities), rel=0.05)


@pytest.mark.parametrize(
    ("unit", "ours", "factor"),
    [
        ("float32 adder", curve_um2(AREA.float_add, 32), 1.25),
        ("float32 multiplier", curve_um2(AREA.float_multiply, 24), 1.25),
        # Beyond the figures: the power law through 11 and 24 significand bits, and through 16 and 32 bits.
        ("float64 adder", curve_um2(AREA.float_add, 64), 1.5),
        ("float64 multiplier", curve_um2(AREA.float_multiply, 53), 2.0),
        # The sources disagree: a factor of two is what sensitivity is asked with.
        ("int32 adder", curve_um2(AREA.int_add, 32), 2.1),
        ("int32 multiplier", curve_um2(AREA.int_multiply, 32), 2.0),
    ],
)
def test_areas_of_arithmetic_agree_within_a_factor(unit: str, ours: float, factor: float) -> None:
    theirs = ALADDIN[unit][0]
    assert theirs / factor < ours < theirs * factor
