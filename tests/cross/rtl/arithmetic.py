"""Cases for arithmetic circuits: inputs, and the outputs that `presilicon.formats` gives."""

import shutil
from typing import NamedTuple

import numpy as np
import torch
from msgspec.structs import replace

from oracles.arithmetic_bench import simulate_circuits
from oracles.arithmetic_parts import add_circuit, convert_circuit, fma_circuit, multiply_circuit
from oracles.mac_units import _exact, add, multiply, round_exact
from presilicon.formats import Key, MacUnit, Stochastic, decode, encode, parse, parse_rounding, random_word, tensor_core
from presilicon.formats.kernels.grid import grid_of
from presilicon.formats.kernels.torch_kernels import round_to_grid
from presilicon.rtl.arithmetic.golden import golden_product
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.units import Circuit, literal
from presilicon.rtl.sources import SOURCES, header_files, module_files
from presilicon.rtl.yosys import run_yosys

LFSR = "stochastic(bits=8, source=lfsr)"
FLUSHING = "float(4, 3, subnormals=false)"


class Case(NamedTuple):
    """What a circuit is fed and must answer, in the rows with `out_valid` if it has that port."""

    name: str
    circuit: Circuit
    rows: dict
    expected: dict


def as_netlists(cases: list[Case], folder) -> list[Case]:
    """The same cases for what Yosys reads of each circuit, written back to `folder`/netlists."""
    (folder / "netlists").mkdir()
    written = []
    for number, case in enumerate(cases):
        circuit, name = case.circuit, f"presilicon_netlist_{number}"
        files = module_files(circuit.module)
        for path in (*files, *header_files(files)):
            shutil.copy(path, folder)
        settings = " ".join(f"-chparam {parameter} {literal(value)}" for parameter, value in circuit.parameters)
        run_yosys(
            f"read_verilog -sv -defer {' '.join(path.name for path in files)}\n"
            f"hierarchy -check -top {circuit.module} {settings}\nproc\nflatten\nopt\ncheck -assert\n"
            f"rename -top {name}\nwrite_verilog -noattr netlists/{name}.sv\n",
            folder,
        )
        written.append(case._replace(circuit=replace(circuit, module=name, parameters=())))
    return written


def differences(cases: list[Case], sources=SOURCES) -> dict[str, int]:
    """The number of wrong outputs of each circuit that has any; all run in one simulation, with pauses."""
    outputs = simulate_circuits(
        [case.circuit for case in cases], [case.rows for case in cases], gap=0.1, sources=sources
    )
    wrong = {}
    for case, columns in zip(cases, outputs, strict=True):
        shown = columns["out_valid"] == 1 if "out_valid" in columns else slice(None)
        for port, expected in case.expected.items():
            found = columns[port][shown]
            same = found == expected if found.shape == expected.shape else np.zeros(expected.shape, bool)
            if not same.all():
                wrong[f"{case.name}: {port}"] = int((~same).sum())
    return wrong


def count(cases: list[Case]) -> int:
    """Compared outputs."""
    return sum(expected.size for case in cases for expected in case.expected.values())


def values_of(fmt, codes):
    return fmt.decode_tensor(torch.from_numpy(codes))


def codes_of(fmt, exact, mode: str, draws):
    """The codes of exact float64 numbers in a float format; NaN has no sign on its way through a MAC unit."""
    rounding = parse_rounding(mode)
    words = None
    if isinstance(rounding, Stochastic):
        words = torch.from_numpy(draws) >> (16 - rounding.bits) << (32 - rounding.bits)
    rounded = round_to_grid(exact, grid_of(fmt), rounding, words)
    of_nan = round_exact(float("nan"), grid_of(fmt), "nearest-even")
    return fmt.codes_of(torch.where(exact.isnan(), of_nan, rounded)).numpy()


def all_pairs(left, right):
    x, y = np.meshgrid(np.arange(1 << left.bits), np.arange(1 << right.bits), indexing="ij")
    return x.ravel(), y.ravel()


