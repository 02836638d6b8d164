"""Fixed point, integers, posits, logarithmic numbers and tables against the exact reference."""

from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs import bfloat16_patterns, near_ties, random_patterns, same_bits

from presilicon.formats import Fixed, Float, Format, Key, Posit, Stochastic, decode, parse, quantize
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.reference import quantize_value
from presilicon.formats.kernels.torch_kernels import draw_words, round_to_grid
from presilicon.formats.rounding import check_rounding

KEY = Key(seed=11, step=0, tensor="t")
FORMATS = [
    "fixed(8, 4)", "fixed(1, 7)", "fixed(16, 16)", "fixed(4, 20)", "fixed(8, 16)", "fixed(2, 0)",
    "fixed(8, 4, signed=false)", "fixed(0, 8, signed=false)", "fixed(4, 3, overflow=wrap)",
    "fixed(4, 3, overflow=wrap, signed=false)", "int8", "int4", "int(8, scale=0.1)", "int(5, scale=3, signed=false)",
    "posit(8, 2)", "posit(8, 0)", "posit(6, 1)", "posit(3, 0)", "posit(10, 3)", "lns(5, 3)", "lns(4, 0)", "lns(3, 5)",
    "table([-1, -0.5, 0, 0.1, 4, 1000])", "table([1, 2])", "table([-1, 2])",
    "table([-8, -4, -2, -1, 0, 1, 2, 4, 8, inf])", "table([-inf, -6, -4, 0, 1, 3, 7, 9, inf])",
    "table([-inf, -2, -1, 0, 2, inf], overflow=saturate)", "table([-inf, -2, -1])",
]  # fmt: skip
ROUNDINGS = [
    "nearest-even",
    "nearest-away",
    "toward-zero",
    "up",
    "down",
    "stochastic",
    Stochastic(3),
    Stochastic(8, "lfsr"),
]


def numbers(spelling: str) -> torch.Tensor:
    fmt = parse(spelling)
    common = torch.cat([bfloat16_patterns()[::331], random_patterns(150, seed=2), torch.randn(200) * 4])
    if fmt.bits_per_element > 10 or "scale" in spelling:
        return common
    codes = torch.arange(2 ** int(fmt.bits_per_element) if "table" not in spelling else len(fmt.values))
    return torch.cat([common, near_ties(decode(codes, fmt).numpy()), torch.arange(-64, 65) / 4])


@pytest.mark.parametrize("rounding", ROUNDINGS, ids=str)
@pytest.mark.parametrize("spelling", FORMATS)
def test_equals_reference(spelling: str, rounding: str) -> None:
    fmt, x = parse(spelling), numbers(spelling)
    ours = quantize(x, fmt, rounding=rounding, key=KEY)
    judged = [quantize_value(v, fmt, rounding, KEY, i) for i, v in enumerate(x.tolist())]
    assert same_bits(ours, torch.tensor(judged)).all()


@dataclass(frozen=True)
class Listed(Format):
    """A float that is given by the values of its codes alone."""

    kind: ClassVar[str] = "listed"

    number: Float

    @property
    def bits(self) -> int:
        return self.number.bits

    @property
    def saturates(self) -> bool:
        return self.number.overflow == "saturate"

    def code_values(self) -> list[float]:
        return decode(torch.arange(1 << self.bits), self.number).tolist()


WITH_INFINITY = [
    Float(exponent, mantissa, specials=specials, overflow=overflow)
    for specials in ("ieee", "p3109")
    for exponent in (2, 3, 4)
    for mantissa in (0, 1, 2, 3)
    for overflow in ("infinity", "saturate")
    if mantissa or (specials == "p3109" and exponent > 2)  # 0, 1, 2 could as well be followed by 3
]


@pytest.mark.parametrize("rounding", ROUNDINGS[:6])
def test_a_list_that_ends_with_infinity_overflows_where_the_float_does(rounding: str) -> None:
    for fmt in WITH_INFINITY:
        largest = torch.tensor([fmt.max])
        x = torch.cat([bfloat16_patterns()[::7], largest * torch.linspace(-3, 3, 6001)])
        x = torch.cat([x, near_ties(np.array([-2 * fmt.max, -fmt.max, fmt.max, 2 * fmt.max]))])
        listed, plain = (quantize(x, each, rounding=rounding, key=KEY) for each in (Listed(fmt), fmt))
        assert same_bits(listed, plain).all(), fmt
        judged = [quantize_value(v, Listed(fmt), rounding, KEY, i) for i, v in enumerate(x[-24:].tolist(), len(x) - 24)]
        assert same_bits(plain[-24:], torch.tensor(judged)).all(), fmt


