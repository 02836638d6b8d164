"""The arithmetic circuits equal `presilicon.formats`, bit for bit, and a single mistake in them is found."""

import itertools
import shutil

import arithmetic
import numpy as np
import pytest
from arithmetic import LFSR, aligned, as_netlists, convert_case, differences, fma_pair_case, fmac, mac_case, pair_case
from random_units import random_mac, random_part

from oracles.arithmetic_bench import simulate_circuits
from presilicon.base import FormatError
from presilicon.formats import MacUnit, parse
from presilicon.rtl.sources import SOURCES

BLOCKED = ["bfp(2)", "bfp(4)", "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "mxint8",
           "nvfp(tensor_scale=false)"]  # fmt: skip
SMALL = ["e4m3", "e5m2", "e3m4", "e4m3fn", "e4m3fnuz", "e5m2fnuz", "e4m3b11fnuz", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1",
         arithmetic.FLUSHING, "float(4, 3, specials=p3109)", "float(4, 3, overflow=saturate)"]  # fmt: skip
CASES = [arithmetic.pair_cases, arithmetic.wide_cases, arithmetic.mac_cases, arithmetic.group_cases,
         arithmetic.block_cases]  # fmt: skip
MODES = ["nearest-even", "nearest-away", "toward-zero", "up", "down", LFSR]


def test_every_pair_of_8_bit_numbers() -> None:
    assert not differences(arithmetic.pair_cases())


def test_random_and_corner_cases_of_wide_formats() -> None:
    assert not differences(arithmetic.wide_cases())


def test_sums_one_after_another_and_in_chunks() -> None:
    assert not differences(arithmetic.mac_cases())


def test_operands_of_one_bit_with_and_without_a_sign() -> None:
    """The narrowest operands of both kinds, in every combination."""
    narrow = ("fixed(1, 0, signed=false)", "fixed(0, 1, signed=false)", "fixed(2, 0)", "fixed(1, 1)")
    unit = MacUnit(accumulate=parse("fixed(5, 2)"))
    assert not differences([mac_case(left, right, unit) for left, right in itertools.product(narrow, repeat=2)])


def test_sums_of_groups() -> None:
    assert not differences(arithmetic.group_cases())


def test_slices_and_converters() -> None:
    assert not differences(arithmetic.block_cases())


def test_what_yosys_reads_computes_the_same(tmp_path) -> None:
    everything = [case for cases in CASES for case in cases()[::8]]
    assert not differences(as_netlists(everything, tmp_path), tmp_path / "netlists")


def test_an_fmac_takes_the_narrowest_and_the_widest_mantissas_and_slices() -> None:
    """Also where mantissa and slice together exceed 31 bits."""
    cases = [
        mac_case(f"bfp({left}, group=4)", f"bfp({right}, group=4)",
                 aligned(4, left + right - 2, chunk=4, slice_bits=bits), (8, 12, 8))
        for left, right in ((23, 19), (23, 1), (9, 9), (2, 1)) for bits in (1, 8, 9, 10, 23, 24)
    ]  # fmt: skip
    assert not differences(cases)
    for bits in (0, 25):
        with pytest.raises(FormatError, match="slice_bits must be an integer from 1 to 24"):
            aligned(4, 16, chunk=4, slice_bits=bits).check()


def test_an_fmac_is_ready_after_its_passes() -> None:
    """2-bit slices: (2, 2) takes one cycle, (2, 4) two, (3, 4) and (4, 4) four, whatever came before."""
    cases = [mac_case(f"bfp({a}, group=4)", f"bfp({b}, group=4)", fmac(4), (8, 20, 8)) for a, b in ((4, 4), (2, 4))]
    for case, passes in zip(cases, (4, 2), strict=True):
        (columns,) = simulate_circuits([case.circuit], [case.rows])
        ready = columns["in_ready"][: -case.circuit.latency]
        assert len(ready) > 10 * passes
        assert ready.sum() == len(ready) // passes
    together = {name: np.concatenate([np.atleast_1d(case.rows[name]) for case in cases]) for name in cases[0].rows}
    (columns,) = simulate_circuits([cases[0].circuit], [together])
    expected = np.concatenate([case.expected["out"] for case in cases])
    assert (columns["out"][columns["out_valid"] == 1] == expected).all(), "the width may change between groups"


def test_a_unit_waits_without_losing_anything() -> None:
    """Bubbles between products change nothing."""
    case = mac_case("e4m3", "e5m2", MacUnit(accumulate=parse("float16"), chunk=4, rounding=LFSR), (12, 9, 8))
    rng = np.random.default_rng(0)
    rows = len(case.rows["left"])
    places = np.sort(rng.choice(3 * rows, rows, replace=False))
    spaced = {name: np.zeros((3 * rows, *column.shape[1:]), np.int64) for name, column in case.rows.items()}
    for name, column in case.rows.items():
        spaced[name][places] = column
    spaced["seed"][:] = case.rows["seed"][0]
    assert not differences([case._replace(rows=spaced)])


