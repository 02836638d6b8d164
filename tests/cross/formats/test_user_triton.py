"""A user's functions in Triton's interpreter, against the same functions compiled by Numba."""

import pytest

PRELUDE = """
import warnings; warnings.simplefilter("ignore")
import math, numpy as np, torch
from dataclasses import replace
from presilicon.formats import *
from presilicon.formats.kernels import user_gpu
from presilicon.formats.kernels.user_functions import _loop, lane_states
from presilicon.formats.mac import user, user_gpu as products
from translated import *
"""


ELEMENTS = """
fmt = {fmt}
torch.manual_seed(0)
x = torch.randn(300) * torch.logspace(-3, 3, 300)
x[:2] = torch.tensor([0.0, -0.0])
dtype = torch.uint8 if fmt.bits <= 8 else torch.int32
codes = [torch.randint(0, 256, (300,), dtype=dtype) for _ in range(3)]
for name in "{names}".split():
    operands = [x] if name == "convert" else codes[: user_gpu.ARITIES.get(name, 2)]
    states = lane_states(fmt, 300, Key(), torch.device("cpu")) if fmt.state is not None and name == "mad" else None
    found = user_gpu.map_codes(fmt, name, tuple(operands), states)
    expected = torch.empty(300, dtype=found.dtype)
    initial = np.zeros(300) if states is None else states.numpy()
    _loop(fmt, name)(*(o.numpy() for o in operands), initial, expected.numpy(), 0, 300)
    assert ((found == expected) | (found != found)).all(), name
    assert len(set(found.tolist())) > 2, name
print("equal")
"""


@pytest.mark.parametrize(
    ("fmt", "names"),
    [
        ("USER_E4M3", "convert div maximum"),
        ("ON_VALUES", "add mul exp"),
        ("NEAREST", "convert sub"),
        ("ODDITIES", "add mul log"),
        ("LOOPING", "add mul div exp"),
    ],
)
def test_functions_give_the_same_codes(run_kernels, fmt: str, names: str) -> None:
    assert run_kernels(PRELUDE + ELEMENTS.format(fmt=fmt, names=names)) == "equal"


def run_products(interpret, mac: str, change: str = "") -> list[str]:
    return interpret(
        PRELUDE
        + f"""
mac = {mac}
fmt = mac.accumulate
torch.manual_seed(0)
a, b = torch.randn(2, 3, 23) * 2, torch.randn(2, 23, 5) * 2
left, right, sums = encode(a, fmt), encode(b, fmt), user.Sums.of(mac, fmt, 23)
{change}
states = lane_states(fmt, 30, Key(), torch.device("cpu")) if user._has_state(mac) else None
kernel = products._compiled(mac, sums.slots, states is not None)
found = [products._by_kernel(left, right, kernel, mac, sums, states)]
if fmt.bits <= 8 and sums.slots == 1 and not sums.is_tree and states is None and mac.unit is None:
    found.append(products._by_tables(left, right, mac, fmt, sums))
print(*(torch.equal(decode(codes, fmt), matmul(a, b, mac)) for codes in found))
"""
    ).split()


@pytest.mark.parametrize(
    "mac",
    [
        "MacUnit(accumulate=test_mac_user.TABLES, order='chunked', chunk=5)",
        "MacUnit(accumulate=test_mac_user.WIDE, order='pairwise', chunk=5)",
        "MacUnit(accumulate=test_mac_user.COARSE, order='pairwise', chunk=5)",
        "MacUnit(accumulate=test_mac_user.FUSED, order='chunked', chunk=7, width=3)",
        "MacUnit(accumulate=SHIFTING, order='chunked', chunk=5, width=2)",
        "MacUnit(unit=test_mac_user.PAIRS4)",
        "MacUnit(unit=test_mac_user.LANES4)",
    ],
)
def test_products_give_the_same_codes(interpret, mac: str) -> None:
    assert set(run_products(interpret, mac)) == {"True"}


def test_another_operand_gives_other_codes(interpret) -> None:
    assert run_products(interpret, "MacUnit(accumulate=test_mac_user.WIDE)", "left = left ^ 1") == ["False"]


def test_codes_outside_the_fields_are_refused(interpret) -> None:
    code = "USER_E4M3.__class__('wide_add', (('m', 9),), lambda code: float(code), add=too_large)"
    said = interpret(
        PRELUDE + f"try:\n    user_gpu.map_codes({code}, 'add', (torch.ones(3, dtype=torch.int32),) * 2, None)\n"
        "except Exception as error:\n    print(error)\n"
    )
    assert said == "wide_add: `add` must give codes from 0 to 511 on the GPU too"
