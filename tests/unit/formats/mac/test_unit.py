from itertools import product

import pytest

from presilicon.base import ConfigError, FormatError, decode_config, parse_toml, to_plain
from presilicon.formats import Float, Format, MacUnit, parse, tensor_core
from presilicon.formats.mac.plan import plan_of


def read(text: str) -> MacUnit:
    data, source = parse_toml(text, "unit.toml")
    return decode_config(data, MacUnit, source, lambda kind, value: parse(value) if kind is Format else value)


def test_a_unit_is_read_from_toml() -> None:
    unit = read('accumulate = "float(6, 9)"\norder = "chunked"\nchunk = 64\npartial = "float32"')
    assert unit == MacUnit(accumulate=Float(6, 9), order="chunked", chunk=64, partial=parse("float32"))
    assert hash(unit) == hash(read('partial = "float32"\naccumulate = "float(6, 9)"\norder = "chunked"\nchunk = 64'))
    assert to_plain(unit)["accumulate"] == "float(exponent=6, mantissa=9)"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('order = "chunked"', ["order=chunked needs chunk", "chunk=64"]),
        ('order = "systolic"', ["order=systolic needs rows"]),
        ('order = "aligned"', ["needs align_bits"]),
        ('order = "spiral"', ["line 1, $.order", "Allowed", "systolic"]),
        ("chunk = 0", ["chunk must be an integer from 1 to", "not 0"]),
        ("width = 2000", ["width must be an integer from 1 to 1024, not 2000"]),
        ("rows = 4", ["order=sequential has no rows; leave out rows=4"]),
        ("align_bits = 4", ["has no align_bits"]),
        ('order = "pairwise"\nwidth = 4', ["order=pairwise has no width"]),
        ('order = "systolic"\nrows = 4\nchunk = 4', ["order=systolic has no chunk"]),
        ('fused = true\nmultiply = "bfloat16"', ["fused=true and multiply=bfloat16 exclude each other"]),
        ('rounding = "sideways"', ['unknown rounding "sideways"']),
        ('accumulate = "posit(16, 1)"', ["accumulate must be floating point", "not posit("]),
        ('multiply = "mxfp4"', ["multiply must be floating point", "not mxfp4"]),
        (
            'partial = "fixed(8, 8, overflow=wrap)"',
            ["fixed point that saturates", "not fixed("],
        ),
        ("chunks = 4", ['unknown key "chunks"', "chunk"]),
    ],
)
def test_units_that_cannot_be(text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert all(word in str(caught.value) for word in ["unit.toml", *words]), str(caught.value)


def test_a_unit_made_in_python_is_checked_when_used() -> None:
    with pytest.raises(FormatError, match="needs rows"):
        plan_of(MacUnit(order="systolic"))
    with pytest.raises(FormatError, match="did you mean"):
        plan_of(MacUnit(order="sequentil"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        (MacUnit(chunk=64), "float32, chunked(chunk=64)"),
        (MacUnit(accumulate=parse("float16"), order="systolic", rows=8), "float16, systolic(rows=8)"),
        (
            MacUnit(order="aligned", width=4, align_bits=24, rounding="toward-zero"),
            "float32, aligned(width=4, align_bits=24), toward-zero",
        ),
        (MacUnit(multiply=parse("bfloat16"), slice_bits=2), "float32, sequential, products in bfloat16, 2-bit slices"),
        (MacUnit(fused=False), "float32, sequential, products rounded"),
        (MacUnit(order="sequential"), "float32, sequential"),
        (MacUnit(slice_bits=2), "float32, any order, 2-bit slices"),
        (
            MacUnit(accumulate=Float(6, 9), partial=parse("float32"), chunk=64),
            "float(exponent=6, mantissa=9), chunked(chunk=64), partial sums in float32",
        ),
    ],
)
def test_text(unit: MacUnit, text: str) -> None:
    assert str(unit) == text


def test_which_units_are_left_to_the_library() -> None:
    assert MacUnit().is_float32
    assert MacUnit(slice_bits=2, fused=True).is_float32
    others = [
        MacUnit(order="sequential"),
        MacUnit(fused=False),
        MacUnit(chunk=8),
        MacUnit(order="pairwise"),
        MacUnit(width=4),
        MacUnit(rounding="up"),
        MacUnit(accumulate=parse("tf32")),
        MacUnit(multiply=parse("float32")),
    ]
    assert not any(unit.is_float32 for unit in others)


def test_roundings_are_counted() -> None:
    def count(depth: int, **fields: object) -> int:
        return plan_of(MacUnit(**fields)).rounding_count(depth)  # type: ignore[arg-type]

    assert count(0) == 0
    assert count(10) == 11
    assert count(10, fused=False) == 21
    assert count(10, chunk=4) == 10 + 3
    assert count(10, width=4) == 10 + 3 + 1
    assert count(10, order="pairwise") == 9 + 1
    assert count(1, order="pairwise") == 2
    assert count(10, order="aligned", align_bits=20, width=4) == 3 + 1


def multiply_in_passes(a: int, b: int, bits_a: int, bits_b: int, slice_bits: int = 2) -> tuple[int, int]:
    """The product of two mantissas (sign and magnitude) slice by slice, and the passes that it takes.

    So does the fMAC of FAST (Zhang, McDanel and Kung, HPCA 2022): products stay exact, only the passes grow.
    """

    def slices(mantissa: int, bits: int) -> list[int]:
        return [(mantissa >> (slice_bits * i)) % 2**slice_bits for i in range(-(-bits // slice_bits))]

    total, passes = 0, 0
    for i, low in enumerate(slices(abs(a), bits_a)):
        for j, high in enumerate(slices(abs(b), bits_b)):
            total += (low * high) << (slice_bits * (i + j))
            passes += 1
    return (-total if (a < 0) != (b < 0) else total), passes


@pytest.mark.parametrize(("bits_a", "bits_b"), [(2, 2), (2, 4), (4, 2), (4, 4), (3, 4), (1, 4)])
def test_sliced_products_are_exact(bits_a: int, bits_b: int) -> None:
    fmac = MacUnit(slice_bits=2)
    for a, b in product(range(-(2**bits_a) + 1, 2**bits_a), range(-(2**bits_b) + 1, 2**bits_b)):
        assert multiply_in_passes(a, b, bits_a, bits_b) == (a * b, fmac.passes(bits_a, bits_b))


def test_a_multiplier_without_slices_takes_one_pass() -> None:
    assert MacUnit().passes(24, 24) == 1


def test_the_sums_of_a_tensor_core_are_rounded_at_chunk_boundaries_in_any_format() -> None:
    unit = tensor_core(parse("float16"), parse("e5m2"), split=64, accumulate=Float(6, 9), rounding="stochastic")
    assert (unit.accumulate, unit.partial, unit.chunk, unit.rounding) == (Float(6, 9), Float(8, 23), 64, "stochastic")
    fp8 = tensor_core(parse("e5m2"), parse("e4m3fn"), promotion=32, accumulate=parse("float16"))
    assert (fp8.accumulate, fp8.partial, fp8.chunk) == (parse("float16"), Float(8, 13), 32)
    with pytest.raises(FormatError, match="accumulate and rounding are those of the sums of chunks, which need split"):
        tensor_core(parse("float16"), parse("float16"), split=None, accumulate=Float(6, 9))


def test_a_tensor_core_rounds_the_chunks_that_its_instructions_fill() -> None:
    pytest.importorskip("triton")
    from presilicon.formats.mac.chunked_gpu import chunk_instructions

    half = parse("float16")
    named = {
        chunk: chunk_instructions(tensor_core(half, half, split=chunk, accumulate=Float(6, 9))) for chunk in (8, 48)
    }
    assert named[8] is None
    assert [instruction.name for instruction in named[48]] == ["fp16", "fp16"]
    drawn = tensor_core(half, half, split=64, accumulate=half, rounding="stochastic(bits=8, source=lfsr)")
    assert chunk_instructions(drawn) is None
    assert chunk_instructions(MacUnit(accumulate=half, chunk=64)) is None