def pair_case(kind: str, left: str, right: str, result: str, mode: str = "nearest-even") -> Case:
    """Every pair of codes of two small formats through a multiplier or an adder; float64 holds the exact results."""
    one, other, out = parse(left), parse(right), parse(result)
    x, y = all_pairs(one, other)
    draws = np.random.default_rng(0).integers(1, 1 << 16, len(x))
    first, second = values_of(one, x), values_of(other, y)
    if kind == "multiply":
        exact, port, circuit = first * second, "product", multiply_circuit(one, other, out, mode)
    else:
        exact, port, circuit = first + second, "sum", add_circuit(one, other, out, mode)
        if mode == "down":
            unlike = first.signbit() != second.signbit()
            exact = torch.where((exact == 0) & unlike, -0.0, exact)
    name = f"{kind} {left} {right} {result} {mode}"
    return Case(name, circuit, {"x": x, "y": y, "draw": draws}, {port: codes_of(out, exact, mode, draws)})


def fma_pair_case(left: str, right: str, total: str, mode: str = "nearest-even") -> Case:
    """Every pair of codes of two small formats, each with another addend; float64 must hold the exact results."""
    one, other, out = parse(left), parse(right), parse(total)
    x, y = all_pairs(one, other)
    rng = np.random.default_rng(1)
    z, draws = corner_codes(out, rng, len(x)), rng.integers(1, 1 << 16, len(x))
    near = torch.where(rng_mask(rng, len(x)), -(values_of(one, x) * values_of(other, y)), values_of(out, z))
    z = np.where(near.isfinite(), codes_of(out, near, "nearest-even", draws), z) ^ (rng.random(len(x)) < 0.2)
    exact = values_of(one, x) * values_of(other, y) + values_of(out, z)
    rows = {"x": x, "y": y, "z": z, "draw": draws}
    name = f"fma {left} {right} {total} {mode}"
    return Case(name, fma_circuit(one, other, out, out, mode), rows, {"sum": codes_of(out, exact, mode, draws)})


def rng_mask(rng, size: int):
    return torch.from_numpy(rng.random(size) < 0.5)


