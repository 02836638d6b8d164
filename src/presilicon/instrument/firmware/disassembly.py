"""Disassembly of an image into firmware text."""

import struct

from presilicon.base import located
from presilicon.designs import ALU_FUNCTIONS, REDUCE_FUNCTIONS, Hardware
from presilicon.formats import Fixed, Float
from presilicon.instrument.firmware.image import Chain, Image, StoredRow, check_beginning, describe_geometry, read_image
from presilicon.instrument.firmware.instructions import ALU, condition_names
from presilicon.instrument.model.words import CLASSES, values_of, word_limits

_OPS = {function: op for op, function in ALU.items()}


def disassemble(data: bytes) -> str:
    """An image as text: its hardware, its ranges, and its chains as instructions in the usual order of blocks.

    Raises:
        ImageRefusedError: the bytes are not an image.
    """
    check_beginning(data)
    hardware = _hardware(data)
    image = read_image(data, hardware)
    lines = [f"for {describe_geometry(data[6:18])}"]
    lines += [_row(row, image) for row in image.rows]
    for first, count in dict.fromkeys(pair for pair in image.taps if pair[1]):
        taps = [tap for tap, pair in enumerate(image.taps) if pair == (first, count)]
        interval = image.initiation_interval(taps[0])
        lines.append(f"tap{'s' if len(taps) > 1 else ''} {', '.join(map(str, taps))}: initiation interval {interval}")
        chains = image.chains_of(taps[0])
        lines += [f"  chain {number}: {chain_text(chain)}" for number, chain in enumerate(chains, start=1)]
    if image.sampling is not None:
        shown = (f"tap {tap}: {f'every {every}' if every else 'none'}" for tap, every in enumerate(image.sampling))
        lines.append(f"sampling of outer frames: {'; '.join(shown)}")
    lines += [f"control {register} = {value}" for register, value in image.controls]
    return "\n".join(lines)


def chain_text(chain: Chain) -> str:
    """A chain as its instructions.

    >>> chain_text(Chain(alu=1, alu_conditions=2, cache=True, reduce=1, commit=1, commit_conditions=4))
    'vv_add(0, notfirst) v_cache(0) v_reduce(sum) v_commit(1, last)'
    """
    parts = []
    if chain.filter:
        parts += [f"vv_filter({chain.range_row})", f"m_reduce({'MN'[chain.axis]})"]
    if chain.load:
        parts.append("v_mc_load()")
    if chain.alu:
        op = _OPS[ALU_FUNCTIONS[chain.alu - 1]]
        parts.append(_call(op, [] if op == "v_abs" else [str(chain.alu_row)], chain.alu_conditions))
    if chain.cache:
        parts.append(_call("v_cache", [str(chain.cache_row)], chain.cache_conditions))
    if chain.save:
        parts.append("v_mc_save()")
    if chain.reduce:
        parts.append(f"v_reduce({REDUCE_FUNCTIONS[chain.reduce - 1]})")
    if chain.commit:
        parts.append(_call("v_commit", ["1MN"[chain.commit - 1]], chain.commit_conditions))
    bubbles = f"  ; {chain.bubbles} bubble{'s' if chain.bubbles > 1 else ''} before" if chain.bubbles else ""
    return (" ".join(parts) or "nothing") + bubbles


def _call(op: str, operands: list[str], conditions: int) -> str:
    return f"{op}({', '.join([*operands, *condition_names(conditions)])})"


def _row(row: StoredRow, image: Image) -> str:
    hardware = image.hardware
    if row.is_classes:
        names = [[name for bit, name in enumerate(CLASSES) if mask >> bit & 1] for mask in row.keys[:-1]]
        return f"ranges {row.row}: classes " + " | ".join(" ".join(group) or "-" for group in names)
    if hardware.is_float:
        sign = 1 << hardware.word_bits - 1
        codes = [-key | sign if key < 0 else key for key in row.keys]
        shown = [f"{value:.9g}" for value in values_of(hardware, codes)]
    else:
        low, high = word_limits(hardware)
        ends = {low - 1: "-inf", high: "inf"}
        shown = [ends.get(key, f"{key / (1 << hardware.fraction_bits):.15g}") for key in row.keys]
    return f"ranges {row.row}: low < x <= high between {', '.join(shown)}"


def _hardware(data: bytes) -> Hardware:
    """A hardware with the image's geometry and every function; an image does not have the input buffer and the bias."""
    lanes, ranges, bits, kind, exponent, fraction, *rows = struct.unpack("<HH8B", data[6:18])
    with located("an image for hardware that cannot exist"):
        element = Float(exponent, fraction) if kind else _fixed(bits, fraction)
        hardware = Hardware(
            lanes=lanes,
            ranges=ranges,
            range_rows=rows[0] + 1,
            scratchpad_rows=rows[1] + 1,
            chains=rows[2] + 1,
            taps=rows[3] + 1,
            element=element,
            accumulator_bits=bits,
            controls=32,
        )
        hardware.check()
    return hardware


def _fixed(bits: int, fraction: int) -> Fixed:
    """An element of at most 32 bits with so many fraction bits; the rest of the word is headroom."""
    return Fixed(max(min(bits, 32) - fraction, 1), fraction)