@pytest.mark.parametrize("rounding", ["nearest-even", "down", "stochastic"])
@pytest.mark.parametrize("spelling", ["fixed(8, 4)", "fixed(16, 16)", "fixed(4, 20)", "fixed(8, 4, signed=false)"])
def test_fixed_numba_equals_torch(spelling: str, rounding: str) -> None:
    fmt, mode = parse(spelling), check_rounding(rounding)
    x = torch.cat([random_patterns(10**5), torch.randn(10**5) * 50])
    expected = round_to_grid(x, grid_of(fmt), mode, draw_words(x, mode, KEY))
    assert torch.equal(quantize(x, fmt, rounding=rounding, key=KEY).view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("signed", [True, False])
def test_small_integers_equal_ml_dtypes(bits: int, signed: bool) -> None:
    kind = getattr(ml_dtypes, f"{'' if signed else 'u'}int{bits}")
    fmt = parse(f"int({bits}, signed={str(signed).lower()})")
    codes = torch.arange(2**bits)
    values = decode(codes, fmt)
    assert values.tolist() == values.numpy().astype(np.int8).astype(kind).astype(np.float32).tolist()
    assert torch.equal(quantize(values, fmt), values)


def test_scales_fit_the_data() -> None:
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0)) * torch.tensor([[1.0], [10.0], [0.0], [1e-3]])
    x[1, 5], x[1, 6] = float("inf"), float("nan")
    per_channel = quantize(x, parse("int8(scale=channel)"))
    finite = torch.where(torch.isfinite(x), x, 0.0)
    scale = finite.abs().amax(1, keepdim=True) / 127
    steps = per_channel / torch.where(scale > 0, scale, 1.0)
    assert (steps - steps.round()).abs().max() < 1e-4
    assert steps.abs().amax(1).round().tolist() == [127.0, 127.0, 0.0, 127.0]
    assert per_channel[1, 6] == 0
    assert torch.equal(quantize(x[0], parse("int8(scale=tensor)")), per_channel[0])


def test_each_element_of_a_vector_is_a_channel() -> None:
    x = torch.tensor([1.0, -1000.0, 1e-3, 0.0, float("inf")])
    scale = parse("int8(scale=channel)").scale_for(x)
    assert torch.equal(scale, torch.tensor([1 / 127, 1000 / 127, 1e-3 / 127, 1.0, 1.0]))
    assert torch.equal(quantize(x, parse("int8(scale=channel)")), torch.tensor([127.0, -127, 127, 0, 127]) * scale)
    assert quantize(x[:0], parse("int8(scale=channel)")).shape == (0,)
    assert quantize(x[:0].view(0, 3), parse("int8(scale=channel)")).shape == (0, 3)


@pytest.mark.parametrize(("bits", "es"), [(16, 1), (16, 2), (16, 3), (32, 2), (24, 2)])
def test_wide_posits(bits: int, es: int) -> None:
    """Between two codes of a wide posit lies, as bound, the posit with one bit more."""
    fmt, wider = Posit(bits, es), Posit(bits + 1, es) if bits < 32 else None
    codes = torch.randint(1, 2 ** (bits - 1) - 1, (2000,), generator=torch.Generator().manual_seed(0))
    values = torch.stack([decode(codes, fmt), decode(codes + 1, fmt)]).double()
    assert (values[0] <= values[1]).all()
    if wider is None:
        assert decode(torch.tensor([0x40000000, 0x7FFFFFFF, 1, 0x80000000]), fmt)[:3].tolist() == [
            1.0,
            2.0**120,
            2.0**-120,
        ]
        return
    bound = decode(2 * codes + 1, wider).double()
    exact = torch.stack([bound - (bound - values[0]) * 2.0**-20, bound, bound + (values[1] - bound) * 2.0**-20])
    rounded = quantize(exact, fmt)
    even = torch.where(codes % 2 == 0, values[0], values[1])
    assert torch.equal(rounded, torch.stack([values[0], even, values[1]]))


def test_known_posits() -> None:
    """Values of the standard's examples: 1, -1, pi and the largest of posit16 with es = 2."""
    fmt = Posit(16, 2)
    assert decode(torch.tensor([0x4000, 0xC000, 0x7FFF, 0x0001]), fmt).tolist() == [1.0, -1.0, 2.0**56, 2.0**-56]
    assert quantize(torch.tensor([3.14159274]), fmt).item() == 3.1416015625
    assert torch.isnan(decode(torch.tensor([0x8000]), fmt)).all()


@settings(max_examples=300, deadline=None)
@given(
    exponent=st.integers(1, 8), mantissa=st.integers(0, 23), bias=st.none() | st.integers(-20, 140),
    specials=st.sampled_from(["ieee", "fn", "fnuz", "p3109", "none"]), subnormals=st.booleans(),
    rounding=st.sampled_from(ROUNDINGS[:6]), patterns=st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40),
)  # fmt: skip
def test_any_float(exponent, mantissa, bias, specials, subnormals, rounding, patterns) -> None:  # type: ignore[no-untyped-def]
    from presilicon.base import FormatError

    try:
        fmt = Float(exponent, mantissa, bias, subnormals, specials)
    except FormatError:
        return
    assert parse(str(fmt)) == fmt
    x = torch.from_numpy(np.array(patterns, dtype=np.uint32).view(np.float32))
    near = torch.nan_to_num(torch.tensor([fmt.max, fmt.min_normal, fmt.min_subnormal])).float()
    x = torch.cat([x, near, -near * 1.25, near * 0.5, near * 0.75])
    judged = [quantize_value(v, fmt, rounding, KEY, i) for i, v in enumerate(x.tolist())]
    assert same_bits(quantize(x, fmt, rounding=rounding, key=KEY), torch.tensor(judged)).all()


@settings(max_examples=150, deadline=None)
@given(
    integer=st.integers(0, 32), fraction=st.integers(0, 32), signed=st.booleans(),
    rounding=st.sampled_from(ROUNDINGS[:6]), numbers=st.lists(st.floats(width=32), min_size=1, max_size=30),
)  # fmt: skip
def test_any_fixed(integer, fraction, signed, rounding, numbers) -> None:  # type: ignore[no-untyped-def]
    from presilicon.base import FormatError

    try:
        fmt = Fixed(integer, fraction, signed)
    except FormatError:
        return
    x = torch.tensor(numbers)
    judged = [quantize_value(v, fmt, rounding, KEY, i) for i, v in enumerate(x.tolist())]
    assert same_bits(quantize(x, fmt, rounding=rounding, key=KEY), torch.tensor(judged)).all()
