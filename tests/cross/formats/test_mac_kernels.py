"""The compiled kernels against the scalar reference: every order, every rounding, troublesome operands."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mac_inputs import KINDS, count_differences, operand, reference, units

from oracles.mac_units import multiply_matrices, round_exact
from presilicon.formats import Fixed, Float, Format, Key, MacUnit, matmul, parse, quantize
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.reference import quantize_value
from presilicon.formats.mac.plan import MacPlan, plan_of
from presilicon.formats.rounding import random_word

FLOAT16, BFLOAT16, FLOAT32 = parse("float16"), parse("bfloat16"), parse("float32")
IBM = Float(6, 9)
ODD_ONES = [
    Float(5, 10, subnormals=False),
    Float(4, 3, specials="fn"),
    Float(4, 3, specials="fnuz"),
    Float(3, 2, specials="none"),
    Float(3, 2, specials="none", nan="max"),
    Float(8, 0, specials="fn"),
    Float(8, 13),
    Float(5, 10, overflow="saturate"),
]
FIXED = [Fixed(6, 5), Fixed(16, 16), Fixed(4, 4, signed=False), Fixed(2, 0)]
MODES = ["nearest-even", "nearest-away", "toward-zero", "up", "down", "stochastic", "stochastic(bits=5, source=lfsr)"]

kinds = st.sampled_from(KINDS)
seeds = st.integers(0, 2**32)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 13), st.sampled_from([1, 3, 9, 17]))


@pytest.mark.parametrize("mac", units([IBM, FLOAT16]), ids=str)
@settings(max_examples=25, deadline=None)
@given(kinds, kinds, sizes, seeds)
def test_orders(mac: MacUnit, left: str, right: str, size: tuple[int, int, int], seed: int) -> None:
    rows, depth, columns = size
    assert count_differences(operand(left, (rows, depth), seed), operand(right, (depth, columns), seed + 1), mac) == 0


@pytest.mark.parametrize("rounding", MODES)
@settings(max_examples=30, deadline=None)
@given(st.sampled_from([IBM, FLOAT16, BFLOAT16, FLOAT32, *ODD_ONES, *FIXED]), kinds, kinds, sizes, seeds, st.booleans())
def test_roundings(
    rounding: str, fmt: Format, left: str, right: str, size: tuple[int, int, int], seed: int, chunked: bool
) -> None:
    rows, depth, columns = size
    mac = MacUnit(accumulate=fmt, rounding=rounding, chunk=4 if chunked else None)
    a, b = operand(left, (rows, depth), seed), operand(right, (depth, columns), seed + 1)
    assert count_differences(a, b, mac, Key(seed=seed)) == 0


@pytest.mark.parametrize("rounding", ["nearest-even", "stochastic"])
@settings(max_examples=40, deadline=None)
@given(st.sampled_from([BFLOAT16, FLOAT16, FLOAT32, None]), st.sampled_from([IBM, FLOAT32]), kinds, kinds, seeds)
def test_products_that_are_rounded(
    rounding: str, multiply: Float | None, accumulate: Float, left: str, right: str, seed: int
) -> None:
    mac = MacUnit(multiply=multiply, accumulate=accumulate, fused=False, rounding=rounding, chunk=8)
    assert count_differences(operand(left, (2, 19), seed), operand(right, (19, 9), seed + 1), mac, Key(seed)) == 0


@pytest.mark.parametrize("rounding", ["nearest-even", "stochastic"])
@pytest.mark.parametrize("partial", [FLOAT32, FLOAT16], ids=str)
@settings(max_examples=30, deadline=None)
@given(kinds, kinds, seeds, st.booleans())
def test_partial_sums_in_their_own_format(
    rounding: str, partial: Float, left: str, right: str, seed: int, fused: bool
) -> None:
    mac = MacUnit(accumulate=IBM, partial=partial, chunk=8, rounding=rounding, fused=fused)
    assert count_differences(operand(left, (2, 19), seed), operand(right, (19, 9), seed + 1), mac, Key(seed)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("rounding", MODES)
@pytest.mark.parametrize("fmt", [IBM, FLOAT16, BFLOAT16, FLOAT32, *ODD_ONES, *FIXED], ids=str)
def test_every_order_format_and_rounding(fmt: Format, rounding: str) -> None:
    for mac in units([fmt], rounding):
        for seed, (left, right) in enumerate(zip(KINDS, KINDS[3:] + KINDS[:3], strict=True)):
            a, b = operand(left, (3, 13), seed), operand(right, (13, 17), seed + 100)
            assert count_differences(a, b, mac, Key(seed)) == 0
            assert count_differences(a, operand(left, (13, 17), seed + 200), mac, Key(seed)) == 0


@pytest.mark.parametrize("fmt", ["e5m2", "e4m3", "bfloat16", "float16"])
@pytest.mark.parametrize("accumulate", [IBM, FLOAT16, BFLOAT16, Float(4, 3)], ids=str)
def test_the_lean_kernels_give_what_the_exact_one_gives(
    fmt: str, accumulate: Float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wide enough for several tiles, with rows on both sides of each condition of `is_lean`."""
    a, b = operand(fmt, (200, 70), 1), operand(fmt, (70, 600), 2)
    a[3], a[5], a[7] = a[3] * 2.0**-60, a[5] * 2.0**10, a[7] * 2.0**-9
    a[11, 4], a[13, 5], b[2, 300], b[3, 301] = float("inf"), float("nan"), float("-inf"), -0.0
    a[17] = 0.0
    a[19, 6] = 1.0 + 2.0**-23
    mac = MacUnit(accumulate=accumulate, chunk=16)
    assert plan_of(mac).is_leanable
    fast = matmul(a, b, mac)
    monkeypatch.setattr(MacPlan, "is_leanable", False)
    wide = matmul(a, b, mac)
    monkeypatch.setattr(MacPlan, "is_wide_leanable", False)
    exact = matmul(a, b, mac)
    assert torch.equal(fast.view(torch.int32), exact.view(torch.int32))
    assert torch.equal(wide.view(torch.int32), exact.view(torch.int32))
    some = [0, 3, 5, 7, 11, 13, 17, 19]
    columns = b[:, [0, 1, 299, 300, 301, 599]]
    assert torch.equal(
        reference(a[some], columns, mac).nan_to_num(7.0), exact[some][:, [0, 1, 299, 300, 301, 599]].nan_to_num(7.0)
    )


