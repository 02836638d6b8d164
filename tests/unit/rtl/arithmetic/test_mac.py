"""One function maps operand formats and a MAC unit to a circuit, or says why there is none."""

import pytest

from oracles.arithmetic_parts import convert_circuit
from presilicon.base import ConfigError
from presilicon.formats import MacUnit, parse, tensor_core
from presilicon.rtl.arithmetic.mac import mac_circuit
from presilicon.rtl.arithmetic.units import Port


def circuit_of(left: str, right: str, **fields):
    return mac_circuit(parse(left), parse(right), MacUnit(**fields))


def parameters_of(left: str, right: str, **fields) -> dict[str, int]:
    return dict(circuit_of(left, right, **fields).parameters)


def test_ports_have_the_widths_of_the_formats() -> None:
    circuit = circuit_of("e4m3", "bfloat16", accumulate=parse("float(6, 9)"))
    assert Port("left", 8) in circuit.inputs
    assert Port("right", 16) in circuit.inputs
    assert Port("out", 16) in circuit.outputs
    group = circuit_of("mxfp4", "mxfp6_e2m3", order="aligned", width=32, align_bits=40, chunk=32)
    assert Port("left", 4, 32) in group.inputs
    assert Port("right", 6, 32) in group.inputs


def test_latency_counts_the_registers() -> None:
    assert circuit_of("e4m3", "e4m3").latency == 2
    assert circuit_of("e4m3", "e4m3", chunk=4).latency == 3
    assert mac_circuit(parse("e4m3"), parse("e4m3"), MacUnit(), cut=False).latency == 1
    blocks = {"order": "aligned", "width": 16, "chunk": 16, "align_bits": 6}
    assert circuit_of("bfp(4)", "bfp(4)", **blocks, slice_bits=2).latency == 4 + 2


def test_sums_that_need_no_cut_are_exact() -> None:
    """Products of 4-bit mantissas span 7 bits: an exponent and 6 places below it."""
    blocks = {"order": "aligned", "width": 16, "chunk": 16}
    assert parameters_of("bfp(4)", "bfp(4)", **blocks, align_bits=6)["ALIGN"] == 0
    assert parameters_of("bfp(4)", "bfp(4)", **blocks, align_bits=5)["ALIGN"] == 5
    assert parameters_of("bfp(4)", "bfp(4)", **{**blocks, "chunk": 32}, align_bits=6)["ALIGN"] == 6, "a running sum"


REFUSED = {
    "pairwise": ("e4m3", "e4m3", {"order": "pairwise"}, "needs all products"),
    "lanes": ("e4m3", "e4m3", {"width": 4}, "try width=1"),
    "blocks one after another": ("bfp(4)", "e4m3", {}, "order=aligned"),
    "sums in other integers": ("e4m3", "e4m3", {"accumulate": "fixed(16, 8)"}, "floating-point accumulate"),
    "integers beyond float32": ("int8", "int8", {"accumulate": "fixed(32, 0)"}, r"try accumulate=fixed\(25, 0\)"),
    "scaled integers": ("int(8, scale=channel)", "int8", {}, "multiplies codes"),
    "random words": ("e4m3", "e4m3", {"rounding": "stochastic"}, "source=lfsr"),
    "groups across blocks": ("bfp(4)", "bfp(4)", {"order": "aligned", "width": 12, "align_bits": 8}, "try width=16"),
    "parts of groups": ("e4m3", "e4m3", {"order": "aligned", "width": 4, "align_bits": 8, "chunk": 6}, "whole groups"),
    "aligned integers": ("int8", "int8", {"order": "aligned", "align_bits": 8, "accumulate": "fixed(16, 0)"},
                         "rounded to floating point"),
    "rounded products in groups": ("e4m3", "e4m3", {"order": "aligned", "width": 4, "align_bits": 8, "fused": False},
                                   "exactly"),
    "a window that hangs on the tensor": ("bfp(4, exponent=3)", "bfp(4)", {"order": "aligned", "width": 16,
                                                                         "align_bits": 8}, "set top"),
    "a scale of the tensor": ("nvfp4", "nvfp4", {"order": "aligned", "width": 16, "align_bits": 30, "chunk": 16},
                              "tensor_scale=false"),
    "cut NVFP4": ("nvfp(tensor_scale=false)", "mxfp4", {"order": "aligned", "width": 16, "align_bits": 9, "chunk": 16},
                  "try chunk=16 and align_bits="),
    "slices of floats": ("e4m3", "e4m3", {"slice_bits": 2}, "block floating point"),
    "slices one after another": ("bfp(4)", "bfp(4)", {"slice_bits": 2}, "order=aligned"),
    "slices that are cut": ("bfp(4)", "bfp(4)", {"slice_bits": 2, "order": "aligned", "width": 16, "align_bits": 3,
                                                 "chunk": 16}, "try align_bits=6"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_hardware_cannot_do(name) -> None:
    left, right, fields, reason = REFUSED[name]
    if "accumulate" in fields:
        fields = {**fields, "accumulate": parse(fields["accumulate"])}
    with pytest.raises(ConfigError, match=reason) as refusal:
        circuit_of(left, right, **fields)
    assert "\n" not in str(refusal.value)


def test_a_tensor_core_takes_its_own_operands() -> None:
    unit = tensor_core(parse("bfloat16"), parse("bfloat16"))
    assert mac_circuit(parse("bfloat16"), parse("bfloat16"), unit).module == "presilicon_mac_group"
    with pytest.raises(ConfigError, match="takes bfloat16 by bfloat16"):
        mac_circuit(parse("e4m3"), parse("bfloat16"), unit)


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("int8", "bfp(4)", "must be floating point"),
        ("float32", "nvfp4", "no divider"),
        ("float32", "e4m3", "no divider"),
        ("float32", "bfp(4, square=true)", "along one axis"),
        ("float32", "mxfp4(scale=rceil)", "scale=floor"),
        ("float32", "bfp(4, exponent=3)", "set top"),
    ],
)
def test_conversions_without_a_circuit(source, target, reason) -> None:
    with pytest.raises(ConfigError, match=reason):
        convert_circuit(parse(source), parse(target))