MUTATIONS = {
    "multiplier: ties to odd": (
        "presilicon_float_pack", "half && (rest || code[0])", "half && (rest || !code[0])",
        lambda: [pair_case("multiply", "e4m3", "e5m2", "e4m3")],
    ),
    "adder: what is shifted out is lost": (
        "presilicon_term_sum", "lowered[GUARDED] | (|lowered[GUARDED-1:0])", "lowered[GUARDED]",
        lambda: [pair_case("add", "e4m3fn", "e5m2", "e4m3fn", "toward-zero")],
    ),
    "fused multiply-add: one guard bit less": (
        "presilicon_term_sum", "rounding_bits(ROUNDING) + 1) + 1 + SLACK", "rounding_bits(ROUNDING) + 1) + SLACK",
        lambda: [fma_pair_case("e4m3", "e5m2", "float16")],
    ),
    "random words: another tap": (
        "arithmetic/presilicon_lfsr", "base[12]", "base[11]",
        lambda: [mac_case("bfloat16", "bfloat16", MacUnit(accumulate=parse("bfloat16"), rounding=LFSR))],
    ),
    "fixed point: ties up": (
        "arithmetic/presilicon_fixed_sum", "half && (rest || exact[FINE])", "half",
        lambda: [mac_case("fixed(4, 4)", "fixed(2, 6)", MacUnit(accumulate=parse("fixed(6, 5)")))],
    ),
    "chunks: one product less": (
        "arithmetic/presilicon_mac_chunks", "COUNT'(CHUNK - 1)", "COUNT'(CHUNK - 2)",
        lambda: [mac_case("e4m3", "e4m3", MacUnit(accumulate=parse("float(6, 9)"), chunk=4))],
    ),
    "aligned sums: rounded instead of cut": (
        "arithmetic/presilicon_align", "assign units = lowered[WIDE-1-:ALIGN+2];",
        "assign units = lowered[WIDE-1-:ALIGN+2] + (ALIGN + 2)'(|distance);",
        lambda: [mac_case("e5m2", "e4m3", aligned(4, 10, accumulate=parse("float16")), (16, 16, 12))],
    ),
    "blocks: a flipped rounding bit": (
        "presilicon_float_pack", "half && (rest || code[0])", "!half && (rest || code[0])",
        lambda: [mac_case("bfp(4, group=4)", "bfp(4, group=4)", aligned(4, 6, chunk=4, accumulate=parse("e5m2")),
                          (16, 16, 12))],
    ),
    "fMAC: slices of the wrong operand": (
        "arithmetic/presilicon_fmac", "x[SLICE*left_slice+:SLICE]", "x[SLICE*right_slice+:SLICE]",
        lambda: [mac_case("bfp(4, group=4)", "bfp(4, group=4)", fmac(4), (16, 16, 12))],
    ),
    "converter: magnitudes wrap": (
        "arithmetic/presilicon_block_convert", "rounded[PLACES-1:0] | {PLACES{rounded[PLACES]}}", "rounded[PLACES-1:0]",
        lambda: [convert_case("float32", "bfp(4, group=4)")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MUTATIONS)
def test_mistakes_are_found(name, tmp_path) -> None:
    module, right, wrong, cases = MUTATIONS[name]
    sources = tmp_path / "sv"
    shutil.copytree(SOURCES, sources)
    file = sources / f"{module}.sv"
    text = file.read_text()
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong))
    assert differences(cases(), sources)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["multiply", "add"])
def test_every_pair_of_every_small_format(kind, mode) -> None:
    cases = [pair_case(kind, one, other, one, mode) for one in SMALL for other in SMALL[:6]]
    assert not differences(cases[:39])
    assert not differences(cases[39:])


@pytest.mark.slow
@pytest.mark.parametrize("cases", CASES)
def test_everything_that_yosys_reads_computes_the_same(cases, tmp_path) -> None:
    assert not differences(as_netlists(cases(), tmp_path), tmp_path / "netlists")


@pytest.mark.slow
@pytest.mark.parametrize("make", [random_part, random_mac])
@pytest.mark.parametrize("start", range(0, 160, 40))
def test_random_units(make, start) -> None:
    assert not differences([make(seed) for seed in range(start, start + 40)])


@pytest.mark.slow
def test_many_random_cases_of_wide_formats() -> None:
    assert not differences(arithmetic.wide_cases(200_000))


@pytest.mark.slow
@pytest.mark.parametrize("left", BLOCKED)
def test_whole_blocks(left) -> None:
    """Blocks of their full size, in exact and in cut sums."""
    fmt = parse(left)
    group = fmt.group_size
    units = [aligned(group, 40, chunk=group)]
    if "nvfp" not in left:
        units += [aligned(group, 13, accumulate=parse("float(8, 13)"), rounding="toward-zero")]
    assert not differences([mac_case(left, left, unit, (64, 3 * group, 64), 2) for unit in units])
    if "nvfp" not in left:
        assert not differences([convert_case("float32", left, mode, 4000) for mode in ("nearest-even", LFSR)])