@pytest.mark.parametrize("fmt", ["e5m2", "e4m3", "float16"])
@pytest.mark.parametrize(
    ("mac", "shortcut"),
    [
        (MacUnit(accumulate=IBM, order="pairwise", chunk=29), "is_leanable_tree"),
        (MacUnit(accumulate=Float(4, 3), order="pairwise"), "is_leanable_tree"),
        (MacUnit(accumulate=IBM, chunk=16, rounding="stochastic"), "is_drawable"),
        (MacUnit(accumulate=FLOAT16, rounding="stochastic(bits=7)"), "is_drawable"),
    ],
    ids=str,
)
def test_trees_and_random_sums_are_those_of_the_exact_kernel(
    fmt: str, mac: MacUnit, shortcut: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = operand(fmt, (40, 70), 1), operand(fmt, (70, 600), 2)
    a[3], a[5], a[7] = a[3] * 2.0**-60, a[5] * 2.0**10, a[7] * 2.0**-9
    a[11, 4], a[13, 5], b[2, 300], b[3, 301] = float("inf"), float("nan"), float("-inf"), -0.0
    a[17] = 0.0
    assert getattr(plan_of(mac), shortcut)
    fast = matmul(a, b, mac, key=Key(5))
    monkeypatch.setattr(MacPlan, shortcut, False)
    exact = matmul(a, b, mac, key=Key(5))
    assert torch.equal(fast.nan_to_num(7.0).view(torch.int32), exact.nan_to_num(7.0).view(torch.int32))
    assert not torch.equal(fast, matmul(a, b, MacUnit(accumulate=mac.accumulate), key=Key(5)))


def test_a_tree_sees_which_side_of_a_midpoint_two_products_lie_on() -> None:
    """Half the smallest step and a little more: where the little is too little for float32, the exact kernel rounds."""
    unit = MacUnit(accumulate=IBM, order="pairwise")
    for exponent in (-41, -53, -54, -64, -90):
        a = torch.tensor([[2.0**-20, 2.0 ** (exponent + 20)]])
        b = torch.tensor([[2.0**-20], [2.0**-20]])
        assert matmul(a, b, unit).item() == 2.0**-39


@pytest.mark.parametrize("block", [0, 3])
def test_random_sums_draw_from_the_next_block_of_words(block: int) -> None:
    """Rows on both sides of the 2^32nd rounding, where the key's words change: a kernel of one line at a time."""
    from presilicon.formats.mac.numba_kernels import draw_words

    key, words = Key(9), np.empty(300, dtype=np.uint32)
    keys = np.array([key.words(number) for number in range(block + 2)], dtype=np.uint32)
    start = ((block + 1) << 32) - 100
    draw_words(words, np.int64(start), keys, np.int64(24))
    assert [int(word) for word in words] == [random_word(key, start + j) & 0xFFFFFF00 for j in range(300)]


@pytest.mark.parametrize("bits", [2, 3, 4, 5])
@pytest.mark.parametrize("accumulate", [Float(6, 9), Float(5, 10), Float(4, 7)], ids=str)
def test_midpoints_of_lean_sums(bits: int, accumulate: Float) -> None:
    """Every pair of exponents of an accumulator and a product, all short significands: ties and what lies beside."""
    p = accumulate.mantissa + 1
    steps = torch.arange(-14, 3)
    odd = torch.arange(2 ** (bits - 1), 2**bits).float()
    left = torch.stack([torch.full((steps.numel(),), 2.0 ** (p - 1) + 1), 2.0**steps], dim=1)
    left = torch.cat([left, left * torch.tensor([1.0, -1.0])])
    right = torch.stack([torch.ones_like(odd), odd]).repeat(1, 2)
    mac = MacUnit(accumulate=accumulate)
    assert count_differences(left, right, mac) == 0
    assert count_differences(left * 2.0**-12, right, mac) == 0


def test_where_float32_would_round_twice() -> None:
    """The exact sum lies just above a midpoint, and its float32 on it."""
    a = torch.tensor([[1 + 2.0**-10, (1 + 2.0**-10) * 2.0**-11]])
    b = torch.tensor([[1.0], [1 - 2.0**-10]])
    mac = MacUnit(accumulate=FLOAT16)
    exact = Fraction(1 + 2.0**-10) + Fraction((1 + 2.0**-10) * 2.0**-11) * Fraction(1 - 2.0**-10)
    twice = quantize((a.double() @ b.double()).float(), FLOAT16)
    once = round_exact(exact, grid_of(FLOAT16), "nearest-even")
    assert matmul(a, b, mac).item() == once == 1 + 2.0**-10
    assert twice.item() != once


@pytest.mark.parametrize("gap", range(45, 60))
def test_small_accumulators_beside_products_on_midpoints(gap: int) -> None:
    """Around the 53 bits of float64: the accumulator decides the tie as long as it is not zero."""
    a = torch.tensor([[2.0**-gap, 1 + 2.0**-11], [-(2.0**-gap), 1 + 3 * 2.0**-11], [0.0, 1 + 2.0**-11]])
    assert count_differences(a, torch.ones(2, 3), MacUnit(accumulate=Float(8, 10))) == 0
    assert matmul(a, torch.ones(2), MacUnit(accumulate=Float(8, 10))).tolist() == [1 + 2.0**-10, 1 + 2.0**-10, 1.0]


def test_a_tiny_accumulator_beside_a_product_on_a_midpoint() -> None:
    """Even float64 loses the accumulator here: 2^-120 beside 1 + 2^-11 in float16 with bfloat16-like exponents."""
    fmt = Float(8, 10)
    a = torch.tensor([[2.0**-120, 1 + 2.0**-11]])
    b = torch.ones(2, 1)
    assert matmul(a, b, MacUnit(accumulate=fmt)).item() == 1 + 2.0**-10
    assert matmul(a[:, 1:], b[1:], MacUnit(accumulate=fmt)).item() == 1.0


@given(st.floats(width=32), st.sampled_from([IBM, FLOAT16, *ODD_ONES]), st.sampled_from(MODES[:5]))
def test_the_reference_rounds_as_the_reference_of_formats(x: float, fmt: Float, mode: str) -> None:
    value = Fraction(x) if x == x and abs(x) != float("inf") and x != 0 else abs(x) if x != x else x
    ours, theirs = round_exact(value, grid_of(fmt), mode), quantize_value(abs(x) if x != x else x, fmt, mode)
    assert str(ours) == str(theirs)


def test_random_words_do_not_depend_on_tiles_threads_or_batches() -> None:
    a, b = operand("float16", (2, 40, 9), 3), operand("float16", (9, 300), 4)
    mac, key = MacUnit(accumulate=Float(5, 4), rounding="stochastic"), Key(5, 6, "w")
    whole = matmul(a, b, mac, key=key)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = matmul(a, b.expand(2, 9, 300).clone(), mac, key=key)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(whole, again)
    rows = reference(a.reshape(80, 9)[:2], b, mac, key)
    assert not torch.equal(whole[0, :2], rows), "another number of outputs draws other words"
    assert not torch.equal(whole, matmul(a, b, mac, key=Key(5, 7, "w")))


def test_draws_pass_the_border_of_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond 2^32 draws the key words change; a huge number of outputs is imitated by a small block."""
    import numpy as np

    from presilicon.formats.mac import numba_kernels as mac_kernels

    keys = np.array([[1, 2], [3, 4]], dtype=np.uint32)
    states = np.zeros(1, dtype=np.uint32)
    base = 2**32 - 3
    drawn = [
        mac_kernels.draw(base, j, mac_kernels.keys_at(base, keys), states, 24, mac_kernels.COUNTER) for j in range(6)
    ]
    from presilicon.formats.kernels.numba_kernels import random_word
    from presilicon.formats.rounding import WEYL

    def word(index: int) -> int:
        first, second = (int(x) for x in keys[index >> 32])
        return int(random_word(np.uint32((index * WEYL + first) & 0xFFFFFFFF), np.uint32(second))) >> 8

    assert drawn == [word(base + j) for j in range(6)]


@pytest.mark.parametrize("mutant", ["order", "format", "rounding", "chunk", "key"])
def test_the_comparison_can_fail(mutant: str) -> None:
    a, b = operand("float16", (3, 40), 1), operand("float16", (40, 9), 2)
    mac, key = MacUnit(accumulate=FLOAT16, chunk=8, rounding="stochastic"), Key(1)
    changed = {
        "order": MacUnit(accumulate=FLOAT16, chunk=8, order="pairwise", rounding="stochastic"),
        "format": MacUnit(accumulate=Float(5, 9), chunk=8, rounding="stochastic"),
        "rounding": MacUnit(accumulate=FLOAT16, chunk=8, rounding="stochastic(bits=4)"),
        "chunk": MacUnit(accumulate=FLOAT16, chunk=7, rounding="stochastic"),
        "key": mac,
    }[mutant]
    expected = torch.tensor(multiply_matrices(a.tolist(), b.tolist(), mac, key))
    assert torch.equal(matmul(a, b, mac, key=key), expected)
    assert not torch.equal(matmul(a, b, changed, key=replace(key, step=int(mutant == "key"))), expected)


def test_native_units() -> None:
    assert plan_of(MacUnit(chunk=64)).is_native
    assert plan_of(MacUnit(accumulate=IBM, partial=FLOAT32, chunk=64, rounding="stochastic")).is_native
    assert not plan_of(MacUnit(rounding="toward-zero")).is_native
    assert not plan_of(MacUnit(order="pairwise")).is_native