def corner_codes(fmt, rng, size: int):
    """Random codes, many of them subnormal, powers of two, or next to the largest number and the special ones."""
    codes = rng.integers(0, 1 << fmt.bits, size)
    sign = rng.integers(0, 2, size) << (fmt.bits - 1)
    small = rng.integers(0, 2 << getattr(fmt, "mantissa", 2), size) | sign
    large = ((1 << (fmt.bits - 1)) - 1 - rng.integers(0, 4 << getattr(fmt, "mantissa", 2) // 2, size)) | sign
    powers = codes & ~((1 << getattr(fmt, "mantissa", 0)) - 1)
    chosen = np.choose(rng.choice(4, size, p=[0.6, 0.2, 0.05, 0.15]), [codes, small, large, powers])
    return chosen & (1 << fmt.bits) - 1


def reference_case(kind: str, formats: tuple[str, ...], mode: str, size: int, *, cuts: int = 0b100000) -> Case:
    """Random and corner cases of wide formats, judged by exact fractions."""
    parsed = [parse(fmt) for fmt in formats]
    out, rng = parsed[-1], np.random.default_rng(2)
    codes = [corner_codes(fmt, rng, size) for fmt in parsed[:-1]]
    if kind == "fma":
        cancel = -(values_of(parsed[0], codes[0]) * values_of(parsed[1], codes[1]))
        near = codes_of(parsed[2], cancel, "nearest-even", codes[0]) ^ rng.integers(0, 3, size)
        codes[2] = np.where(rng.random(size) < 0.4, near, codes[2])
    if kind == "add":
        nearby = (codes[0] ^ rng.integers(0, 8, size) ^ 1 << (parsed[0].bits - 1)) & (1 << parsed[1].bits) - 1
        codes[1] = np.where(rng.random(size) < 0.3, nearby, codes[1])
    draws, rounding = rng.integers(1, 1 << 16, size), parse_rounding(mode)
    numbers = [values_of(fmt, column).tolist() for fmt, column in zip(parsed, codes, strict=False)]
    expected = []
    for index, row in enumerate(zip(*numbers, strict=True)):
        terms = [_exact(number) for number in row]
        exact = multiply(terms[0], terms[1]) if kind != "add" else add(terms[0], terms[1], rounding)
        exact = add(exact, terms[2], rounding) if kind == "fma" else exact
        expected.append(round_exact(exact, grid_of(out), rounding, int(draws[index]) << 16))
    rows = dict(zip("xyz", codes, strict=False)) | {"draw": draws}
    makers = {"multiply": multiply_circuit, "add": add_circuit}
    circuit = makers[kind](*parsed, mode) if kind != "fma" else fma_circuit(*parsed, mode, cuts=cuts)
    port = "product" if kind == "multiply" else "sum"
    return Case(
        f"{kind} {formats} {mode}", circuit, rows, {port: out.codes_of(torch.tensor(expected).double()).numpy()}
    )


def mac_case(left: str, right: str, mac: MacUnit, shape: tuple[int, int, int] = (64, 9, 48), spread: int = 4) -> Case:
    """A matrix product whose numbers are `spread` binades apart, with zeros and some that are not finite."""
    one, other = parse(left), parse(right)
    m, k, n = shape
    rng = np.random.default_rng([m, k, n, spread, one.bits, other.bits])

    def matrix(rows: int):
        x = rng.normal(size=(rows, k)) * 2.0 ** rng.integers(-spread, spread + 1, (rows, k))
        x[:2] *= 2.0 ** (8 * spread)
        x[2:4] *= 2.0 ** (-8 * spread)
        x[rng.random((rows, k)) < 0.1] = 0
        x[-1, k // 2], x[-2, 0], x[-3, k - 1] = np.inf, np.nan, -np.inf
        return torch.from_numpy(x.astype(np.float32))

    key = Key(seed=3)
    golden = golden_product(one, other, mac, matrix(m), matrix(n), key)
    return Case(
        f"{left} {right} {mac}", mac_circuit(one, other, mac, outputs=m * n), golden.rows, {"out": golden.expected}
    )


def pairs_through_mac(left: str, right: str, mac: MacUnit) -> Case:
    """Sums of one product: every pair of numbers of two small formats."""
    one, other = parse(left), parse(right)
    a, b = (decode(torch.arange(1 << fmt.bits), fmt).reshape(-1, 1) for fmt in (one, other))
    golden = golden_product(one, other, mac, a, b)
    return Case(f"pairs {left} {right} {mac}", mac_circuit(one, other, mac), golden.rows, {"out": golden.expected})


def convert_case(source: str, target: str, mode: str = "nearest-even", groups: int = 600) -> Case:
    """Groups of floats at all ranges, with zeros of both signs, infinities and NaN."""
    one, other = parse(source), parse(target)
    size, rng = other.group_size, np.random.default_rng(4)
    x = rng.normal(size=(groups, size)) * 2.0 ** rng.integers(-3, 4, (groups, size))
    x *= 2.0 ** rng.integers(-20, 21, (groups, 1))
    x[:40] *= 2.0**100
    x[40:80] *= 2.0**-120
    x[rng.random(x.shape) < 0.05] = 0
    x[rng.random(x.shape) < 0.05] = -0.0
    x[80:100, 0], x[90:110, -1], x[105:120, 1], x[120:130] = np.inf, np.nan, -np.inf, 0
    codes, key = encode(torch.from_numpy(x.astype(np.float32)), one), Key(seed=5)
    block = encode(decode(codes, one), other, rounding=parse_rounding(mode), key=key)
    rows = {
        "seed": np.full(groups, random_word(key, 0, "lfsr") >> 16),
        "in_valid": np.ones(groups, np.int64),
        "in": codes.numpy().astype(np.int64),
    }
    expected = {"out": block.elements.numpy().astype(np.int64), "out_scale": block.scales.numpy().ravel()}
    return Case(f"{source} {target} {mode}", convert_circuit(one, other, mode), rows, expected)


def aligned(width: int, align_bits: int, **fields) -> MacUnit:
    return MacUnit(order="aligned", width=width, align_bits=align_bits, **fields)


def fmac(group: int, **fields) -> MacUnit:
    return aligned(group, 20, chunk=group, slice_bits=2, **fields)


def pair_cases() -> list[Case]:
    return [
        pair_case("multiply", "e4m3", "e5m2", "float16"),
        pair_case("multiply", "e4m3fnuz", "e5m2fnuz", "e4m3fnuz"),
        pair_case("multiply", FLUSHING, "e4m3", FLUSHING, "up"),
        pair_case("multiply", "e5m2", "e5m2", "e5m2", LFSR),
        pair_case("multiply", "int8", "fp6_e3m2", "float(5, 2, overflow=saturate)", "nearest-away"),
        pair_case("multiply", "e4m3fn", "e4m3fn", "float(4, 3, specials=none, nan=max)", "toward-zero"),
        pair_case("multiply", "e3m4", "fp4_e2m1", "float(5, 0, specials=none)"),
        pair_case("add", "e4m3", "e4m3", "e4m3"),
        pair_case("add", "e4m3fn", "e5m2", "e4m3fn", "toward-zero"),
        pair_case("add", "e5m2", "e5m2", "e5m2", LFSR),
        pair_case("add", "float(4, 3, specials=p3109)", "e4m3", "float(4, 3, specials=p3109)", "down"),
        pair_case("add", FLUSHING, FLUSHING, FLUSHING),
        pair_case("add", "e5m2", "e4m3", "bfloat16"),
        fma_pair_case("e4m3", "e5m2", "float16"),
        fma_pair_case("e4m3fn", "e4m3fn", "float16", LFSR),
        fma_pair_case("e5m2", "e5m2", "e5m2", "toward-zero"),
    ]


def wide_cases(size: int = 1500) -> list[Case]:
    wide = "float32"
    return [
        reference_case("multiply", (wide, wide, wide), "nearest-even", size),
        reference_case("multiply", ("bfloat16", "float16", wide), "toward-zero", size),
        reference_case("add", (wide, wide, wide), "nearest-even", size),
        reference_case("add", (wide, "float16", "bfloat16"), LFSR, size),
        reference_case("fma", (wide, wide, wide, wide), "nearest-even", size),
        reference_case("fma", ("bfloat16", "bfloat16", wide, "bfloat16"), LFSR, size, cuts=0b110111),
        reference_case("fma", ("e4m3", "e5m2", wide, wide), "toward-zero", size, cuts=0b101000),
        reference_case("fma", ("float16", "float16", "bfloat16", "float16"), "down", size, cuts=0b100001),
    ]


def mac_cases() -> list[Case]:
    return [
        pairs_through_mac("e4m3", "e5m2", MacUnit(accumulate=parse("bfloat16"))),
        mac_case("e4m3", "e5m2", MacUnit(accumulate=parse("float16"))),
        mac_case("e4m3fn", "e4m3fn", MacUnit(accumulate=parse("float(6, 9)"), chunk=4)),
        mac_case("e5m2", "e5m2", MacUnit(accumulate=parse("float16"), partial=parse("float32"), chunk=4)),
        mac_case("float16", "float16", MacUnit(order="systolic", rows=4), spread=6),
        mac_case("bfloat16", "bfloat16", MacUnit(accumulate=parse("bfloat16"), rounding=LFSR)),
        mac_case("bfloat16", "e4m3", MacUnit(accumulate=parse("float16"), multiply=parse("e5m2"), rounding=LFSR,
                                             chunk=3)),
        mac_case("float32", "float32", MacUnit(fused=True), spread=12),
        mac_case("float32", "float32", MacUnit(fused=False, rounding="down")),
        mac_case("e4m3fnuz", FLUSHING, MacUnit(accumulate=parse("float(5, 4, subnormals=false, specials=fnuz)"))),
        mac_case("int8", "int8", MacUnit(accumulate=parse("float16")), spread=6),
        pairs_through_mac("int8", "int8", MacUnit(accumulate=parse("fixed(12, 0)"))),
        mac_case("int8", "int8", MacUnit(accumulate=parse("fixed(25, 0)")), spread=6),
        mac_case("fixed(4, 4)", "fixed(2, 6)", MacUnit(accumulate=parse("fixed(6, 5)"))),
        mac_case("fixed(4, 4)", "fixed(2, 6, signed=false)", MacUnit(accumulate=parse("fixed(6, 5)"), rounding=LFSR)),
        mac_case("fixed(4, 4)", "fixed(2, 6)", MacUnit(accumulate=parse("fixed(6, 7)"), multiply=parse("fixed(6, 3)"),
                                                       rounding="toward-zero", chunk=3)),
    ]  # fmt: skip


def group_cases() -> list[Case]:
    half = parse("float16")
    no_tensor_scale = "nvfp(block=4, tensor_scale=false)"
    shape = (64, 16, 48)
    return [
        mac_case("bfp(4, group=4)", "bfp(4, group=4)", aligned(4, 6, chunk=4), shape),
        mac_case("bfp(2, group=4)", "bfp(4, group=8)", aligned(4, 5, accumulate=half), shape),
        mac_case("bfp(4, exponent=3, group=4, top=2, below=flush)", "bfp(3, group=4)",
                 aligned(4, 8, chunk=4, accumulate=half, partial=parse("bfloat16")), shape),
        mac_case("mx(e4m3fn, block=4)", "mx(e4m3fn, block=4)", aligned(4, 40, chunk=4), shape),
        mac_case("mx(e5m2, block=4)", "mx(fp6_e3m2, block=8)", aligned(4, 13, accumulate=parse("float(8, 13)"),
                                                                       rounding="toward-zero"), shape),
        mac_case("mx(fixed(2, 6), block=4)", "mx(fp4_e2m1, block=4)", aligned(4, 20, chunk=8, rounding=LFSR), shape),
        mac_case(no_tensor_scale, no_tensor_scale, aligned(4, 22, chunk=4), shape, 2),
        mac_case("e5m2", "e4m3", aligned(4, 10, accumulate=half, rounding=LFSR), (64, 14, 48), 3),
        mac_case("int8", "e4m3", aligned(3, 10, accumulate=half, rounding="up"), (64, 15, 48), 3),
        mac_case("e5m2", "e4m3fn", tensor_core(parse("e5m2"), parse("e4m3fn"), promotion=64), (32, 80, 24), 2),
        mac_case("bfloat16", "bfloat16", tensor_core(parse("bfloat16"), parse("bfloat16"), split=None), (32, 40, 24)),
    ]  # fmt: skip


def block_cases() -> list[Case]:
    shape = (32, 20, 24)
    return [
        mac_case("bfp(2, group=4)", "bfp(2, group=4)", fmac(4), shape),
        mac_case("bfp(2, group=4)", "bfp(4, group=4)", fmac(4, accumulate=parse("bfloat16")), shape),
        mac_case("bfp(3, group=4)", "bfp(4, group=4)", fmac(4, accumulate=parse("float16"), rounding=LFSR), shape),
        mac_case("bfp(8, group=4)", "bfp(6, group=4)", fmac(4, partial=parse("bfloat16")), shape),
        convert_case("float32", "bfp(4, group=4)"),
        convert_case("bfloat16", "bfp(2, exponent=3, group=4, top=3, below=flush)"),
        convert_case("float32", "bfp(3, group=4)", LFSR),
        convert_case("float16", "bfp(10, group=2)", "toward-zero"),
        convert_case("float32", "mx(e4m3fn, block=4)"),
        convert_case("bfloat16", "mx(fixed(2, 6), block=4)", "up"),
        convert_case("float32", "mx(fp4_e2m1, block=4)", LFSR),
    ]
