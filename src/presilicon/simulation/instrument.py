"""Area and energy of a design's instrument, from the structure of its circuit and the figures of a technology table.

The circuit (docs/rtl.md) compares each of N lanes with the M + 1 boundaries of M ranges and counts, has a vector unit
of N lanes and a tree that reduces them, registers for every cycle of their latency, and memories for tapped vectors,
ranges, intermediate vectors, firmware and output. Each of these is priced as such a part of the table.

Taps watch data that passes, so they read nothing from DRAM, and the training never waits for the instrument: what comes
too fast is dropped and counted (docs/instrument.md). So it takes no time. Energy is an upper estimate: a tapped vector
goes through as many passes as there is room for in the firmware, all blocks work in each, and the results of a tensor
are a vector for each pass, as far as the link carries them. A byte of the link costs as much as one of DRAM (assumed).
"""

from math import ceil
from typing import NamedTuple

from presilicon.base import PICO
from presilicon.designs import AreaTable, Hardware, Instrument, Tap, Technology, curve_pj, curve_um2
from presilicon.records import StepGraph, TensorRef

_INSTRUCTION_BITS = 64
"""Bits of an instruction of the firmware, each of which steers one pass. Assumed; docs/firmware.md packs fewer."""


class Units(NamedTuple):
    """Parts of an instrument's circuit."""

    comparators: int
    """Comparisons of a word with a boundary, of `key_bits` each."""
    counters: int
    """Adders of a byte, which count elements in ranges."""
    adders: int
    """Of words: those of the vector unit, and of the reduction to a scalar."""
    multipliers: int
    register_bits: int
    memory_bits: int


def units_of(hardware: Hardware, output_bytes: int = 0) -> Units:
    """The parts of an instrument with such hardware, and an output buffer of such a size.

    >>> units_of(Hardware(lanes=4, ranges=2)).comparators
    12
    """
    lanes, ranges, word = hardware.lanes, hardware.ranges, hardware.word_bits
    comparators = counters = adders = multipliers = registers = 0
    memory = lanes * hardware.element_bits * hardware.buffer + 8 * output_bytes
    memory += hardware.chains * _INSTRUCTION_BITS
    if "filter_reduce" in hardware.blocks:
        comparators = lanes * (ranges + 1)
        counters = (lanes - 1) * ranges
        registers += lanes * (hardware.key_bits + 2 * ranges + 1)
        memory += hardware.range_rows * (ranges + 1) * hardware.key_bits
    latency = hardware.multiply_latency + hardware.add_latency
    if "vector_alu" in hardware.blocks:
        adders += lanes * bool(set(hardware.alu) - {"mul"})
        multipliers += lanes * ("mul" in hardware.alu)
        registers += lanes * word * latency
        memory += hardware.scratchpad_rows * lanes * word
    if "scalar_reduce" in hardware.blocks:
        adders += (lanes - 1) * bool(set(hardware.reduce) - {"product"})
        multipliers += (lanes - 1) * ("product" in hardware.reduce)
        registers += (lanes - 1) * word * latency
    return Units(comparators, counters, adders, multipliers, registers, memory)


def instrument_area_um2(instrument: Instrument, table: AreaTable) -> float:
    """Square micrometres of an instrument, with the table's overhead for control and wiring."""
    hardware = instrument.built
    units = units_of(hardware, instrument.output_bytes)
    add, multiply = (
        (table.float_add, table.float_multiply) if hardware.is_float else (table.int_add, table.int_multiply)
    )
    logic = units.comparators * curve_um2(table.int_add, hardware.key_bits)
    logic += units.counters * curve_um2(table.int_add, 8)
    logic += units.adders * curve_um2(add, hardware.word_bits)
    logic += units.multipliers * curve_um2(multiply, _multiplier_bits(hardware))
    logic += units.register_bits * table.register_bit.um2
    smallest = min(table.sram_bit, key=lambda point: point.size).um2
    return logic * (1 + table.overhead.share) + units.memory_bits * smallest


def instrument_step_j(
    instrument: Instrument, graph: StepGraph, time_s: float, technology: Technology, dram_kind: str | None
) -> float:
    """Joules of an instrument in a training step that takes `time_s`, on average over the periods of its taps."""
    hardware = instrument.built
    vectors, tensors = 0.0, 0.0
    for tap in instrument.taps:
        counts = [_vectors(tap, tensor, hardware.lanes) for tensor in _tapped(tap, graph)]
        vectors += sum(counts) / tap.every
        tensors += len(counts) / tap.every
    result_bytes = tensors * hardware.chains * hardware.lanes * hardware.word_bits / 8
    sent = min(result_bytes, instrument.link_bytes_per_s * time_s)
    pass_j = _pass_j(instrument, technology)
    byte_j = technology.dram_figure(dram_kind).pj / 8 * PICO if dram_kind else 0.0
    most = instrument.clock_mhz * 1e6 * time_s
    return min(vectors * hardware.chains, most) * pass_j + sent * byte_j


def _pass_j(instrument: Instrument, technology: Technology) -> float:
    """Joules of one vector in one pass through all blocks."""
    hardware = instrument.built
    units = units_of(hardware)
    add, multiply = (
        (technology.float_add, technology.float_multiply)
        if hardware.is_float
        else (technology.int_add, technology.int_multiply)
    )
    pj = units.comparators * curve_pj(technology.int_add, hardware.key_bits)
    pj += units.counters * curve_pj(technology.int_add, 8)
    pj += units.adders * curve_pj(add, hardware.word_bits)
    pj += units.multipliers * curve_pj(multiply, _multiplier_bits(hardware))
    pj += units.register_bits * (technology.register_bit.pj if technology.register_bit else 0.0)
    moved = hardware.lanes * (2 * hardware.element_bits + 2 * hardware.word_bits)
    kib = hardware.scratchpad_rows * hardware.lanes * hardware.word_bits / 8 / 1024
    return (pj + moved / 64 * curve_pj(technology.sram_64bit, kib)) * PICO


def _multiplier_bits(hardware: Hardware) -> int:
    return hardware.word_mantissa + 1 if hardware.is_float else hardware.word_bits


def _tapped(tap: Tap, graph: StepGraph) -> list[TensorRef]:
    """Tensors that a tap is wired to: inputs of forward products, or results and factors of gradients."""
    phase, index = {
        "activation": ("forward", 0),
        "weight": ("forward", 1),
        "error": ("weight_grad", 1),
        "gradient": ("weight_grad", 2),
    }[tap.role]
    found = []
    for layer in graph.weighted_layers:
        if tap.matches(layer):
            products = (op for op in graph.ops if op.gemm and op.layer == layer and op.phase == phase)
            op = next(products, None)
            if op is not None:
                found.append((*op.inputs[:2], op.outputs[0])[index])
    return found


def _vectors(tap: Tap, tensor: TensorRef, lanes: int) -> int:
    whole = ceil(tensor.elements / lanes)
    return whole if tap.vectors == "all" else min(whole, tap.vectors)
