"""MAC units in plain torch against the compiled kernels."""

import sys

import pytest
import torch
from inputs import same_bits
from mac_inputs import KINDS, operand, units

from presilicon.formats import Float, Key, MacUnit, matmul, parse
from presilicon.formats.mac.plain import multiply
from presilicon.formats.mac.plan import plan_of

FLOAT16, FLOAT32 = parse("float16"), parse("float32")
UNITS = [
    *units([Float(6, 9)]),
    *units([FLOAT16], "stochastic")[:3],
    *units([Float(4, 3, specials="none", nan="max")], "down")[:1],
    MacUnit(accumulate=Float(6, 9), partial=FLOAT32, chunk=5),
    MacUnit(accumulate=Float(6, 9), multiply=parse("bfloat16"), chunk=5),
]


@pytest.mark.parametrize("mac", UNITS, ids=str)
def test_torch_is_the_kernel(mac: MacUnit) -> None:
    for seed, (left, right) in enumerate(zip(KINDS, KINDS[4:] + KINDS[:4], strict=True)):
        a, b = operand(left, (2, 3, 13), seed), operand(right, (2, 13, 17), seed + 50)
        ours = multiply(a, b, plan_of(mac), Key(seed))
        assert bool(same_bits(ours, matmul(a, b, mac, key=Key(seed), library=False)).all())


def test_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    mac = MacUnit(accumulate=FLOAT16, chunk=8)
    a, b = operand("float16", (5, 20), 1), operand("float16", (20, 6), 2)
    expected = matmul(a, b, mac)
    monkeypatch.setattr(sys.modules["presilicon.formats.mac.matmul"], "has_numba", lambda: False)
    assert torch.equal(matmul(a, b, mac), expected)
    assert matmul(a[:0], b, mac).shape == (0, 6)
