"""The GPU kernels of MAC units, run by Triton's interpreter on a CPU, against the plain torch ones, bit for bit."""

from collections.abc import Callable
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")

SCRIPT = """
import warnings
warnings.filterwarnings("ignore", module="triton")
import torch
from inputs import same_bits
from mac_inputs import KINDS, operand
from presilicon.formats import Fixed, Float, Key, MacUnit, parse
from presilicon.formats.mac import gpu, gpu_levels, plain
from presilicon.formats.mac.plan import plan_of

gpu_levels.LEVEL_TILE, gpu_levels.RANGE_TILE, gpu.NATIVE_TILE = (8, 16), (8, 8), (8, 16)
gpu.TILES = dict.fromkeys(gpu.TILES, (8, 8, 1))
IBM, FLOAT16, FLOAT32 = Float(6, 9), parse("float16"), parse("float32")

size = {batches}
for mac in {units}:
    for seed, (left, right) in enumerate({pairs}):
        a, b = operand(left, (size, 9, 5), seed), operand(right, (size, 5, 21), seed + 9)
        found = gpu.multiply(a, b, plan_of(mac), Key(seed), hardware=False)
        wrong = int((~same_bits(found, plain.multiply(a, b, plan_of(mac), Key(seed)))).sum())
        assert not wrong, (str(mac), left, right, wrong)
    other = plain.multiply(a, b, plan_of(MacUnit(accumulate=Float(5, 1))), Key())
    assert not bool(same_bits(found, other).all()), "the comparison could not fail"
print("equal")
"""

PAIRS = '[("bits", "specials"), ("float16", "float16"), ("e5m2", "e4m3")]'
CASES = {
    "every sum rounded": "[MacUnit(accumulate=IBM, chunk=5), MacUnit(accumulate=Float(4, 3))]",
    "rounded at random": """[
        MacUnit(accumulate=IBM, chunk=4, rounding="stochastic"),
        MacUnit(accumulate=Float(3, 3), chunk=4, rounding="stochastic(bits=5)"),
        MacUnit(accumulate=Float(4, 3, overflow="saturate"), rounding="toward-zero"),
        MacUnit(accumulate=IBM, rounding="nearest-away"),
    ]""",
    "chunk boundaries": """[
        MacUnit(accumulate=IBM, partial=FLOAT32, chunk=5, rounding=r) for r in ("down", "nearest-even", "stochastic")
    ]""",
    "rounded products": '[MacUnit(accumulate=FLOAT16, multiply=parse("bfloat16"), rounding="stochastic(bits=7)")]',
    "other grids": '[MacUnit(accumulate=Fixed(6, 5), rounding="nearest-away", chunk=4)]',
}


@pytest.mark.parametrize("case", CASES)
def test_triton_is_the_kernel(case: str, run_kernels: Callable[[str], str]) -> None:
    batches = 2 if case == "every sum rounded" else 1
    assert run_kernels(SCRIPT.format(units=CASES[case], pairs=PAIRS, batches=batches)) == "equal"


LEVELS = """
import torch
from presilicon.formats import Float, MacUnit
from presilicon.formats.mac.gpu_levels import EXACT, HALF, NARROW, ODD, WIDE, levels_of, tile_levels
from presilicon.formats.mac.plan import plan_of

def level(mac, left, right):
    plan, a, b = plan_of(mac), torch.full((1, 3, 5), left), torch.full((1, 5, 4), right)
    return tile_levels(a, b, plan, levels_of(plan, 12)).unique().tolist()

half, ibm = MacUnit(accumulate=Float(5, 10)), MacUnit(accumulate=Float(6, 9))
assert level(half, 1.5, 0.0) == [HALF]
assert level(half, 0.0, 1e30) == [WIDE], "in float16 a zero times 1e30 is NaN"
assert level(half, 1.5, 1 + 2.0**-20) == [WIDE]
assert level(ibm, 1.5, -0.25) == [NARROW]
assert level(ibm, 1.5, 1e-20) == [ODD]
assert level(ibm, 0.0, float("inf")) == [EXACT]
assert level(MacUnit(accumulate=Float(6, 9), rounding="stochastic"), 1.5, 3.0) == [WIDE]
assert level(MacUnit(accumulate=Float(6, 9), rounding="up"), 1.5, 3.0) == [EXACT]
print("as expected")
"""


def test_numbers_choose_the_kernel(interpret: Callable[[str], str]) -> None:
    assert interpret(LEVELS) == "as expected"


DRAWS = """
import torch
from draw_kernel import draw_kernel
from presilicon.formats import Key
from presilicon.formats.rounding import random_word

key, out = Key(4), torch.zeros(64, dtype=torch.int64)
keys = torch.tensor([key.words(block) for block in range(3)]).to(torch.int32)
for base in (7, 2**32 - 40, 2**33 - 1, 3 * 2**32 - 64):
    draw_kernel[(1,)](out, keys, base, 2, DRAW_BITS=24, COUNT=64)
    assert out.tolist() == [random_word(key, base + j) >> 8 for j in range(64)], base
assert out.tolist() != [random_word(Key(5), base + j) >> 8 for j in range(64)]
print("equal")
"""


def test_random_bits_go_on_in_the_next_block_of_words(interpret: Callable[[str], str]) -> None:
    assert interpret(DRAWS) == "equal"
