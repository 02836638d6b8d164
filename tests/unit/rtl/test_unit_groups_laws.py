"""The MAC units of numerics: every product is in exactly one, which is its own."""

from itertools import product as combinations

import pytest
from msgspec.structs import replace

from presilicon.designs import Numerics, ProductNumerics, RoleFormat, load_design
from presilicon.formats import MacUnit, parse
from presilicon.records import OPERANDS, PRODUCT_PHASES
from presilicon.rtl import mac_synthesis

BF16, HALF, E5M2 = (RoleFormat(parse(name)) for name in ("bfloat16", "float16", "e5m2"))
OWN = (
    None,
    ProductNumerics(activation=HALF),
    ProductNumerics(weight=HALF, error=E5M2),
    ProductNumerics(mac=MacUnit(accumulate=parse("bfloat16"))),
)


def as_asked(left, right, mac, target, timeout_s):
    return (left, right, mac), (target, timeout_s)


def units_of(numerics: Numerics, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mac_synthesis, "synthesize_mac", as_asked)
    return mac_synthesis.synthesize_units(numerics, "ecp5", timeout_s=3.0)


def test_every_product_is_in_the_unit_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = load_design("bf16-systolic").numerics
    plain = replace(plain, weight=BF16, activation=BF16, error=BF16)
    counts = set()
    for forward, input_grad, weight_grad in combinations(OWN, repeat=3):
        own = {"forward": forward, "input_grad": input_grad, "weight_grad": weight_grad}
        numerics = replace(plain, **{phase: value for phase, value in own.items() if value is not None})
        units = units_of(numerics, monkeypatch)
        assert sorted(phase for phases in units for phase in phases) == sorted(PRODUCT_PHASES)
        for phases, ((left, right, mac), options) in units.items():
            assert options == ("ecp5", 3.0)
            for phase in phases:
                roles = OPERANDS[phase]
                assert [left, right] == [numerics.operand(role, phase).format for role in roles]
                assert mac == numerics.unit_of(phase, *roles)
        assert len({unit for unit, _ in units.values()}) == len(units)  # no two are the same circuit
        counts.add(len(units))
    assert counts == {1, 2, 3}
