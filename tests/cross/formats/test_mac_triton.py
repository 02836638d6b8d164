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
from presilicon.formats.mac import gpu, plain
from presilicon.formats.mac.plan import plan_of

gpu.LEVEL_TILE, gpu.NATIVE_TILE, gpu.RANGE_TILE = (8, 16), (8, 16), (8, 8)
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
def test_triton_is_the_kernel(case: str, interpret: Callable[[str], str]) -> None:
    batches = 2 if case == "every sum rounded" else 1
    assert interpret(SCRIPT.format(units=CASES[case], pairs=PAIRS, batches=batches)) == "equal"


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
