"""Work of an op on a systolic machine, and the energy of each thing that the machine does."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from msgspec import Struct

from presilicon.base import MICRO, PICO
from presilicon.designs import Design, Technology, curve_pj
from presilicon.formats import Format, MacUnit
from presilicon.simulation.energy import leakage_w, unit_pj
from presilicon.simulation.mapping.tiles import Buffer
from presilicon.simulation.systolic.machine import SystolicMachine
from presilicon.simulation.systolic.memories import OPERANDS, Operand


class Forgetful(Struct, frozen=True, kw_only=True):
    """A memory of embedded DRAM."""

    retention_s: float
    byte_j: float
    """Joules of refreshing a byte once."""
    held_bytes: float | None
    """Its size, all of which is refreshed; None for the outermost memory, where the data that stays is known."""


class Rates(Struct, frozen=True, kw_only=True):
    """Energy of each action of a systolic machine, read from the table once for a whole step."""

    mac_j: Callable[[Format, Format, MacUnit], float]
    """Joules of a multiply-add, by the formats of its operands and its unit."""
    vector_j: float
    """Joules of a float32 operation of the vector unit; every operation costs as much as an addition."""
    register_bit_j: float
    """Joules of writing one bit to a register in the array or the transposer."""
    buffers: tuple[Buffer, ...]
    """The memories of the chip, from the array outward, with their energies."""
    dram_byte_j: float
    mux_bit_j: float = 0.0
    """Joules of a bit through a multiplexer of two inputs."""
    codec_byte_j: float = 0.0
    """Joules of compressing or expanding a byte."""
    leakage_w: float | None
    """Leakage of the whole die; None where the table has none."""
    forgetful: tuple[Forgetful, ...] = ()
    """Embedded DRAM."""

    @property
    def sram_byte_j(self) -> float:
        """Joules of a byte read from or written to the outermost memory."""
        return self.buffers[-1].byte_j


def systolic_rates(design: Design, machine: SystolicMachine, technology: Technology) -> Rates:
    """The energies of `machine` in `technology`."""

    @cache
    def mac_j(a: Format, b: Format, mac: MacUnit) -> float:
        return unit_pj(a, b, mac, technology) * PICO

    return Rates(
        mac_j=mac_j,
        vector_j=curve_pj(technology.float_add, 32) * PICO,
        register_bit_j=technology.register_bit.pj * PICO if technology.register_bit else 0.0,
        buffers=tuple(_buffers(machine, technology)),
        dram_byte_j=technology.dram_figure(machine.dram_kind).pj / 8 * PICO,
        mux_bit_j=technology.mux_bit.pj * PICO if technology.mux_bit else 0.0,
        codec_byte_j=technology.codec_bit.pj * 8 * PICO if technology.codec_bit else 0.0,
        leakage_w=leakage_w(design, technology),
        forgetful=tuple(
            Forgetful(
                retention_s=memory.retention_us * MICRO,
                byte_j=memory.refresh_byte_j(technology),
                held_bytes=None
                if memory is machine.levels[-1]
                else 1024 * memory.kib * memory.copies(machine.rows, machine.cols),
            )
            for memory in machine.levels
            if memory.retention_us is not None
        ),
    )


def _buffers(machine: SystolicMachine, technology: Technology) -> Iterator[Buffer]:
    """The memories as mappings see them; neighbours that hold different operands are one level."""
    level, held = 0, set[Operand]()
    for memory in machine.levels:
        if held & set(memory.holds):
            level, held = level + 1, set()
        held |= set(memory.holds)
        copies = memory.copies(machine.rows, machine.cols)
        yield Buffer(
            name=memory.name,
            label=f'machine.memories, "{memory.name}"' if machine.memories else "machine.sram_kib",
            kib=memory.kib,
            level=level,
            holds=tuple(OPERANDS.index(operand) for operand in memory.holds),
            usable_bytes=copies * memory.usable_bits / 8,
            byte_j=memory.bit_pj(technology) * 8 * PICO,
            bytes_per_cycle=copies * memory.bits_per_cycle(machine.clock_ghz) / 8,
            has_one_port=memory.ports == 1,
            is_doubled=memory.doubled,
        )


class ChargedTraffic(NamedTuple):
    """DRAM traffic that is charged to an op."""

    dram: float
    """Bytes as they lie in DRAM."""
    passed: float
    """The same data in the outermost memory, where it may be expanded."""
    coded: float
    """Bytes of `passed` that are expanded, or compressed, on their way."""


class Work(Struct, frozen=True, kw_only=True):
    """Cycles, traffic and arithmetic of an op, from which its time and energy follow."""

    unit: str
    cycles: int
    operations_j: float
    """Energy of the arithmetic."""
    register_bits: float = 0.0
    """Bits written to registers of the array and the transposer."""
    loads: tuple[float, ...]
    """DRAM bytes read of each of the op's inputs, in their order; an input that tiles read again counts again."""
    stores: tuple[float, ...]
    """DRAM bytes written of each of the op's outputs, in their order."""
    spills: float = 0.0
    """DRAM bytes that belong to no tensor: unfinished sums and transposed copies, out and back."""
    bytes_sram: float
    """Bytes between the outermost memory and the units; whatever crosses DRAM passes that memory besides."""
    inner_bytes: dict[str, float] = {}
    """Bytes that the other memories read and write, by name."""
    peak_flops_s: float
    """Peak of the unit, with every cell or lane at work in every cycle."""
    utilization: float = 0.0
    extra_cycles: int = 0
    """Those of a product besides its mapping: of the transposer, less those of weights that the array holds already."""
    extra_sram: float = 0.0
    """Bytes of `bytes_sram` that the transposer reads and writes."""
    coded_bytes: float = 0.0
    """Expanded bytes of operands that are expanded at the array or the vector unit, or compressed behind it."""
    tile_bytes: float = 0.0
    """Tiles of a product in the outermost memory that are in use at one time."""
    whole_rows: bool = True
    """Whether those of its result have whole rows."""

    def bytes_on_chip(self, passed: float) -> float:
        """Bytes that all memories of the chip read and write, `passed` of them from and to DRAM."""
        return self.bytes_sram + passed + sum(self.inner_bytes.values())

    def dynamic_j(self, rates: Rates, moved: "ChargedTraffic") -> float:
        """All joules but those of leakage."""
        joules = self.operations_j + self.register_bits * rates.register_bit_j + moved.dram * rates.dram_byte_j
        if self.inner_bytes:
            joules += sum(self.inner_bytes.get(buffer.name, 0.0) * buffer.byte_j for buffer in rates.buffers[:-1])
        joules += (self.coded_bytes + moved.coded) * rates.codec_byte_j
        return joules + (self.bytes_sram + moved.passed) * rates.sram_byte_j

    def energy_j(self, rates: Rates, time_s: float, moved: "ChargedTraffic") -> dict[str, float]:
        """Joules by component, for an op with so much time and DRAM traffic in its group."""
        energy = {
            "mac" if self.unit == "array" else "vector": self.operations_j,
            "register": self.register_bits * rates.register_bit_j,
            "dram": moved.dram * rates.dram_byte_j,
        }
        for buffer in rates.buffers[:-1]:
            energy[buffer.name] = self.inner_bytes.get(buffer.name, 0.0) * buffer.byte_j
        energy[rates.buffers[-1].name] = (self.bytes_sram + moved.passed) * rates.sram_byte_j
        if rates.codec_byte_j:
            energy["codec"] = (self.coded_bytes + moved.coded) * rates.codec_byte_j
        if rates.leakage_w is not None:
            energy["leakage"] = rates.leakage_w * time_s
        return energy
